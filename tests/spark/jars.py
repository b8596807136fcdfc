"""Builds the Java applications of the tests against the jars of any Spark."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

JAVA = Path(__file__).parent / "apps" / "java"


def can_build() -> bool:
    """Whether this machine has a Java compiler; a mere runtime has none."""
    return shutil.which("javac") is not None and shutil.which("jar") is not None


def build(target: Path, spark: Path) -> Path:
    """Compile everything in `apps/java` into the jar `target`; `spark` is a pyspark directory."""
    classes = target.with_suffix(".classes")
    classes.mkdir(parents=True)
    sources = [str(path) for path in sorted(JAVA.glob("*.java"))]
    words = ["javac", "-nowarn", "-d", str(classes), "-cp", f"{spark}/jars/*", *sources]
    _run(words)
    _run(["jar", "--create", "--file", str(target), "-C", str(classes), "."])
    return target


def _run(words: list[str]) -> None:
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise RuntimeError(f"{words[0]} failed:\n{done.stderr[-3000:]}")
