"""The examples for cron and systemd, run as cron runs them."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from sluicegate.config import load_config
from sluicegate.ops.setup import Installation, commented, cron_line, service_unit, timer_unit
from tests.conftest import Sg

ROOT = Path(__file__).parents[2]
SAMPLE = Installation(
    Path("/usr/local/bin/sluicegate"),
    Path("/srv/streams/sluicegate.toml"),
    Path("/srv/streams/.sluicegate"),
)


def lines_of(path: Path) -> list[str]:
    return [line.removeprefix("# ") for line in path.read_text().splitlines()]


@pytest.mark.parametrize("name", ["streams", "it's a b%c $HOME"])
def test_the_line_that_init_writes_works_under_cron(sg: Sg, tmp_path: Path, name: str) -> None:
    """No PATH, no shell but /bin/sh, another directory, as cron has it."""
    root = tmp_path / name
    root.mkdir()
    assert sg("init", "--yes", cwd=root).returncode == 0
    assert load_config(root / "sluicegate.toml").streams == {}, "comments set nothing"
    [line] = [line for line in lines_of(root / "sluicegate.toml") if line.startswith("*/15 ")]
    # cron itself takes the first five words away, and `\%` is how a percent sign is written there.
    command = re.sub(r"^(\S+\s+){5}", "", line).replace(r"\%", "%")
    done = subprocess.run(
        ["/usr/bin/env", "-i", f"HOME={tmp_path}", "SHELL=/bin/sh", "LOGNAME=nobody", "PATH=",
         "/bin/sh", "-c", command],
        cwd="/", capture_output=True, text=True, timeout=120, check=False,
    )  # fmt: skip
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    shutil.rmtree(root / ".sluicegate")
    (root / "sluicegate.toml").write_text('[targets.gone]\ncheckpoint = "gone"\n')
    again = subprocess.run(
        ["/bin/sh", "-c", command],
        env={"PATH": ""},
        cwd="/",
        capture_output=True,
        text=True,
        check=False,
    )
    assert again.returncode == 3
    assert "SG-TARGET-MISSING" in again.stdout


@pytest.mark.skipif(not shutil.which("systemd-analyze"), reason="systemd is not installed")
def test_systemd_understands_the_units(tmp_path: Path) -> None:
    own = Installation.of(tmp_path / "a b%c" / "sluicegate.toml", tmp_path / "home")
    (tmp_path / "sluicegate-maintain.service").write_text(service_unit(own))
    (tmp_path / "sluicegate-maintain.timer").write_text(timer_unit())
    done = subprocess.run(
        ["systemd-analyze", "verify", "--man=no", "sluicegate-maintain.timer"],
        cwd=tmp_path,
        env=os.environ | {"SYSTEMD_UNIT_PATH": f"{tmp_path}:"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert "sluicegate-maintain" not in done.stderr, done.stderr
    assert done.returncode == 0


def test_the_pages_show_the_same() -> None:
    assert f"\n{cron_line(SAMPLE)}\n" in (ROOT / "README.md").read_text()
    text = (ROOT / "docs/guide/maintenance.md").read_text()
    assert f"\n{cron_line(SAMPLE)}\n" in text
    assert service_unit(SAMPLE) in text
    assert timer_unit() in text


def test_every_line_is_a_comment() -> None:
    assert all(line.startswith("# ") for line in commented(SAMPLE).splitlines())
