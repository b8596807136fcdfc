"""The offset store: the lines of the reference design that are kept, and those that are fixed.

The common contract is tested on both stores. The lock-file store is also tried between real
processes, killed at every system call, and in Hypothesis' hands beside a dictionary.
"""

from __future__ import annotations

import multiprocessing
import os
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest
from hypothesis import settings
from hypothesis import strategies as some
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from sluicegate import codec
from sluicegate.errors import (
    Corrupt,
    InvalidName,
    Locked,
    NotFound,
    ReadOnlyViolation,
    SluicegateError,
    StorageFailed,
    UnsupportedFormat,
    UsageError,
)
from sluicegate.offsets import (
    Fence,
    LockFileOffsetStore,
    MemoryOffsetStore,
    OffsetStore,
    Record,
    StaleCommit,
    StoreDamaged,
    Update,
)
from sluicegate.offsets.record import FORMAT, Change, Kept
from sluicegate.offsets.store import CHANGES_KEPT, DEFAULT_VERSIONS
from sluicegate.positions import MAX_OFFSET, Position, Positions, PositionsInvalid
from sluicegate.storage import LocalStorage
from tests.support.faults import Aftermath, Disk, Killed, cut_points

SPAWN = multiprocessing.get_context("spawn")
BILLING = "billing"
HOSTILE = [
    "", ".", "..", "a/b", "../billing", "/etc/passwd", "a\\b", "a\0b", "a\nb", "-rf", ".hidden",
    " a", "x" * 201,
]  # fmt: skip
READ = """
import sys
from sluicegate.offsets import LockFileOffsetStore
record = LockFileOffsetStore.open(sys.argv[1]).load("billing")
print(record and (record.sequence, record.positions.get("orders", 0)))
"""
COMMIT = """
import sys
from sluicegate.offsets import LockFileOffsetStore
from sluicegate.positions import Position
LockFileOffsetStore.open(sys.argv[1]).save("billing", Position("orders", 0, int(sys.argv[2])))
"""


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return tmp_path / "store"


@pytest.fixture
def files(root: Path) -> LockFileOffsetStore:
    return LockFileOffsetStore.create(str(root))


@pytest.fixture(params=["memory", "lock file"])
def store(request: pytest.FixtureRequest) -> OffsetStore:
    if request.param == "memory":
        return MemoryOffsetStore()
    found: LockFileOffsetStore = request.getfixturevalue("files")
    return found


def orders(offset: int, partition: int = 0) -> Position:
    return Position("orders", partition, offset)


def many(*offsets: int) -> Positions:
    """Positions of `orders`, one per partition from 0."""
    return Positions.of(orders(offset, partition) for partition, offset in enumerate(offsets))


def held(store: OffsetStore, consumer: str = BILLING) -> dict[tuple[str, int], int]:
    """The content of a store, as a plain dictionary."""
    record = store.load(consumer)
    return {(p.topic, p.partition): p.offset for p in record.positions} if record else {}


def sequence(store: OffsetStore, consumer: str = BILLING) -> int:
    """The sequence of the newest record, deleted or not."""
    seen: list[Record | None] = []
    store.update(consumer, seen.append)
    return seen[0].sequence if seen[0] else 0


def change(store: OffsetStore, offset: int, consumer: str = BILLING) -> None:
    """An operator's reset of a store."""
    change = Change("to-offset", before=(("orders", 0, None),), reason="a test")
    store.update(consumer, lambda _: Update(many(offset), kind="reset", change=change))


def snapshot(root: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in root.iterdir()}


def run(code: str, *arguments: object) -> str:
    """What another process prints."""
    command = [sys.executable, "-c", code, *map(str, arguments)]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()


class TestKept:
    """`Keep` of the reference design."""

    def test_load_save_delete_and_list_by_topic_and_partition(self, store: OffsetStore) -> None:
        store.save(BILLING, Position("1", 100, 42))
        store.save(BILLING, Position("2", 200, 999))
        store.save("audit", Position("1", 100, 7))
        assert held(store) == {("1", 100): 42, ("2", 200): 999}
        assert held(store, "audit") == {("1", 100): 7}
        assert store.list() == ["audit", BILLING]
        store.delete(BILLING, frozenset({("1", 100)}))
        assert held(store) == {("2", 200): 999}
        store.delete("audit")
        assert store.list() == [BILLING]

    def test_nothing_stored_gives_none(self, store: OffsetStore) -> None:
        assert store.load(BILLING) is None
        assert store.list() == []
        store.save(BILLING, orders(5))
        record = store.load(BILLING)
        assert record is not None
        assert record.positions.get("orders", 1) is None
        store.delete(BILLING)
        assert store.load(BILLING) is None

    def test_saving_may_go_backwards(self, store: OffsetStore) -> None:
        store.save(BILLING, orders(100))
        commit = store.save(BILLING, orders(3))
        assert held(store) == {("orders", 0): 3}
        assert commit.previous is not None
        assert commit.previous.positions == many(100)

    def test_delete_is_idempotent(self, store: OffsetStore) -> None:
        nothing = store.delete(BILLING)
        assert nothing.record is nothing.previous is None
        store.save_many(BILLING, many(1, 2))
        store.delete(BILLING, frozenset({("orders", 0), ("never", 9)}))
        store.delete(BILLING)
        again = store.delete(BILLING)
        assert again.record is again.previous
        assert sequence(store) == 3, "what is not there is not deleted with a commit"

    def test_positions_survive_a_restart(self, files: LockFileOffsetStore, root: Path) -> None:
        files.save_many(BILLING, many(1, 2, MAX_OFFSET))
        assert held(LockFileOffsetStore.open(str(root))) == held(files)
        assert run(READ, root) == "(1, 1)"

    def test_writes_are_temp_fsync_rename_under_an_exclusive_lock(self, root: Path) -> None:
        LockFileOffsetStore.create(str(root)).save(BILLING, orders(1))
        locked: list[tuple[str, bool]] = []
        lock = LockFileOffsetStore.open(str(root)).lock(BILLING)
        process = Disk(root).process(lambda _, call: locked.append((call, lock.is_held())))
        store = LockFileOffsetStore(LocalStorage(root, calls=process))
        store.save(BILLING, orders(2))
        locked.clear()
        store.save(BILLING, orders(3))
        writes = [each for each in locked if not each[0].startswith(("read ", "unlink "))]
        assert [call for call, _ in writes] == [
            "create temporary",
            "write first half",
            "write second half",
            "fsync file",
            "rename billing.offsets",
            "link billing.00000000000000000003.version",
            "fsync directory",
        ]
        assert all(is_locked for call, is_locked in locked if "store" not in call)
        assert ("read billing.offsets", True) in locked, "what is decided on is read under the lock"
        assert not lock.is_held()

    def test_readers_take_no_lock(self, files: LockFileOffsetStore) -> None:
        files.save(BILLING, orders(1))
        with files.lock(BILLING).hold():
            assert held(files) == {("orders", 0): 1}
            assert files.list() == [BILLING]


