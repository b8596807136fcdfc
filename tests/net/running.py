"""Runs cases through driver processes and gives their results."""

from __future__ import annotations

import json
import os
import shlex
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tests.net.case import Case

ROOT = Path(__file__).parents[2]

Result = dict[str, Any]


def run(
    cases: Sequence[Case],
    *,
    jobs: int | None = None,
    ahead: float = 0.0,
    below: Path | None = None,
    host: str | None = None,
) -> dict[str, Result]:
    """The results of cases by their names, with random ids as they were drawn.

    `ahead` shifts the clock, `below` is where the cases' directories are made, and
    `host` is another name for this host, if that may be arranged here.
    """
    with tempfile.TemporaryDirectory(prefix="net-") as scratch:
        asked, answered = (Path(scratch, name) for name in ("cases", "results"))
        asked.write_text("".join(case.as_json() + "\n" for case in cases))
        words = [sys.executable, "-m", "tests.net.driver", str(asked), str(answered)]
        words += ["--jobs", str(jobs or os.cpu_count() or 1), "--ahead", str(ahead)]
        if below:
            words += ["--below", str(below)]
        done = subprocess.run(
            _apart(words, host),
            cwd=ROOT,
            env=_environment(),
            capture_output=True,
            text=True,
            check=False,
        )
        if done.returncode != 0:
            raise RuntimeError(f"the driver of the net failed:\n{done.stdout}{done.stderr}")
        results = [json.loads(line) for line in answered.read_text().splitlines()]
    return {result["name"]: result for result in results}


def _environment() -> dict[str, str]:
    """Without settings of Sluicegate, and with one thread for each library, since it forks."""
    kept = {k: v for k, v in os.environ.items() if not k.startswith(("SG_", "PYTEST_", "COV_"))}
    threads = {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
    # The product of this checkout, even if that of another one is installed.
    path = os.pathsep.join(str(ROOT / part) for part in ("", "core", "cli"))
    return kept | threads | {"PYTHONPATH": path, "TZ": "UTC", "NO_COLOR": "1"}


def _apart(words: list[str], host: str | None) -> list[str]:
    """A command that sees no other processes of this machine, if that may be arranged here.

    Commands look for Spark's JVMs, and ask each that they find for its queries, which takes long
    while other tests run Spark. `host` is another name for the host, which needs root.
    """
    own = ["unshare", "--pid", "--fork", "--kill-child", "--mount-proc"]
    own += ["--uts"] if os.geteuid() == 0 else ["--user", "--map-current-user"]
    if shutil.which("unshare") is None or _fails([*own, "true"]):
        return words
    if host is None or os.geteuid() != 0:
        return [*own, *words]
    return [*own, "sh", "-c", f"hostname {host} && exec {shlex.join(words)}"]


def _fails(words: list[str]) -> bool:
    return subprocess.run(words, capture_output=True, check=False).returncode != 0
