"""A demonstration on this machine: a gated stream whose job is killed several times.

A producer, killed as well, writes events to an embedded log and sends some of them twice. The job
is started with `submit`, killed with SIGKILL together with its JVM at random moments, and started
again. Afterwards its counts are compared with the log, which is read independently.
"""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from sluicegate import units
from sluicegate.errors import SluicegateError, SparkFailed
from sluicegate.producer.log_producer import LogProducer
from sluicegate.sinks.base import DATA
from sluicegate.sources.log.log import Log
from sluicegate.sources.log.writer import LogWriter
from sluicegate.spark.submit import process
from sluicegate.spark.submit.launcher import find_spark_submit, require_java
from sluicegate.stream.output import look_at_sink
from sluicegate.stream.snapshot import Kind, Snapshot
from sluicegate.stream.state import scan
from sluicegate.stream.stream import Stream, open_stream

STREAM = "demo"
_PARTITIONS = 2
_AT_ONCE = 500
_RETRIES = 0.1
_TIMEOUT = 120.0
_TABLE = """\
[streams.demo]
source = "events"
stamp = ["producer", "partition", "seq"]
key = "user"
shards = 16
columns = { price = "long" }
aggregates = { events_seen = "count", spent = "sum(price)" }
sink = "out"
max_events = 20000
"""

Notify = Callable[[str], None]


@dataclass(slots=True)
class Outcome:
    """The counts of a demonstration: produced, killed, committed, lost and duplicated."""

    produced: int = 0
    retries: int = 0
    kills: int = 0
    epochs: int = 0
    duplicates: int = 0
    applied: int = 0
    output_rows: int = 0
    lost: int = 0
    duplicated: int = 0
    keys_wrong: int = 0
    seconds: float = 0.0

    @property
    def well(self) -> bool:
        """Whether every event was counted exactly once, and there were events at all."""
        broken = self.lost or self.duplicated or self.keys_wrong
        return self.produced > 0 and self.output_rows == self.applied and not broken


def run(program: Sequence[str], kills: int, events: int, notify: Notify, seed: int = 0) -> Outcome:
    """Run the demonstration; `program` is the command line before the word `submit`."""
    require_java(find_spark_submit(None).spark)
    began = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="sluicegate-demo-") as scratch:
        shown = _Demonstration(Path(scratch), list(program), notify, random.Random(seed))
        outcome = shown.run(kills, events)
    outcome.seconds = time.monotonic() - began
    return outcome


class _Demonstration:
    """One demonstration in its own directory."""

    def __init__(
        self, root: Path, program: list[str], notify: Notify, chance: random.Random
    ) -> None:
        self._root = root
        self._program = program
        self._notify = notify
        self._chance = chance
        scratch = root / "tmp"
        scratch.mkdir()
        self._environment = os.environ | {"TMPDIR": str(scratch), "SPARK_LOCAL_DIRS": str(scratch)}

    def run(self, kills: int, events: int) -> Outcome:
        Log.create(str(self._root / "events"), _PARTITIONS)
        (self._root / "sluicegate.toml").write_text(_TABLE)
        self._sluicegate("init", "--yes")
        producer = self._produce(events)
        try:
            self._sluicegate("init", "--stream", STREAM, "--yes")
            time.sleep(self._chance.uniform(0.5, 1.5))
            producer.kill()
            producer.wait()
            self._notify("the producer was killed; it is started again and sends the rest")
            producer = self._produce(events)
            for number in range(1, kills + 1):
                self._kill_a_job(number, kills)
            self._notify("the job is started again, to read the rest")
            producer.wait()
        finally:
            producer.kill()
            producer.wait()
        self._sluicegate("submit", STREAM, "--available-now")
        return self._checked(kills)

    def _produce(self, events: int) -> subprocess.Popen[bytes]:
        words = [sys.executable, "-P", "-m", __name__, str(self._root), str(events)]
        return self._start(words, subprocess.DEVNULL)

    def _start(self, words: list[str], output: int | IO[bytes]) -> subprocess.Popen[bytes]:
        """A process that ends with this one, and writes only to the scratch directory."""
        return process.start(
            words, cwd=self._root, env=self._environment, stdout=output, stderr=output
        )

    def _sluicegate(self, *words: str) -> None:
        with (self._root / "output.log").open("wb") as log:
            command = self._start([*self._program, *words], log)
            try:
                code = command.wait()
            except BaseException:
                _end(command)
                raise
        if code:
            output = (self._root / "output.log").read_text()[-2000:]
            raise SparkFailed(f"sluicegate {' '.join(words)} failed: {output}")

    def _kill_a_job(self, number: int, kills: int) -> None:
        """Start the job, wait for a commit, and kill it at a random moment."""
        before = self._head().epoch
        with (self._root / "submit.log").open("ab") as log:
            job = self._start([*self._program, "submit", STREAM], log)
        try:
            head = self._wait_for_epoch(before + 1, job)
            time.sleep(self._chance.uniform(0.0, 1.5))
        except BaseException:
            _end(job)
            raise
        _kill(head.by.pid)
        job.kill()
        job.wait()
        committed = units.counted(self._head().epoch, "epoch")
        self._notify(f"kill {number} of {kills}: {committed} committed")

    def _wait_for_epoch(self, epoch: int, job: subprocess.Popen[bytes]) -> Snapshot:
        deadline = time.monotonic() + _TIMEOUT
        while time.monotonic() < deadline and job.poll() is None:
            head = self._head()
            if head.epoch >= epoch and head.kind is Kind.EPOCH:
                return head
            time.sleep(0.05)
        output = (self._root / "submit.log").read_text()[-2000:]
        raise SparkFailed(f"the job did not commit an epoch: {output}")

    def _stream(self) -> Stream:
        return open_stream(str(self._root / ".sluicegate" / STREAM), read_only=True)

    def _head(self) -> Snapshot:
        return self._stream().chain.head()

    def _checked(self, kills: int) -> Outcome:
        stream, head = self._stream(), self._head()
        records, events = _in_the_log(self._root / "events")
        counted = {found.key: found.values or {} for found in scan(stream, head)}
        expected: Counter[str] = Counter(each.user for each in events)
        spent: Counter[str] = Counter()
        for each in events:
            spent[each.user] += each.price
        got = {key: int(values["events"]) for key, values in counted.items()}
        wrong = [k for k in expected if counted.get(k, {}).get("spent") != spent[k]]
        return Outcome(
            produced=len(events),
            retries=records - len(events),
            kills=kills,
            epochs=head.epoch,
            duplicates=head.counters["duplicates"],
            applied=head.counters["applied"],
            output_rows=_rows_published(stream, str(self._root / "out")),
            lost=sum((expected - Counter(got)).values()),
            duplicated=sum((Counter(got) - expected).values()),
            keys_wrong=len(wrong),
        )