class TestFixed:
    """`Fix` of the reference design."""

    def test_lock_files_are_never_unlinked(self, files: LockFileOffsetStore, root: Path) -> None:
        files.save(BILLING, orders(1))
        lock = root / "billing.lock"
        before = lock.stat().st_ino
        files.delete(BILLING)
        files.prune(BILLING)
        files.save(BILLING, orders(2))
        files.delete(BILLING)
        assert lock.stat().st_ino == before

    def test_delete_waits_for_the_lock_as_any_writer(self, root: Path) -> None:
        LockFileOffsetStore.create(str(root)).save(BILLING, orders(1))
        store = LockFileOffsetStore(LocalStorage(root), timeout=0.1)
        with store.lock(BILLING).hold(), pytest.raises(Locked):
            store.delete(BILLING)
        assert held(store) == {("orders", 0): 1}

    def test_reads_see_the_last_commit_of_another_instance(
        self, files: LockFileOffsetStore, root: Path
    ) -> None:
        other = LockFileOffsetStore.open(str(root))
        for offset in (5, 6, 6, 4):
            files.save(BILLING, orders(offset))
            assert held(other) == {("orders", 0): offset}
        other.delete(BILLING)
        assert files.load(BILLING) is None
        assert files.list() == []

    def test_reads_see_the_last_commit_of_another_process(
        self, files: LockFileOffsetStore, root: Path
    ) -> None:
        files.save(BILLING, orders(1))
        assert held(files) == {("orders", 0): 1}
        run(COMMIT, root, 77)
        assert held(files) == {("orders", 0): 77}
        files.save(BILLING, orders(78))
        assert run(READ, root) == "(3, 78)"

    @pytest.mark.parametrize("earlier", [0, 4])
    def test_a_commit_is_before_or_after_wherever_it_is_cut(
        self, tmp_path: Path, earlier: int
    ) -> None:
        """Directory fsync included: what was acknowledged survives a power loss."""

        def prepare(storage: LocalStorage) -> None:
            made = LockFileOffsetStore.create(storage.uri)
            for number in range(earlier):
                made.save_many(BILLING, many(number, number))

        def act(storage: LocalStorage) -> None:
            LockFileOffsetStore(storage, versions=2).save_many(BILLING, many(100, 100))

        for cut in cut_points(tmp_path, prepare, act):
            store = LockFileOffsetStore(LocalStorage(cut.root), versions=2)
            record = store.load(BILLING)
            found = record.positions if record else None
            old = many(earlier - 1, earlier - 1) if earlier else None
            assert found in (old, many(100, 100)), cut
            assert found == many(100, 100) or not cut.acknowledged, cut
            number = record.sequence if record else 0
            assert store.save(BILLING, orders(101)).record is not None
            assert sequence(store) == number + 1, cut
            kept = [store.read_kept(BILLING, each) for each in store.kept(BILLING)]
            assert all(each.positions.get("orders", 0) != 100 for each in kept[:-2]), cut

    def test_a_delete_is_before_or_after_wherever_it_is_cut(self, tmp_path: Path) -> None:
        def prepare(storage: LocalStorage) -> None:
            LockFileOffsetStore.create(storage.uri).save_many(BILLING, many(1, 2))

        def act(storage: LocalStorage) -> None:
            LockFileOffsetStore(storage).delete(BILLING)

        for cut in cut_points(tmp_path, prepare, act):
            store = LockFileOffsetStore(LocalStorage(cut.root))
            record = store.load(BILLING)
            assert record is None or record.positions == many(1, 2), cut
            assert record is None or not cut.acknowledged, cut

    def test_damage_is_noticed_by_its_checksum(
        self, files: LockFileOffsetStore, root: Path
    ) -> None:
        files.save(BILLING, orders(1))
        path = root / "billing.offsets"
        data = bytearray(path.read_bytes())
        data[-1] ^= 1
        path.write_bytes(data)
        with pytest.raises(StoreDamaged, match="billing is damaged") as caught:
            files.load(BILLING)
        assert caught.value.exit_code == 12
        assert caught.value.place == str(path)
        assert "sluicegate undo" in caught.value.hint

    def test_waiting_for_a_lock_has_an_end(self, root: Path) -> None:
        LockFileOffsetStore.create(str(root))
        store = LockFileOffsetStore(LocalStorage(root), timeout=0.2)
        started = time.monotonic()
        with store.lock(BILLING).hold(), pytest.raises(Locked, match=f"pid {os.getpid()}"):
            store.save(BILLING, orders(1))
        assert 0.2 <= time.monotonic() - started < 3
        assert store.load(BILLING) is None

    @pytest.mark.parametrize("what", ["damaged", "empty", "directory", "link", "pipe", "newer"])
    def test_unreadable_files_are_not_skipped_in_silence(
        self, files: LockFileOffsetStore, root: Path, what: str
    ) -> None:
        files.save("audit", orders(1))
        path = root / "billing.offsets"
        match what:
            case "damaged":
                path.write_bytes(b"x" * 200)
            case "empty":
                path.touch()
            case "directory":
                path.mkdir()
            case "link":
                path.symlink_to(root / "audit.offsets")
            case "pipe":
                os.mkfifo(path)
            case "newer":
                newer = codec.Format("offsets", FORMAT.version + 1, 1000)
                path.write_bytes(codec.encode(newer, {}))
        for call in (files.list, lambda: files.load(BILLING), lambda: change(files, 1)):
            with pytest.raises((Corrupt, StorageFailed, UnsupportedFormat)):
                call()
        assert held(files, "audit") == {("orders", 0): 1}
        assert files.consumers() == ["audit", BILLING]

    @pytest.mark.parametrize("name", HOSTILE, ids=ascii)
    def test_consumer_names_do_not_lead_out_of_the_store(
        self, store: OffsetStore, name: str, tmp_path: Path
    ) -> None:
        before = sorted(tmp_path.rglob("*"))
        calls: list[Callable[[], object]] = [
            lambda: store.load(name),
            lambda: store.save(name, orders(1)),
            lambda: store.delete(name),
        ]
        if isinstance(store, LockFileOffsetStore):
            files = store
            calls += [lambda: files.choose(name), lambda: files.lock(name)]
        for call in calls:
            with pytest.raises(InvalidName):
                call()
        assert sorted(tmp_path.rglob("*")) == before

    @pytest.mark.parametrize("offset", [2**64 - 1, 2**63, -1, 10**30])
    def test_the_end_sentinel_and_all_above_2_63_cannot_be_committed(
        self, store: OffsetStore, offset: int
    ) -> None:
        store.save(BILLING, orders(1))
        with pytest.raises(PositionsInvalid, match="is not a position"):
            store.save(BILLING, orders(offset))
        with pytest.raises(PositionsInvalid, match="is not a position"):
            store.save_many(BILLING, Positions({"orders": {0: 2, 1: offset}}))
        assert held(store) == {("orders", 0): 1}
        store.save(BILLING, orders(MAX_OFFSET))

    def test_two_writers_do_not_overwrite_each_other_in_silence(self, store: OffsetStore) -> None:
        first = store.save(BILLING, orders(1), expect=0).record
        assert first is not None
        store.save(BILLING, orders(2), expect=first.sequence)
        with pytest.raises(StaleCommit, match="is at sequence 2, not 1") as caught:
            store.save(BILLING, orders(3), expect=first.sequence)
        assert caught.value.exit_code == 13
        assert held(store) == {("orders", 0): 2}


