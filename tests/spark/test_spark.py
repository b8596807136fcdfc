"""Real spark-submit: secrets, exit codes, and a query that is killed and started again."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from sluicegate.checkpoint.format.log import read_offsets
from sluicegate.checkpoint.view import look_at
from sluicegate.checkpoint.writers import ENDED, WINDOW, signs_of_life
from sluicegate.liveness import Verdict
from sluicegate.offsets import LockFileOffsetStore
from sluicegate.positions import to_spark
from sluicegate.storage import open_storage
from tests.conftest import Sg
from tests.spark.conftest import APPS
from tests.spark.test_running import members

PATIENCE = 180.0


class TestProbe:
    def test_its_settings(self, sg: Sg, tmp_path: Path) -> None:
        (tmp_path / "conf").mkdir()
        (tmp_path / "conf" / "spark-defaults.conf").write_text("spark.from.defaults yes\n")
        secret = "ge heim=ü\\x"
        keys = ("spark.my.secret", "spark.plain", "spark.from.defaults")
        result = sg(
            *("submit", "--app", str(APPS / "probe.py"), "--conf", f"spark.my.secret={secret}"),
            *("--conf", "spark.plain=p", "--", *keys, "raise"),
            SPARK_CONF_DIR=str(tmp_path / "conf"),
        )
        document = json.loads(result.stdout.splitlines()[0])
        # Also the settings of the installation: a file of one's own would replace them.
        assert document["settings"] == {
            "spark.my.secret": secret,
            "spark.plain": "p",
            "spark.from.defaults": "yes",
            "raise": None,
        }
        assert document["seen"] == ["spark.plain"]
        assert result.returncode == 20
        assert "error: the job ended with exit code 1" in result.stderr
        assert "RuntimeError: cannot log in with *** at jdbc://me:***@db/x" in result.stderr

    def test_its_exit_code(self, sg: Sg) -> None:
        result = sg("submit", "--app", str(APPS / "probe.py"), "--json", "--", "spark.x", "exit")
        assert result.returncode == 20
        assert json.loads(result.stdout)["exit_code"] == 3
        assert "the job ended with exit code 3" in json.loads(result.stderr)["message"]


def test_a_query_that_is_killed_and_started_again(tmp_path: Path) -> None:
    """After every kill the store is at the end of the last batch that was committed, or before."""
    job = _Job(tmp_path)
    # Killed from outside, in the middle of things.
    process = job.start("--allow-new-consumer")
    job.wait_for(batch=3, process=process)
    _is_alive_and_refused(job)
    leader = job.leader(process)
    os.kill(leader, signal.SIGKILL)
    out, err = process.communicate(timeout=60)
    assert process.returncode == 20, err
    assert "the job was killed by SIGKILL" in err
    assert out == "starts at earliest\n"
    assert members(leader) == []
    first = job.check()
    _is_quiet_when_it_is_time(job)
    # Started again from where it was, and asked to end.
    process = job.start()
    job.wait_for(batch=first + 3, process=process)
    leader = job.leader(process)
    process.terminate()
    out, err = process.communicate(timeout=60)
    assert process.returncode == 143, err
    assert out.endswith("stopped between batches\n")
    assert "ended with exit code 0" in err
    assert members(leader) == []
    assert job.check() >= first + 3
    reports = [json.loads(line) for line in err.splitlines() if line.startswith("{")]
    assert {report["committed"] for report in reports} == {"orders"}
    assert [report["batch"] for report in reports] == sorted(r["batch"] for r in reports)


class _Job:
    """The query, its checkpoint and its store."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.checkpoint = root / "checkpoint"
        self.store = LockFileOffsetStore.create(str(root / "store"))
        self.errors = root / "errors.txt"
        self.heard = 0

    def start(self, *options: str) -> subprocess.Popen[str]:
        script = str(Path(sys.executable).with_name("sluicegate"))
        words = [
            *(script, "submit", "--app", str(APPS / "stream.py"), "--master", "local[2]"),
            *("--checkpoint", "checkpoint", "--offsets-store", "store", "--consumer", "orders"),
            *(*options, "--", "checkpoint", "orders"),
        ]
        pipe = subprocess.PIPE
        return subprocess.Popen(words, stdout=pipe, stderr=pipe, text=True, cwd=self.root)

    def wait_for(self, batch: int, process: subprocess.Popen[str]) -> None:
        """Wait until a batch is committed, and the store has heard of the one before.

        Spark tells its listeners later, and on a busy machine much later.
        """
        _wait((self.checkpoint / "commits" / str(batch)).exists, process)
        _wait(lambda: self.stored() >= batch - 1, process)
        self.heard = batch - 1

    def stored(self) -> int:
        """The last batch that the store has heard of."""
        record = self.store.load("orders")
        return record.fences[-1].number if record else -1

    def leader(self, process: subprocess.Popen[str]) -> int:
        """The JVM: the child of our process."""
        children = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
        return int(children[0])

    def check(self) -> int:
        """The last committed batch, after comparing the store with it."""
        storage = open_storage(str(self.checkpoint), read_only=True)
        last = look_at(storage).last_commit
        assert last is not None
        record = self.store.load("orders")
        assert record
        ends = [_end(storage, batch) for batch in range(self.heard, last + 1)]
        assert to_spark(record.positions) in ends
        assert self.heard <= record.fences[-1].number <= last
        return last


def _end(storage: Any, batch: int) -> Any:
    [offset] = read_offsets(storage, batch).offsets
    return to_spark(offset.positions) if offset.positions else None


def _is_alive_and_refused(job: _Job) -> None:
    storage = open_storage(str(job.checkpoint), read_only=True)
    evidence = signs_of_life(storage)
    assert evidence.verdict is Verdict.ALIVE
    assert re.search(r"pid \d+ \(java SparkSubmit stream\.py\), since 20", evidence.lines[0])
    # However long it waits for data.
    later = signs_of_life(storage, now=time.time() + 10 * WINDOW)
    assert later.verdict is Verdict.ALIVE


def _is_quiet_when_it_is_time(job: _Job) -> None:
    storage = open_storage(str(job.checkpoint), read_only=True)
    assert signs_of_life(storage, timeout=0).verdict is Verdict.QUIET
    # Only `submit`, which waited for its end, knows.
    ended = job.checkpoint / ENDED
    text = ended.read_text()
    ended.unlink()
    assert signs_of_life(storage, timeout=0).verdict is Verdict.POSSIBLY_ALIVE
    later = signs_of_life(storage, now=time.time() + WINDOW, timeout=0)
    assert later.verdict is Verdict.QUIET
    ended.write_text(text)


def _wait(condition: Callable[[], bool], process: subprocess.Popen[str]) -> None:
    deadline = time.monotonic() + PATIENCE
    while not condition():
        assert process.poll() is None, process.communicate()
        assert time.monotonic() < deadline, "the job does not get going"
        time.sleep(0.1)
