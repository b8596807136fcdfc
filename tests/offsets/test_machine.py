"""Offset stores against a dictionary: any order of operations, clocks and deaths."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from copy import deepcopy
from dataclasses import dataclass, field
from itertools import chain, repeat
from pathlib import Path
from tempfile import TemporaryDirectory
from types import SimpleNamespace
from typing import Protocol
from unittest.mock import patch

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, rule

from sluicegate.errors import NotFound
from sluicegate.journal import Approval, NothingToUndo
from sluicegate.offsets import (
    Fence,
    LockFileOffsetStore,
    MemoryOffsetStore,
    OffsetStore,
    StaleCommit,
    operations,
)
from sluicegate.offsets.journal import StoreJournal
from sluicegate.positions import Position, Positions
from sluicegate.process import myself
from sluicegate.reset import ResetSpec, Scenario
from sluicegate.storage import LocalStorage
from tests.support.faults import Aftermath, Disk, Killed

# Few and small, so that operations meet each other.
CONSUMERS = ("billing", "shipping")
PARTITIONS = [("orders", 0), ("orders", 1), ("clicks", 0)]
SOURCES = ("job", "other job")
VERSIONS = 3
CALLS = ("create", "write", "fsync file", "rename", "link", "unlink", "fsync directory")
Partition = tuple[str, int]
Offsets = dict[Partition, int]


@dataclass
class Changed:
    """An operator's change: what the positions it touched were before it."""

    sequence: int
    kind: str
    before: dict[Partition, int | None]
    undoes: int | None = None
    # A plain delete does not say what was before it: undo looks at the record before, if kept.
    needs_older: bool = False


@dataclass
class Model:
    """What a consumer should be."""

    positions: Offsets = field(default_factory=dict)
    sequence: int = 0
    fences: dict[str, int] = field(default_factory=dict)
    fenced: tuple[Fence, Offsets] | None = None
    changes: list[Changed] = field(default_factory=list)

    def write(self, put: Offsets, remove: set[Partition], kind: str = "commit") -> bool:
        before = {each: self.positions.get(each) for each in sorted(put.keys() | remove)}
        self.sequence += 1
        if kind != "commit":
            self.changes.append(Changed(self.sequence, kind, before, needs_older=kind == "delete"))
        kept = {each: at for each, at in self.positions.items() if each not in remove}
        self.positions = kept | put
        return True

    @property
    def expected(self) -> int:
        """What compare-and-set compares with."""
        return self.sequence if self.positions else 0

    def undone(self) -> set[int]:
        """The changes that an undo took back which was not itself undone."""
        gone: set[int] = set()
        for each in reversed(self.changes):
            if each.undoes is not None and each.sequence not in gone:
                gone.add(each.undoes)
        return gone

    def newest_change(self) -> Changed | None:
        undone = self.undone()
        open_ones = (c for c in self.changes if c.kind != "undo" and c.sequence not in undone)
        return max(open_ones, key=lambda change: change.sequence, default=None)

    def undo(self, change: Changed) -> bool:
        put = {each: old for each, old in change.before.items() if old is not None}
        gone = {each for each, old in change.before.items() if old is None}
        if all(self.positions.get(each) == old for each, old in change.before.items()):
            raise NothingToUndo("it is as it was")
        self.write(put, gone, "undo")
        self.changes[-1].undoes = change.sequence
        return True

    def facts(self) -> tuple[Offsets, int, dict[str, int]]:
        """All that a newly opened store knows about it."""
        return self.positions, self.sequence, self.fences


class Operation(Protocol):
    """Something to do to one consumer, which writes (True) or was done already (False)."""

    def model(self, model: Model) -> bool:
        """Do it to the model, or raise what the store should."""

    def store(self, store: OffsetStore, consumer: str, model: Model) -> bool:
        """Do it to the store; the model has what a caller would have loaded."""


