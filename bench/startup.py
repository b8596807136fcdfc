"""How long a command takes to start, against Python doing nothing."""

from __future__ import annotations

import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

from harness import Bar, Row, compare

SLUICEGATE = str(Path(sys.executable).with_name("sluicegate"))
TARGETS = '[targets.orders]\ncheckpoint = "orders"\n'


def rows() -> Iterator[Row]:
    with tempfile.TemporaryDirectory() as directory:
        root = Path(directory)
        (root / "sluicegate.toml").write_text(TARGETS)
        (root / "orders" / "offsets").mkdir(parents=True)
        (root / "orders" / "metadata").write_text('{"id":"x"}')

        def run(*command: str) -> None:
            subprocess.run(command, cwd=root, stdout=subprocess.DEVNULL, check=True)

        def nothing() -> None:
            run(sys.executable, "-c", "pass")

        yield compare(
            "sluicegate --version / python -c pass",
            lambda: run(SLUICEGATE, "--version"),
            nothing,
            Bar("time at most", 3),
        )
        yield compare(
            "status of a small file / python -c pass",
            lambda: run(SLUICEGATE, "status"),
            nothing,
            Bar("time at most", 12),
        )
