"""One store, many real processes, some of which are killed: nothing acknowledged is ever lost."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from sluicegate.errors import Locked
from sluicegate.locks import find_locks
from sluicegate.offsets import LockFileOffsetStore
from sluicegate.positions import Position
from sluicegate.storage import LocalStorage

CONSUMER = "billing"
WRITERS, COMMITS, KILLS, READERS = 8, 1000, 4, 2
COUNTERS, INCREMENTS = 4, 100
TIMEOUT, LONGEST = 120.0, 240.0

START = """
import os, random, sys, time
from pathlib import Path
from sluicegate.offsets import LockFileOffsetStore, StaleCommit
from sluicegate.positions import Position, Positions
from sluicegate.storage import LocalStorage

def opened():
    return LockFileOffsetStore(LocalStorage(Path(sys.argv[1])), timeout=float(sys.argv[2]))

lines = os.open(sys.argv[3], os.O_WRONLY | os.O_CREAT | os.O_APPEND)

def write(*values):
    # One write(2) per line: a kill leaves complete lines.
    os.write(lines, (" ".join(map(str, values)) + "\\n").encode())

store = opened()
"""
# Every commit moves the writer's own partition by one and signs the shared one. A writer that was
# killed continues at the position in the store, whether or not its last commit was acknowledged.
WRITER = (
    START
    + """
number, goal = int(sys.argv[4]), int(sys.argv[5])
record = store.load("billing")
at = (record and record.positions.get("orders", number)) or 0
while at < goal:
    at += 1
    positions = [Position("orders", number, at), Position("signed", 0, number * 10**6 + at)]
    commit = store.save_many("billing", Positions.of(positions))
    write(commit.record.sequence, number, at)
"""
)
# A reader opens the store anew now and then, as one that starts now would.
READER = (
    START
    + """
seen, last = 0, {}
while not Path(sys.argv[4]).exists():
    seen += 1
    if seen % 50 == 0:
        store = opened()
    record = store.load("billing")
    if record is None:
        assert not last, "everything is gone"
        continue
    now = dict(record.positions.by_topic["orders"])
    signed = record.positions.get("signed", 0)
    number, at = divmod(signed, 10**6)
    assert now[number] == at, f"half a commit: {now} signed {signed}"
    assert record.sequence >= last.get("sequence", 0), f"{record.sequence} after {last}"
    assert all(now[each] >= last.get(each, 0) for each in now.keys() | last.keys() - {"sequence"})
    if record.sequence != last.get("sequence"):
        write(record.sequence, number, at)
    last = now | {"sequence": record.sequence}
    time.sleep(0.001)
"""
)
COUNTER = (
    START
    + """
write("ready")
while not Path(sys.argv[5]).exists():
    time.sleep(0.001)
for _ in range(int(sys.argv[4])):
    while True:
        record = store.load("billing")
        value = (record.positions.get("counter", 0) or 0) if record else 0
        sequence = record.sequence if record else 0
        time.sleep(random.uniform(0, 0.002))
        try:
            commit = store.save("billing", Position("counter", 0, value + 1), expect=sequence)
        except StaleCommit:
            write("stale")
            continue
        write(commit.record.sequence, 0, value + 1)
        break
"""
)
HOLDER = """
import sys
from pathlib import Path
from sluicegate.locks import FileLock
with FileLock(Path(sys.argv[1])).hold():
    print("held", flush=True)
    sys.stdin.read()
