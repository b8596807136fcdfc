"""Backups that are restored, copies that both write, and writers that are frozen and wake up.

Whatever is older than what it is combined with is noticed before anything starts, and after the
repair that the operator chooses every event is published once. The output of an epoch says which
offsets it holds, so a reader that knows nothing of chains counts what was lost or is there twice.
"""

from __future__ import annotations

import errno
import json
import os
import shutil
import uuid
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from hashlib import blake2b
from pathlib import Path
from typing import Any

import pytest

from sluicegate.errors import Corrupt, Fenced, SluicegateError, StorageFailed, UsageError
from sluicegate.journal import Approval
from sluicegate.process import myself
from sluicegate.sinks.base import DATA, File, Output, OutputLost, Reach, SinkFenced
from sluicegate.sinks.files import FileSink
from sluicegate.storage import LocalStorage
from sluicegate.storage.local import Calls
from sluicegate.stream.audit import audit_stream
from sluicegate.stream.journal import StreamJournal
from sluicegate.stream.output import OlderThanOutput, Publisher, encode, open_sink
from sluicegate.stream.snapshot import ChainShort, Snapshot
from sluicegate.stream.stream import Stream
from sluicegate.stream.verify import verify
from sluicegate.stream.writer import Run, StreamWriter
from tests.stream.streams import (
    NAME,
    PARTITIONS,
    STEP,
    check_counted,
    epoch_after,
    in_memory,
    made,
    offsets_of,
    opened,
    operation_of,
)

WITHDRAW, ADOPT = "withdraw", "adopt"


class Job:
    """A job that was started: it claims, publishes what is missing, and commits epochs."""

    def __init__(self, world: World, calls: Calls | None = None, *, force: bool = False) -> None:
        self._stack = ExitStack()
        self.stream = opened(world.home, calls)
        sink = FileSink(LocalStorage(world.sink, calls=calls))
        open_sink(self.stream, str(world.sink))
        self.publisher = Publisher(self.stream, sink)
        self.publisher.check()
        claim = StreamWriter(self.stream).claim(app="job", force=force)
        self.run: Run = self._stack.enter_context(claim)
        with self._ending():
            self.publisher.begin(self.run)

    @contextmanager
    def _ending(self) -> Iterator[None]:
        try:
            yield
        except BaseException:
            self.end()
            raise

    def end(self) -> None:
        """As if the process had ended: its lock is free."""
        self._stack.close()

    def commit(self) -> Snapshot:
        """One epoch, committed and not yet published."""
        head, nonce = self.run.refresh(), uuid.uuid4().hex
        epoch = epoch_after(self.run._writer, head, STEP)
        output = Output({})
        if not head.adopting:
            output = self._written(nonce, head, epoch.end.by_topic)
        reach = Reach(head.generation, head.positions, epoch.end)
        self.publisher.sink.stage(nonce, output, reach)
        listed = self.stream.blobs.put(encode(output)) if output else None
        counters = {
            **epoch.counters,
            "read": STEP * PARTITIONS,
            "applied": epoch.events,
            "duplicates": STEP * PARTITIONS - epoch.events,
            "written": output.rows(DATA),
        }
        return self.run.commit(replace(epoch, output=listed, counters=counters), nonce)

    def _written(self, nonce: str, head: Snapshot, end: Any) -> Output:
        [ends] = end.values()
        holds = [[p, start, ends[p]] for p, start in offsets_of(head).items()]
        data = json.dumps(holds).encode()
        path = Path(self.publisher.sink.attempts(nonce)) / "part-0.parquet"
        path.write_bytes(data)
        digest = blake2b(data, digest_size=32).hexdigest()
        return Output({DATA: (File(path.name, len(data), 1, digest),)})

    def publish(self, snapshot: Snapshot) -> None:
        self.publisher.publish(snapshot, [DATA] if snapshot.output else [])

    def work(self, epochs: int) -> None:
        for _ in range(epochs):
            self.publish(self.commit())