def _end(job: subprocess.Popen[bytes]) -> None:
    """End a job cleanly: after the second signal `submit` cleans up."""
    for seconds in (1.0, 20.0):
        job.terminate()
        with suppress(subprocess.TimeoutExpired):
            job.wait(seconds)
            return
    job.kill()
    job.wait()


def _kill(driver: int) -> None:
    """SIGKILL to the driver and to the JVM that started it."""
    with suppress(OSError, IndexError, ValueError):
        parent = int(Path(f"/proc/{driver}/stat").read_text().rpartition(")")[2].split()[1])
        os.kill(parent, signal.SIGKILL)
    with suppress(OSError):
        os.kill(driver, signal.SIGKILL)


@dataclass(frozen=True, slots=True)
class _Event:
    user: str
    price: int


def _in_the_log(root: Path) -> tuple[int, list[_Event]]:
    """How many records there are, and each event once, from the files themselves."""
    count = 0
    events: dict[tuple[str, int, int], _Event] = {}
    for path in sorted(root.glob("partition-*/*.jsonl")):
        for line in path.read_text().splitlines():
            record = json.loads(line)
            count += 1
            stamp = record["producer"], record["partition"], record["seq"]
            events.setdefault(stamp, _Event(record["user"], record["price"]))
    return count, list(events.values())


def _rows_published(stream: Stream, uri: str) -> int:
    """How many rows readers see, by the published files."""
    from sluicegate.stream.output import read_output

    sink = look_at_sink(stream, uri)
    published = sink.published() if sink else {}
    rows = 0
    for name, kinds in published.items():
        snapshot = stream.chain.read(name.number)
        if snapshot.output and DATA in kinds:
            rows += read_output(stream, snapshot.output).rows(DATA)
    return rows


def _produce_all(root: Path, events: int) -> None:
    """Send events up to this total, some of them twice."""
    uri = str(root / "events")
    chance = random.Random(os.getpid())
    with LogProducer.open(uri, root / "producer", "shop") as producer:
        while (done := sum(producer.next_sequence(p) for p in range(_PARTITIONS))) < events:
            partition = chance.randrange(_PARTITIONS)
            records = [
                {"user": f"user-{chance.randrange(1000)}", "price": chance.randrange(10_000)}
                for _ in range(min(_AT_ONCE, events - done))
            ]
            producer.send_many([(partition, record) for record in records])
            _send_again(uri, partition, chance)
            time.sleep(0.02)


def _send_again(uri: str, partition: int, chance: random.Random) -> None:
    """Send the same records again, like a client that never got the reply."""
    log = Log.open(uri)
    end = log.end(partition)
    start = max(0, end - _AT_ONCE)
    lines = b"".join(piece.data for piece in log.read(partition, start, end)).splitlines()
    again = [line for line in lines if chance.random() < _RETRIES]
    if again:
        with LogWriter(uri, partition, timeout=10.0) as writer:
            writer.append(again)


if __name__ == "__main__":
    try:
        _produce_all(Path(sys.argv[1]), int(sys.argv[2]))
    except SluicegateError:
        # The demonstration was interrupted and removed its directory.
        if Path(sys.argv[1]).exists():
            raise