"""


@pytest.fixture
def root() -> Iterator[Path]:
    """A new store, in memory where there is such a place: a kill does not reach the disk."""
    memory = Path("/dev/shm")
    with TemporaryDirectory(dir=memory if os.access(memory, os.W_OK) else None) as path:
        LockFileOffsetStore.create(f"{path}/store")
        yield Path(path) / "store"


@dataclass
class Worker:
    """A process that may be killed and started again, and the lines it has written."""

    script: str
    root: Path
    lines: Path
    arguments: tuple[object, ...]
    kills: int = 0
    process: subprocess.Popen[str] = field(init=False)

    def start(self) -> None:
        given = [self.root, TIMEOUT, self.lines, *self.arguments]
        self.process = subprocess.Popen(
            [sys.executable, "-c", self.script, *map(str, given)],
            stderr=subprocess.PIPE,
            text=True,
        )

    def kill_and_start(self) -> None:
        self.process.send_signal(signal.SIGKILL)
        self.process.communicate()
        # It may have finished just before.
        self.kills += self.process.returncode == -signal.SIGKILL
        self.start()

    def finish(self) -> None:
        _, errors = self.process.communicate(timeout=LONGEST)
        assert self.process.returncode == 0, errors

    def count(self) -> int:
        return self.lines.read_bytes().count(b"\n") if self.lines.exists() else 0

    def read(self) -> list[tuple[int, int, int]]:
        """Sequence, partition and offset of every line."""
        rows = [line.split() for line in self.lines.read_text().splitlines()]
        return [(int(a), int(b), int(c)) for a, b, c in (row for row in rows if len(row) == 3)]


@contextmanager
def running(workers: list[Worker]) -> Iterator[None]:
    for worker in workers:
        worker.start()
    try:
        yield
    finally:
        for worker in workers:
            worker.process.kill()
            worker.process.communicate()


def kill_some(workers: list[Worker], chance: random.Random) -> None:
    """Kill each several times, at random points of its work, until all have done it."""
    due = {
        number: sorted((chance.randrange(COMMITS) for _ in range(KILLS)), reverse=True)
        for number in range(len(workers))
    }
    deadline = time.monotonic() + LONGEST
    while any(worker.process.poll() is None for worker in workers):
        assert time.monotonic() < deadline, "the writers do not come to an end"
        time.sleep(chance.uniform(0.005, 0.02))
        for number, worker in enumerate(workers):
            # By what it has done, not by time: one that is killed as it starts gets nowhere.
            if due[number] and worker.count() >= due[number][-1]:
                due[number].pop()
                worker.kill_and_start()


def test_killed_writers_lose_nothing_and_readers_see_complete_commits(root: Path) -> None:
    stop = root.with_name("stop")
    writers = [
        Worker(WRITER, root, root.with_name(f"writer-{number}"), (number, COMMITS))
        for number in range(WRITERS)
    ]
    readers = [
        Worker(READER, root, root.with_name(f"reader-{number}"), (stop,))
        for number in range(READERS)
    ]
    with running(readers), running(writers):
        kill_some(writers, random.Random(7))
        for writer in writers:
            writer.finish()
        stop.touch()
        for reader in readers:
            reader.finish()
    assert sum(writer.kills for writer in writers) > WRITERS, "writers must really be killed"
    acknowledged = [row for writer in writers for row in writer.read()]
    # A kill may hit between a commit and its line, so at most one line is missing for each.
    assert len(acknowledged) >= WRITERS * (COMMITS - KILLS)
    _check_order(writers)
    _check_end(root, acknowledged)
    _check_seen(readers, acknowledged)


def _check_order(writers: list[Worker]) -> None:
    """The sequence is the order in which the lock was held: one, and the same for everybody."""
    rows = [writer.read() for writer in writers]
    numbers = [sequence for each in rows for sequence, _, _ in each]
    assert len(set(numbers)) == len(numbers), "two commits with one number"
    for number, each in enumerate(rows):
        assert each == sorted(set(each)), "a writer's commits are in order"
        offsets = [offset for _, _, offset in each]
        assert offsets == sorted(set(offsets)), "a writer's offsets only grow"
        assert {partition for _, partition, _ in each} == {number}


def _check_end(root: Path, acknowledged: list[tuple[int, int, int]]) -> None:
    """Every acknowledged commit is in the end; each commit moved one offset and took one number."""
    record = LockFileOffsetStore(LocalStorage(root)).load(CONSUMER)
    assert record
    assert record.positions.by_topic["orders"] == dict.fromkeys(range(WRITERS), COMMITS)
    assert record.sequence == WRITERS * COMMITS >= len(acknowledged)
    number, at = divmod(record.positions.by_topic["signed"][0], 10**6)
    assert at == COMMITS
    last = max(acknowledged)
    assert last[0] < record.sequence or last[1:] == (number, at), "the last commit signed last"
    locks = find_locks(root)
    assert [lock.path.name for lock in locks] == [f"{CONSUMER}.lock"]
    assert not any(lock.is_held() for lock in locks)


def _check_seen(readers: list[Worker], acknowledged: list[tuple[int, int, int]]) -> None:
    """A number means the same commit to those who saw it and to the one who made it."""
    made = {row[0]: row for row in acknowledged}
    for reader in readers:
        seen = reader.read()
        assert len(seen) > 20, "readers must look while writers write"
        assert [row for row in seen if made.get(row[0], row) != row] == []


def test_compare_and_set_counts_every_increment_without_a_lock_around_it(root: Path) -> None:
    start = root.with_name("start")
    workers = [
        Worker(COUNTER, root, root.with_name(f"counter-{number}"), (INCREMENTS, start))
        for number in range(COUNTERS)
    ]
    with running(workers):
        # All at once: one that is done before the next begins meets no other.
        while not all(worker.count() or worker.process.poll() for worker in workers):
            time.sleep(0.01)
        start.touch()
        for worker in workers:
            worker.finish()
    rows = sorted(row for worker in workers for row in worker.read())
    assert rows == [(number, 0, number) for number in range(1, COUNTERS * INCREMENTS + 1)]
    record = LockFileOffsetStore(LocalStorage(root)).load(CONSUMER)
    assert record
    assert record.positions.get("counter", 0) == len(rows)
    stale = sum(worker.lines.read_text().count("stale") for worker in workers)
    assert stale, "they must get in each other's way, or nothing was tried"


@contextmanager
def holder(path: Path) -> Iterator[subprocess.Popen[str]]:
    """Another process that holds a lock until it is killed."""
    with subprocess.Popen(
        [sys.executable, "-c", HOLDER, str(path)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        try:
            assert process.stdout
            assert process.stdout.readline() == "held\n"
            yield process
        finally:
            process.kill()


def test_consumers_do_not_block_each_other(root: Path) -> None:
    store = LockFileOffsetStore(LocalStorage(root), timeout=0)
    with holder(Path(store.lock(CONSUMER).place)):
        done = store.save("shipping", Position("orders", 0, 5))
        assert done.record
        with pytest.raises(Locked):
            store.save(CONSUMER, Position("orders", 0, 5))
    assert store.list() == ["shipping"]


def test_readers_do_not_wait_for_a_writer(root: Path) -> None:
    store = LockFileOffsetStore(LocalStorage(root), timeout=0)
    store.save(CONSUMER, Position("orders", 0, 5))
    with holder(Path(store.lock(CONSUMER).place)):
        fresh = LockFileOffsetStore(LocalStorage(root), timeout=0)
        record = fresh.load(CONSUMER)
        assert record
        assert record.positions.get("orders", 0) == 5
        assert fresh.list() == [CONSUMER]


def test_a_held_lock_is_reported_with_evidence_after_the_timeout(root: Path) -> None:
    store = LockFileOffsetStore(LocalStorage(root), timeout=0.5)
    with holder(Path(store.lock(CONSUMER).place)) as process:
        started = time.monotonic()
        with pytest.raises(Locked) as caught:
            store.save(CONSUMER, Position("orders", 0, 5))
        assert time.monotonic() - started >= 0.5
        assert caught.value.exit_code == 11
        for evidence in (
            f"pid {process.pid}",
            "that process is alive",
            "0.5 s",
            f"{CONSUMER}.lock",
        ):
            assert evidence in caught.value.message
    assert store.load(CONSUMER) is None, "what was refused must not have happened"


def test_a_killed_holder_does_not_block_the_next_commit(root: Path) -> None:
    store = LockFileOffsetStore(LocalStorage(root), timeout=30)
    with holder(Path(store.lock(CONSUMER).place)) as process:
        process.kill()
        process.wait()
        done = store.save(CONSUMER, Position("orders", 0, 5))
    assert done.record
    assert not store.lock(CONSUMER).is_held()
