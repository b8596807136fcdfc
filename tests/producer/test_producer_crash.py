"""Producers: killed or failing at any call, nothing that was acknowledged is lost or changed."""

from __future__ import annotations

import errno
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from copy import deepcopy
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from sluicegate.dedup.stamp import Stamp
from sluicegate.errors import NotFound, StorageFailed
from sluicegate.producer.producer import IdempotentProducer, Options
from sluicegate.storage import LocalStorage
from tests.producer.producers import ID, SMALL, abandon, segments, sent, stamp
from tests.support.faults import Aftermath, Disk, Killed, cut_points


@dataclass
class Expected:
    """Results and requests of the callers: what must be true after any crash."""

    issued: dict[Stamp, bytes] = field(default_factory=dict)
    tried: set[bytes] = field(default_factory=set)
    acknowledged: set[Stamp] = field(default_factory=set)
    behind: int = 0

    def issue(self, producer: IdempotentProducer, *messages: tuple[int, bytes]) -> None:
        self.tried |= {payload for _, payload in messages}
        stamps = producer.issue_many(messages)
        assert not self.issued.keys() & set(stamps), "a stamp twice"
        self.issued |= dict(zip(stamps, (payload for _, payload in messages), strict=True))

    def acknowledge(self, producer: IdempotentProducer, *sequences: int) -> None:
        stamps = [stamp(each) for each in sequences]
        self.acknowledged |= set(stamps)
        producer.acknowledge(stamps)

    def check(self, producer: IdempotentProducer) -> None:
        """Nothing that was returned is lost or changed; nothing new collides with it."""
        found = sent(producer)
        for each, payload in found.items():
            assert self.issued.get(each, payload) == payload
            assert payload in self.tried
        missing = self.issued.keys() - found.keys() - self.acknowledged
        assert not missing, f"{missing} must be sent again"
        assert not producer.found.doubtful
        known = self.issued.keys() | found.keys()
        for partition in (0, 1):
            last = max((each.sequence for each in known if each.partition == partition), default=-1)
            fresh = producer.issue(partition, b"fresh")
            assert fresh not in known
            # Those that were acknowledged and whose segments are gone count, too.
            assert fresh.sequence == max(last + 1, self.behind if partition == 0 else 0)
            assert producer.was_issued(fresh)


Act = Callable[[Expected, IdempotentProducer], object]


def issue_some(expected: Expected, producer: IdempotentProducer) -> None:
    for number in range(5):
        expected.issue(producer, (0, b"%d" % number * 60))
    expected.issue(producer, (0, b"many"), (1, b"many"), (0, b"more"))


def issue_two(expected: Expected, producer: IdempotentProducer) -> None:
    expected.issue(producer, (0, b"a"))
    expected.issue(producer, (0, b"b"))


def acknowledge_all(expected: Expected, producer: IdempotentProducer) -> None:
    expected.acknowledge(producer, *range(7))
    expected.issue(producer, (0, b"a"))


def reconcile(expected: Expected, producer: IdempotentProducer) -> None:
    expected.acknowledged |= set(map(stamp, range(4)))
    producer.reconcile({0: range(4)})


ACTS: dict[str, tuple[list[Act], Act]] = {
    "open": ([issue_some], lambda expected, producer: None),
    "the first issue": ([], lambda expected, producer: expected.issue(producer, (0, b"a"))),
    "issue": ([issue_some], issue_two),
    "issue into new segments and ranges": ([], issue_some),
    "issue_many": (
        [issue_some],
        lambda expected, producer: expected.issue(
            producer, *((n % 2, b"%d" % n * 9) for n in range(20))
        ),
    ),
    "acknowledge": (
        [issue_some],
        lambda expected, producer: expected.acknowledge(producer, 0, 1, 2),
    ),
    "acknowledge all, and issue": ([issue_some], acknowledge_all),
    "reconcile": ([issue_some], reconcile),
}


def made(path: Path, steps: list[Act]) -> tuple[Path, Expected]:
    """A producer on which the steps were done; every run starts from a copy of it."""
    expected = Expected()
    with IdempotentProducer.create(path, ID, SMALL) as producer:
        for step in steps:
            step(expected, producer)
    return path, expected


