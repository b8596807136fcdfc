"""The crash lab of offset stores: whatever call a writer dies at, the store is before or after.

Every cut is followed by three checks: acknowledged data exists, all existing data was written by a
process, and the history lists nothing else.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from itertools import count
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import ClassVar

import pytest

from sluicegate import saved_plan
from sluicegate.errors import NotFound
from sluicegate.journal import Approval, Entry, review
from sluicegate.offsets import Commit, Fence, LockFileOffsetStore, StoreDamaged
from sluicegate.offsets.journal import StoreJournal
from sluicegate.offsets.operations import Import, Reset
from sluicegate.offsets.store import DEFAULT_VERSIONS, MARKER
from sluicegate.offsets.verify import TEMPORARY, look_at
from sluicegate.plan import Plan
from sluicegate.positions import Position, Positions
from sluicegate.process import myself
from sluicegate.reset import ResetSpec, Scenario
from sluicegate.storage import LocalStorage
from tests.support.faults import Aftermath, Disk, Killed, cut_points

CONSUMER, TOPIC = "billing", "orders"
# A partition that no act touches: what is committed next must not hide what was cut.
OTHER = 99
State = dict[int, int]
Step = Callable[[LockFileOffsetStore], object]


@pytest.fixture
def scratch() -> Iterator[Path]:
    """In memory where there is such a place: the lab decides what survives, so fsyncs only cost."""
    memory = Path("/dev/shm")
    with TemporaryDirectory(dir=memory if os.access(memory, os.W_OK) else None) as path:
        yield Path(path)


def commit(partition: int, offset: int) -> Step:
    return lambda store: store.save(CONSUMER, Position(TOPIC, partition, offset))


def fenced(partition: int, offset: int, number: int) -> Step:
    position = Position(TOPIC, partition, offset)
    return lambda store: store.save(CONSUMER, position, fence=Fence("job", number))


def commit_many(offsets: State) -> Step:
    positions = Positions({TOPIC: offsets})
    return lambda store: store.save_many(CONSUMER, positions)


def delete(*partitions: int) -> Step:
    chosen = frozenset((TOPIC, partition) for partition in partitions) or None
    return lambda store: store.delete(CONSUMER, chosen)


def reset(offset: int) -> Step:
    def step(store: LockFileOffsetStore) -> None:
        spec = ResetSpec(Scenario.OFFSET, number=offset)
        change = Reset.to(store, CONSUMER, spec)
        apply(store, StoreJournal(store).propose(change))

    return step


def take_over(offsets: State) -> Step:
    def step(store: LockFileOffsetStore) -> None:
        change = Import.of(store, CONSUMER, Positions({TOPIC: offsets}))
        apply(store, StoreJournal(store).propose(change))

    return step


def undo(store: LockFileOffsetStore) -> None:
    apply(store, StoreJournal(store).plan_undo(None))


def apply(store: LockFileOffsetStore, plan: Plan, digest: str | None = None) -> Entry:
    return StoreJournal(store).apply(plan, Approval(myself(), "a test", plan_digest=digest))


def commits(number: int) -> list[Step]:
    """So many commits, each further than the one before; partition 1 stays at 100."""
    return [commit(1, 100), *(commit(0, offset) for offset in range(1, number))]


def made(path: Path, steps: Iterable[Step]) -> Path:
    """A store on which the steps were done; every cut starts from a copy of it."""
    store = LockFileOffsetStore.create(str(path))
    for step in steps:
        step(store)
    return path


def copy_of(template: Path) -> Callable[[LocalStorage], object]:
    return lambda storage: shutil.copytree(template, storage.uri, dirs_exist_ok=True)


def acting(step: Step) -> Callable[[LocalStorage], object]:
    return lambda storage: step(LockFileOffsetStore(storage))


def reopened(root: Path) -> LockFileOffsetStore:
    return LockFileOffsetStore(LocalStorage(root))


def state(root: Path) -> State:
    record = reopened(root).load(CONSUMER)
    return dict(record.positions.by_topic[TOPIC]) if record else {}


@dataclass(frozen=True)
class Look:
    """The content of a store that is opened again: positions, number, operator's changes, files."""

    state: State
    sequence: int
    changes: list[Entry]
    has_temporary: bool
    files: frozenset[str]

    @property
    def kinds(self) -> list[str]:
        return [entry.kind for entry in self.changes]

    @property
    def ids(self) -> list[str]:
        return [entry.id for entry in self.changes]