class TestCompareAndSet:
    def test_nothing_stored_is_sequence_0(self, store: OffsetStore) -> None:
        with pytest.raises(StaleCommit):
            store.save(BILLING, orders(1), expect=1)
        assert store.load(BILLING) is None
        store.save(BILLING, orders(1), expect=0)
        with pytest.raises(StaleCommit):
            store.save(BILLING, orders(2), expect=0)

    def test_a_deleted_consumer_is_at_0_too(self, store: OffsetStore) -> None:
        store.save(BILLING, orders(1))
        store.delete(BILLING)
        with pytest.raises(StaleCommit):
            store.save(BILLING, orders(2), expect=2)
        store.save(BILLING, orders(2), expect=0)
        assert sequence(store) == 3

    def test_it_is_checked_even_if_there_is_nothing_to_write(self, store: OffsetStore) -> None:
        store.save(BILLING, orders(1))
        with pytest.raises(StaleCommit):
            store.save_many(BILLING, many(), expect=7)
        with pytest.raises(StaleCommit):
            store.delete("audit", expect=7)

    def test_delete_can_be_compared_too(self, store: OffsetStore) -> None:
        store.save(BILLING, orders(1))
        with pytest.raises(StaleCommit):
            store.delete(BILLING, expect=0)
        store.delete(BILLING, expect=1)
        assert store.load(BILLING) is None

    def test_consumers_are_compared_each_by_itself(self, store: OffsetStore) -> None:
        store.save(BILLING, orders(1))
        store.save("audit", orders(1), expect=0)
        store.save(BILLING, orders(2), expect=1)

    def test_the_message_names_who_came_in_between(self, store: OffsetStore) -> None:
        store.save(BILLING, orders(1))
        with pytest.raises(StaleCommit, match=rf"pid {os.getpid()} .* committed in between"):
            store.save(BILLING, orders(1), expect=0)


def test_a_commit_of_many_partitions_is_atomic(store: OffsetStore) -> None:
    store.save_many(BILLING, many(1, 1, 1))
    with pytest.raises(PositionsInvalid):
        store.save_many(BILLING, Positions({"orders": {0: 2, 1: 2, 2: -2}}))
    assert held(store) == {("orders", p): 1 for p in range(3)}
    store.save_many(BILLING, many(3, 3, 3))
    assert sequence(store) == 2


def test_positions_that_are_not_mentioned_stay(store: OffsetStore) -> None:
    store.save_many(BILLING, many(1, 2))
    store.save_many(BILLING, Positions({"orders": {1: 5}, "payments": {0: 7}}))
    assert held(store) == {("orders", 0): 1, ("orders", 1): 5, ("payments", 0): 7}


def test_the_sequence_grows_by_one_on_every_commit(store: OffsetStore) -> None:
    for number in range(1, 14):
        commit = store.save(BILLING, orders(7))
        assert commit.record is not None
        assert commit.record.sequence == number
        assert commit.record.id == f"billing@{number}"
    change(store, 1)
    assert sequence(store) == 14


def test_the_sequence_never_goes_back_across_delete_and_new_start(store: OffsetStore) -> None:
    seen = []
    for _ in range(3):
        for commit in (store.save(BILLING, orders(1)), store.delete(BILLING)):
            assert commit.record is not None
            seen.append(commit.record.sequence)
    assert seen == [1, 2, 3, 4, 5, 6]


def test_commits_that_change_nothing_are_commits(store: OffsetStore) -> None:
    """A consumer that commits the same offset shows that it is alive."""
    store.save(BILLING, orders(1))
    again = store.save(BILLING, orders(1))
    assert again.record is not again.previous
    assert sequence(store) == 2


def test_saving_no_positions_writes_nothing(store: OffsetStore) -> None:
    commit = store.save_many(BILLING, many())
    assert commit.record is commit.previous is None
    assert sequence(store) == 0


def test_what_is_saved_is_read_back_by_the_next_process(
    files: LockFileOffsetStore, root: Path
) -> None:
    """A topic without partitions has no position, and must not spoil the others' file."""
    files.save(BILLING, orders(1))
    with suppress(PositionsInvalid):
        files.save_many(BILLING, Positions({"orders": {0: 1}, "none": {}}))
    assert held(LockFileOffsetStore.open(str(root))) == {("orders", 0): 1}


@pytest.mark.parametrize("offset", [5.0, True], ids=repr)
def test_what_is_not_an_integer_is_refused_before_it_spoils_the_file(
    files: LockFileOffsetStore, root: Path, offset: int
) -> None:
    files.save(BILLING, orders(1))
    with pytest.raises(PositionsInvalid):
        files.save(BILLING, orders(offset))
    with pytest.raises(PositionsInvalid):
        files.save(BILLING, orders(2, partition=offset))
    assert held(LockFileOffsetStore.open(str(root))) == {("orders", 0): 1}


