"""Finding a Java that Spark can run on. Commands that only read never come here."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

from sluicegate.errors import SparkFailed

OLDEST = 17
"""Spark 4 runs on Java 17 and later."""
INSTALL = f"apt-get install openjdk-{OLDEST}-jre-headless"
"""The command on Debian and Ubuntu; the hint names the package elsewhere."""

_PACKAGES = (
    f"Debian, Ubuntu: openjdk-{OLDEST}-jre-headless · Fedora: java-{OLDEST}-openjdk-headless"
)
_VERSION = re.compile(r'version "(\d+)(?:\.(\d+))?')
_PATIENCE = 30


class JavaUnusable(SparkFailed):
    """There is no Java here, or it is too old for Spark."""

    default_hint = f"install Java {OLDEST} ({_PACKAGES}), or point JAVA_HOME at one"


@dataclass(frozen=True, slots=True)
class Java:
    """A working Java: its launcher and major version."""

    path: str
    major: int


def require_java() -> Java:
    """The Java that Spark would start, or `JavaUnusable` with the package to install."""
    path = _launcher()
    if path is None:
        raise JavaUnusable("Spark needs Java, and there is none on PATH or in JAVA_HOME")
    major = _major(path)
    if major < OLDEST:
        raise JavaUnusable(f"Spark needs Java {OLDEST} or later; {path} is Java {major}")
    return Java(path, major)


def _launcher() -> str | None:
    # As Spark's own scripts: JAVA_HOME wins, even if it is wrong.
    if home := os.environ.get("JAVA_HOME"):
        launcher = Path(home) / "bin" / "java"
        if not os.access(launcher, os.X_OK):
            raise JavaUnusable(f"JAVA_HOME is {home}, but there is no {launcher} to run")
        return str(launcher)
    return shutil.which("java")


def _major(path: str) -> int:
    try:
        answer = subprocess.run(
            [path, "-version"], capture_output=True, timeout=_PATIENCE, check=True
        )
    except (OSError, subprocess.SubprocessError) as e:
        raise JavaUnusable(f"{path} does not run: {e}") from e
    found = _VERSION.search((answer.stderr + answer.stdout).decode(errors="replace"))
    if found is None:
        raise JavaUnusable(f"{path} does not say which version it is")
    # Before Java 9 the version was written 1.8.
    return int(found[2] or 0) if found[1] == "1" else int(found[1])