def look(root: Path) -> Look:
    """The content of the store, after checks that hold for any: nothing is damaged or invented."""
    store = reopened(root)
    newest = store.newest(CONSUMER)
    sequence = newest.sequence if newest else 0
    entries = StoreJournal(store).history()
    assert not [entry for entry in entries if entry.kind == "damaged"]
    numbers = [int(entry.id.rpartition("@")[2]) for entry in entries]
    assert len(set(numbers)) == len(numbers), f"a number occurs twice: {numbers}"
    assert max(numbers, default=0) == sequence
    # Temporary files may be reported, and nothing else.
    temporary = bool(store.storage.list(temporary=True))
    assert {finding.code for finding in look_at(store).findings} <= {TEMPORARY.code}
    assert set(store.consumers()) <= {CONSUMER}
    positions = dict(newest.positions.by_topic.get(TOPIC, {})) if newest else {}
    assert store.list() == ([CONSUMER] if positions else [])
    changes = [entry for entry in entries if entry.reason]
    files = frozenset(path.name for path in root.glob("*.change"))
    return Look(positions, sequence, changes, temporary, files)


def check_next_commit(root: Path, found: Look, acknowledged: int) -> None:
    """The next writer finds nothing in its way, and no number is given twice."""
    store = reopened(root)
    # Twice: the first may take the number of what was cut, the second then keeps it.
    for offset in (7, 8):
        done = store.save(CONSUMER, Position(TOPIC, OTHER, offset))
        assert done.record
        assert done.record.sequence > acknowledged
    now = look(root)
    assert now.state == found.state | {OTHER: 8}
    assert now.ids == found.ids, "a commit must not bring up a change that never was"


@contextmanager
def named(cut: object) -> Iterator[None]:
    """Name the cut in whatever fails."""
    try:
        yield
    except Exception as e:
        e.add_note(str(cut))
        raise


@dataclass(frozen=True)
class Act:
    """Work that is cut everywhere, on a store that the steps made."""

    steps: list[Step]
    step: Step
    after: State
    changes: list[str] = field(default_factory=list)


MANY = {partition: partition * 3 for partition in range(500)}
ACTS = {
    "the first commit": Act([], commit(0, 5), {0: 5}),
    "the second commit": Act([commit(0, 5)], commit(0, 6), {0: 6}),
    "the third commit": Act(commits(2), commit(0, 6), {0: 6, 1: 100}),
    "a commit that fills the versions": Act(
        commits(DEFAULT_VERSIONS), commit(0, 50), {0: 50, 1: 100}
    ),
    "a commit that drops a version": Act(
        commits(DEFAULT_VERSIONS + 3), commit(0, 50), {0: 50, 1: 100}
    ),
    "a commit backwards": Act(commits(5), commit(0, 0), {0: 0, 1: 100}),
    "the first commit of many partitions": Act([], commit_many(MANY), MANY),
    "a commit of many partitions": Act(
        [commit_many(dict.fromkeys(MANY, 1))], commit_many(MANY), MANY
    ),
    "a delete of one partition": Act(commits(3), delete(0), {1: 100}),
    "a delete of everything": Act(commits(3), delete(), {}),
    "a commit after a delete": Act([*commits(3), delete()], commit(0, 1), {0: 1}),
    "an import into nothing": Act([], take_over({0: 3, 1: 4}), {0: 3, 1: 4}, ["import"]),
    "a reset": Act(commits(3), reset(42), {0: 42, 1: 42}, ["reset"]),
    "a reset that drops versions": Act(
        commits(DEFAULT_VERSIONS + 3), reset(42), {0: 42, 1: 42}, ["reset"]
    ),
    "an undo": Act([*commits(3), reset(42)], undo, {0: 2, 1: 100}, ["undo"]),
    "an undo after commits": Act(
        [*commits(3), reset(42), commit(0, 43)], undo, {0: 2, 1: 100}, ["undo"]
    ),
}


