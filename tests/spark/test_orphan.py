"""`sluicegate submit` itself is killed: what becomes of the job, and what the next submit sees.

Where spark-submit is Spark's own, the kernel ends the job together with us. A custom
wrapper may keep the job alive: then it must be detected.
"""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from sluicegate.checkpoint.view import look_at
from sluicegate.offsets import LockFileOffsetStore
from sluicegate.storage import open_storage
from tests.conftest import Sg
from tests.spark.conftest import APPS

PATIENCE = 180.0
WRAPPER = """#!/bin/sh
# Not by exec, as wrappers of many sites: what the kernel was asked for does not reach the JVM.
{spark_submit} "$@"
"""


class Job:
    """A query that runs until it is stopped, started through a wrapper."""

    def __init__(self, root: Path) -> None:
        self.root, self.checkpoint = root, root / "checkpoint"
        wrapper = root / "bin" / "spark-submit"
        wrapper.parent.mkdir()
        wrapper.write_text(
            WRAPPER.format(spark_submit=Path(sys.executable).with_name("spark-submit"))
        )
        wrapper.chmod(0o755)
        LockFileOffsetStore.create(str(root / "store"))
        self.words = (
            *("submit", "--app", str(APPS / "stream.py"), "--spark-submit", str(wrapper)),
            *("--master", "local[1]", "--checkpoint", "checkpoint", "--allow-new-consumer"),
            *("--offsets-store", "store", "--consumer", "orders"),
        )

    def start(self, *options: str) -> subprocess.Popen[str]:
        script = Path(sys.executable).with_name("sluicegate")
        return subprocess.Popen(
            [str(script), *self.words, *options, "--", "checkpoint", "orders"],
            cwd=self.root,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
            env=os.environ | {"PYSPARK_PYTHON": sys.executable},
        )

    @property
    def last(self) -> int:
        if not self.checkpoint.is_dir():
            return -1
        last = look_at(open_storage(str(self.checkpoint), read_only=True)).last_commit
        return -1 if last is None else last

    def wait_until(self, batch: int, process: subprocess.Popen[str] | None = None) -> None:
        deadline = time.monotonic() + PATIENCE
        while self.last < batch:
            assert process is None or process.poll() is None, process.communicate()
            assert time.monotonic() < deadline, "the job does not get on"
            time.sleep(0.1)


def is_alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False


def session_of(leader: int) -> list[int]:
    answer = subprocess.run(
        ["ps", "-o", "pid=", "--sid", str(leader)], capture_output=True, text=True, check=False
    )
    return [pid for pid in map(int, answer.stdout.split()) if is_alive(pid)]


@pytest.mark.skipif(sys.platform != "linux", reason="processes are looked at in /proc")
def test_a_job_that_outlives_us(sg: Sg, tmp_path: Path) -> None:
    job = Job(tmp_path)
    process = job.start()
    job.wait_until(1, process)
    process.kill()
    err = process.communicate()[1]
    found = re.search(r"running, pid (\d+)", err)
    assert found, err
    leader = int(found[1])
    try:
        # It works on, although no process of ours holds the lock any more.
        job.wait_until(job.last + 2)
        for options in ((), ("--writer-gone",)):
            refused = sg(*job.words, *options, "--", "checkpoint", "orders")
            assert refused.returncode == 11, refused.stderr
            assert "a job is writing to it" in refused.stderr
            pids = {int(pid) for pid in re.findall(r"pid (\d+) \(java", refused.stderr)}
            assert pids & set(session_of(leader)), "the evidence names the JVM"
    finally:
        for pid in session_of(leader):
            os.kill(pid, signal.SIGKILL)
    while session_of(leader):
        time.sleep(0.1)
    # It is gone, and its last writes are too young to know: the operator does.
    unsure = sg(*job.words, "--", "checkpoint", "orders")
    assert unsure.returncode == 11
    assert "a job may be writing to it" in unsure.stderr
    assert "--writer-gone" in unsure.stderr
    last = job.last
    process = job.start("--writer-gone")
    job.wait_until(last + 2, process)
    process.terminate()
    err = process.communicate(timeout=60)[1]
    assert process.returncode == 143, err