def test_nobody_can_change_a_record_by_accident(store: OffsetStore) -> None:
    mine = {"orders": {0: 1}}
    store.save_many(BILLING, Positions(mine))
    mine["orders"][0] = 99
    record = store.load(BILLING)
    assert record is not None
    with pytest.raises(TypeError):
        record.positions.by_topic["orders"][0] = 99  # type: ignore[index]
    assert held(store) == {("orders", 0): 1}


class TestFences:
    """The caller's own number of a commit: an epoch, a batch."""

    def test_a_late_older_number_is_refused(self, store: OffsetStore) -> None:
        store.save(BILLING, orders(10), fence=Fence("job", 5))
        with pytest.raises(StaleCommit, match="already has number 5 of job; number 4") as caught:
            store.save(BILLING, orders(4), fence=Fence("job", 4))
        assert caught.value.exit_code == 13
        assert held(store) == {("orders", 0): 10}
        assert sequence(store) == 1

    def test_a_repeat_is_accepted_without_writing(self, store: OffsetStore) -> None:
        first = store.save_many(BILLING, many(1, 2), fence=Fence("job", 5))
        again = store.save_many(BILLING, many(1, 2), fence=Fence("job", 5))
        assert again.record is again.previous
        assert again.record == first.record
        assert sequence(store) == 1
        part = store.save(BILLING, orders(2, 1), fence=Fence("job", 5))
        assert part.record is part.previous

    def test_a_repeat_leaves_every_file_as_it_is(
        self, files: LockFileOffsetStore, root: Path
    ) -> None:
        files.save(BILLING, orders(1), fence=Fence("job", 5))
        path = root / "billing.offsets"
        before = path.stat()
        LockFileOffsetStore.open(str(root)).save(BILLING, orders(1), fence=Fence("job", 5))
        assert (path.stat().st_ino, path.stat().st_mtime_ns) == (before.st_ino, before.st_mtime_ns)
        assert [each.sequence for each in files.kept(BILLING)] == [1]

    @pytest.mark.parametrize("positions", [many(2), many(1, 1)], ids=["other", "more"])
    def test_the_same_number_with_other_positions_is_refused(
        self, store: OffsetStore, positions: Positions
    ) -> None:
        store.save(BILLING, orders(1), fence=Fence("job", 5))
        with pytest.raises(StaleCommit):
            store.save_many(BILLING, positions, fence=Fence("job", 5))
        assert held(store) == {("orders", 0): 1}

    def test_another_source_is_accepted(self, store: OffsetStore) -> None:
        store.save(BILLING, orders(10), fence=Fence("job", 5))
        store.save(BILLING, orders(4), fence=Fence("another job", 1))
        assert held(store) == {("orders", 0): 4}

    def test_and_does_not_let_a_late_one_of_the_first_in(self, store: OffsetStore) -> None:
        store.save(BILLING, orders(10), fence=Fence("job", 5))
        store.save(BILLING, orders(11), fence=Fence("another job", 1))
        with pytest.raises(StaleCommit):
            store.save(BILLING, orders(4), fence=Fence("job", 4))
        with pytest.raises(StaleCommit):
            store.save(BILLING, orders(10), fence=Fence("job", 5))
        store.save(BILLING, orders(12), fence=Fence("job", 6))
        assert held(store) == {("orders", 0): 12}

    def test_of_very_many_sources_the_last_64_are_remembered(self, store: OffsetStore) -> None:
        for number in range(65):
            store.save(BILLING, orders(number), fence=Fence(f"job {number}", 5))
        record = store.load(BILLING)
        assert record is not None
        assert [each.source for each in record.fences] == [f"job {n}" for n in range(1, 65)]
        store.save(BILLING, orders(1), fence=Fence("job 0", 4))
        with pytest.raises(StaleCommit):
            store.save(BILLING, orders(1), fence=Fence("job 64", 4))

    def test_one_that_commits_again_is_not_forgotten(self, store: OffsetStore) -> None:
        for number in range(70):
            store.save(BILLING, orders(number), fence=Fence("busy", number))
            commit = store.save(BILLING, orders(number), fence=Fence(f"job {number}", 5))
            assert commit.record is not None
            assert Fence("busy", number) in commit.record.fences
        with pytest.raises(StaleCommit):
            store.save(BILLING, orders(1), fence=Fence("busy", 1))

    def test_commits_without_a_number_leave_the_fence_where_it_is(self, store: OffsetStore) -> None:
        store.save(BILLING, orders(10), fence=Fence("job", 5))
        store.save(BILLING, orders(11))
        with pytest.raises(StaleCommit):
            store.save(BILLING, orders(4), fence=Fence("job", 4))
        store.save(BILLING, orders(12), fence=Fence("job", 6))

    def test_it_survives_an_operators_change(self, store: OffsetStore) -> None:
        store.save(BILLING, orders(10), fence=Fence("job", 5))
        change(store, 3)
        with pytest.raises(StaleCommit):
            store.save(BILLING, orders(9), fence=Fence("job", 4))
        with pytest.raises(StaleCommit):
            store.save(BILLING, orders(10), fence=Fence("job", 5))
        assert held(store) == {("orders", 0): 3}, "a repeat must not undo the operator's change"
        store.save(BILLING, orders(11), fence=Fence("job", 6))

    def test_it_survives_a_delete(self, store: OffsetStore) -> None:
        store.save(BILLING, orders(10), fence=Fence("job", 5))
        store.delete(BILLING)
        for number in (4, 5):
            with pytest.raises(StaleCommit):
                store.save(BILLING, orders(10), fence=Fence("job", number))
        assert store.load(BILLING) is None

    def test_it_survives_a_restart(self, files: LockFileOffsetStore, root: Path) -> None:
        files.save(BILLING, orders(10), fence=Fence("job", 5))
        with pytest.raises(StaleCommit):
            LockFileOffsetStore.open(str(root)).save(BILLING, orders(4), fence=Fence("job", 4))

    def test_consumers_have_their_own(self, store: OffsetStore) -> None:
        store.save(BILLING, orders(10), fence=Fence("job", 5))
        store.save("audit", orders(4), fence=Fence("job", 4))

    @pytest.mark.parametrize(
        ("source", "number"),
        [("job", -1), ("job", 2**63), ("job", 2**64), ("job", True), ("", 1), ("x" * 1025, 1),
         ("\udcff", 1)],
        ids=lambda part: ascii(part)[:20],
    )  # fmt: skip
    def test_what_cannot_be_kept_does_not_spoil_the_file(
        self, files: LockFileOffsetStore, root: Path, source: str, number: int
    ) -> None:
        files.save(BILLING, orders(1))
        with pytest.raises(SluicegateError):
            files.save(BILLING, orders(2), fence=Fence(source, number))
        assert held(LockFileOffsetStore.open(str(root))) == {("orders", 0): 1}

    def test_a_repeat_that_is_acknowledged_is_durable(self, root: Path) -> None:
        """The first attempt may have been killed right before its last fsync."""
        LockFileOffsetStore.create(str(root)).save(BILLING, orders(1))
        disk = Disk(root)
        _killed_at_the_last_fsync(
            disk, lambda store: store.save(BILLING, orders(2), fence=Fence("job", 5))
        )
        again = LockFileOffsetStore(LocalStorage(root, calls=disk.process()))
        again.save(BILLING, orders(2), fence=Fence("job", 5))
        disk.crash(Aftermath.POWER_LOSS)
        assert held(LockFileOffsetStore.open(str(root))) == {("orders", 0): 2}


