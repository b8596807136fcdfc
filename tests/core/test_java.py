"""Java is looked for as Spark's scripts do; launchers here are real scripts that pretend."""

from __future__ import annotations

from pathlib import Path

import pytest

from sluicegate.spark.releases import Spark
from sluicegate.spark.submit.launcher import OLDEST, JavaUnusable, require_java


def launcher(directory: Path, answer: str, code: int = 0) -> Path:
    directory.mkdir(parents=True, exist_ok=True)
    script = directory / "java"
    script.write_text(f"#!/bin/sh\necho '{answer}' >&2\nexit {code}\n")
    script.chmod(0o755)
    return script


@pytest.fixture(autouse=True)
def no_java(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path / "bin") + ":/bin")


@pytest.mark.parametrize(
    ("answer", "major"),
    [
        ('openjdk version "17.0.15" 2025-04-15', 17),
        ('openjdk version "21" 2023-09-19', 21),
        ('java version "26-ea"', 26),
    ],
)
def test_a_fitting_java(tmp_path: Path, answer: str, major: int) -> None:
    script = launcher(tmp_path / "bin", answer)
    found = require_java()
    assert (found.path, found.major) == (str(script), major)


def test_java_home_comes_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    launcher(tmp_path / "bin", 'openjdk version "17.0.1"')
    launcher(tmp_path / "jdk" / "bin", 'openjdk version "21.0.1"')
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "jdk"))
    assert require_java().major == 21


@pytest.mark.parametrize(
    ("answer", "code", "expected"),
    [
        ('java version "1.8.0_401"', 0, "is Java 8"),
        ('openjdk version "11.0.2"', 0, "is Java 11"),
        ("Segmentation fault", 139, "does not run"),
        ("hello", 0, "does not report its version"),
    ],
)
def test_an_unfit_java(tmp_path: Path, answer: str, code: int, expected: str) -> None:
    launcher(tmp_path / "bin", answer, code)
    with pytest.raises(JavaUnusable, match=expected) as caught:
        require_java()
    assert f"openjdk-{OLDEST}-jre-headless" in caught.value.hint


@pytest.mark.parametrize(("answer", "major"), [("1.8.0_401", 8), ("11.0.2", 11)])
def test_spark_3_runs_on_an_older_java(tmp_path: Path, answer: str, major: int) -> None:
    launcher(tmp_path / "bin", f'openjdk version "{answer}"')
    assert require_java(Spark("3.5.9", "2.12")).major == major
    with pytest.raises(JavaUnusable, match="needs Java 17 or later"):
        require_java(Spark("4.0.5", "2.13"))


def test_no_java_at_all(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(JavaUnusable, match="there is none") as caught:
        require_java()
    assert "\n" not in caught.value.message + caught.value.hint


def test_a_wrong_java_home_is_not_passed_over(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    launcher(tmp_path / "bin", 'openjdk version "17.0.1"')
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "nowhere"))
    with pytest.raises(JavaUnusable, match="JAVA_HOME"):
        require_java()
