"""Start-up time is won by not importing; times themselves are measured in bench/."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

HEAVY = {"pyspark", "pyarrow", "numpy", "pandas", "pydantic"}
REPORT = """
import sys, atexit
atexit.register(lambda: print("\\n".join(sys.modules), file=sys.stderr))
sys.argv[0] = "sluicegate"
from sluicegate_cli.__main__ import main
sys.exit(main())
"""


def imported(tmp_path: Path, *arguments: str) -> set[str]:
    result = subprocess.run(
        [sys.executable, "-c", REPORT, *arguments],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=True,
    )
    return {line.partition(".")[0] for line in result.stderr.splitlines()}


def test_version_imports_next_to_nothing(tmp_path: Path) -> None:
    modules = imported(tmp_path, "--version")
    assert not modules & (HEAVY | {"typer", "rich", "msgpack", "portalocker", "tomli", "re"})


@pytest.mark.parametrize("arguments", [("--help",), ("status",), ("init", "--dry-run")])
def test_light_commands_import_nothing_heavy(tmp_path: Path, arguments: tuple[str, ...]) -> None:
    (tmp_path / "sluicegate.toml").write_text("read_only = false")
    modules = imported(tmp_path, *arguments)
    assert "typer" in modules, "otherwise this test looks at the wrong thing"
    assert not modules & (HEAVY | {"rich", "portalocker"})


def test_help_imports_no_command(tmp_path: Path) -> None:
    result = subprocess.run(
        [sys.executable, "-c", REPORT, "--help"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=True,
    )
    assert "sluicegate_cli.shell" in result.stderr
    assert "sluicegate_cli.commands." not in result.stderr