def test_a_delete_that_is_tried_again_is_durable(root: Path) -> None:
    LockFileOffsetStore.create(str(root)).save(BILLING, orders(1))
    disk = Disk(root)
    _killed_at_the_last_fsync(disk, lambda store: store.delete(BILLING))
    LockFileOffsetStore(LocalStorage(root, calls=disk.process())).delete(BILLING)
    disk.crash(Aftermath.POWER_LOSS)
    assert LockFileOffsetStore.open(str(root)).load(BILLING) is None


def _killed_at_the_last_fsync(disk: Disk, act: Callable[[LockFileOffsetStore], object]) -> None:
    renamed: list[str] = []

    def kill(_number: int, call: str) -> None:
        if renamed and call == "fsync directory":
            raise Killed
        if call == "rename billing.offsets":
            renamed.append(call)

    with pytest.raises(Killed):
        act(LockFileOffsetStore(LocalStorage(disk.root, calls=disk.process(kill))))


class TestTimes:
    @pytest.fixture
    def clock(self, monkeypatch: pytest.MonkeyPatch) -> list[float]:
        """The time that it is, to be set."""
        now = [1000.0]
        monkeypatch.setattr(time, "time", lambda: now[0])
        return now

    def test_every_position_has_its_own(self, store: OffsetStore, clock: list[float]) -> None:
        store.save_many(BILLING, many(1, 1))
        clock[0] = 2000.0
        store.save(BILLING, orders(1, 1))
        record = store.load(BILLING)
        assert record is not None
        assert [record.committed_at(each) for each in record.positions] == [1000.0, 2000.0]
        assert record.at == 2000.0

    def test_a_position_that_was_deleted_starts_again(
        self, store: OffsetStore, clock: list[float]
    ) -> None:
        store.save_many(BILLING, many(1, 1))
        store.delete(BILLING, frozenset({("orders", 0)}))
        clock[0] = 2000.0
        store.save(BILLING, orders(5))
        record = store.load(BILLING)
        assert record is not None
        assert [record.committed_at(each) for each in record.positions] == [2000.0, 1000.0]

    def test_a_clock_that_goes_back_does_not_turn_history_round(
        self, store: OffsetStore, clock: list[float]
    ) -> None:
        times = []
        for now in (1000.0, 500.0, 999.0, 1001.0, 3.0):
            clock[0] = now
            commit = store.save(BILLING, orders(1))
            assert commit.record is not None
            assert commit.record.committed_at(orders(1)) == commit.record.at
            times.append(commit.record.at)
        assert times == [1000.0, 1000.0, 1000.0, 1001.0, 1001.0]

    def test_nor_does_it_after_a_restart_or_a_delete(
        self, files: LockFileOffsetStore, root: Path, clock: list[float]
    ) -> None:
        files.save(BILLING, orders(1))
        clock[0] = 10.0
        assert files.delete(BILLING).record is not None
        commit = LockFileOffsetStore.open(str(root)).save(BILLING, orders(1))
        assert commit.record is not None
        assert commit.record.at == 1000.0

    def test_they_are_stored(
        self, files: LockFileOffsetStore, root: Path, clock: list[float]
    ) -> None:
        clock[0] = 1234.56789
        files.save(BILLING, orders(1))
        record = LockFileOffsetStore.open(str(root)).load(BILLING)
        assert record is not None
        assert record.committed_at(orders(1)) == 1234.56789


