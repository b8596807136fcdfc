"""A gated stream whose job runs in processes of its own, to be killed and compared with the truth.

`Killed` is a stream in a directory: its job is started with `sluicegate submit` as by an operator,
dies at a step or at a moment, and is started again.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

from sluicegate.liveness.proc import Proc, Process
from sluicegate.stream.history import intact_snapshots
from sluicegate.stream.snapshot import Kind
from tests.job.jobs import NAME, Place, check_state
from tests.job.truth import Truth, published, records, truth

APP = Path(__file__).with_name("exactly_once_app.py")
SCRIPT = Path(sys.executable).with_name("sluicegate")
PATIENCE = 180.0
EVERYBODY, JVM, DRIVER = "the job and its submit", "its JVM", "its driver"
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
        self.check_committed()

    def killed_when(self, ready: Callable[[], bool], after: float, whom: str = EVERYBODY) -> None:
        """Start the job, and kill some of it so many seconds after something is the case."""
        job = self.submit("--interval", "0s")
        try:
            self.wait_until(ready, job)
            time.sleep(after)
            kill_job(job, whom)
        finally:
            _end(job)
        self.check_committed()

    def runs(self) -> Callable[[], bool]:
        """Whether a run that begins after now has committed an epoch."""
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

    def compare(self, *, counted: bool = True) -> Truth:
        """All is read and all is the truth; the tools say so, too."""
        wanted = self.check(counted=counted)
        text = self.sluicegate("state", "query", NAME, "--limit", "0", "--json")
        found = {each["key"]: each["values"] for each in json.loads(text)["keys"]}
        check_state(found, wanted)
        self.sluicegate("audit", NAME, "--read-data")
        self.sluicegate("checkpoint", "verify", NAME)
        return wanted

    def lost_and_duplicated(self) -> tuple[int, int]:
        """How many events are not published, and how often one is published again."""
        rows = published(self.sink, "data")
        seen = Counter(tuple(row[name] for name in self.table.stamp) for row in rows)
        return len(self.truth().rows.keys() - seen.keys()), seen.total() - len(seen)

    def read_all(self) -> None:
        """Let the job read what is left, in epochs as large as they may be."""
        text = self.config.read_text()
        self.config.write_text(text.replace("max_events = 500", "max_events = 1000000"))
        self.ended(self.submit("--available-now"), 0)

    def check_committed(self) -> None:
        """At any moment: what is committed is the truth up to where it was read."""
        end = self.reached()
        everything = records(Path(self.log.uri))
        produced = {at: line for at, line in everything.items() if at[1] < end.get(at[0], 0)}
        check_state(self.state(), truth(produced, self.table))

    def reached(self) -> dict[int, int]:
        """How far each partition was read, at its furthest: a reset goes back, state does not."""
        head = self.head
        end: dict[int, int] = {}
        for snapshot in intact_snapshots(self.stream, 0, head.number):
            if head.includes(snapshot.number):
                for each in snapshot.positions:
                    end[each.partition] = max(each.offset, end.get(each.partition, 0))
        return end


def kill_job(job: subprocess.Popen[str], whom: str = EVERYBODY) -> None:
    """Kill what a submit has started: its JVM, its driver, or everything, the submit too."""
    below = _below(job.pid)
    jvms = [each.pid for each in below if each.is_java]
    drivers = [each.pid for each in below if each.is_python and each.parent in jvms]
    chosen = {JVM: jvms, DRIVER: drivers[:1]}.get(whom, [*jvms, *(each.pid for each in below)])
    for pid in chosen:
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    if whom == EVERYBODY or not chosen:
        job.kill()
    job.wait(PATIENCE)


def signal_job(job: subprocess.Popen[str], number: signal.Signals) -> None:
    """Send a signal to a submit and everything that it has started."""
    for pid in (*(each.pid for each in _below(job.pid)), job.pid):
        with suppress(ProcessLookupError):
            os.kill(pid, number)


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
