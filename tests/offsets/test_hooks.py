"""Hooks are called after durable commits, and cannot affect them."""

from __future__ import annotations

import json
import logging
import multiprocessing
import os
import threading
from pathlib import Path

import pytest

from sluicegate.journal import append_line
from sluicegate.offsets import (
    CollectingHook,
    CommitHook,
    CommitInfo,
    Fence,
    HookedOffsetStore,
    HookFailure,
    JsonLinesHook,
    LockFileOffsetStore,
    LoggingHook,
    MemoryOffsetStore,
    OffsetStore,
    StaleCommit,
    Update,
)
from sluicegate.offsets.record import Change
from sluicegate.positions import Position, Positions
from sluicegate.process import myself
from sluicegate.storage import LocalStorage
from tests.support.faults import Aftermath, Disk

SPAWN = multiprocessing.get_context("spawn")
BILLING = "billing"


@pytest.fixture
def root(tmp_path: Path) -> Path:
    LockFileOffsetStore.create(str(tmp_path / "store"))
    return tmp_path / "store"


@pytest.fixture(params=["memory", "lock file"])
def inner(request: pytest.FixtureRequest) -> OffsetStore:
    if request.param == "memory":
        return MemoryOffsetStore()
    return LockFileOffsetStore.open(str(request.getfixturevalue("root")))


@pytest.fixture
def heard() -> CollectingHook:
    return CollectingHook()


def orders(offset: int, partition: int = 0) -> Position:
    return Position("orders", partition, offset)


def fail(info: CommitInfo) -> None:
    raise RuntimeError("no connection")


def interrupt(info: CommitInfo) -> None:
    raise KeyboardInterrupt


class Failing:
    def __call__(self, info: CommitInfo) -> None:
        raise OSError(28, "No space left on device")


class Unspeakable(Exception):
    def __str__(self) -> str:
        raise RuntimeError("even telling it fails")


def fail_unspeakably(info: CommitInfo) -> None:
    raise Unspeakable


def test_hooks_hear_what_was_committed(inner: OffsetStore, heard: CollectingHook) -> None:
    store = HookedOffsetStore(inner, [heard])
    commit = store.save_many(BILLING, Positions({"orders": {0: 5, 1: 6}}))
    assert commit.record is not None
    assert heard.commits == [
        CommitInfo(
            consumer=BILLING,
            sequence=1,
            kind="commit",
            at=commit.record.at,
            by=myself(),
            put=Positions({"orders": {0: 5, 1: 6}}),
            removed=frozenset(),
            previous={("orders", 0): None, ("orders", 1): None},
        )
    ]
    assert commit.hook_failures == ()


def test_hooks_see_the_previous_offsets(inner: OffsetStore, heard: CollectingHook) -> None:
    store = HookedOffsetStore(inner, [heard])
    store.save(BILLING, orders(42))
    store.save("audit", orders(1))
    store.save_many(BILLING, Positions({"orders": {0: 7}, "payments": {3: 1}}))
    assert [info.previous for info in heard.commits] == [
        {("orders", 0): None},
        {("orders", 0): None},
        {("orders", 0): 42, ("payments", 3): None},
    ]


def test_the_previous_offset_is_right_after_a_restart(root: Path, heard: CollectingHook) -> None:
    LockFileOffsetStore.open(str(root)).save(BILLING, orders(42))
    HookedOffsetStore(LockFileOffsetStore.open(str(root)), [heard]).save(BILLING, orders(43))
    assert heard.commits[0].previous == {("orders", 0): 42}


def test_the_previous_offset_is_right_if_another_instance_committed(
    root: Path, heard: CollectingHook
) -> None:
    store = HookedOffsetStore(LockFileOffsetStore.open(str(root)), [heard])
    store.save(BILLING, orders(1))
    LockFileOffsetStore.open(str(root)).save(BILLING, orders(99))
    store.save(BILLING, orders(2))
    assert heard.commits[-1].previous == {("orders", 0): 99}


def test_hooks_run_after_the_durable_save_and_without_the_lock(root: Path) -> None:
    disk = Disk(root)
    process = disk.process()
    inner = LockFileOffsetStore(LocalStorage(root, calls=process))
    seen = []

    def look(info: CommitInfo) -> None:
        other = LockFileOffsetStore.open(str(root))
        record = other.load(BILLING)
        held = other.lock(BILLING).is_held()
        seen.append((record and record.sequence, held, process.made[-1], len(process.made)))

    HookedOffsetStore(inner, [look]).save(BILLING, orders(1))
    assert seen == [(1, False, "fsync directory", len(process.made))]


