"""ARCHITECTURE.md is true: what it names is there, and its example runs."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
TEXT = (ROOT / "ARCHITECTURE.md").read_text(encoding="utf-8")
MOST_LINES = {"ARCHITECTURE.md": 150, "README.md": 200}
_PATH = re.compile(r"`((?:core|cli|tests|docs|bench)/[^`\s]*)`")


def named() -> list[str]:
    """Every path and test that the text names; `<…>` stands for any name."""
    return sorted({name for name in _PATH.findall(TEXT) if "<" not in name})


@pytest.mark.parametrize(("page", "most"), MOST_LINES.items())
def test_it_stays_short(page: str, most: int) -> None:
    assert len((ROOT / page).read_text(encoding="utf-8").splitlines()) <= most


@pytest.mark.parametrize("name", named())
def test_what_is_named_is_there(name: str) -> None:
    place, _, test = name.partition("::")
    assert (ROOT / place).exists(), place
    if test:
        nodes = ast.walk(ast.parse((ROOT / place).read_text(encoding="utf-8")))
        defined = (ast.FunctionDef, ast.ClassDef)
        assert test in {node.name for node in nodes if isinstance(node, defined)}, name


def test_every_package_is_in_the_picture() -> None:
    [picture] = re.findall(r"```text\n(.*?)```", TEXT, re.DOTALL)
    words = set(re.findall(r"\w+", picture)) | {"legacy"}
    packages = {path.parent.name for path in (ROOT / "core/sluicegate").glob("*/__init__.py")}
    assert packages <= words


def test_the_example_of_a_storage_runs(tmp_path: Path) -> None:
    [example] = re.findall(r"```python\n(.*?)```", TEXT, re.DOTALL)
    place = tmp_path / "test_example.py"
    place.write_text(example, encoding="utf-8")
    words: list[str | Path] = [
        "-m",
        "pytest",
        "-q",
        "-c",
        ROOT / "pyproject.toml",
        "-p",
        "no:cacheprovider",
        place,
    ]
    done = subprocess.run(
        [sys.executable, *words], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "passed" in done.stdout
