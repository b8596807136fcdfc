"""Finding the spark-submit to use, the environment it needs, and a Java it can run on."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from sluicegate.errors import NotFound, SparkFailed
from sluicegate.spark.releases import Spark, oldest_java, spark_in

OLDEST = 17
"""The Java to install: every version of Spark runs on it."""
INSTALL = f"apt-get install openjdk-{OLDEST}-jre-headless"
"""The command on Debian and Ubuntu; the hint names the package elsewhere."""

_PACKAGES = (
    f"Debian, Ubuntu: openjdk-{OLDEST}-jre-headless · Fedora: java-{OLDEST}-openjdk-headless"
)
_VERSION = re.compile(r'version "(\d+)(?:\.(\d+))?')
_TIMEOUT = 30


class JavaUnusable(SparkFailed):
    """There is no Java here, or it is too old for Spark."""

    default_hint = f"install Java {OLDEST} ({_PACKAGES}), or point JAVA_HOME at one"


@dataclass(frozen=True, slots=True)
class Java:
    """A working Java: its launcher and major version."""

    path: str
    major: int


def require_java(spark: Spark | None = None) -> Java:
    """The Java that a Spark would start, or `JavaUnusable` with the package to install."""
    path = _launcher()
    if path is None:
        raise JavaUnusable("Spark needs Java, and there is none on PATH or in JAVA_HOME")
    major = _major(path)
    oldest = oldest_java(spark)
    if major < oldest:
        raise JavaUnusable(f"Spark needs Java {oldest} or later; {path} is Java {major}")
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
            [path, "-version"], capture_output=True, timeout=_TIMEOUT, check=True
        )
    except (OSError, subprocess.SubprocessError) as e:
        raise JavaUnusable(f"{path} does not run: {e}") from e
    found = _VERSION.search((answer.stderr + answer.stdout).decode(errors="replace"))
    if found is None:
        raise JavaUnusable(f"{path} does not report its version")
    # Before Java 9 the version was written 1.8.
    return int(found[2] or 0) if found[1] == "1" else int(found[1])


_NAME = "spark-submit"
_PYTHONS = ("PYSPARK_DRIVER_PYTHON", "PYSPARK_PYTHON")
_PYTHON_SETTINGS = ("spark.pyspark.driver.python", "spark.pyspark.python")


@dataclass(frozen=True, slots=True)
class SparkSubmit:
    """A spark-submit, how it was found, and the Spark it belongs to, if that is known."""

    path: Path
    why: str
    home: Path | None

    @property
    def is_pip(self) -> bool:
        """Whether it came with PySpark from pip, so that the Python beside it has PySpark."""
        return self.path.with_name("find_spark_home.py").exists()

    @property
    def spark(self) -> Spark | None:
        """The Spark that it starts, if that is known."""
        return spark_in(self.home) if self.home else None

    @property
    def conf_directory(self) -> Path | None:
        """Where it looks for settings; None if it is a wrapper that does not show it."""
        if directory := os.environ.get("SPARK_CONF_DIR"):
            return Path(directory)
        home = self.home or os.environ.get("SPARK_HOME")
        return Path(home) / "conf" if home else None

    @property
    def defaults(self) -> Path | None:
        """The spark-defaults.conf that it reads."""
        file = self.conf_directory / "spark-defaults.conf" if self.conf_directory else None
        return file if file and file.is_file() else None

    def environment(self, settings: Mapping[str, str]) -> dict[str, str]:
        """The variables it needs that are not set, or set for another Spark."""
        added = {}
        # Its script prefers SPARK_HOME to its own place, so it would start another Spark.
        if self.home and os.environ.get("SPARK_HOME") != str(self.home):
            added["SPARK_HOME"] = str(self.home)
        is_chosen = any(os.environ.get(name) for name in _PYTHONS) or any(
            settings.get(name) for name in _PYTHON_SETTINGS
        )
        # By default it takes the first python3 on PATH, which may not have PySpark.
        if self.is_pip and not is_chosen:
            added["PYSPARK_PYTHON"] = str(self.path.with_name("python"))
        return added


def find_spark_submit(named: str | None) -> SparkSubmit:
    """The one that was named, else that of $SPARK_HOME, else that of the running Python."""
    if named is not None:
        return _checked(Path(named).expanduser(), "--spark-submit")
    if home := os.environ.get("SPARK_HOME"):
        return _checked(Path(home) / "bin" / _NAME, "$SPARK_HOME")
    beside = Path(sys.executable).with_name(_NAME)
    if not beside.exists():
        raise NotFound(
            f"there is no spark-submit: SPARK_HOME is not set, and {beside} does not exist",
            hint="name one with --spark-submit, set SPARK_HOME, or: pip install pyspark",
        )
    return _checked(beside, "PySpark of this Python")


def _checked(path: Path, why: str) -> SparkSubmit:
    path = path.absolute()
    if not path.is_file():
        raise NotFound(f"{path} does not exist ({why})", hint="check the path", place=str(path))
    if not os.access(path, os.X_OK):
        raise NotFound(f"{path} may not be executed ({why})", hint=f"chmod +x {path}")
    return SparkSubmit(path, why, _home(path))


def _home(path: Path) -> Path | None:
    """The Spark that a script belongs to; None if it is a custom wrapper."""
    if path.with_name("find_spark_home.py").exists():
        packages = sorted(path.parent.parent.glob("lib/python3*/site-packages/pyspark"))
        return packages[0] if packages else None
    home = path.resolve().parent.parent
    return home if (home / "bin" / "spark-class").exists() else None
