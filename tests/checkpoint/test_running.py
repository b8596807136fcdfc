"""A job that runs while we look: no alarm, no harm."""

from __future__ import annotations

import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from sluicegate.checkpoint.inspect import inspect
from sluicegate.checkpoint.verify import verify
from sluicegate.findings import Finding, Severity
from sluicegate.storage import open_storage

JOB = Path(__file__).parents[1] / "lab" / "running.py"
COPIES = 100


@pytest.fixture(scope="module")
def job(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """The directory of a query that runs for the length of the module."""
    root = tmp_path_factory.mktemp("running")
    with (root / "spark.log").open("w") as log:
        process = subprocess.Popen([sys.executable, str(JOB), str(root)], stdout=log, stderr=log)
    deadline = time.monotonic() + 180
    while not (root / "checkpoint/commits/5").exists():
        assert process.poll() is None, (root / "spark.log").read_text()[-3000:]
        assert time.monotonic() < deadline, "the job does not get going"
        time.sleep(0.2)
    yield root
    assert process.poll() is None, "the job must survive being looked at"
    process.kill()
    process.wait()


def alarms(found: list[Finding]) -> list[Finding]:
    return [finding for finding in found if finding.severity is Severity.ERROR]


def test_looking_at_it_gives_no_alarm(job: Path) -> None:
    storage = open_storage(str(job / "checkpoint"), read_only=True)
    sink = open_storage(str(job / "out"), read_only=True)
    seen: set[int | None] = set()
    turn, deadline = 0, time.monotonic() + 180
    # Longer on a busy machine, until the job has moved on.
    while turn < COPIES or (len(seen) < 2 and time.monotonic() < deadline):
        turn += 1
        assert alarms(verify(storage, sink, read_data=turn % 10 == 0)) == []
        summary = inspect(storage)
        assert summary.problems == ()
        seen.add(summary.last_batch)
    assert len(seen) > 1, "nothing moved, so nothing was shown"


def test_copies_taken_meanwhile_give_no_alarm(job: Path, tmp_path: Path) -> None:
    for turn in range(COPIES):
        copy = tmp_path / "copy"
        # Files that Spark removes while they are copied make cp complain; that is its right.
        command = ["cp", "-a", str(job / "checkpoint"), str(copy)]
        subprocess.run(command, check=False, stderr=subprocess.DEVNULL)
        found = verify(open_storage(str(copy), read_only=True), read_data=turn % 10 == 0)
        assert alarms(found) == []
        shutil.rmtree(copy)