@pytest.mark.parametrize("name", ACTS)
def test_crash_lab(scratch: Path, name: str) -> None:
    steps, act = ACTS[name]
    template, before = made(scratch / "template", steps)
    expected = before

    def prepare(storage: LocalStorage) -> None:
        nonlocal expected
        expected = deepcopy(before)
        shutil.copytree(template, storage.uri, dirs_exist_ok=True)

    def cut_act(storage: LocalStorage) -> None:
        calls = storage._calls
        with IdempotentProducer.open(storage.uri, SMALL, calls=calls) as producer:
            act(expected, producer)

    count, left = 0, False
    for cut in cut_points(scratch, prepare, cut_act):
        try:
            highest = max(
                (each.sequence for each in expected.issued if not each.partition), default=-1
            )
            expected.behind = highest + 1
            left |= bool(list(cut.root.glob(".sg-*")))
            with IdempotentProducer.open(cut.root, SMALL) as producer:
                assert not list(cut.root.glob(".sg-*")), "what the dead left is cleared away"
                if name == "reconcile" and cut.acknowledged:
                    assert not expected.acknowledged & sent(producer).keys()
                expected.check(producer)
        except Exception as e:
            e.add_note(str(cut))
            raise
        count += 1
    assert count > 60
    assert left, "some cut must leave a temporary file behind"


def test_a_cut_creation_can_be_repeated(scratch: Path) -> None:
    def create(storage: LocalStorage) -> None:
        IdempotentProducer.create(storage.uri, ID, calls=storage._calls).close()

    seen = set()
    for cut in cut_points(scratch, lambda _: None, create):
        try:
            IdempotentProducer.open(cut.root).close()
            made = True
        except NotFound:
            made = False
        seen.add(made)
        assert made or not cut.acknowledged
        with IdempotentProducer.create(cut.root, ID) as producer:
            assert producer.issue(0, b"a") == stamp(0)
    assert seen == {True, False}


def test_a_crash_while_recovering_from_a_crash(scratch: Path) -> None:
    """What an opening builds on may not have reached the disk when its writer died."""
    template, before = made(scratch / "template", [issue_some])
    expected = before

    def prepare(storage: LocalStorage) -> None:
        nonlocal expected
        expected = deepcopy(before)
        shutil.copytree(template, storage.uri, dirs_exist_ok=True)

    def twice(storage: LocalStorage) -> None:
        armed = False

        def die_before_the_fsync(_at: int, call: str) -> None:
            if armed and call == "fsync file":
                raise Killed

        disk = storage._calls._disk  # type: ignore[attr-defined]
        process = disk.process(die_before_the_fsync)
        producer = IdempotentProducer.open(storage.uri, Options(reserve=100), calls=process)
        # Into a range that lasts, so that the next fsync is that of the outbox.
        expected.issue(producer, *[(0, b"a")] * 5)
        armed = True
        with pytest.raises(Killed):
            expected.issue(producer, (0, b"b"))
        abandon(producer)
        with IdempotentProducer.open(storage.uri, SMALL, calls=storage._calls) as producer:
            found = sent(producer)
            assert b"b" in found.values()
            expected.issued |= found
            expected.issue(producer, (0, b"c"))

    for cut in cut_points(scratch, prepare, twice, (Aftermath.POWER_LOSS, Aftermath.TORN)):
        try:
            with IdempotentProducer.open(cut.root, SMALL) as producer:
                expected.check(producer)
        except Exception as e:
            e.add_note(str(cut))
            raise


@pytest.mark.parametrize("name", ACTS)
@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EACCES])
def test_a_call_that_fails_is_reported_and_tried_again(scratch: Path, name: str, code: int) -> None:
    """A full disk or a refused permission at each call: no traceback, no loss, no collision."""
    template, before = made(scratch / "template", ACTS[name][0])
    number, failed, armed = 0, True, True

    def fail(at: int, _call: str) -> None:
        nonlocal failed
        if armed and at == number:
            failed = True
            raise OSError(code, os.strerror(code))

    while failed:
        failed, armed, expected = False, True, deepcopy(before)
        root = scratch / str(number)
        shutil.copytree(template, root)
        process = Disk(root).process(fail)
        try:
            producer = IdempotentProducer.open(root, SMALL, calls=process)
        except StorageFailed:
            producer = IdempotentProducer.open(root, SMALL, calls=process)
        try:
            ACTS[name][1](expected, producer)
        except StorageFailed as e:
            assert str(root) in e.message
            expected.issue(producer, (0, b"again"), (1, b"again"))
        armed = False
        assert expected.issued.keys() - expected.acknowledged <= sent(producer).keys()
        producer.close() if number % 2 else abandon(producer)
        expected.behind = producer.next_sequence(0)
        with IdempotentProducer.open(root, SMALL) as producer:
            expected.check(producer)
        shutil.rmtree(root)
        number += 1
    assert number > 20