def test_a_power_loss_inside_a_hook_does_not_cost_the_commit(root: Path) -> None:
    disk = Disk(root)
    inner = LockFileOffsetStore(LocalStorage(root, calls=disk.process()))
    HookedOffsetStore(inner, [lambda _: disk.crash(Aftermath.POWER_LOSS)]).save(BILLING, orders(7))
    record = LockFileOffsetStore.open(str(root)).load(BILLING)
    assert record is not None
    assert record.positions.get("orders", 0) == 7


def test_a_hook_may_commit_itself(inner: OffsetStore) -> None:
    def copy(info: CommitInfo) -> None:
        inner.save_many("copy", info.put)
        inner.save(info.consumer, Position("seen", 0, info.sequence))

    commit = HookedOffsetStore(inner, [copy]).save(BILLING, orders(5))
    assert commit.hook_failures == ()
    copied = inner.load("copy")
    assert copied is not None
    assert copied.positions == Positions({"orders": {0: 5}})


def test_delete_runs_hooks(inner: OffsetStore, heard: CollectingHook) -> None:
    store = HookedOffsetStore(inner, [heard])
    store.save_many(BILLING, Positions({"orders": {0: 5, 1: 6}}))
    store.delete(BILLING, frozenset({("orders", 1), ("never", 0)}))
    store.delete(BILLING)
    one, rest = heard.commits[1:]
    assert (one.kind, set(one.removed), dict(one.previous)) == (
        "delete",
        {("orders", 1)},
        {("orders", 1): 6},
    )
    assert (rest.sequence, set(rest.removed)) == (3, {("orders", 0)})
    assert rest.previous == {("orders", 0): 5}
    assert len(rest.put) == 0


def test_operators_changes_come_with_their_reason(
    inner: OffsetStore, heard: CollectingHook
) -> None:
    change = Change("to-offset 3", before=(("orders", 0, None),), reason="INC-7")
    HookedOffsetStore(inner, [heard]).update(
        BILLING, lambda _: Update(Positions({"orders": {0: 3}}), kind="reset", change=change)
    )
    assert (heard.commits[0].kind, heard.commits[0].reason) == ("reset", "INC-7")


def test_nothing_written_runs_no_hook(inner: OffsetStore, heard: CollectingHook) -> None:
    store = HookedOffsetStore(inner, [heard])
    store.delete(BILLING)
    store.save_many(BILLING, Positions({}))
    store.save(BILLING, orders(5), fence=Fence("job", 1))
    store.save(BILLING, orders(5), fence=Fence("job", 1))
    with pytest.raises(StaleCommit):
        store.save(BILLING, orders(5), expect=9)
    with pytest.raises(StaleCommit):
        store.save(BILLING, orders(4), fence=Fence("job", 0))
    assert [info.sequence for info in heard.commits] == [1]


def test_reading_runs_no_hook(inner: OffsetStore, heard: CollectingHook) -> None:
    inner.save(BILLING, orders(1))
    store = HookedOffsetStore(inner, [heard])
    assert store.load(BILLING) == inner.load(BILLING)
    assert store.list() == [BILLING]
    assert heard.commits == []