class TestVersions:
    """The records before the newest."""

    @staticmethod
    def numbers(store: LockFileOffsetStore, consumer: str = BILLING) -> list[int]:
        return [each.sequence for each in store.kept(consumer)]

    def test_the_last_ones_are_kept(self, files: LockFileOffsetStore) -> None:
        for offset in range(1, 26):
            files.save(BILLING, orders(offset))
        assert self.numbers(files) == list(range(26 - DEFAULT_VERSIONS, 26))
        for kept in files.kept(BILLING):
            assert files.read_kept(BILLING, kept).positions == many(kept.sequence)

    @pytest.mark.parametrize(("versions", "kept"), [(1, 1), (3, 3), (0, 1), (-5, 1), (50, 12)])
    def test_how_many_can_be_chosen(self, root: Path, versions: int, kept: int) -> None:
        LockFileOffsetStore.create(str(root))
        store = LockFileOffsetStore(LocalStorage(root), versions=versions)
        for offset in range(12):
            store.save(BILLING, orders(offset))
        assert self.numbers(store) == list(range(13 - kept, 13))

    def test_the_first_commit_is_kept_once_it_is_durable(self, root: Path) -> None:
        """Without its record, a version would look like a loss."""
        LockFileOffsetStore.create(str(root))
        process = Disk(root).process()
        store = LockFileOffsetStore(LocalStorage(root, calls=process))
        store.save(BILLING, orders(1))
        renamed = process.made.index("rename billing.offsets")
        durable = process.made.index("fsync directory", renamed)
        assert durable < process.made.index("link billing.00000000000000000001.version")
        assert self.numbers(store) == [1]

    def test_what_a_killed_writer_did_not_keep_is_kept_by_the_next(self, root: Path) -> None:
        LockFileOffsetStore.create(str(root)).save(BILLING, orders(1))

        def kill(_number: int, call: str) -> None:
            if call.startswith("link billing.00000000000000000002"):
                raise Killed

        process = Disk(root).process(kill)
        with pytest.raises(Killed):
            LockFileOffsetStore(LocalStorage(root, calls=process)).save(BILLING, orders(2))
        store = LockFileOffsetStore.open(str(root))
        assert self.numbers(store) == [1]
        store.save(BILLING, orders(3))
        assert self.numbers(store) == [1, 2, 3]

    def test_a_stale_file_with_the_number_of_the_next_commit_is_replaced(
        self, files: LockFileOffsetStore, root: Path
    ) -> None:
        for offset in (1, 2):
            files.save(BILLING, orders(offset))
        for number in (2, 3):
            path = root / f"billing.{number:020d}.version"
            path.unlink(missing_ok=True)
            path.write_bytes(b"of a dead writer")
        store = LockFileOffsetStore.open(str(root))
        store.save(BILLING, orders(3))
        kept = [store.read_kept(BILLING, each).positions for each in store.kept(BILLING)]
        assert kept == [many(1), many(2), many(3)]

    def test_operators_changes_are_kept_longer(self, files: LockFileOffsetStore) -> None:
        files.save(BILLING, orders(1))
        change(files, 2)
        for offset in range(30):
            files.save(BILLING, orders(offset))
        assert self.numbers(files) == [2, *range(33 - DEFAULT_VERSIONS, 33)]
        assert files.read_kept(BILLING, files.kept(BILLING)[0]).kind == "reset"

    def test_and_the_oldest_of_them_are_pruned(self, files: LockFileOffsetStore) -> None:
        files.save(BILLING, orders(1))
        for offset in range(CHANGES_KEPT + 5):
            change(files, offset)
        kept = files.kept(BILLING)
        assert len(kept) == CHANGES_KEPT
        assert all(each.name.endswith(".change") for each in kept)
        assert kept[-1].sequence == CHANGES_KEPT + 6

    def test_prune_keeps_what_is_to_be_kept(self, files: LockFileOffsetStore, root: Path) -> None:
        for offset in range(5):
            files.save(BILLING, orders(offset))
        change(files, 1)
        files.save("audit", orders(1))
        files.save("audit", orders(2))
        before = self.numbers(files)
        files.prune(BILLING)
        assert self.numbers(files) == before == [1, 2, 3, 4, 5, 6]
        few = LockFileOffsetStore(LocalStorage(root), versions=2)
        few.prune(BILLING)
        assert self.numbers(few) == [5, 6]
        assert self.numbers(few, "audit") == [1, 2]
        assert held(few) == {("orders", 0): 1}
        few.prune("nobody")

    def test_records_are_kept_by_consumer(self, files: LockFileOffsetStore) -> None:
        odd = "billing.00000000000000000001"
        for name in (BILLING, odd):
            for offset in (1, 2):
                files.save(name, orders(offset))
        assert self.numbers(files) == self.numbers(files, odd) == [1, 2]
        assert files.consumers() == [BILLING, odd]

    def test_a_kept_record_under_a_wrong_number_is_corrupt(
        self, files: LockFileOffsetStore, root: Path
    ) -> None:
        for offset in (1, 2):
            files.save(BILLING, orders(offset))
        wrong = Kept(7, "billing.00000000000000000007.version")
        shutil.copy(root / files.kept(BILLING)[0].name, root / wrong.name)
        with pytest.raises(Corrupt, match="holds record number 1"):
            files.read_kept(BILLING, wrong)
        with pytest.raises(NotFound):
            files.read_kept(BILLING, Kept(8, "billing.00000000000000000008.version"))

    def test_other_files_are_nobodys_versions(self, files: LockFileOffsetStore, root: Path) -> None:
        files.save(BILLING, orders(1))
        for name in (
            "billing.1.version",
            "billing.00000000000000000001.versions",
            "billing.00000000000000000001.backup",
            f"billing.{'٠' * 20}.version",
            "billing.00000000000000000001.version~",
            ".00000000000000000001.version",
            ".offsets",
            "notes.txt",
        ):
            (root / name).write_bytes(b"")
        assert self.numbers(files) == [1]
        assert files.consumers() == [BILLING]


class TestConsumers:
    def test_all_of_which_there_is_a_file(self, files: LockFileOffsetStore, root: Path) -> None:
        assert files.consumers() == []
        for name in ("deleted", "Köln 7", "a.offsets", "lost", "damaged"):
            files.save(name, orders(1))
            files.save(name, orders(2))
        files.delete("deleted")
        (root / "lost.offsets").unlink()
        (root / "damaged.offsets").write_bytes(b"")
        assert files.consumers() == ["Köln 7", "a.offsets", "damaged", "deleted", "lost"]

    def test_those_with_positions_are_listed(self, files: LockFileOffsetStore) -> None:
        files.save("a", orders(1))
        files.save("b", orders(1))
        files.delete("a")
        assert files.list() == ["b"]

    def test_choosing_by_name(self, files: LockFileOffsetStore) -> None:
        files.save("a", orders(1))
        files.save("b", orders(1))
        files.delete("b")
        assert (files.choose("a"), files.choose("b")) == ("a", "b")
        with pytest.raises(NotFound, match="known consumers: a, b") as caught:
            files.choose("c")
        assert caught.value.exit_code == 10

    def test_the_only_one_need_not_be_named(self, files: LockFileOffsetStore) -> None:
        with pytest.raises(NotFound, match="has no consumers yet"):
            files.choose(None)
        with pytest.raises(NotFound):
            files.choose("a")
        files.save("a", orders(1))
        assert files.choose(None) == "a"
        files.save("b", orders(1))
        with pytest.raises(UsageError, match="has 2; known consumers: a, b"):
            files.choose(None)