@pytest.mark.parametrize("close", [True, False])
def test_a_group_whose_fsync_failed_does_not_come_back(home: Path, close: bool) -> None:
    """It is all there, behind the end of a segment that is the last one again in the end."""
    failing = False

    def fail(_at: int, call: str) -> None:
        if failing and call == "fsync file":
            raise OSError(errno.EIO, "it failed")

    producer = IdempotentProducer.open(home, calls=Disk(home).process(fail))
    kept = producer.issue(0, b"kept")
    failing = True
    with pytest.raises(StorageFailed):
        producer.issue(0, b"failed")
    failing = False
    again = producer.issue(0, b"again")
    assert again == stamp(1)
    producer.acknowledge(again)
    assert b"failed" in segments(home)[0].read_bytes()
    producer.close() if close else abandon(producer)
    with IdempotentProducer.open(home) as producer:
        expected = {kept: b"kept"} if close else {kept: b"kept", again: b"again"}
        assert sent(producer) == expected
        assert producer.issue(0, b"next") == stamp(2)


NURSERY = """
import os, random, signal, sys, time
from pathlib import Path
from sluicegate.producer.producer import IdempotentProducer, Options
from sluicegate.dedup.stamp import Stamp

root, log, seconds = sys.argv[1], Path(sys.argv[2]), float(sys.argv[3])
SMALL = Options(reserve=5, segment_bytes=400)


def lines():
    data = log.read_bytes() if log.exists() else b""
    whole = data[: data.rfind(b"\\n") + 1]
    if whole != data:
        os.truncate(log, len(whole))
    return [line.split(b" ") for line in whole.splitlines()]


def send(out, stamp, payload):
    line = f"{stamp} ".encode() + payload + b"\\n"
    half = len(line) // 2
    os.write(out, line[:half])
    os.write(out, line[half:])


def work(chance, more):
    there = [(Stamp.parse(stamp.decode()), int(number)) for stamp, number in lines()]
    held = {}
    for stamp, _ in there:
        held.setdefault(stamp.partition, set()).add(stamp.sequence)
    out = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    producer = IdempotentProducer.open(root, SMALL)
    waiting = [int(message.payload) for message in producer.pending()]
    last = max([-1, *waiting, *(number for _, number in there)])
    if chance.random() < 0.5:
        producer.reconcile(held)
    for message in producer.pending():
        send(out, message.stamp, message.payload)
        if chance.random() < 0.8:
            producer.acknowledge(message.stamp)
    wanted = last + more
    while last < wanted:
        numbers = range(last + 1, last + 1 + chance.choice((1, 1, 4)))
        stamps = producer.issue_many([(n % 3, b"%d" % n) for n in numbers])
        for n, stamp in zip(numbers, stamps):
            send(out, stamp, b"%d" % n)
        if chance.random() < 0.8:
            producer.acknowledge(stamps)
        last = numbers[-1]
    for message in producer.pending():
        send(out, message.stamp, message.payload)
    producer.close()


# Loads what is loaded late, or most kills would hit an import.
IdempotentProducer.open(root, SMALL).close()
chance = random.Random(11)
kills, until = 0, time.monotonic() + seconds
while True:
    late = time.monotonic() >= until
    child = os.fork()
    if not child:
        work(random.Random(kills), 20 if late else 10**6)
        os._exit(0)
    if not late:
        time.sleep(chance.uniform(0.005, 0.05))
        os.kill(child, signal.SIGKILL)
    _, status = os.waitpid(child, 0)
    if os.WIFSIGNALED(status):
        kills += 1
    elif status:
        sys.exit("a child failed")
    elif late:
        break
print(kills)
"""


def test_killed_anywhere_every_message_is_in_the_log_exactly_once(home: Path) -> None:
    log = home.with_name("log")
    command = [sys.executable, "-c", NURSERY, str(home), str(log), "4"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr
    assert int(done.stdout) > 20, "it must really be killed"
    lines = [line.split() for line in log.read_text().splitlines()]
    messages: dict[Stamp, int] = {}
    for text, number in lines:
        assert messages.setdefault(Stamp.parse(text), int(number)) == int(number), "a stamp twice"
    numbers = list(messages.values())
    assert len(lines) > len(messages), "some must have been sent again"
    assert sorted(numbers) == list(range(max(numbers) + 1)), "each once, none lost"
    for partition in range(3):
        found = sorted(each.sequence for each in messages if each.partition == partition)
        assert found == list(range(len(found))), "no gaps"