@dataclass(frozen=True)
class Save:
    """A commit; `ahead` is how far a compare-and-set is off, None: it does not compare."""

    put: Offsets
    ahead: int | None = None
    fence: Fence | None = None

    def model(self, model: Model) -> bool:
        if self.ahead:
            raise StaleCommit("expected another")
        if self.fence and self.fence.source in model.fences:
            last = model.fences[self.fence.source]
            same = self.put.items() <= model.positions.items()
            if self.fence.number == last and same:
                return False
            if self.fence.number <= last:
                raise StaleCommit("came too late")
        if self.fence:
            model.fences[self.fence.source] = self.fence.number
            model.fenced = self.fence, self.put
        return model.write(self.put, set())

    def store(self, store: OffsetStore, consumer: str, model: Model) -> bool:
        expect = None if self.ahead is None else model.expected + self.ahead
        positions = [Position(*each, at) for each, at in self.put.items()]
        if len(positions) == 1:
            done = store.save(consumer, positions[0], expect=expect, fence=self.fence)
        else:
            many = Positions.of(positions)
            done = store.save_many(consumer, many, expect=expect, fence=self.fence)
        return done.record is not done.previous


@dataclass(frozen=True)
class SaveAgain:
    """The last fenced commit once more, as a caller does that did not hear of its success."""

    def model(self, model: Model) -> bool:
        return self._save(model).model(model)

    def store(self, store: OffsetStore, consumer: str, model: Model) -> bool:
        return self._save(model).store(store, consumer, model)

    def _save(self, model: Model) -> Save:
        if model.fenced is None:
            raise NotFound("there was none")
        fence, put = model.fenced
        return Save(put, fence=fence)


@dataclass(frozen=True)
class Delete:
    """A delete of some partitions, None: of all."""

    partitions: frozenset[Partition] | None
    ahead: int | None = None

    def model(self, model: Model) -> bool:
        if self.ahead:
            raise StaleCommit("expected another")
        wanted = model.positions.keys() if self.partitions is None else self.partitions
        gone = set(wanted & model.positions.keys())
        return bool(gone) and model.write({}, gone, "delete")

    def store(self, store: OffsetStore, consumer: str, model: Model) -> bool:
        expect = None if self.ahead is None else model.expected + self.ahead
        done = store.delete(consumer, self.partitions, expect=expect)
        return done.record is not done.previous


@dataclass(frozen=True)
class Reset:
    """An operator's reset of all positions."""

    offset: int

    def model(self, model: Model) -> bool:
        if not model.positions:
            raise NotFound("no positions")
        put = {each: self.offset for each, at in model.positions.items() if at != self.offset}
        if not put:
            raise NotFound("all are there")
        return model.write(put, set(), "reset")

    def store(self, store: OffsetStore, consumer: str, model: Model) -> bool:
        assert isinstance(store, LockFileOffsetStore)
        spec = ResetSpec(Scenario.OFFSET, number=self.offset)
        change = operations.Reset.to(store, consumer, spec)
        journal = StoreJournal(store)
        plan = journal.propose(change)
        if not plan.actions:
            raise NotFound("all are there")
        return bool(journal.apply(plan, Approval(myself(), "a test")))


@dataclass(frozen=True)
class Undo:
    """An operator's undo of the newest change; `again`: of the newest undo."""

    again: bool = False

    def model(self, model: Model) -> bool:
        change = self._wanted(model)
        if change is None:
            raise NothingToUndo("nothing")
        return model.undo(change)

    def store(self, store: OffsetStore, consumer: str, model: Model) -> bool:
        assert isinstance(store, LockFileOffsetStore)
        change = self._wanted(model)
        if consumer not in store.consumers() or (self.again and change is None):
            raise NothingToUndo("nothing to name")
        journal = StoreJournal(store, consumer=consumer)
        name = f"{consumer}@{change.sequence}" if self.again and change else None
        plan = journal.plan_undo(name)
        if not plan.actions:
            raise NothingToUndo("it is as it was")
        return bool(journal.apply(plan, Approval(myself(), "a test")))

    def may_be_refused(self, model: Model) -> bool:
        """Whether it needs a record that is old enough to be gone."""
        change = self._wanted(model)
        oldest = model.sequence - VERSIONS + 1
        return change is not None and change.needs_older and change.sequence - 1 <= oldest

    def _wanted(self, model: Model) -> Changed | None:
        if not self.again:
            return model.newest_change()
        undone = model.undone()
        undos = [c for c in model.changes if c.kind == "undo" and c.sequence not in undone]
        return undos[-1] if undos else None