@pytest.mark.parametrize("name", ACTS)
def test_an_act_is_before_or_after_at_every_cut(scratch: Path, name: str) -> None:
    act = ACTS[name]
    template = made(scratch / "template", act.steps)
    before = look(template)
    seen, left = set(), False
    for cut in cut_points(scratch, copy_of(template), acting(act.step)):
        with named(cut):
            found = look(cut.root)
            assert found.state in (before.state, act.after)
            happened = found.state == act.after
            assert happened or not cut.acknowledged
            new = act.changes if happened else []
            assert found.kinds == [*new, *before.kinds], "history shows what happened"
            check_next_commit(cut.root, found, before.sequence + cut.acknowledged)
            left |= found.has_temporary
            seen.add((cut.aftermath, happened))
    assert len(seen) == 2 * len(Aftermath), "both outcomes must occur"
    assert left, "some cut must leave a temporary file behind"


@pytest.mark.parametrize(
    "steps",
    [
        [*commits(3), reset(42)],
        [*commits(3), reset(42), undo],
        [take_over({0: 3, 1: 4})],
        [take_over({0: 3, 1: 4}), commit(0, 5), delete(0), *commits(4)],
        [*commits(3), reset(42), *commits(DEFAULT_VERSIONS - 1)],
        [*commits(3), reset(42), undo, *commits(DEFAULT_VERSIONS + 5)],
    ],
    ids=["reset", "undo", "first", "delete", "at the edge", "long ago"],
)
def test_acknowledged_changes_stay_in_the_history_of_cut_commits(
    scratch: Path, steps: list[Step]
) -> None:
    """Versions come and go, an operator's change is kept: undo restores it."""
    template = made(scratch / "template", steps)
    before = look(template)

    def act(storage: LocalStorage) -> None:
        for offset in (1000, 1001):
            commit(0, offset)(LockFileOffsetStore(storage))

    for cut in cut_points(scratch, copy_of(template), act):
        with named(cut):
            found = look(cut.root)
            assert found.changes == before.changes
            assert found.files >= before.files
            check_next_commit(cut.root, found, before.sequence + 2 * cut.acknowledged)
            assert StoreJournal(reopened(cut.root)).plan_undo(before.ids[0]).actions