class TestMarker:
    def test_a_directory_that_is_not_marked_is_not_a_store(self, tmp_path: Path) -> None:
        for path in (tmp_path, tmp_path / "missing"):
            with pytest.raises(NotFound, match="is not an offset store") as caught:
                LockFileOffsetStore.open(str(path))
            assert "sluicegate init --store" in caught.value.hint
        assert not (tmp_path / "missing").exists()

    def test_records_alone_do_not_make_a_store(
        self, files: LockFileOffsetStore, root: Path
    ) -> None:
        files.save(BILLING, orders(1))
        (root / "sluicegate.store").unlink()
        with pytest.raises(NotFound):
            LockFileOffsetStore.open(str(root))

    def test_making_a_store_twice_keeps_the_first(
        self, files: LockFileOffsetStore, root: Path
    ) -> None:
        files.save(BILLING, orders(1))
        again = LockFileOffsetStore.create(str(root))
        assert again.mark == files.mark
        assert held(again) == {("orders", 0): 1}

    def test_a_damaged_marker_is_corrupt(self, files: LockFileOffsetStore, root: Path) -> None:
        (root / "sluicegate.store").write_bytes(b"")
        with pytest.raises(Corrupt):
            LockFileOffsetStore.open(str(root))

    CALLS: dict[str, Callable[[LockFileOffsetStore], object]] = {  # noqa: RUF012
        "load": lambda store: store.load(BILLING),
        "load of another": lambda store: store.load("new"),
        "list": lambda store: store.list(),
        "consumers": lambda store: store.consumers(),
        "choose": lambda store: store.choose(None),
        "save": lambda store: store.save(BILLING, orders(2)),
        "save of another": lambda store: store.save("new", orders(2)),
        "delete": lambda store: store.delete(BILLING),
        "prune": lambda store: store.prune(BILLING),
    }

    @pytest.mark.parametrize("left", ["nothing", "an empty mount point"])
    @pytest.mark.parametrize("call", CALLS)
    def test_a_store_that_vanishes_while_open_is_not_found_and_never_empty(
        self, files: LockFileOffsetStore, root: Path, call: str, left: str
    ) -> None:
        files.save(BILLING, orders(1))
        files.save(BILLING, orders(2))
        root.rename(root.with_name("unmounted"))
        if left != "nothing":
            root.mkdir()
        with pytest.raises(NotFound) as caught:
            self.CALLS[call](files)
        assert caught.value.exit_code == 10
        assert not (root / "billing.offsets").exists()

    def test_another_store_in_its_place_is_not_found_either(
        self, files: LockFileOffsetStore, root: Path
    ) -> None:
        files.save(BILLING, orders(1))
        root.rename(root.with_name("unmounted"))
        LockFileOffsetStore.create(str(root))
        for call in (self.CALLS["load"], self.CALLS["save"], self.CALLS["delete"]):
            with pytest.raises(NotFound, match="is another store than the one that was opened"):
                call(files)
        assert not (root / "billing.offsets").exists()


class TestDamage:
    """Never from nothing in silence."""

    @pytest.fixture
    def three(self, files: LockFileOffsetStore) -> LockFileOffsetStore:
        for offset in (1, 2, 3):
            files.save(BILLING, orders(offset))
        return files

    def test_a_missing_file_of_which_records_are_kept_is_damage(
        self, three: LockFileOffsetStore, root: Path
    ) -> None:
        (root / "billing.offsets").unlink()
        calls: list[Callable[[LockFileOffsetStore], object]] = [
            lambda store: store.load(BILLING),
            lambda store: store.save(BILLING, orders(1)),
            lambda store: store.save(BILLING, orders(1), expect=0),
            lambda store: store.delete(BILLING),
            lambda store: store.list(),
        ]
        for store in (three, LockFileOffsetStore.open(str(root))):
            for call in calls:
                with pytest.raises(StoreDamaged, match="missing although older records are kept"):
                    call(store)

    def test_a_damaged_file_is_not_overwritten_by_a_commit(
        self, three: LockFileOffsetStore, root: Path
    ) -> None:
        path = root / "billing.offsets"
        path.unlink()
        path.write_bytes(b"damaged")
        with pytest.raises(StoreDamaged):
            three.save(BILLING, orders(1))
        with pytest.raises(StoreDamaged):
            three.delete(BILLING)
        assert path.read_bytes() == b"damaged"

    def test_a_file_that_is_far_too_large_is_damaged_like_any_other(
        self, three: LockFileOffsetStore, root: Path
    ) -> None:
        path = root / "billing.offsets"
        path.unlink()
        path.touch()
        os.truncate(path, FORMAT.max_frame + 1)
        with pytest.raises(StoreDamaged):
            three.load(BILLING)

    def test_a_file_of_another_consumer_is_damage(
        self, three: LockFileOffsetStore, root: Path
    ) -> None:
        shutil.copy(root / "billing.offsets", root / "audit.offsets")
        with pytest.raises(StoreDamaged, match="of another consumer, 'billing'"):
            three.load("audit")

    def test_restoring_gives_a_number_above_all_and_keeps_what_was_there(
        self, three: LockFileOffsetStore, root: Path
    ) -> None:
        path = root / "billing.offsets"
        path.unlink()
        path.write_bytes(b"damaged")
        second = three.kept(BILLING)[1]
        commit = three.restore(BILLING, second, lambda: Update(kind="restore"))
        assert commit.record is not None
        # What was lost may have been number 4.
        assert commit.record.sequence == 5
        assert held(LockFileOffsetStore.open(str(root))) == {("orders", 0): 2}
        (aside,) = root.glob("billing.*.damaged")
        assert aside.read_bytes() == b"damaged"
        assert three.consumers() == [BILLING]
        assert three.save(BILLING, orders(9)).record is not None

    def test_restoring_keeps_the_fence_and_the_times(
        self, files: LockFileOffsetStore, root: Path
    ) -> None:
        files.save(BILLING, orders(1), fence=Fence("job", 5))
        files.save(BILLING, orders(2))
        before = files.load(BILLING)
        (root / "billing.offsets").unlink()
        files.restore(BILLING, files.kept(BILLING)[-1], lambda: Update(kind="restore"))
        after = files.load(BILLING)
        assert before is not None
        assert after is not None
        assert (after.fences, after.times) == ((Fence("job", 5),), before.times)


class TestReadOnly:
    @pytest.fixture
    def view(self, files: LockFileOffsetStore, root: Path) -> LockFileOffsetStore:
        for offset in (1, 2):
            files.save(BILLING, orders(offset))
        return LockFileOffsetStore.open(str(root), read_only=True)

    def test_reading_goes_through(self, view: LockFileOffsetStore) -> None:
        assert held(view) == {("orders", 0): 2}
        assert view.list() == view.consumers() == [BILLING]
        assert [each.sequence for each in view.kept(BILLING)] == [1, 2]

    @pytest.mark.parametrize("consumer", [BILLING, "new"])
    def test_writing_is_refused(self, view: LockFileOffsetStore, consumer: str) -> None:
        for call in (
            lambda: view.save(consumer, orders(3)),
            lambda: view.save_many(consumer, many(1, 2), expect=2 if consumer == BILLING else 0),
            lambda: change(view, 1, consumer),
            lambda: view.restore(BILLING, view.kept(BILLING)[0], Update),
        ):
            with pytest.raises(ReadOnlyViolation):
                call()
        assert held(view) == {("orders", 0): 2}

    @pytest.mark.parametrize("consumer", [BILLING, "new"])
    def test_and_leaves_nothing_behind(
        self, view: LockFileOffsetStore, root: Path, consumer: str
    ) -> None:
        """Not even the note of a lock: a dry run changes no byte."""
        before = snapshot(root)
        with suppress(ReadOnlyViolation):
            view.save(consumer, orders(3))
        with suppress(ReadOnlyViolation):
            view.delete(consumer)
        assert snapshot(root) == before

    def test_pruning_is_refused(self, view: LockFileOffsetStore, root: Path) -> None:
        few = LockFileOffsetStore(view.storage, versions=1)
        with pytest.raises(ReadOnlyViolation):
            few.prune(BILLING)
        assert len(view.kept(BILLING)) == 2