partitions = st.sampled_from(PARTITIONS)
offsets = st.dictionaries(partitions, st.integers(0, 4), min_size=1)
ahead = st.sampled_from([None, None, 0, 0, 1, 2])
fences = st.builds(Fence, st.sampled_from(SOURCES), st.integers(0, 5))
saves = st.one_of(
    st.builds(Save, offsets),
    st.builds(Save, offsets, ahead=ahead),
    st.builds(Save, offsets, fence=fences),
)
commits = st.one_of(
    saves,
    saves,
    st.just(SaveAgain()),
    st.builds(Delete, st.frozensets(partitions, min_size=1), ahead=ahead),
    st.builds(Delete, st.none(), ahead=ahead),
)
changes = st.one_of(st.builds(Reset, st.integers(0, 4)), st.just(Undo()), st.just(Undo(again=True)))
consumers = st.sampled_from([*CONSUMERS, CONSUMERS[0]])


class Machine(RuleBasedStateMachine):
    """What every offset store can do."""

    store: OffsetStore

    def __init__(self) -> None:
        super().__init__()
        self.models = {name: Model() for name in CONSUMERS}
        self.clock = 1_700_000_000.0
        self.resources = ExitStack()
        clock = SimpleNamespace(time=lambda: self.clock)
        self.resources.enter_context(patch("sluicegate.offsets.store.time", clock))

    def teardown(self) -> None:
        self.resources.close()

    @rule(seconds=st.sampled_from([-3600, -1, 1, 3600]))
    def set_the_clock(self, seconds: int) -> None:
        self.clock += seconds

    @rule(consumer=consumers, act=commits)
    def commit(self, consumer: str, act: Operation) -> None:
        self.do(consumer, act)

    @rule(consumer=consumers)
    def load(self, consumer: str) -> None:
        found, model = self.store.load(consumer), self.models[consumer]
        if not model.positions:
            assert found is None
            return
        assert found
        assert {(p.topic, p.partition): p.offset for p in found.positions} == model.positions
        assert found.sequence == model.sequence

    @rule()
    def list_consumers(self) -> None:
        assert self.store.list() == [name for name in CONSUMERS if self.models[name].positions]

    def do(self, consumer: str, act: Operation) -> Outcome:
        """Do it to store and model: both the same, or both refuse in the same way."""
        before = self.models[consumer]
        after = deepcopy(before)
        expected = outcome(lambda: act.model(after))
        found = outcome(lambda: act.store(self.store, consumer, before))
        if found is NothingToUndo and isinstance(act, Undo) and act.may_be_refused(before):
            return found
        assert found == expected
        if found is True:
            self.models[consumer] = after
        return found


Outcome = bool | type[Exception]


def outcome(act: Callable[[], bool]) -> Outcome:
    try:
        return act()
    except (StaleCommit, NotFound) as e:
        return type(e)


class MemoryMachine(Machine):
    def __init__(self) -> None:
        super().__init__()
        self.store = MemoryOffsetStore()


