"""A model of a stream and its sink, explored by Hypothesis: whatever happens, every event once.

Jobs start, commit, publish, are frozen for as long as one likes and wake up. Operators roll back,
undo, prune and collect. Backups of the stream, of what the home remembers and of the sink are taken
and restored, alone and together. After every step: what is published is never published twice, and
where nothing is wrong, nothing of what was read is missing.
"""

from __future__ import annotations

import os
import shutil
from collections import Counter
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any

from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from sluicegate.errors import Fenced, Locked, NotFound, SluicegateError, UsageError
from sluicegate.sinks.base import OutputLost
from sluicegate.sinks.files import FileSink
from sluicegate.storage import LocalStorage
from sluicegate.stream import gc
from sluicegate.stream.history import intact_snapshots
from sluicegate.stream.output import OlderThanOutput, compare
from sluicegate.stream.snapshot import ChainDamaged, Snapshot
from tests.stream.streams import NothingToDo, apply, in_memory
from tests.stream.test_backups import Job, World

PARTS = ("stream", "heads", "sink")
RESTORED = (PARTS, ("stream", "heads"), ("stream",), ("sink",), ("heads",), ("stream", "sink"))
NOTICED = (OlderThanOutput, ChainDamaged, OutputLost)


class Model(RuleBasedStateMachine):
    """The world, jobs in whatever state they were left, and backups."""

    def __init__(self) -> None:
        super().__init__()
        self._stack = ExitStack()
        self._jobs: list[tuple[Job, list[Snapshot]]] = []
        self._backups: list[str] = []

    @initialize()
    def begin(self) -> None:
        self.world = World(self._stack.enter_context(in_memory()))
        self.world.run(2)
        self.back_up()

    def teardown(self) -> None:
        for job, _ in self._jobs:
            job.end()
        self._stack.close()

    @invariant()
    def nothing_is_published_twice(self) -> None:
        published = Counter(self.world.published())
        assert not {event for event, count in published.items() if count > 1}

    @rule(force=st.booleans())
    def start(self, force: bool) -> None:
        """A job starts, unless one is alive, or something is noticed."""
        with suppress(Locked, Fenced, *NOTICED):
            self._jobs.append((Job(self.world, force=force), []))

    @rule(epochs=st.integers(1, 3), backs_up=st.booleans())
    def work(self, epochs: int, backs_up: bool) -> None:
        """A job that starts, works and ends, between two backups."""
        with suppress(Locked, Fenced, *NOTICED):
            self.world.run(epochs)
        if backs_up:
            self.back_up()

    @precondition(lambda self: self._jobs)
    @rule(data=st.data())
    def commit(self, data: Any) -> None:
        """One of the jobs, which may have been superseded long ago, commits an epoch."""
        job, waiting = self._chosen(data)
        if waiting:
            # An epoch is published before the next is committed.
            return
        with suppress(SluicegateError):
            waiting.append(job.commit())

    @precondition(lambda self: self._jobs)
    @rule(data=st.data())
    def publish(self, data: Any) -> None:
        job, waiting = self._chosen(data)
        with suppress(SluicegateError):
            if waiting:
                job.publish(waiting.pop())

    @precondition(lambda self: self._jobs)
    @rule(data=st.data())
    def end(self, data: Any) -> None:
        """A job ends, or dies: perhaps with an epoch that is not published."""
        job, waiting = self._chosen(data)
        self._jobs.remove((job, waiting))
        job.end()

    @rule(data=st.data(), force=st.booleans())
    def roll_back(self, data: Any, force: bool) -> None:
        with suppress(NothingToDo, SluicegateError):
            head = self.world.stream.chain.head()
            to = data.draw(st.integers(head.floor, head.number))
            apply(self.world.stream, "rollback", to=to, force=force)

    @rule(data=st.data())
    def prune(self, data: Any) -> None:
        with suppress(NothingToDo, SluicegateError):
            head = self.world.stream.chain.head()
            apply(self.world.stream, "prune", to=data.draw(st.integers(head.floor, head.number)))

    @rule()
    def collect(self) -> None:
        with suppress(SluicegateError):
            gc.sweep(self.world.stream, grace=0.0)
            gc.empty(self.world.stream, FileSink(LocalStorage(self.world.sink)), grace=0.0)

    def back_up(self) -> None:
        name = f"backup-{len(self._backups)}"
        self.world.copy(name, *PARTS)
        self._backups.append(name)

    @precondition(lambda self: self._backups)
    @rule(data=st.data(), parts=st.sampled_from(RESTORED))
    def restore(self, data: Any, parts: tuple[str, ...]) -> None:
        """All jobs are stopped for it; some of what is restored is older than the rest."""
        for job, _ in self._jobs:
            job.end()
        self._jobs.clear()
        self.world.restore(data.draw(st.sampled_from(self._backups)), *parts)

    @rule(choice=st.sampled_from(["withdraw", "adopt"]))
    def settle(self, choice: str) -> None:
        """An operator gets the stream to run again, and everything is checked."""
        for job, _ in self._jobs:
            job.end()
        self._jobs.clear()
        self._mend(choice)
        self.world.run(2)
        self.world.run(4)
        while self.world.stream.chain.head().adopting:
            self.world.run(4)
        self.world.check()

    def _chosen(self, data: Any) -> tuple[Job, list[Snapshot]]:
        number: int = data.draw(st.integers(0, len(self._jobs) - 1))
        return self._jobs[number]

    def _mend(self, choice: str) -> None:
        """What an operator does about what a start reports, until one succeeds."""
        for _ in range(8):
            try:
                Job(self.world).end()
            except OutputLost:
                self._read_again()
            except ChainDamaged:
                self._repair(choice)
            else:
                return
        raise AssertionError("the stream cannot be brought to run")

    def _repair(self, choice: str) -> None:
        for wanted in (choice, "withdraw", None):
            with suppress(UsageError):
                self.world.repair(wanted)
                return
        raise AssertionError("no choice is possible")

    def _read_again(self) -> None:
        """Output is gone: everything from the oldest snapshot on is read again.

        What is lost from before it cannot be got back; then the sink of the world goes, too.
        """
        head = self.world.stream.chain.head()
        gone = self._gone(head)
        kept = [n for n in range(head.floor, head.number + 1) if n < min(gone, default=0)]
        for number in reversed(kept):
            with suppress(NothingToDo, NotFound, UsageError):
                apply(self.world.stream, "rollback", to=number)
                return
        self._begin_anew()

    def _gone(self, head: Snapshot) -> list[int]:
        sink = FileSink(LocalStorage(self.world.sink))
        there = {name.number for name in (*sink.published(), *sink.withdrawn())}
        stream = self.world.stream
        epochs = intact_snapshots(stream, head.floor, head.number)
        gone = [e.number for e in epochs if e.output and e.number not in there]
        return gone + [name.number for name in compare(stream, sink).lost]

    def _begin_anew(self) -> None:
        shutil.rmtree(self.world.root / "again", ignore_errors=True)
        self.world = World(_empty(self.world.root / "again"))
        self._backups.clear()


def _empty(path: Path) -> Path:
    path.mkdir()
    return path


TestModel = Model.TestCase
TestModel.settings = settings(
    max_examples=400 if os.environ.get("SG_LAB_ALL") else 20,
    stateful_step_count=25,
    deadline=None,
    derandomize=not os.environ.get("SG_LAB_ALL"),
    phases=(Phase.explicit, Phase.generate),
    suppress_health_check=list(HealthCheck),
)