class TestSavedPlan:
    """A saved plan that is applied again after a crash is applied once."""

    @pytest.fixture
    def template(self, scratch: Path) -> Path:
        (scratch / "plans").mkdir()
        return made(scratch / "template", commits(3))

    AFTER: ClassVar[State] = {0: 42, 1: 42}

    @staticmethod
    def place(root: Path) -> str:
        # Outside the directory that is cut; a plan names its store, so each copy has its own.
        return str(root.parent / "plans" / f"{root.name}.json")

    def prepare(self, template: Path, storage: LocalStorage) -> None:
        copy_of(template)(storage)
        store = LockFileOffsetStore(storage)
        change = Reset.to(store, CONSUMER, ResetSpec(Scenario.OFFSET, number=42))
        plan = StoreJournal(store).propose(change)
        saved_plan.save(plan, self.place(Path(storage.uri)), "a test", 3600)

    def act(self, storage: LocalStorage) -> Entry:
        """Apply the saved plan, or find that this was done."""
        store = LockFileOffsetStore(storage)
        saved = saved_plan.load(self.place(Path(storage.uri)))
        reviewed = review(StoreJournal(store), saved)
        if isinstance(reviewed, Entry):
            return reviewed
        return apply(store, reviewed, saved.digest)

    def test_it_is_before_or_after_at_every_cut(self, scratch: Path, template: Path) -> None:
        before = look(template)
        seen = set()
        for cut in cut_points(scratch, partial(self.prepare, template), self.act):
            with named(cut):
                found = look(cut.root)
                assert found.state in (before.state, self.AFTER)
                happened = found.state == self.AFTER
                assert happened or not cut.acknowledged
                assert len(found.changes) == happened
                self.check_again(cut.root, self.AFTER)
                check_next_commit(cut.root, look(cut.root), before.sequence + 1)
                seen.add((cut.aftermath, happened))
        assert len(seen) == 2 * len(Aftermath), "both outcomes must occur"

    def test_it_is_applied_once_though_a_commit_came_between(
        self, scratch: Path, template: Path
    ) -> None:
        """The commit takes the number that the cut plan would have had."""
        prepare = partial(self.prepare, template)
        for ends in _cut_twice(scratch, prepare, lambda _: None, self.act, chances=12):
            with named(ends):
                commit(OTHER, 7)(reopened(ends.root))
                self.check_again(ends.root, self.AFTER | {OTHER: 7})

    def test_what_was_found_applied_survives_a_power_loss(
        self, scratch: Path, template: Path
    ) -> None:
        """A caller that got "applied" relies on it, even if the process that applied it died."""
        before = state(template)
        for ends in _cut_twice(scratch, partial(self.prepare, template), self.act, self.act):
            with named(ends):
                found = state(ends.root)
                assert found in (before, self.AFTER)
                assert found == self.AFTER or not ends.acknowledged
                self.check_again(ends.root, self.AFTER)

    def check_again(self, root: Path, after: State) -> None:
        """However often it is applied now, it is applied once."""
        entries = [self.act(LocalStorage(root)) for _ in range(2)]
        found = look(root)
        assert found.state == after
        assert [entry.id for entry in entries] == found.ids * 2


