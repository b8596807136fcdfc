"""What is installed: by wheel, from an sdist, editable; and what must not be."""

from __future__ import annotations

import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest

from sluicegate import __version__

ROOT = Path(__file__).parents[1]


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory with the sdist, and the wheel that was built from it."""
    out = tmp_path_factory.mktemp("dist")
    # Without isolation the build needs no network beyond what set-up needed.
    command = [sys.executable, "-m", "build", "--no-isolation", "--outdir", str(out), str(ROOT)]
    result = subprocess.run(command, capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stdout + result.stderr
    return out


def wheel_names(built: Path) -> set[str]:
    (wheel,) = built.glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        return set(archive.namelist())


def test_nothing_named_core_or_cli_is_installed(built: Path) -> None:
    tops = {name.split("/")[0] for name in wheel_names(built)}
    assert tops == {
        "sluicegate",
        "sluicegate_cli",
        f"sluicegate-{__version__}.dist-info",
        f"sluicegate-{__version__}.data",
    }


def test_the_wheel_has_types_formats_man_pages_and_completions(built: Path) -> None:
    names = wheel_names(built)
    data = f"sluicegate-{__version__}.data/data/share"
    assert {
        "sluicegate/py.typed",
        "sluicegate_cli/py.typed",
        "sluicegate/FORMAT.md",
        f"{data}/man/man1/sluicegate.1",
        f"{data}/man/man5/sluicegate.toml.5",
        f"{data}/man/man7/sluicegate-findings.7",
        f"{data}/bash-completion/completions/sluicegate",
        f"{data}/zsh/site-functions/_sluicegate",
        f"{data}/fish/vendor_completions.d/sluicegate.fish",
    } <= names


def test_the_wheel_installs_and_runs(built: Path, tmp_path: Path) -> None:
    (wheel,) = built.glob("*.whl")
    target = tmp_path / "site"
    pip = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--target"]
    subprocess.run([*pip, str(target), str(wheel)], check=True)
    code = "import sluicegate, sluicegate_cli.__main__ as m; print(sluicegate.__file__); m.main()"
    result = subprocess.run(
        [sys.executable, "-c", code, "--version"],
        cwd=tmp_path,
        env={"PYTHONPATH": str(target), "PATH": ""},
        capture_output=True,
        text=True,
        check=True,
    )
    assert result.stdout == f"{target}/sluicegate/__init__.py\nsluicegate {__version__}\n"


def test_the_sdist_holds_what_is_needed_to_test_it(built: Path) -> None:
    (sdist,) = built.glob("*.tar.gz")
    with tarfile.open(sdist) as archive:
        names = {name.split("/", 1)[1] for name in archive.getnames() if "/" in name}
    needed = {"pyproject.toml", "README.md", "ARCHITECTURE.md", "Makefile", "tests/test_package.py"}
    assert needed <= names
    assert not {name for name in names if name.startswith((".venv", "build/"))}