class LockFileMachine(Machine):
    """The lock-file store, on a disk that forgets; every death is followed by a new start."""

    store: LockFileOffsetStore

    def __init__(self) -> None:
        super().__init__()
        memory = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None
        self.root = Path(self.resources.enter_context(TemporaryDirectory(dir=memory)))
        LockFileOffsetStore.create(str(self.root))
        self.disk = Disk(self.root)
        self.open()
        # What a power loss may bring back: what was before writers that died before their fsync.
        self.doubted: dict[str, list[Model]] = {}

    def open(self) -> None:
        self.deadly: Iterator[bool] = repeat(False)
        self.deadly_call = ""
        storage = LocalStorage(self.root, calls=self.disk.process(self.on_call))
        self.store = LockFileOffsetStore(storage, versions=VERSIONS)

    def on_call(self, _number: int, call: str) -> None:
        if call.startswith(self.deadly_call) and next(self.deadly):
            raise Killed

    def do(self, consumer: str, act: Operation) -> Outcome:
        found = super().do(consumer, act)
        # "Done" and "done already" can be relied on; a refusal guarantees nothing.
        if found in (True, False):
            self.doubted.pop(consumer, None)
        return found

    @rule(consumer=consumers, act=changes)
    def change(self, consumer: str, act: Operation) -> None:
        self.do(consumer, act)

    @rule(aftermath=st.sampled_from(Aftermath), seed=st.integers(0, 1000))
    def crash(self, aftermath: Aftermath, seed: int) -> None:
        """Everything that was acknowledged is there afterwards."""
        self.die(aftermath, seed)
        self.look(aftermath)

    @rule(
        consumer=consumers,
        act=st.one_of(commits, changes),
        point=st.tuples(st.sampled_from(CALLS), st.integers(0, 3)),
        aftermath=st.sampled_from(Aftermath),
        seed=st.integers(0, 1000),
    )
    def kill(
        self,
        consumer: str,
        act: Operation,
        point: tuple[str, int],
        aftermath: Aftermath,
        seed: int,
    ) -> None:
        """Whatever call the writer dies at, afterwards the store is before or after."""
        before = self.models[consumer]
        after = deepcopy(before)
        wanted = outcome(lambda: act.model(after))
        self.deadly_call, spared = point
        self.deadly = chain(repeat(False, spared), repeat(True))
        try:
            self.do(consumer, act)
        except Killed:
            self.die(aftermath, seed)
            if wanted is True:
                self.choose_after_a_kill(consumer, before, after, aftermath)
            self.look(aftermath)
        else:
            self.deadly = repeat(False)

    def choose_after_a_kill(
        self, consumer: str, before: Model, after: Model, aftermath: Aftermath
    ) -> None:
        if aftermath is Aftermath.KILL:
            self.choose(consumer, [before, after])
            if self.models[consumer] is after:
                self.doubted.setdefault(consumer, []).append(before)
        else:
            self.choose(consumer, [before, after, *self.doubted.pop(consumer, [])])

    def look(self, aftermath: Aftermath) -> None:
        """Every consumer is as it was, or after a power loss as it was before a process died."""
        for consumer in CONSUMERS:
            doubted = [] if aftermath is Aftermath.KILL else self.doubted.pop(consumer, [])
            self.choose(consumer, [self.models[consumer], *doubted])

    def choose(self, consumer: str, models: list[Model]) -> None:
        """Go on with the model that the store agrees with; it must be one of these."""
        found = self.facts(consumer)
        assert found in [model.facts() for model in models]
        self.models[consumer] = next(model for model in models if model.facts() == found)

    def die(self, aftermath: Aftermath, seed: int) -> None:
        self.disk.crash(aftermath, seed)
        if aftermath is not Aftermath.KILL:
            self.disk = Disk(self.root)
        self.open()

    def facts(self, consumer: str) -> tuple[Offsets, int, dict[str, int]]:
        record = self.store.newest(consumer)
        if record is None:
            return {}, 0, {}
        positions = {(p.topic, p.partition): p.offset for p in record.positions}
        return positions, record.sequence, {each.source: each.number for each in record.fences}

    @rule()
    def read_history(self) -> None:
        """Every change that was made is listed, newest first, and no other."""
        entries = StoreJournal(self.store).history()
        assert not [entry for entry in entries if entry.kind == "damaged"]
        for consumer in CONSUMERS:
            model = self.models[consumer]
            mine = [e for e in entries if e.id.rpartition("@")[0] == consumer]
            numbers = [int(entry.id.rpartition("@")[2]) for entry in mine]
            assert numbers == sorted(set(numbers), reverse=True)
            kept = range(max(1, model.sequence - VERSIONS + 2), model.sequence + 1)
            assert set(kept) <= set(numbers)
            listed = [
                (number, entry.kind, entry.undo.startswith("undone"))
                for number, entry in zip(numbers, mine, strict=True)
                if entry.kind != "commit"
            ]
            undone = model.undone()
            made = [(c.sequence, c.kind, c.sequence in undone) for c in reversed(model.changes)]
            assert listed == made


TestMemory = MemoryMachine.TestCase
TestMemory.settings = settings(max_examples=100, stateful_step_count=40)
TestLockFile = LockFileMachine.TestCase
TestLockFile.settings = settings(
    max_examples=200, stateful_step_count=50, suppress_health_check=[HealthCheck.too_slow]
)