class TestFailures:
    def test_a_failing_hook_neither_undoes_the_commit_nor_raises(self, inner: OffsetStore) -> None:
        commit = HookedOffsetStore(inner, [fail]).save(BILLING, orders(5))
        assert commit.record is not None
        assert commit.record == inner.load(BILLING)
        assert commit.hook_failures == (HookFailure("fail", "RuntimeError: no connection"),)

    def test_it_does_not_keep_the_others_from_running(
        self, inner: OffsetStore, heard: CollectingHook
    ) -> None:
        store = HookedOffsetStore(inner, [fail, heard, Failing(), heard])
        commit = store.save(BILLING, orders(5))
        assert len(heard.commits) == 2
        assert [failure.hook for failure in commit.hook_failures] == ["fail", "Failing"]
        assert "No space left on device" in commit.hook_failures[1].error

    def test_it_can_be_retried_without_a_second_commit(self, inner: OffsetStore) -> None:
        store = HookedOffsetStore(inner, [fail])
        first = store.save(BILLING, orders(5), fence=Fence("job", 1))
        again = store.save(BILLING, orders(5), fence=Fence("job", 1))
        assert first.hook_failures
        assert again.hook_failures == ()
        assert again.record == first.record

    def test_an_error_that_cannot_be_shown_is_a_failure_like_others(
        self, inner: OffsetStore, heard: CollectingHook
    ) -> None:
        commit = HookedOffsetStore(inner, [fail_unspeakably, heard]).save(BILLING, orders(5))
        assert [failure.hook for failure in commit.hook_failures] == ["fail_unspeakably"]
        assert len(heard.commits) == 1

    def test_stores_with_hooks_can_be_nested(
        self, inner: OffsetStore, heard: CollectingHook
    ) -> None:
        inside = HookedOffsetStore(inner, [fail, heard])
        commit = HookedOffsetStore(inside, [Failing(), heard]).save(BILLING, orders(5))
        assert [failure.hook for failure in commit.hook_failures] == ["fail", "Failing"]
        assert len(heard.commits) == 2

    @pytest.mark.parametrize("stop", [KeyboardInterrupt, SystemExit, GeneratorExit])
    def test_ctrl_c_comes_through_after_all_hooks_ran_and_the_commit_stands(
        self, inner: OffsetStore, heard: CollectingHook, stop: type[BaseException]
    ) -> None:
        def stopping(info: CommitInfo) -> None:
            raise stop

        with pytest.raises(stop):
            HookedOffsetStore(inner, [stopping, fail, heard]).save(BILLING, orders(5))
        assert len(heard.commits) == 1
        record = inner.load(BILLING)
        assert record is not None
        assert record.positions == Positions({"orders": {0: 5}})

    def test_of_several_the_first_comes_through(self, inner: OffsetStore) -> None:
        def leave(info: CommitInfo) -> None:
            raise SystemExit(3)

        with pytest.raises(KeyboardInterrupt):
            HookedOffsetStore(inner, [interrupt, leave]).save(BILLING, orders(5))


class TestLogging:
    def test_every_commit_is_a_line(
        self, inner: OffsetStore, caplog: pytest.LogCaptureFixture
    ) -> None:
        caplog.set_level(logging.INFO)
        HookedOffsetStore(inner, [LoggingHook()]).save(BILLING, orders(5))
        (line,) = caplog.records
        assert (line.name, line.levelname) == ("sluicegate.offsets", "INFO")
        text = 'commit of consumer billing, sequence 1: {"orders": {"0": 5}}'
        assert line.getMessage() == text

    def test_logger_and_level_can_be_chosen(
        self, inner: OffsetStore, caplog: pytest.LogCaptureFixture
    ) -> None:
        caplog.set_level(logging.INFO)
        mine = logging.getLogger("mine")
        hooks = [LoggingHook(mine, logging.WARNING), LoggingHook(mine, logging.DEBUG)]
        HookedOffsetStore(inner, hooks).save(BILLING, orders(5))
        assert [(line.name, line.levelname) for line in caplog.records] == [("mine", "WARNING")]

    def test_names_cannot_break_the_line(
        self, inner: OffsetStore, caplog: pytest.LogCaptureFixture
    ) -> None:
        caplog.set_level(logging.INFO)
        HookedOffsetStore(inner, [LoggingHook()]).save("100%s", Position("a\nb %d", 0, 5))
        assert "\n" not in caplog.records[0].getMessage()