def _cut_short(path: Path) -> None:
    os.truncate(path, path.stat().st_size // 2)


def _replaced(path: Path) -> None:
    path.unlink()
    path.write_bytes(b"something else")


# A record and its kept name are one file, so what damages the file in place damages both.
DAMAGES: dict[str, tuple[Callable[[Path], None], State]] = {
    "cut short": (_cut_short, {0: 42, 1: 42}),
    "replaced": (_replaced, {0: 43, 1: 42}),
    "gone": (Path.unlink, {0: 43, 1: 42}),
}


def _made_and_damaged(path: Path, how: str) -> tuple[Path, State]:
    """A store whose newest record is damaged, and what a restore makes of it."""
    template = made(path, [*commits(3), reset(42), commit(0, 43)])
    damage, after = DAMAGES[how]
    damage(template / f"{CONSUMER}.offsets")
    return template, after


def restore(store: LockFileOffsetStore) -> None:
    if not _is_sound(Path(store.uri)):
        undo(store)


@pytest.mark.parametrize("how", DAMAGES)
def test_a_restore_is_before_or_after_at_every_cut(scratch: Path, how: str) -> None:
    template, after = _made_and_damaged(scratch / "template", how)
    seen = set()
    for cut in cut_points(scratch, copy_of(template), acting(undo)):
        with named(cut):
            restored = _is_sound(cut.root)
            assert restored or not cut.acknowledged
            seen.add((cut.aftermath, restored))
            _check_restore(cut.root, template, after)
    assert len(seen) == 2 * len(Aftermath), "both outcomes must occur"


def test_a_restore_can_be_cut_twice(scratch: Path) -> None:
    template, after = _made_and_damaged(scratch / "template", "replaced")
    act = acting(restore)
    for ends in _cut_twice(scratch, copy_of(template), act, act, chances=1):
        with named(ends):
            assert _is_sound(ends.root) or not ends.first_acknowledged
            _check_restore(ends.root, template, after)


def _check_restore(root: Path, template: Path, after: State) -> None:
    """After one more attempt everything is well, and what was found is kept."""
    StoreJournal(reopened(root)).history()
    restore(reopened(root))
    assert state(root) == after
    found = {path.read_bytes() for path in template.glob("*.offsets")}
    assert {path.read_bytes() for path in root.glob("*.damaged")} == found
    newest, *_, oldest = (e.kind for e in StoreJournal(reopened(root)).history() if e.reason)
    assert (newest, oldest) == ("restore", "reset")
    done = commit(0, 44)(reopened(root))
    assert isinstance(done, Commit)
    assert done.record
    assert done.record.sequence > 6, "record 5 was damaged, and 6 may be the restore"
    assert state(root) == after | {0: 44}


def _is_sound(root: Path) -> bool:
    try:
        reopened(root).load(CONSUMER)
    except StoreDamaged:
        return False
    return True


def test_a_store_is_made_or_not_at_every_cut(scratch: Path) -> None:
    seen = set()
    for cut in cut_points(scratch, lambda _: None, MARKER.create):
        with named(cut):
            there = _is_store(cut.root)
            assert there or not cut.acknowledged
            identity = reopened(cut.root).mark if there else None
            assert MARKER.create(LocalStorage(cut.root)) is not there
            assert identity in (None, reopened(cut.root).mark), "an identity is made once"
            check_next_commit(cut.root, look(cut.root), 0)
            seen.add((cut.aftermath, there))
    assert len(seen) == 2 * len(Aftermath), "both outcomes must occur"


def test_a_store_that_is_said_to_be_there_survives_a_power_loss(scratch: Path) -> None:
    for ends in _cut_twice(scratch, lambda _: None, MARKER.create, MARKER.create):
        with named(ends):
            assert _is_store(ends.root) or not ends.acknowledged


def _is_store(root: Path) -> bool:
    try:
        reopened(root)
    except NotFound:
        return False
    return True


@dataclass(frozen=True)
class Ends:
    """Two acts, each cut or not, and the directory as it was found afterwards."""

    root: Path
    first: tuple[Aftermath, str]
    second: tuple[Aftermath, str]
    first_acknowledged: bool
    acknowledged: bool
    between: State | None


class _Killer:
    """Kills at one of the calls whose names begin so."""

    def __init__(self, calls: tuple[str, ...], at: int) -> None:
        self._calls = calls
        self._left = at
        self.where = "after the last call"

    def __call__(self, _number: int, call: str) -> None:
        if not call.startswith(self._calls):
            return
        if self._left == 0:
            self.where = call
            raise Killed
        self._left -= 1


# The calls in between leave the same behind.
_CALLS = ("create", "fsync", "link", "mkdir", "rename", "unlink")
# After a kill the kernel still has what was not fsynced, and the second death can take it away.
# Just before the fsync of a directory most names are undecided, so chance gets more tries there.
_ENDINGS = (
    ((Aftermath.KILL, Aftermath.KILL), _CALLS, 1),
    ((Aftermath.KILL, Aftermath.POWER_LOSS), _CALLS, 1),
    ((Aftermath.KILL, Aftermath.TORN), ("fsync directory",), None),
    ((Aftermath.TORN, Aftermath.TORN), ("fsync directory",), None),
)


def _cut_twice(
    scratch: Path,
    prepare: Callable[[LocalStorage], object],
    first: Callable[[LocalStorage], object],
    second: Callable[[LocalStorage], object],
    chances: int = 3,
) -> Iterator[Ends]:
    """Cut the first act at each call, and after each of these the second act at each call."""
    roots = (scratch / f"twice-{number}" for number in count())
    for endings, calls, tries in _ENDINGS:
        for i in count():
            for j in count():
                for seed in range(tries or chances):
                    root = next(roots)
                    root.mkdir()
                    prepare(LocalStorage(root))
                    killers = _Killer(calls, i), _Killer(calls, j)
                    ends = _run_twice(root, (first, second), killers, endings, seed)
                    yield ends
                    shutil.rmtree(root)
                if ends.acknowledged:
                    break
            if ends.first_acknowledged:
                break


def _run_twice(
    root: Path,
    acts: Sequence[Callable[[LocalStorage], object]],
    killers: Sequence[_Killer],
    endings: Sequence[Aftermath],
    seed: int,
) -> Ends:
    disk = Disk(root)
    acknowledged: list[bool] = []
    between: State | None = None
    for act, killer, ending in zip(acts, killers, endings, strict=True):
        if acknowledged:
            between = _state_if_any(root)
        try:
            act(LocalStorage(root, calls=disk.process(killer)))
        except Killed:
            acknowledged.append(False)
        else:
            acknowledged.append(True)
        if ending is not Aftermath.KILL:
            disk.crash(ending, seed * 2 + len(acknowledged))
            disk = Disk(root)
    where = [(ending, killer.where) for ending, killer in zip(endings, killers, strict=True)]
    return Ends(root, where[0], where[1], acknowledged[0], acknowledged[1], between)


def _state_if_any(root: Path) -> State | None:
    """What the second act finds; None if that is no store, or a damaged one."""
    try:
        return state(root)
    except (NotFound, StoreDamaged):
        return None


TWICE: dict[str, tuple[list[Step], Step, Step, State]] = {
    "two first commits": ([], commit(0, 5), commit(1, 6), {1: 6}),
    "two later commits": (commits(3), commit(0, 5), commit(1, 6), {1: 6}),
    "a reset, then a commit": (commits(3), reset(42), commit(2, 6), {2: 6}),
    "a commit, then a reset": (commits(3), commit(2, 6), reset(42), {0: 42, 1: 42}),
}


@pytest.mark.parametrize("name", TWICE)
def test_two_crashes_leave_no_more_than_two_acts(scratch: Path, name: str) -> None:
    steps, first, second, put = TWICE[name]
    template = made(scratch / "template", steps)
    before = look(template)
    for ends in _cut_twice(scratch, copy_of(template), acting(first), acting(second), chances=12):
        with named(ends):
            found, between = look(ends.root), ends.between
            assert between is not None
            # A reset moves all positions that are there, so also one the first act made.
            after = {**between, **({2: 42} if 2 in between and 0 in put else {}), **put}
            allowed = [after] if ends.acknowledged else [after, between]
            if not ends.first_acknowledged and not ends.acknowledged:
                allowed.append(before.state)
            assert found.state in allowed
            assert len(found.changes) == (42 in found.state.values()), "history shows what happened"
            acknowledged = before.sequence + ends.first_acknowledged + ends.acknowledged
            check_next_commit(ends.root, found, acknowledged)


AGAIN: dict[str, tuple[list[Step], Step, State]] = {
    "the first commit": ([], fenced(0, 5, 7), {0: 5}),
    "a later commit": ([fenced(1, 100, 5), fenced(0, 4, 6)], fenced(0, 5, 7), {0: 5, 1: 100}),
    "a delete": (commits(3), delete(0), {1: 100}),
    "a delete of everything": (commits(3), delete(), {}),
}


@pytest.mark.parametrize("name", AGAIN)
def test_what_was_done_already_survives_a_power_loss(scratch: Path, name: str) -> None:
    """Trying again after a kill is acknowledged, too, though there is nothing left to write."""
    steps, step, after = AGAIN[name]
    before = look(made(scratch / "template", steps))
    for ends in _cut_twice(scratch, copy_of(scratch / "template"), acting(step), acting(step)):
        with named(ends):
            found = look(ends.root)
            assert found.state in (before.state, after)
            assert found.state == after or not (ends.first_acknowledged or ends.acknowledged)
            check_next_commit(ends.root, found, before.sequence + ends.acknowledged)