class World:
    """A home with a stream, its sink, and copies of both."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.home, self.sink = root / "home", root / "sink"
        made(self.home)

    @property
    def stream(self) -> Stream:
        return opened(self.home)

    def run(self, epochs: int) -> None:
        """A job that starts, works and ends."""
        job = Job(self)
        job.work(epochs)
        job.publisher.settle()
        job.end()

    def copy(self, name: str, *parts: str) -> None:
        """A backup of some of: stream, heads (what the home remembers), sink."""
        for part in parts:
            shutil.copytree(self._place(part), self.root / name / part)

    def restore(self, name: str, *parts: str) -> None:
        for part in parts:
            shutil.rmtree(self._place(part), ignore_errors=True)
            shutil.copytree(self.root / name / part, self._place(part))

    def _place(self, part: str) -> Path:
        return {"stream": self.home / NAME, "heads": self.home / "heads", "sink": self.sink}[part]

    def repair(self, choice: str | None = None) -> None:
        """As `checkpoint repair` does; without a choice only where there is none to make."""
        sink = FileSink(LocalStorage(self.sink))
        journal = StreamJournal(self.stream, sink=sink)
        plan = journal.propose(operation_of("repair", choice=choice))
        assert plan.actions or plan.choices
        if plan.actions:
            journal.apply(plan, Approval(myself(), "a test"))

    def roll_back(self, to: int) -> None:
        journal = StreamJournal(self.stream, sink=FileSink(LocalStorage(self.sink)))
        plan = journal.propose(operation_of("rollback", to=to))
        journal.apply(plan, Approval(myself(), "a test"))

    def codes(self) -> set[str]:
        """What verify and audit report as errors."""
        sink = FileSink(LocalStorage(self.sink))
        found = verify(self.stream, sink=sink).findings
        try:
            found = [*found, *audit_stream(self.stream, sink).findings]
        except Corrupt:
            assert found
        return {each.code for each in found if each.severity.name == "ERROR"}

    def check(self) -> None:
        """Everything that was read is published once, and counted once."""
        assert self.codes() == set()
        head = self.stream.chain.head()
        check_counted(self.stream, head)
        published = Counter(self.published())
        wanted = {(p, n) for p, end in offsets_of(head).items() for n in range(end)}
        twice = {event for event, count in published.items() if count > 1}
        assert not twice, f"{len(twice)} events are published twice"
        assert published.keys() == wanted

    def published(self) -> Iterator[tuple[int, int]]:
        for path in self.sink.glob("data/*/*.parquet"):
            for partition, start, end in json.loads(path.read_text()):
                yield from ((partition, offset) for offset in range(start, end))


@pytest.fixture
def world() -> Iterator[World]:
    with in_memory() as root:
        yield World(root)


def noticed(world: World) -> None:
    """Nothing starts, verify or audit reports an error, and nothing is changed."""
    before = world.stream.chain.head().digest
    with pytest.raises((OlderThanOutput, ChainShort, OutputLost)):
        Job(world)
    assert world.codes()
    with pytest.raises((OlderThanOutput, ChainShort, OutputLost)):
        Job(world)
    head = world.stream.chain.head()
    # A claim is harmless; nothing else may have happened.
    assert head.digest == before or head.kind.value == "claim"


class TestAnOldBackup:
    """Of the chain, of what the home remembers, of the sink, in every combination."""

    @pytest.mark.parametrize("choice", [WITHDRAW, ADOPT])
    @pytest.mark.parametrize("parts", [["stream", "heads"], ["stream"]])
    def test_of_the_chain(self, world: World, parts: list[str], choice: str) -> None:
        """10,380 of 36,300 events were published twice this way."""
        world.run(4)
        world.copy("old", *parts)
        world.run(5)
        world.restore("old", *parts)
        noticed(world)
        world.repair(choice)
        world.run(3)
        world.run(6)
        world.check()

    def test_of_everything(self, world: World) -> None:
        """Nothing is older than the rest: the events are read again, and published once."""
        world.run(4)
        world.copy("old", "stream", "heads", "sink")
        world.run(5)
        world.restore("old", "stream", "heads", "sink")
        world.run(3)
        world.check()

    def test_of_the_sink(self, world: World) -> None:
        world.run(4)
        world.copy("old", "sink")
        world.run(5)
        world.restore("old", "sink")
        noticed(world)
        assert "SG-AUDIT-OUTPUT" in world.codes()
        # What is lost is read again.
        world.roll_back(5)
        world.run(3)
        world.check()

    def test_of_the_heads(self, world: World) -> None:
        """What the home remembers is older than the chain: nothing is wrong with that."""
        world.run(4)
        world.copy("old", "heads")
        world.run(5)
        world.restore("old", "heads")
        world.run(2)
        world.check()

    @pytest.mark.parametrize("choice", [WITHDRAW, ADOPT])
    def test_of_a_run_that_lives_on(self, world: World, choice: str) -> None:
        job = Job(world)
        job.work(3)
        world.copy("old", "stream", "heads")
        job.work(4)
        job.end()
        world.restore("old", "stream", "heads")
        noticed(world)
        world.repair(choice)
        world.run(5)
        world.check()

    @pytest.mark.parametrize("choice", [WITHDRAW, ADOPT])
    @pytest.mark.parametrize("dies_after", ["commit", "publish"])
    def test_of_a_run_that_then_died(self, world: World, dies_after: str, choice: str) -> None:
        job = Job(world)
        job.work(2)
        world.copy("old", "stream", "heads")
        job.work(2)
        last = job.commit()
        if dies_after == "publish":
            job.publish(last)
        job.end()
        world.restore("old", "stream", "heads")
        noticed(world)
        world.repair(choice)
        world.run(4)
        world.check()

    def test_between_commit_and_publish(self, world: World) -> None:
        """The chain has the epoch, the sink of the same moment has it staged."""
        job = Job(world)
        job.work(2)
        last = job.commit()
        world.copy("old", "stream", "heads", "sink")
        job.publish(last)
        job.work(2)
        job.end()
        world.restore("old", "stream", "heads", "sink")
        world.run(2)
        world.check()

    def test_that_went_on_before_the_newer_sink_came_back(self, world: World) -> None:
        """Two worlds used the same numbers; their nonces differ."""
        world.run(3)
        world.copy("old", "stream", "heads", "sink")
        world.run(4)
        world.copy("new", "sink")
        world.restore("old", "stream", "heads", "sink")
        world.run(6)
        world.copy("right", "sink")
        world.restore("new", "sink")
        noticed(world)
        with pytest.raises(UsageError, match="of its own, with other output"):
            world.repair(ADOPT)
        world.restore("right", "sink")
        world.run(1)
        world.check()

    def test_twice(self, world: World) -> None:
        """The repaired stream is restored to the same backup again."""
        world.run(3)
        world.copy("old", "stream", "heads")
        world.run(3)
        for choice in (ADOPT, WITHDRAW):
            world.restore("old", "stream", "heads")
            noticed(world)
            world.repair(choice)
            world.run(5)
            world.check()
        world.restore("old", "stream", "heads")
        noticed(world)
        # Who knows what that repair has skipped.
        with pytest.raises(UsageError, match="was reset or rolled back between"):
            world.repair(ADOPT)
        world.repair(WITHDRAW)
        world.run(2)
        world.check()

    def test_adopted_output_is_withdrawn_by_a_rollback(self, world: World) -> None:
        world.run(3)
        world.copy("old", "stream", "heads")
        before = world.stream.chain.head().number
        world.run(3)
        world.restore("old", "stream", "heads")
        world.repair(ADOPT)
        world.run(5)
        world.roll_back(before)
        world.run(2)
        world.check()

    def test_adopted_output_that_is_lost_later(self, world: World) -> None:
        """No snapshot of the chain has written it, but the chain knows that it must be there."""
        world.run(3)
        world.copy("old", "stream", "heads", "sink")
        before = world.stream.chain.head().number
        world.run(3)
        world.restore("old", "stream", "heads")
        world.repair(ADOPT)
        world.run(5)
        world.check()
        for path in world.sink.glob("data/snapshot=*7-*"):
            shutil.rmtree(path)
        noticed(world)
        assert "SG-AUDIT-OUTPUT" in world.codes()
        world.roll_back(before)
        world.run(6)
        world.check()

    def test_adopted_output_stays_without_a_start_in_between(self, world: World) -> None:
        world.run(3)
        world.copy("old", "stream", "heads")
        world.run(3)
        world.restore("old", "stream", "heads")
        world.repair(ADOPT)
        head = world.stream.chain.head()
        assert head.adopting
        with pytest.raises(UsageError, match="has not read again yet"):
            StreamJournal(world.stream).propose(operation_of("reset", positions=head.positions))
        world.roll_back(head.number - 5)
        world.run(3)
        world.check()

    def test_nothing_was_published_since(self, world: World) -> None:
        """Only a claim shows that the chain is old: no choice is needed."""
        world.run(3)
        world.copy("old", "stream", "heads")
        Job(world).end()
        world.restore("old", "stream", "heads")
        noticed(world)
        world.repair()
        world.run(3)
        world.check()

    @pytest.mark.parametrize("choice", [WITHDRAW, ADOPT])
    def test_to_which_something_was_appended(self, world: World, choice: str) -> None:
        """Before anybody notices, the old chain is pruned: it uses the number of a claim."""
        world.run(3)
        world.copy("old", "stream", "heads")
        world.run(3)
        world.restore("old", "stream", "heads")
        journal = StreamJournal(world.stream)
        plan = journal.propose(operation_of("prune", to=3))
        journal.apply(plan, Approval(myself(), "a test"))
        noticed(world)
        world.repair(choice)
        world.run(4)
        world.check()

    def test_a_choice_without_need(self, world: World) -> None:
        world.run(2)
        with pytest.raises(UsageError, match="nothing to adopt"):
            world.repair(ADOPT)


class OtherFileSystem(Calls):
    """As if `data` were another file system: nothing can be renamed into it."""

    def move(self, source: Path, origin: int, place: Path, directory: int) -> None:
        if place.parent.name == DATA:
            raise OSError(errno.EXDEV, os.strerror(errno.EXDEV))
        super().move(source, origin, place, directory)


def test_a_sink_that_cannot_publish_is_noticed_before_an_epoch(world: World) -> None:
    """What would fail after the commit fails at the start."""
    world.run(2)
    epoch = world.stream.chain.head().epoch
    with pytest.raises(StorageFailed, match="cross-device link"):
        Job(world, OtherFileSystem()).work(1)
    assert world.stream.chain.head().epoch == epoch
    world.run(1)
    world.check()


def test_verify_sees_output_that_is_gone(world: World) -> None:
    world.run(3)
    job = Job(world)
    pending = job.commit()
    job.end()
    sink = FileSink(LocalStorage(world.sink))
    assert verify(world.stream, sink=sink).findings == []
    [path] = world.sink.glob(f"data/snapshot={pending.number - 2:020d}-*")
    shutil.rmtree(path)
    [found] = verify(world.stream, sink=sink).findings
    assert (found.code, found.detail) == ("SG-AUDIT-OUTPUT", "its output is missing")
    assert found.repair.endswith(f"--to {pending.number - 3}")


def test_a_copied_home_meets_the_fence(world: World) -> None:
    """Both copies write to one sink: the one that comes second is refused, whichever it is."""
    world.run(3)
    shutil.copytree(world.home, world.root / "copy")
    job = Job(world)
    job.work(2)
    copied = World.__new__(World)
    copied.root, copied.home, copied.sink = world.root, world.root / "copy", world.sink
    with pytest.raises(OlderThanOutput):
        Job(copied)
    # Its numbers catch up, but not its nonces.
    for _ in range(6):
        with StreamWriter(copied.stream).claim(app="job"):
            pass
    with pytest.raises(OlderThanOutput):
        Job(copied)
    job.work(2)
    job.end()
    world.check()


class Frozen(Calls):
    """System calls that do something else first, once, at the n-th move."""

    def __init__(self, at: int, meanwhile: Any) -> None:
        super().__init__()
        self.left, self._meanwhile = at, meanwhile

    def move(self, source: Path, origin: int, place: Path, directory: int) -> None:
        if self.left == 0:
            self.left = -1
            self._meanwhile()
        self.left -= 1
        super().move(source, origin, place, directory)


class TestFrozen:
    """A writer is frozen right before one of its moves; others go on; it wakes up."""

    @pytest.mark.parametrize("at", range(8))
    @pytest.mark.parametrize("rolls_back", [False, True])
    def test_and_superseded(self, world: World, at: int, *, rolls_back: bool) -> None:
        world.run(3)
        first = world.stream.chain.head().number - 2
        world.roll_back(first)

        def meanwhile() -> None:
            job = Job(world, force=True)
            job.work(2)
            job.end()
            if rolls_back:
                world.roll_back(first)
                world.run(3)

        calls = Frozen(at, meanwhile)
        with pytest.raises((Fenced, OlderThanOutput)):
            job = Job(world, calls)
            try:
                job.work(4)
            finally:
                job.end()
        assert calls.left < 0
        world.check()
        world.run(2)
        world.check()

    def test_while_it_holds_what_another_needs(self, world: World) -> None:
        """No lock is held while output is published: --force takes over at once."""
        job = Job(world)
        job.work(1)
        late = job.commit()
        other = Job(world, force=True)
        other.work(2)
        job.publish(late)
        with pytest.raises(SluicegateError):
            job.commit()
        other.end()
        job.end()
        world.check()

    def test_the_fence_is_the_sinks_own(self, world: World) -> None:
        """Also where the chain does not stop a writer: it publishes nothing any more."""
        job = Job(world)
        late = job.commit()
        other = Job(world, force=True)
        world.sink.joinpath("data").rename(world.root / "away")
        with pytest.raises(SinkFenced):
            job.publish(late)
        (world.root / "away").rename(world.sink / "data")
        other.end()
        job.end()
        world.check()
