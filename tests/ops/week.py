"""A simulated week: a clock that jumps, jobs that commit, die and start again, cron in between.

The clock is the process's own `time.time`, and files get its time when they are fsynced; nothing
else is pretended.
"""

from __future__ import annotations

import os
import random
import stat
from collections.abc import Callable
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from pathlib import Path

from sluicegate.config import Maintain, NamedStream
from sluicegate.journal import Approval
from sluicegate.maintenance import Budget, Outcome, RunOptions, Steps
from sluicegate.process import myself
from sluicegate.sinks.base import DATA
from sluicegate.sinks.files import FileSink, directory_of
from sluicegate.storage.local import Calls
from sluicegate.stream.maintenance import StreamMaintenance
from sluicegate.stream.output import name_of, open_sink
from sluicegate.stream.snapshot import Snapshot, key_of
from sluicegate.stream.stream import Stream
from sluicegate.stream.writer import Run, StreamWriter
from tests.job import sinks
from tests.stream.streams import (
    NAME,
    NothingToDo,
    apply,
    begin,
    commit,
    epoch_after,
    make_home,
    opened,
)


class Clock:
    """`time.time` of this process."""

    def __init__(self, now: float) -> None:
        self.now = now

    def __call__(self) -> float:
        return self.now


class Dated(Calls):
    """Calls that give files the clock's time when they are made durable."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock

    def sync(self, fd: int) -> None:
        if stat.S_ISREG(os.fstat(fd).st_mode):
            os.utime(fd, (self._clock.now,) * 2)
        super().sync(fd)


def terms(policy: Maintain, *, seconds: float = 1.0, only: str = "") -> RunOptions:
    """What a run may do; `only` is `dry_run` or `read_only`."""
    approval, budget = Approval(myself(), "maintain"), Budget(seconds)
    return RunOptions(policy, approval, budget, only == "dry_run", only == "read_only")


@dataclass
class Size:
    """The stream as it lies on disk after a run of the maintenance."""

    snapshots: int
    blobs: int
    bytes: int
    others: int
    snapshot_bytes: int


def measure(root: Path, head: Snapshot) -> Size:
    stream = root / NAME
    snapshots = list((stream / "chain").glob("*.snapshot"))
    blobs = [path for path in (stream / "blobs").rglob("*") if path.is_file()]
    others = sum(1 for name in ("locks",) for _ in (stream / name).glob("*"))
    total = sum(path.stat().st_size for path in (*snapshots, *blobs))
    newest = (stream / key_of(head.number)).stat().st_size
    return Size(len(snapshots), len(blobs), total, others, newest)


@dataclass
class Week:
    """So many epochs, spread evenly; maintenance runs every so often."""

    root: Path
    clock: Clock
    policy: Maintain
    epochs: int
    spacing: float
    cron: float
    chance: random.Random = field(default_factory=lambda: random.Random(7))
    sizes: list[Size] = field(default_factory=list)
    written: dict[int, str] = field(default_factory=dict)
    outcomes: dict[tuple[str, str], int] = field(default_factory=dict)
    claims: int = 0
    rollbacks: int = 0

    def run(self) -> Stream:
        """All of it; gives the stream as it is in the end."""
        make_home(self.root)
        stream, sink = self._stream(), None
        begin(stream, dedup=True)
        sink = open_sink(stream, str(self.root.parent / "sink"))
        committed, next_run = 0, self.clock.now + self.cron
        while committed < self.epochs:
            with ExitStack() as stack:
                run = stack.enter_context(sinks.started(stream, sink))
                self.claims += 1
                for _ in range(min(self.chance.randrange(20, 200), self.epochs - committed)):
                    self.clock.now += self.spacing
                    self._epoch(run, sink, committed)
                    committed += 1
                    if self.clock.now >= next_run:
                        next_run += self.cron
                        self._cron()
                if self.chance.random() < 0.5:
                    # Killed in the middle of an epoch: nothing refers to its blobs.
                    epoch_after(StreamWriter(stream), stream.chain.head())
                    sinks.write(sink, f"{committed:032x}", {DATA: "never committed"})
            self._operator(stream)
        with sinks.started(stream, sink):
            self._cron()
        return stream

    def _stream(self, timeout: float = 60.0) -> Stream:
        return opened(self.root, Dated(self.clock), timeout)

    def _epoch(self, run: Run, sink: FileSink, number: int) -> None:
        if number % 10:
            run.refresh()
            commit(run)
            return
        snapshot = sinks.commit(run, sink, DATA)
        self.written[snapshot.number] = directory_of(name_of(snapshot))
        sinks.publish(run.stream, sink, snapshot)

    def _operator(self, stream: Stream) -> None:
        """Sometimes an operator rolls back a little."""
        if self.chance.random() < 0.3:
            head = stream.chain.head()
            with suppress(NothingToDo):
                apply(
                    stream, "rollback", to=max(head.floor, head.number - self.chance.randrange(9))
                )
                self.rollbacks += 1

    def _cron(self) -> None:
        sink, these = self.root.parent / "sink", terms(self.policy, seconds=0.02)
        steps = cared_for(self._stream(0.0), sink, these)
        assert [f.detail for f in steps.findings if f.severity.value != "note"] == []
        for step in steps.done:
            assert step.outcome is not Outcome.FAILED, step
            key = step.name, step.outcome.value
            self.outcomes[key] = self.outcomes.get(key, 0) + 1
        self.sizes.append(measure(self.root, self._stream().chain.head()))

    def published(self) -> set[str]:
        """What must be published now."""
        head = self._stream().chain.head()
        return {name for number, name in self.written.items() if head.includes(number)}


def cared_for(stream: Stream, sink: Path | None, these: RunOptions) -> Steps:
    """A run of the maintenance over a stream, as it was configured."""
    named = NamedStream(NAME, "", sink=str(sink) if sink else None)
    return StreamMaintenance(stream, named, these).run()


def make_old(path: Path, seconds: float, now: Callable[[], float]) -> None:
    """Let a file or directory be so many seconds old."""
    os.utime(path, (now() - seconds,) * 2)


def temporary(root: Path) -> list[str]:
    """Unfinished files anywhere below a directory."""
    return [str(path) for path in root.rglob(".sg-*.tmp")]