class TestJsonLines:
    @pytest.fixture
    def log(self, tmp_path: Path) -> Path:
        return tmp_path / "audit.jsonl"

    def test_every_commit_is_a_line_of_json(self, inner: OffsetStore, log: Path) -> None:
        store = HookedOffsetStore(inner, [JsonLinesHook(log)])
        store.save("Köln 7", orders(5))
        store.delete("Köln 7")
        first, second = (json.loads(line) for line in log.read_text().splitlines())
        assert first["consumer"] == "Köln 7"
        assert first["put"] == {"orders": {"0": 5}}
        assert first["previous"] == [["orders", 0, None]]
        assert first["by"]["pid"] == os.getpid()
        assert (second["kind"], second["sequence"]) == ("delete", 2)
        assert second["removed"] == [["orders", 0]]
        assert second["previous"] == [["orders", 0, 5]]

    def test_it_appends_to_what_is_there(self, inner: OffsetStore, log: Path) -> None:
        log.write_text('{"older": 1}\n')
        HookedOffsetStore(inner, [JsonLinesHook(log)]).save(BILLING, orders(5))
        assert [len(json.loads(line)) for line in log.read_text().splitlines()] == [1, 9]

    @pytest.mark.parametrize("torn", [b'{"half": ', b"x", b'{"a": 1}', b"{}\n\xff\xfe"])
    def test_the_half_line_of_a_killed_writer_does_not_swallow_the_next(
        self, inner: OffsetStore, log: Path, torn: bytes
    ) -> None:
        log.write_bytes(torn)
        store = HookedOffsetStore(inner, [JsonLinesHook(log)])
        store.save(BILLING, orders(5))
        store.save(BILLING, orders(6))
        data = log.read_bytes()
        assert data.startswith(torn + b"\n")
        lines = data[len(torn) + 1 :].splitlines()
        assert [json.loads(line)["sequence"] for line in lines] == [1, 2]

    @pytest.mark.parametrize("kind", ["directory", "missing directory"])
    def test_a_log_that_cannot_be_written_is_reported_beside_the_commit(
        self, inner: OffsetStore, tmp_path: Path, kind: str
    ) -> None:
        path = tmp_path if kind == "directory" else tmp_path / "no" / "log"
        commit = HookedOffsetStore(inner, [JsonLinesHook(path)]).save(BILLING, orders(5))
        assert [failure.hook for failure in commit.hook_failures] == ["JsonLinesHook"]
        assert inner.load(BILLING) is not None

    def test_a_line_is_fsynced_and_so_is_the_name_of_a_new_log(
        self, log: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        synced: list[tuple[str, int]] = []
        real = os.fsync

        def note(fd: int) -> None:
            synced.append((os.readlink(f"/proc/self/fd/{fd}"), os.fstat(fd).st_size))
            real(fd)

        monkeypatch.setattr(os, "fsync", note)
        append_line(log, {"a": 1})
        assert (str(log), log.stat().st_size) in synced
        assert str(log.parent) in [path for path, _ in synced]

    def test_no_descriptor_is_left_open(self, log: Path) -> None:
        before = len(os.listdir("/proc/self/fd"))
        for _ in range(5):
            append_line(log, {"a": 1})
            with pytest.raises(OSError, match="directory"):
                append_line(log.parent, {"a": 1})
        assert len(os.listdir("/proc/self/fd")) == before

    def test_threads_do_not_mix_their_lines(self, log: Path) -> None:
        threads = [
            threading.Thread(target=_append, args=(str(log), number, 25)) for number in range(4)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert _counts(log) == {number: list(range(25)) for number in range(4)}

    @pytest.mark.parametrize("torn", [b"", b'{"of a killed writer": '])
    def test_processes_do_not_mix_their_lines(self, log: Path, torn: bytes) -> None:
        log.write_bytes(torn)
        writers = [SPAWN.Process(target=_append, args=(str(log), n, 30)) for n in range(3)]
        for writer in writers:
            writer.start()
        for writer in writers:
            writer.join(timeout=60)
            assert writer.exitcode == 0
        assert _counts(log, skip=len(torn)) == {n: list(range(30)) for n in range(3)}


def _append(path: str, writer: int, count: int) -> None:
    for number in range(count):
        # Longer than a page and of different lengths, so that mixing would show.
        append_line(Path(path), {"writer": writer, "number": number, "pad": "x" * (number * 199)})


def _counts(path: Path, skip: int = 0) -> dict[int, list[int]]:
    """Writer → the numbers of its lines, in the order they are in the file."""
    found: dict[int, list[int]] = {}
    for line in path.read_bytes()[skip:].splitlines():
        # Two that see the same half line both end it, which leaves an empty one.
        if line:
            fields = json.loads(line)
            assert len(fields["pad"]) == fields["number"] * 199
            found.setdefault(fields["writer"], []).append(fields["number"])
    return dict(sorted(found.items()))


def test_the_collecting_hook_keeps_what_it_hears_in_order(
    inner: OffsetStore, heard: CollectingHook
) -> None:
    hooks: list[CommitHook] = [heard]
    store = HookedOffsetStore(inner, hooks)
    for offset in (3, 1, 2):
        store.save(BILLING, orders(offset))
    assert [info.put.get("orders", 0) for info in heard.commits] == [3, 1, 2]
    hooks.clear()
    store.save(BILLING, orders(4))
    assert len(heard.commits) == 4, "the store has its own list of hooks"
