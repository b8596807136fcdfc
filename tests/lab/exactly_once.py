"""A gated stream whose job runs in processes of its own, to be killed and compared with the truth.

`Killed` is a stream in a directory: its job is started with `sluicegate submit` as by an operator,
dies at a step or at a moment, and is started again.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

from sluicegate.chain.link import Kind
from sluicegate.positions import Positions
from sluicegate.spark.writer.proc import Proc, Process
from tests.pipeline.jobs import NAME, Place, check_state
from tests.pipeline.truth import records, truth

APP = Path(__file__).with_name("exactly_once_app.py")
SCRIPT = Path(sys.executable).with_name("sluicegate")
PATIENCE = 180.0
# What a short life of a JVM costs least with.
CONFS = {
    "spark.ui.enabled": "false",
    "spark.sql.shuffle.partitions": "2",
    "spark.driver.memory": "512m",
    "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
}


class JobFailed(Exception):
    """A job did not do what it was to do."""


class Killed(Place):
    """A stream whose job gets killed."""

    def __init__(self, root: Path, *, master: str = "local[2]", **table: Any) -> None:
        super().__init__(root, **{"app": str(APP), "max_events": 500, **table})
        self.master = master
        self.told = root / "told"
        scratch = root / "tmp"
        scratch.mkdir(exist_ok=True)
        self.environment = os.environ | {
            "TMPDIR": str(scratch),
            "SPARK_LOCAL_DIRS": str(scratch),
            "SPARK_LOCAL_IP": "127.0.0.1",
            "LAB_TOLD": str(self.told),
        }

    def sluicegate(self, *words: str) -> str:
        """Run a command, which must succeed; gives what it printed."""
        done = subprocess.run(
            [SCRIPT, *words],
            cwd=self.root,
            env=self.environment,
            capture_output=True,
            text=True,
            timeout=PATIENCE,
            check=False,
        )
        if done.returncode:
            raise JobFailed(f"{' '.join(words)}: {done.returncode}: {done.stderr}")
        return done.stdout

    def submit(self, *options: str, fate: str | None = None) -> subprocess.Popen[str]:
        """Start the job; it goes on until something ends it, unless told otherwise."""
        confs = [word for pair in CONFS.items() for word in ("--conf", "=".join(pair))]
        # Like an operator's shell: in a session of its own, and what it prints is kept.
        with (self.root / "submit.log").open("a") as log:
            return subprocess.Popen(
                [SCRIPT, "submit", NAME, "--master", self.master, *confs, *options],
                cwd=self.root,
                env=self.environment | ({"LAB_FATE": fate} if fate else {}),
                stdout=log,
                stderr=log,
                text=True,
                start_new_session=True,
            )

    def ended(self, job: subprocess.Popen[str], *codes: int) -> int:
        """Wait for a job, which ends with one of these exit codes."""
        try:
            code = job.wait(PATIENCE)
        finally:
            _end(job)
        if code not in codes:
            told = (self.root / "submit.log").read_text()[-3000:]
            raise JobFailed(f"submit ended with {code}, not one of {codes}: {told}")
        return code

    def killed_at(self, step: str, number: int) -> None:
        """Start the job and let it die when it reaches a step for so manieth time."""
        self.ended(self.submit("--interval", "0s", fate=f"kill:{step}:{number}"), 20)
        self.check_sealed()

    def killed_when(self, ready: Callable[[], bool], after: float) -> None:
        """Start the job, and kill it so many seconds after something is the case."""
        job = self.submit("--interval", "0s")
        try:
            self.wait_until(ready, job)
            time.sleep(after)
            kill_job(job)
        finally:
            _end(job)
        self.check_sealed()

    def runs(self) -> Callable[[], bool]:
        """Whether a run that begins after now has sealed an epoch."""
        before = self.head.writer
        return lambda: self.head.writer != before and self.head.kind is Kind.EPOCH

    def wait_until(self, ready: Callable[[], bool], job: subprocess.Popen[str]) -> None:
        """Until something is the case, as long as a job lives."""
        deadline = time.monotonic() + PATIENCE
        while not ready():
            if job.poll() is not None or time.monotonic() > deadline:
                told = (self.root / "submit.log").read_text()[-3000:]
                raise JobFailed(f"the job ended with {job.poll()} too early: {told}")
            time.sleep(0.02)

    def read_all(self) -> None:
        """Let the job read what is left."""
        self.ended(self.submit("--available-now"), 0)

    def check_sealed(self) -> None:
        """At any moment: what is sealed is the truth up to where it was read."""
        head = self.head
        check_state(self.state(), truth(self.produced(head.positions), self.table))

    def produced(self, before: Positions) -> dict[tuple[int, int], bytes]:
        """What was produced before positions."""
        everything = records(Path(self.log.uri))
        end = before.by_topic.get(self.log.topic, {})
        return {at: line for at, line in everything.items() if at[1] < end.get(at[0], 0)}


def kill_job(job: subprocess.Popen[str]) -> None:
    """Kill everything that a submit has started, the JVM first, and the submit itself."""
    for each in sorted(_below(job.pid), key=lambda each: not each.is_java):
        with suppress(ProcessLookupError):
            os.kill(each.pid, signal.SIGKILL)
    job.kill()
    job.wait()


def _below(pid: int) -> list[Process]:
    """The processes that came from one, whatever session they are in."""
    everybody = list(Proc().processes())
    found: list[Process] = []
    parents = {pid}
    while more := [p for p in everybody if p.parent in parents and p not in found]:
        found += more
        parents = {each.pid for each in more}
    return found


def _end(job: subprocess.Popen[str]) -> None:
    """See to it that a job is over."""
    if job.poll() is None:
        kill_job(job)