class TestThreads:
    @pytest.mark.parametrize("own_instance", [False, True], ids=["shared", "own"])
    def test_reading_while_another_thread_commits(
        self, files: LockFileOffsetStore, root: Path, own_instance: bool
    ) -> None:
        reader = LockFileOffsetStore.open(str(root)) if own_instance else files
        failures: list[BaseException] = []
        done = threading.Event()

        def commit() -> None:
            try:
                for offset in range(1, 201):
                    files.save_many(BILLING, many(offset, offset, offset))
            except BaseException as e:  # noqa: BLE001
                failures.append(e)
            done.set()

        writer = threading.Thread(target=commit)
        writer.start()
        last = 0
        while not done.is_set():
            record = reader.load(BILLING)
            if record is not None:
                assert set(record.positions.by_topic["orders"].values()) == {record.sequence}
                assert record.sequence >= last
                last = record.sequence
        writer.join()
        assert failures == []
        assert held(reader) == {("orders", p): 200 for p in range(3)}

    def test_threads_lose_no_commit_of_each_other(self, store: OffsetStore) -> None:
        def slowly(record: Record | None) -> Update:
            time.sleep(0.0005)
            return _one_more(record)

        def count_up() -> None:
            for _ in range(25):
                store.update(BILLING, slowly)

        threads = [threading.Thread(target=count_up) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert held(store) == {("orders", 0): 100}
        assert sequence(store) == 100


def _one_more(record: Record | None) -> Update:
    offset = record.positions.get("orders", 0) if record else 0
    return Update(many((offset or 0) + 1))


TURNS, WORKERS = 25, 3


def _commit_and_delete(root: str, name: str) -> None:
    store = LockFileOffsetStore.open(root)
    for _ in range(TURNS):
        store.update(BILLING, _one_more)
        store.save(BILLING, Position(name, 0, 1))
        store.delete(BILLING, frozenset({(name, 0)}))


def _compare_and_set(root: str, _name: str) -> None:
    store = LockFileOffsetStore.open(root)
    made = 0
    while made < TURNS:
        record = store.load(BILLING)
        update = _one_more(record)
        with suppress(StaleCommit):
            store.save_many(BILLING, update.put, expect=record.sequence if record else 0)
            made += 1


def _compete(root: Path, work: Callable[[str, str], None]) -> None:
    workers = [SPAWN.Process(target=work, args=(str(root), f"w{n}")) for n in range(WORKERS)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join(timeout=60)
        assert worker.exitcode == 0


def test_processes_that_commit_and_delete_never_hold_the_lock_together(
    files: LockFileOffsetStore, root: Path
) -> None:
    _compete(root, _commit_and_delete)
    assert held(files) == {("orders", 0): TURNS * WORKERS}
    assert sequence(files) == 3 * TURNS * WORKERS


def test_of_processes_that_compare_and_set_one_wins_every_time(
    files: LockFileOffsetStore, root: Path
) -> None:
    _compete(root, _compare_and_set)
    assert held(files) == {("orders", 0): TURNS * WORKERS}
    assert sequence(files) == TURNS * WORKERS


partitions = some.tuples(some.sampled_from(["orders", "payments"]), some.integers(0, 2))
some_positions = some.dictionaries(partitions, some.integers(0, 9), max_size=3).map(
    lambda found: Positions.of(Position(*where, offset) for where, offset in found.items())
)


class BesideADictionary(RuleBasedStateMachine):
    """Both stores, and a dictionary that does the same; instances come and go."""

    def __init__(self) -> None:
        super().__init__()
        self.directory = tempfile.TemporaryDirectory()
        self.root = self.directory.name
        LockFileOffsetStore.create(self.root)
        self.instances = [LockFileOffsetStore.open(self.root), LockFileOffsetStore.open(self.root)]
        self.memory = MemoryOffsetStore()
        self.model: dict[tuple[str, int], int] = {}
        self.sequence = 0

    def teardown(self) -> None:
        self.directory.cleanup()

    def expected(self) -> int:
        return self.sequence if self.model else 0

    @rule(positions=some_positions, which=some.integers(0, 1), compared=some.booleans())
    def save(self, positions: Positions, which: int, compared: bool) -> None:
        expect = self.expected() if compared else None
        for store in (self.instances[which], self.memory):
            store.save_many(BILLING, positions, expect=expect)
        self.model |= {(p.topic, p.partition): p.offset for p in positions}
        self.sequence += bool(positions)

    @rule(positions=some_positions, which=some.integers(0, 1), off=some.integers(1, 9))
    def save_too_late(self, positions: Positions, which: int, off: int) -> None:
        for store in (self.instances[which], self.memory):
            with pytest.raises(StaleCommit):
                store.save_many(BILLING, positions, expect=self.expected() + off)

    @rule(which=some.integers(0, 1), wanted=some.none() | some.frozensets(partitions, max_size=2))
    def delete(self, which: int, wanted: frozenset[tuple[str, int]] | None) -> None:
        for store in (self.instances[which], self.memory):
            store.delete(BILLING, wanted)
        gone = self.model.keys() if wanted is None else self.model.keys() & wanted
        self.sequence += bool(gone)
        self.model = {where: o for where, o in self.model.items() if where not in gone}

    @precondition(lambda self: self.sequence)
    @rule(which=some.integers(0, 1))
    def reopen(self, which: int) -> None:
        self.instances[which] = LockFileOffsetStore.open(self.root)

    @invariant()
    def all_say_the_same(self) -> None:
        for store in (*self.instances, self.memory):
            record = store.load(BILLING)
            assert held(store) == self.model
            assert (record.sequence if record else 0) == self.expected()
            assert store.list() == ([BILLING] if self.model else [])


TestBesideADictionary = BesideADictionary.TestCase
TestBesideADictionary.settings = settings(max_examples=25, stateful_step_count=15, deadline=None)
