"""Producers: no stamp for two messages and no message under two stamps, whatever happens."""

from __future__ import annotations

import errno
import os
import random
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from copy import deepcopy
from dataclasses import dataclass, field
from functools import partial
from itertools import pairwise
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import ClassVar
from unittest.mock import patch

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from sluicegate.codec import Format
from sluicegate.dedup.producer import (
    IdempotentProducer,
    Message,
    Options,
    ProducerFenced,
    SequencesExhausted,
)
from sluicegate.dedup.producer_files import LOCK, MARKER, StateDamaged
from sluicegate.dedup.producer_segment import MAX_GROUP, OutboxDamaged, encode_group
from sluicegate.dedup.producer_state import Ranges
from sluicegate.dedup.stamp import MAX_PARTITION, MAX_PRODUCER_BYTES, MAX_SEQUENCE, Stamp
from sluicegate.errors import (
    Corrupt,
    Fenced,
    Locked,
    NotFound,
    StorageFailed,
    UnsupportedFormat,
    UsageError,
)
from sluicegate.storage import LocalStorage
from sluicegate.storage.faults import Aftermath, Disk, Killed, cut_points

ID = "shop/checkout"
# So that ranges end and segments fill within a few messages.
SMALL = Options(reserve=4, segment_bytes=300)


@pytest.fixture
def scratch() -> Iterator[Path]:
    """In memory where there is such a place: the labs say what survives, so fsyncs only cost."""
    memory = Path("/dev/shm")
    with TemporaryDirectory(dir=memory if os.access(memory, os.W_OK) else None) as path:
        yield Path(path)


@pytest.fixture
def home(scratch: Path) -> Path:
    """A producer that was made and closed."""
    IdempotentProducer.create(scratch / "producer", ID).close()
    return scratch / "producer"


def stamp(sequence: int, partition: int = 0) -> Stamp:
    return Stamp(ID, partition, sequence)


def sent(producer: IdempotentProducer) -> dict[Stamp, bytes]:
    """What is pending; each once, in order of its partition."""
    messages = list(producer.pending())
    assert all(isinstance(each, Message) for each in messages)
    for partition in {each.stamp.partition for each in messages}:
        order = [each.stamp for each in messages if each.stamp.partition == partition]
        assert order == sorted(set(order))
    return {each.stamp: each.payload for each in messages}


def abandon(producer: IdempotentProducer) -> None:
    """Let it go as a kill would: the lock is free, nothing else happens."""
    producer._instance.outbox.seal()
    producer._closed = True
    producer._held.close()


def lose_lock(root: Path) -> None:
    """As on another host, or after somebody removed the file."""
    (root / LOCK).unlink()


def segments(root: Path) -> list[Path]:
    return sorted(root.glob("*.outbox"))


class TestIssue:
    def test_stamps_count_up_per_partition(self, home: Path) -> None:
        with IdempotentProducer.open(home) as producer:
            assert producer.issue(0, b"a") == stamp(0)
            assert producer.issue_many([(0, b"b"), (7, b"c"), (0, b"")]) == [
                stamp(1),
                stamp(0, 7),
                stamp(2),
            ]
            assert producer.issue_many([]) == []
            assert sent(producer) == {
                stamp(0): b"a",
                stamp(1): b"b",
                stamp(2): b"",
                stamp(0, 7): b"c",
            }
            assert [producer.next_sequence(each) for each in (0, 7, 8)] == [3, 1, 0]

    def test_what_was_issued_is_there_after_closing_and_after_a_kill(self, home: Path) -> None:
        producer = IdempotentProducer.open(home)
        producer.issue(0, b"a")
        producer.close()
        producer.close()
        producer = IdempotentProducer.open(home)
        producer.issue(0, b"b")
        abandon(producer)
        with IdempotentProducer.open(home) as producer:
            assert sent(producer) == {stamp(0): b"a", stamp(1): b"b"}
            assert producer.issue(0, b"c") == stamp(2), "it continues at last + 1"
            assert not producer.found.cut

    def test_the_end_is_remembered_though_nothing_is_pending(self, home: Path) -> None:
        for number in range(3):
            producer = IdempotentProducer.open(home)
            assert producer.issue(0, b"a") == stamp(number)
            producer.acknowledge(stamp(number))
            assert sent(producer) == {}
            producer.close()
            assert segments(home) == []

    def test_a_range_costs_one_state_and_a_call_one_fsync(self, home: Path) -> None:
        process = Disk(home).process()
        with IdempotentProducer.open(home, calls=process) as producer:
            producer.issue(0, b"first")

            def fsyncs(work: Callable[[], object]) -> int:
                before = len(process.made)
                work()
                return sum(call.startswith("fsync") for call in process.made[before:])

            assert fsyncs(lambda: [producer.issue(0, b"a") for _ in range(100)]) == 100
            assert fsyncs(lambda: producer.issue_many([(0, b"a")] * 900)) == 1
            # 1 + 100 + 900 of the 1024 are used: file, state, directory.
            assert fsyncs(lambda: [producer.issue(0, b"a") for _ in range(100)]) == 102

    def test_threads_share_it(self, home: Path) -> None:
        with IdempotentProducer.open(home, SMALL) as producer, ThreadPoolExecutor(8) as pool:
            found = list(pool.map(lambda number: producer.issue(0, b"%d" % number), range(200)))
            assert {each.sequence for each in found} == set(range(200))
            assert sent(producer) == {each: b"%d" % number for number, each in enumerate(found)}

    def test_a_buffer_is_kept_as_it_was(self, home: Path) -> None:
        with IdempotentProducer.open(home) as producer:
            buffer = bytearray(b"a")
            producer.issue(0, buffer)  # type: ignore[arg-type]
            buffer[0] = 0
            assert sent(producer) == {stamp(0): b"a"}

    @pytest.mark.parametrize(
        "bad",
        [(0, "text"), (0, None), (-1, b""), (MAX_PARTITION + 1, b""), ("0", b""), (True, b"")],
    )
    def test_what_cannot_be_stamped_is_refused_with_all_of_its_call(
        self, home: Path, bad: tuple[int, bytes]
    ) -> None:
        with IdempotentProducer.open(home) as producer:
            with pytest.raises(UsageError):
                producer.issue_many([(0, b"good"), bad])
            assert sent(producer) == {}
            assert producer.issue(MAX_PARTITION, b"") == stamp(0, MAX_PARTITION)

    def test_more_than_a_group_holds_is_refused(self, home: Path) -> None:
        with IdempotentProducer.open(home) as producer:
            with pytest.raises(UsageError, match=str(MAX_GROUP)):
                producer.issue(0, bytes(MAX_GROUP))
            assert producer.issue(0, b"a") == stamp(0)

    def test_sequences_end_at_the_last_one(self, home: Path) -> None:
        with IdempotentProducer.open(home) as producer:
            producer.reissue(stamp(MAX_SEQUENCE - 2))
            assert producer.issue(0, b"a").sequence == MAX_SEQUENCE - 1
            with pytest.raises(SequencesExhausted, match="partition 0"):
                producer.issue_many([(1, b""), (0, b"b"), (0, b"c")])
            assert producer.issue(0, b"b").sequence == MAX_SEQUENCE
            assert producer.was_issued(stamp(MAX_SEQUENCE))
            abandon(producer)
        with IdempotentProducer.open(home) as producer:
            with pytest.raises(SequencesExhausted):
                producer.issue(0, b"d")
            assert producer.issue(1, b"e") == stamp(0, 1), "nothing of the refused call happened"
            assert sent(producer)[stamp(MAX_SEQUENCE)] == b"b"

    def test_a_closed_one_says_so(self, home: Path) -> None:
        producer = IdempotentProducer.open(home)
        producer.close()
        for work in (
            lambda: producer.issue(0, b""),
            producer.pending,
            lambda: producer.reconcile({}),
        ):
            with pytest.raises(UsageError, match="closed"):
                work()


class TestDirectory:
    @pytest.mark.parametrize("name", ["", "a/b//c/", "żółw 🐢", "x" * MAX_PRODUCER_BYTES, "a\nb"])
    def test_any_name_comes_back(self, scratch: Path, name: str) -> None:
        IdempotentProducer.create(scratch / "p", name).close()
        with IdempotentProducer.open(scratch / "p") as producer:
            issued = producer.issue(3, b"a")
            assert issued == Stamp(name, 3, 0)
            assert Stamp.parse(str(issued)) == issued
            assert producer.was_issued(issued)

    @pytest.mark.parametrize("name", ["x" * (MAX_PRODUCER_BYTES + 1), "\ud800", None, b"a"])
    def test_a_name_that_no_stamp_can_have_is_refused(self, scratch: Path, name: str) -> None:
        with pytest.raises(UsageError):
            IdempotentProducer.create(scratch / "p", name)
        assert not (scratch / "p").exists()

    def test_only_what_was_made_on_purpose_is_opened(self, scratch: Path, home: Path) -> None:
        (scratch / "empty").mkdir()
        for path in (scratch / "missing", scratch / "empty"):
            with pytest.raises(NotFound) as caught:
                IdempotentProducer.open(path)
            assert "create" in caught.value.hint
        assert not list((scratch / "empty").iterdir()), "no lock file where no producer is"
        (home / MARKER.name).unlink()
        with pytest.raises(NotFound):
            IdempotentProducer.open(home)
        with pytest.raises(UsageError, match="not empty"):
            IdempotentProducer.create(home, ID)

    def test_creating_again_opens_and_another_name_is_refused(self, home: Path) -> None:
        with IdempotentProducer.create(home, ID) as producer:
            producer.issue(0, b"a")
        with IdempotentProducer.create(home, ID) as producer:
            assert producer.issue(0, b"b") == stamp(1)
        with pytest.raises(UsageError, match="another producer"):
            IdempotentProducer.create(home, "other")

    def test_a_foreign_directory_is_not_taken(self, scratch: Path) -> None:
        (scratch / "notes.txt").touch()
        with pytest.raises(UsageError, match="not empty"):
            IdempotentProducer.create(scratch, ID)

    def test_a_second_process_is_refused_with_evidence(self, home: Path) -> None:
        script = (
            "import sys; from sluicegate.dedup.producer import IdempotentProducer as P\n"
            "with P.open(sys.argv[1]): print('open', flush=True); sys.stdin.read()"
        )
        with subprocess.Popen(
            [sys.executable, "-c", script, str(home)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        ) as process:
            assert process.stdout
            assert process.stdout.readline() == "open\n"
            with pytest.raises(Locked, match=f"pid {process.pid} .*that process is alive"):
                IdempotentProducer.open(home)
            process.kill()
        IdempotentProducer.open(home).close()

    def test_options_that_cannot_be_are_refused(self, scratch: Path) -> None:
        for options in ({"reserve": 0}, {"segment_bytes": 0}, {"segment_bytes": MAX_GROUP + 1}):
            with pytest.raises(UsageError):
                Options(**options)  # type: ignore[arg-type]
        with pytest.raises(UsageError):
            IdempotentProducer.create(scratch / "p", ID, window=-1)


class TestAcknowledge:
    def test_what_the_log_has_is_not_pending(self, home: Path) -> None:
        with IdempotentProducer.open(home) as producer:
            first, second, third = producer.issue_many([(0, b"a"), (0, b"b"), (1, b"c")])
            assert producer.acknowledge(second) == 1
            assert producer.acknowledge([first, second]) == 1, "again is no harm"
            assert sent(producer) == {third: b"c"}
        with IdempotentProducer.open(home) as producer:
            assert sent(producer) == {third: b"c"}

    def test_while_what_is_pending_is_read(self, home: Path) -> None:
        with IdempotentProducer.open(home, SMALL) as producer:
            issued = [producer.issue(0, b"x" * 50) for _ in range(60)]
            seen = []
            for each in producer.pending():
                seen.append(each.stamp)
                producer.acknowledge(issued[: 2 * len(seen)])
            assert seen == issued[::2]
            assert sent(producer) == {}

    def test_full_segments_go_when_all_in_them_is_acknowledged(self, home: Path) -> None:
        with IdempotentProducer.open(home, SMALL) as producer:
            issued = [producer.issue(0, b"x" * 50) for _ in range(30)]
            many = len(segments(home))
            assert many > 8
            producer.acknowledge(issued[1:])
            assert len(segments(home)) == 2, "the first message's, and the one that grows"
            producer.acknowledge(issued[0])
            assert len(segments(home)) == 1
        assert segments(home) == []
        with IdempotentProducer.open(home) as producer:
            assert (sent(producer), producer.next_sequence(0)) == ({}, 30)

    def test_they_become_durable_now_and_then(self, home: Path) -> None:
        """A lost acknowledgement costs one more sending; not of everything, though."""
        producer = IdempotentProducer.open(home, Options(reserve=10))
        issued = producer.issue_many([(0, b"x")] * 25)
        for each in issued:
            producer.acknowledge(each)
        abandon(producer)
        with IdempotentProducer.open(home) as producer:
            assert sent(producer) == dict.fromkeys(issued[20:], b"x")

    def test_what_was_never_issued_is_refused_and_nothing_happens(self, home: Path) -> None:
        with IdempotentProducer.open(home) as producer:
            first = producer.issue(0, b"a")
            for bad in (stamp(1), stamp(0, 1), Stamp("other", 0, 0), "text", stamp(-1)):
                with pytest.raises(UsageError):
                    producer.acknowledge([first, bad])  # type: ignore[list-item]
            assert sent(producer) == {first: b"a"}


class TestReplay:
    def test_reissue_moves_the_next_sequence_if_it_was_not_past_it(self, home: Path) -> None:
        with IdempotentProducer.open(home) as producer:
            issued = [producer.issue(0, b"%d" % number) for number in range(3)]
            assert producer.reissue(issued[1]) == b"1"
            assert producer.next_sequence(0) == 3
            producer.acknowledge(issued[1])
            assert producer.reissue(issued[1]) is None
            assert producer.reissue(stamp(9)) is None
            abandon(producer)
        with IdempotentProducer.open(home) as producer:
            assert producer.issue(0, b"a") == stamp(10), "durably"
            with pytest.raises(UsageError):
                producer.reissue(Stamp("other", 0, 50))

    def test_was_issued_is_exact_in_the_window_and_yes_below(self, scratch: Path) -> None:
        with IdempotentProducer.create(scratch / "p", ID, window=8) as producer:
            producer.issue_many([(0, b"")] * 3)
            producer.reissue(stamp(5))
            assert [n for n in range(9) if producer.was_issued(stamp(n))] == [0, 1, 2, 5]
            producer.reissue(stamp(4))
            assert not producer.was_issued(stamp(0, 1))
            assert not producer.was_issued(Stamp("other", 0, 0))
        with IdempotentProducer.open(scratch / "p") as producer:
            assert [n for n in range(9) if producer.was_issued(stamp(n))] == [0, 1, 2, 4, 5]
            producer.issue_many([(0, b"")] * 5)
            assert [n for n in range(14) if not producer.was_issued(stamp(n))] == [3, 11, 12, 13]
            producer.issue(0, b"")
            assert producer.was_issued(stamp(3)), "it is below the window now"

    def test_the_default_window(self, home: Path) -> None:
        with IdempotentProducer.open(home) as producer:
            producer.reissue(stamp(1023))
            assert not producer.was_issued(stamp(0))
            producer.issue(0, b"")
            assert producer.was_issued(stamp(0))
            assert not producer.was_issued(stamp(1))


class TestReconcile:
    def test_the_highest_says_nothing_of_those_below(self, home: Path) -> None:
        with IdempotentProducer.open(home) as producer:
            issued = producer.issue_many([(0, b"a"), (0, b"b"), (0, b"c"), (1, b"d")])
            assert producer.reconcile({0: 1}) == 1
            assert set(sent(producer)) == {issued[0], issued[2], issued[3]}
            assert producer.next_sequence(0) == 3, "never back"

    @pytest.mark.parametrize("held", [range(2), {0, 1}, [1, 0], iter([0, 1]), range(1, -1, -1)])
    def test_those_that_are_there_leave_the_outbox(self, home: Path, held: object) -> None:
        with IdempotentProducer.open(home) as producer:
            issued = producer.issue_many([(0, b"a"), (0, b"b"), (0, b"c"), (1, b"d")])
            assert producer.reconcile({0: held, 1: [], 2: ()}) == 2  # type: ignore[dict-item]
            assert set(sent(producer)) == set(issued[2:])

    def test_a_restored_backup_continues_behind_the_log(self, scratch: Path, home: Path) -> None:
        with IdempotentProducer.open(home) as producer:
            producer.issue_many([(0, b"a"), (0, b"b")])
        shutil.copytree(home, scratch / "backup")
        with IdempotentProducer.open(home) as producer:
            producer.issue_many([(0, b"c")] * 5000 + [(1, b"d")])
        backup = scratch / "backup"
        with IdempotentProducer.open(backup, in_log={0: range(1, 5002), 1: 0}) as producer:
            assert sent(producer) == {stamp(0): b"a"}
            assert producer.was_issued(stamp(5001))
            abandon(producer)
        with IdempotentProducer.open(backup) as producer:
            assert producer.issue_many([(0, b"e"), (1, b"e")]) == [stamp(5002), stamp(1, 1)]

    def test_up_to_the_last_sequence(self, home: Path) -> None:
        with IdempotentProducer.open(home, in_log={0: range(2**63), 1: MAX_SEQUENCE}) as producer:
            for partition in (0, 1):
                with pytest.raises(SequencesExhausted):
                    producer.issue(partition, b"")

    @pytest.mark.parametrize(
        "bad",
        [
            {0: -1},
            {0: 2**63},
            {-1: 0},
            {-1: []},
            {0: ["1"]},
            {0: [1, -1]},
            {0: range(-3, 2)},
            {0: None},
        ],
    )
    def test_what_no_log_can_hold_is_refused(self, home: Path, bad: dict[int, int]) -> None:
        with IdempotentProducer.open(home) as producer:
            producer.issue(0, b"a")
            with pytest.raises(UsageError):
                producer.reconcile(bad)
            assert sent(producer) == {stamp(0): b"a"}


class TestFence:
    """An instance whose lock was lost must find out before it tells anybody of a stamp."""

    WORK: ClassVar[dict[str, Callable[[IdempotentProducer], object]]] = {
        "issue": lambda producer: producer.issue(0, b"zombie"),
        "a new segment": lambda producer: producer.issue(0, b"z" * 400),
        "a new range": lambda producer: producer.issue_many([(0, b"z")] * 9),
        "acknowledge": lambda producer: producer.acknowledge([stamp(0), stamp(1)]),
        "reissue": lambda producer: producer.reissue(stamp(70)),
        "reconcile": lambda producer: producer.reconcile({0: 80}),
    }

    @pytest.mark.parametrize("work", WORK)
    def test_a_zombie_is_fenced_for_good(self, home: Path, work: str) -> None:
        zombie = IdempotentProducer.open(home, SMALL)
        zombie.issue_many([(0, b"a"), (0, b"b")])
        lose_lock(home)
        with IdempotentProducer.open(home) as newer:
            assert newer.epoch > zombie.epoch
            for _ in range(2):
                with pytest.raises(ProducerFenced, match=f"epoch {newer.epoch} was opened by"):
                    self.WORK[work](zombie)
            assert newer.issue(0, b"c") == stamp(2)
            zombie.close()
            assert sent(newer) == {stamp(0): b"a", stamp(1): b"b", stamp(2): b"c"}
        with IdempotentProducer.open(home) as newest:
            assert len(sent(newest)) == 3
        assert issubclass(ProducerFenced, Fenced)

    @pytest.mark.parametrize("work", WORK)
    def test_whenever_it_is_overtaken(self, scratch: Path, work: str) -> None:
        """At each call of the zombie's work another instance is opened and issues."""
        outcomes: set[bool] = set()
        number, done = 0, False
        while not done:
            root = scratch / str(number)
            done = self.overtake(root, work, number, outcomes)
            number += 1
        assert number > 2
        assert outcomes == {True, False}, "some must be fenced and some come before"

    def overtake(
        self,
        root: Path,
        name: str,
        number: int,
        outcomes: set[bool],
    ) -> bool:
        """One run, in which the other comes before call `number`; True if there are fewer."""
        IdempotentProducer.create(root, ID).close()
        told: dict[Stamp, bytes] = {}
        newer: list[IdempotentProducer] = []
        armed = False

        def come_between(at: int, _call: str) -> None:
            nonlocal armed
            if armed and at >= first + number:
                armed = False
                lose_lock(root)
                newer.append(IdempotentProducer.open(root, SMALL))
                told.update({newer[0].issue(0, b"newer"): b"newer"})

        process = Disk(root).process(come_between)
        zombie = IdempotentProducer.open(root, SMALL, calls=process)
        # In two segments, so that acknowledging deletes one; the second has room for more.
        told |= {zombie.issue(0, b"s" * size): b"s" for size in (200, 1)}
        first, armed = len(process.made), True
        try:
            answer = self.WORK[name](zombie)
        except ProducerFenced:
            outcomes.add(True)
        else:
            outcomes.add(False)
            issued = answer if isinstance(answer, list) else [answer]
            zombies = [each for each in issued if isinstance(each, Stamp)]
            assert not told.keys() & set(zombies), "two messages under one stamp"
            told |= dict.fromkeys(zombies, b"z")
        fewer, armed = armed, False
        zombie.close()
        for other in newer:
            assert other.issue(0, b"more") not in told
            abandon(other)
        with IdempotentProducer.open(root) as last:
            found = sent(last)
            for each, payload in told.items():
                assert each not in found or found[each].startswith(payload[:1])
            assert last.issue(0, b"last") not in told.keys() | found.keys()
            acknowledged = [stamp(0), stamp(1)] if name == "acknowledge" else []
            assert found.keys() >= told.keys() - set(acknowledged)
        shutil.rmtree(root)
        return fewer

    def test_whenever_it_wakes_up_while_another_opens(self, scratch: Path) -> None:
        """At each call of the other's opening and first issue the zombie tries to issue."""
        number, late = 0, False
        while not late:
            root = scratch / str(number)
            zombie = IdempotentProducer.create(root, ID, SMALL)
            told = {zombie.issue(0, b"a"): b"a"}

            def wake_up(at: int, _call: str) -> None:
                if at == number:  # noqa: B023
                    try:
                        told[zombie.issue(0, b"zombie")] = b"zombie"  # noqa: B023
                    except ProducerFenced:
                        told[stamp(0, 9)] = b"fenced"  # noqa: B023

            lose_lock(root)
            process = Disk(root).process(wake_up)
            newer = IdempotentProducer.open(root, SMALL, calls=process)
            late = len(process.made) <= number
            issued = newer.issue(0, b"newer")
            assert issued not in told
            told.pop(stamp(0, 9), None)
            assert sent(newer).items() >= told.items()
            newer.close()
            zombie.close()
            with IdempotentProducer.open(root) as last:
                assert sent(last) == told | {issued: b"newer"}
            number += 1
        assert number > 10

    def test_a_zombie_that_reads_is_fenced_too(self, home: Path) -> None:
        zombie = IdempotentProducer.open(home)
        zombie.issue_many([(0, b"a"), (0, b"b")])
        reading = zombie.pending()
        lose_lock(home)
        with IdempotentProducer.open(home) as newer:
            newer.acknowledge([stamp(0), stamp(1)])
        with pytest.raises(ProducerFenced):
            list(reading)
        with pytest.raises(ProducerFenced):
            zombie.pending()
        abandon(zombie)

    def test_an_instance_that_outlives_a_restore_is_fenced(self, scratch: Path, home: Path) -> None:
        shutil.copytree(home, scratch / "before")
        zombie = IdempotentProducer.open(home)
        zombie.issue(0, b"a")
        shutil.copytree(home, scratch / "while")
        zombie.issue(0, b"b")
        for backup in ("while", "before"):
            shutil.rmtree(home)
            shutil.copytree(scratch / backup, home)
            # Its claim is in one of the backups, but its outbox is not the file it writes to.
            with pytest.raises(ProducerFenced, match="restore of a backup"):
                zombie.issue(0, b"c")
        with IdempotentProducer.open(home, in_log={0: 1}) as newer:
            assert newer.issue(0, b"d") == stamp(2)
            with pytest.raises(ProducerFenced):
                zombie.issue(0, b"e")
        zombie.close()

    def test_an_epoch_is_not_used_again_though_the_clock_stands_still(self, home: Path) -> None:
        with patch("time.time", return_value=1.0):
            epochs = []
            for _ in range(3):
                with IdempotentProducer.open(home) as producer:
                    epochs.append(producer.epoch)
        assert sorted(set(epochs)) == epochs

    def test_a_forked_child_may_not_issue(self, home: Path) -> None:
        script = (
            "import os, sys; from sluicegate.dedup.producer import IdempotentProducer as P\n"
            "from sluicegate.errors import Fenced\n"
            "producer = P.open(sys.argv[1])\n"
            "if os.fork() == 0:\n"
            "    try: producer.issue(0, b'child')\n"
            "    except Fenced as e: print(e, flush=True)\n"
            "    os._exit(0)\n"
            "os.wait()\n"
            "print(producer.issue(0, b'parent').sequence)"
        )
        command = [sys.executable, "-c", script, str(home)]
        done = subprocess.run(command, capture_output=True, text=True, check=True)
        assert "forked" in done.stdout
        assert done.stdout.endswith("\n0\n")


@dataclass
class Told:
    """What callers were told, and what they asked for: what must be true after any crash."""

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
        """Nothing that was told is lost or changed; nothing new collides with it."""
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


Act = Callable[[Told, IdempotentProducer], object]


def issue_some(told: Told, producer: IdempotentProducer) -> None:
    for number in range(5):
        told.issue(producer, (0, b"%d" % number * 60))
    told.issue(producer, (0, b"many"), (1, b"many"), (0, b"more"))


def issue_two(told: Told, producer: IdempotentProducer) -> None:
    told.issue(producer, (0, b"a"))
    told.issue(producer, (0, b"b"))


def acknowledge_all(told: Told, producer: IdempotentProducer) -> None:
    told.acknowledge(producer, *range(7))
    told.issue(producer, (0, b"a"))


def reconcile(told: Told, producer: IdempotentProducer) -> None:
    told.acknowledged |= set(map(stamp, range(4)))
    producer.reconcile({0: range(4)})


ACTS: dict[str, tuple[list[Act], Act]] = {
    "open": ([issue_some], lambda told, producer: None),
    "the first issue": ([], lambda told, producer: told.issue(producer, (0, b"a"))),
    "issue": ([issue_some], issue_two),
    "issue into new segments and ranges": ([], issue_some),
    "issue_many": (
        [issue_some],
        lambda told, producer: told.issue(producer, *((n % 2, b"%d" % n * 9) for n in range(20))),
    ),
    "acknowledge": (
        [issue_some],
        lambda told, producer: told.acknowledge(producer, 0, 1, 2),
    ),
    "acknowledge all, and issue": ([issue_some], acknowledge_all),
    "reconcile": ([issue_some], reconcile),
}


def made(path: Path, steps: list[Act]) -> tuple[Path, Told]:
    """A producer on which the steps were done; every run starts from a copy of it."""
    told = Told()
    with IdempotentProducer.create(path, ID, SMALL) as producer:
        for step in steps:
            step(told, producer)
    return path, told


@pytest.mark.parametrize("name", ACTS)
def test_crash_lab(scratch: Path, name: str) -> None:
    steps, act = ACTS[name]
    template, before = made(scratch / "template", steps)
    told = before

    def prepare(storage: LocalStorage) -> None:
        nonlocal told
        told = deepcopy(before)
        shutil.copytree(template, storage.uri, dirs_exist_ok=True)

    def cut_act(storage: LocalStorage) -> None:
        calls = storage._calls
        with IdempotentProducer.open(storage.uri, SMALL, calls=calls) as producer:
            act(told, producer)

    count, left = 0, False
    for cut in cut_points(scratch, prepare, cut_act):
        try:
            highest = max((each.sequence for each in told.issued if not each.partition), default=-1)
            told.behind = highest + 1
            left |= bool(list(cut.root.glob(".sg-*")))
            with IdempotentProducer.open(cut.root, SMALL) as producer:
                assert not list(cut.root.glob(".sg-*")), "what the dead left is cleared away"
                if name == "reconcile" and cut.acknowledged:
                    assert not told.acknowledged & sent(producer).keys()
                told.check(producer)
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
    told = before

    def prepare(storage: LocalStorage) -> None:
        nonlocal told
        told = deepcopy(before)
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
        told.issue(producer, *[(0, b"a")] * 5)
        armed = True
        with pytest.raises(Killed):
            told.issue(producer, (0, b"b"))
        abandon(producer)
        with IdempotentProducer.open(storage.uri, SMALL, calls=storage._calls) as producer:
            found = sent(producer)
            assert b"b" in found.values()
            told.issued |= found
            told.issue(producer, (0, b"c"))

    for cut in cut_points(scratch, prepare, twice, (Aftermath.POWER_LOSS, Aftermath.TORN)):
        try:
            with IdempotentProducer.open(cut.root, SMALL) as producer:
                told.check(producer)
        except Exception as e:
            e.add_note(str(cut))
            raise


@pytest.mark.parametrize("name", ACTS)
@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EACCES])
def test_a_call_that_fails_is_told_and_tried_again(scratch: Path, name: str, code: int) -> None:
    """A full disk or a refused permission at each call: no traceback, no loss, no collision."""
    template, before = made(scratch / "template", ACTS[name][0])
    number, failed, armed = 0, True, True

    def fail(at: int, _call: str) -> None:
        nonlocal failed
        if armed and at == number:
            failed = True
            raise OSError(code, os.strerror(code))

    while failed:
        failed, armed, told = False, True, deepcopy(before)
        root = scratch / str(number)
        shutil.copytree(template, root)
        process = Disk(root).process(fail)
        try:
            producer = IdempotentProducer.open(root, SMALL, calls=process)
        except StorageFailed:
            producer = IdempotentProducer.open(root, SMALL, calls=process)
        try:
            ACTS[name][1](told, producer)
        except StorageFailed as e:
            assert str(root) in e.message
            told.issue(producer, (0, b"again"), (1, b"again"))
        armed = False
        assert told.issued.keys() - told.acknowledged <= sent(producer).keys()
        producer.close() if number % 2 else abandon(producer)
        told.behind = producer.next_sequence(0)
        with IdempotentProducer.open(root, SMALL) as producer:
            told.check(producer)
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


class TestDamage:
    @pytest.fixture
    def told(self, home: Path) -> dict[Stamp, bytes]:
        """Messages in two segments that are full and in one that was growing; not closed."""
        producer = IdempotentProducer.open(home, SMALL)
        told = {producer.issue(0, b"%d" % n * 25): b"%d" % n * 25 for n in range(5)}
        abandon(producer)
        assert len(segments(home)) == 3
        return told

    def test_a_damaged_state_is_told(self, home: Path, told: dict[Stamp, bytes]) -> None:
        (path,) = home.glob("*.state")
        intact = path.read_bytes()
        chance = random.Random(3)
        damages = [intact[:at] for at in (0, 7, 63, 64, len(intact) - 1)]
        for _ in range(60):
            at = chance.randrange(len(intact))
            damages.append(
                intact[:at] + bytes([intact[at] ^ chance.randint(1, 255)]) + intact[at + 1 :]
            )
        damages += [intact + b"x", b"", encode_group([(0, 0, b"")], 1, 0)]
        for damage in damages:
            path.write_bytes(damage)
            with pytest.raises(StateDamaged) as caught:
                IdempotentProducer.open(home)
            assert str(path) in caught.value.message
            assert "backup" in caught.value.hint
        path.unlink()
        with pytest.raises(StateDamaged, match="no state"):
            IdempotentProducer.open(home)
        with pytest.raises(StateDamaged):
            IdempotentProducer.create(home, ID)
        path.write_bytes(intact)
        with IdempotentProducer.open(home) as producer:
            assert sent(producer) == told, "nothing was changed by refusing"

    def test_the_marker_too(self, home: Path) -> None:
        (home / MARKER.name).write_bytes(b"x")
        for refused in (
            IdempotentProducer.open,
            partial(IdempotentProducer.create, producer_id=ID),
        ):
            with pytest.raises(Corrupt):
                refused(home)

    def test_any_flip_in_any_segment_is_told_or_cut(
        self, home: Path, told: dict[Stamp, bytes]
    ) -> None:
        """Damage to what a state calls durable is refused; behind that it is like a torn end."""
        refused = cut = 0
        chance = random.Random(5)
        for number, path in enumerate(segments(home)):
            intact = path.read_bytes()
            for at in chance.sample(range(len(intact)), 60):
                copy = home.with_name("copy")
                shutil.copytree(home, copy)
                flipped = bytearray(intact)
                flipped[at] ^= chance.randint(1, 255)
                (copy / path.name).write_bytes(flipped)
                try:
                    producer = IdempotentProducer.open(copy, SMALL)
                except (OutboxDamaged, UnsupportedFormat) as e:
                    assert str(copy / path.name) in e.message
                    refused += 1
                else:
                    assert number == 2, "full segments have a known length"
                    self.check_cut(producer, told)
                    cut += 1
                shutil.rmtree(copy)
        assert refused > 120
        assert cut > 20

    def check_cut(self, producer: IdempotentProducer, told: dict[Stamp, bytes]) -> None:
        with producer:
            assert producer.found.cut > 0
            assert sent(producer).items() <= told.items()
            assert producer.issue(0, b"new") not in told, "what was told is not given again"

    @pytest.mark.parametrize("end", [b"\x89", b"\x89SOB", b"half a header", b"whole header", b""])
    def test_a_torn_end_is_cut_and_leaves_no_gap(
        self, home: Path, told: dict[Stamp, bytes], end: bytes
    ) -> None:
        last = segments(home)[-1]
        epoch = int(last.name[:20])
        group = encode_group([(0, 5, b"torn" * 9)], epoch, last.stat().st_size)
        torn = {b"half a header": group[:20], b"whole header": group[:-1]}.get(end, end)
        with last.open("ab") as stream:
            stream.write(torn)
        for _ in range(2):
            producer = IdempotentProducer.open(home)
            assert sent(producer) == told
            assert (producer.found.cut, producer.found.doubtful) == (len(torn), False)
            torn = b""
            assert not producer.was_issued(stamp(5))
            abandon(producer)
        with IdempotentProducer.open(home) as producer:
            assert producer.issue(0, b"a") == stamp(5)

    @pytest.mark.parametrize("end", [b"garbage", bytes(4096), b"\x89SOB" * 20])
    def test_an_end_that_may_be_damage_costs_its_range(
        self, home: Path, told: dict[Stamp, bytes], end: bytes
    ) -> None:
        with segments(home)[-1].open("ab") as stream:
            stream.write(end)
        with IdempotentProducer.open(home) as producer:
            assert (producer.found.cut, producer.found.doubtful) == (len(end), True)
            assert sent(producer) == told
            assert producer.issue(0, b"a").sequence == 8, "reserved up to there"
            assert not producer.was_issued(stamp(6))
            producer.reconcile({0: [6]})
            assert producer.was_issued(stamp(6))

    def test_payloads_that_look_like_groups_mislead_nobody(self, home: Path) -> None:
        with IdempotentProducer.open(home) as producer:
            producer.issue(0, b"first")
            path = segments(home)[-1]
            epoch, size = int(path.name[:20]), path.stat().st_size
            inner = encode_group([(0, 77, b"inner")], epoch, size)
            producer.issue(0, inner + b"the end")
            abandon(producer)
        os.truncate(path, path.stat().st_size - 1)
        with IdempotentProducer.open(home) as producer:
            assert sent(producer) == {stamp(0): b"first"}

    @pytest.mark.parametrize("number", range(3))
    def test_salvage_keeps_what_can_be_read(
        self, home: Path, told: dict[Stamp, bytes], number: int
    ) -> None:
        path = segments(home)[number]
        damaged = bytearray(path.read_bytes())
        damaged[damaged.index(b"%d" % (number * 2) * 25)] ^= 1
        if number == 2:
            damaged += encode_group([(0, 9, b"behind")], int(path.name[:20]), len(damaged))
            told[stamp(9)] = b"behind"
        path.write_bytes(damaged)
        with pytest.raises(OutboxDamaged, match="damaged before its end") as caught:
            IdempotentProducer.open(home)
        assert "salvage=True" in caught.value.hint
        producer = IdempotentProducer.open(home, Options(salvage=True))
        del told[stamp(number * 2)]
        assert sent(producer) == told
        assert producer.found.damaged == [str(path)]
        assert path.with_name(path.name + ".damaged").read_bytes() == damaged
        abandon(producer)
        with IdempotentProducer.open(home) as producer:
            assert sent(producer) == told
            assert producer.issue(0, b"new") not in told

    def test_a_missing_segment_is_told(self, home: Path, told: dict[Stamp, bytes]) -> None:
        segments(home)[1].unlink()
        with pytest.raises(OutboxDamaged, match="is missing"):
            IdempotentProducer.open(home)
        with IdempotentProducer.open(home, Options(salvage=True)) as producer:
            assert set(sent(producer)) == {stamp(0), stamp(1), stamp(4)}

    def test_a_segment_that_rots_while_open_is_told(
        self, home: Path, told: dict[Stamp, bytes]
    ) -> None:
        with IdempotentProducer.open(home) as producer:
            path = segments(home)[0]
            path.write_bytes(path.read_bytes().replace(b"0" * 25, b"1" * 25))
            with pytest.raises(OutboxDamaged, match=path.name):
                list(producer.pending())

    def test_newer_formats_are_not_guessed_at(self, home: Path) -> None:
        newer = patch("sluicegate.dedup.producer_state.FORMAT", Format("producer", 2, 65536))
        with newer, IdempotentProducer.open(home):
            pass
        with pytest.raises(UnsupportedFormat, match="version 2"):
            IdempotentProducer.open(home)


@given(
    st.lists(
        st.tuples(st.booleans(), st.integers(0, 40), st.integers(0, 10)),
        max_size=30,
    )
)
def test_ranges_are_sets_of_numbers(steps: list[tuple[bool, int, int]]) -> None:
    ranges, model = Ranges(), set[int]()
    for add, first, size in steps:
        if add:
            ranges.add(first, first + size)
            model |= set(range(first, first + size))
        else:
            ranges.remove(first, first + size)
            model -= set(range(first, first + size))
        assert {n for n in range(60) if n in ranges} == model
        pairs = list(ranges)
        assert sum(end - first for first, end in pairs) == len(model)
        assert all(a[1] < b[0] for a, b in pairwise(pairs)), "joined"


PARTITIONS = (0, 1)
WINDOW = 12


class ProducerMachine(RuleBasedStateMachine):
    """A producer against dictionaries: any order of work, deaths at any call, zombies."""

    def __init__(self) -> None:
        super().__init__()
        self.scratch = TemporaryDirectory(
            dir="/dev/shm" if os.access("/dev/shm", os.W_OK) else None
        )
        self.root = Path(self.scratch.name) / "producer"
        IdempotentProducer.create(self.root, ID, SMALL, window=WINDOW).close()
        self.issued: dict[Stamp, bytes] = {}
        self.in_log: set[Stamp] = set()
        self.next = dict.fromkeys(PARTITIONS, 0)
        self.gaps: set[Stamp] = set()
        self.count = 0
        self.ending: tuple[int, Aftermath, int] | None = None
        self.zombies: list[IdempotentProducer] = []
        self.start()

    def start(self) -> None:
        self.left = -1
        self.disk = Disk(self.root)
        process = self.disk.process(self.on_call)
        self.producer = IdempotentProducer.open(self.root, SMALL, calls=process)
        assert not self.producer.found.doubtful

    def on_call(self, _number: int, _call: str) -> None:
        if self.left == 0:
            raise Killed
        self.left -= 1

    def do(self, work: Callable[[], object], happen: Callable[[], object]) -> object:
        """Work that a doomed producer may die in; the model follows if it happened."""
        self.left, aftermath, seed = self.ending or (-1, Aftermath.KILL, 0)
        try:
            answer = work()
            happen()
        except Killed:
            self.crash(aftermath, seed)
            if {each: self.producer.next_sequence(each) for each in PARTITIONS} != self.next:
                happen()
            return None
        self.left, self.ending = -1, None
        return answer

    def crash(self, aftermath: Aftermath, seed: int) -> None:
        abandon(self.producer)
        self.disk.crash(aftermath, seed)
        self.ending = None
        self.start()

    @rule(calls=st.integers(0, 25), aftermath=st.sampled_from(Aftermath), seed=st.integers(0, 99))
    def doom(self, calls: int, aftermath: Aftermath, seed: int) -> None:
        self.ending = calls, aftermath, seed

    @rule(where=st.lists(st.sampled_from(PARTITIONS), max_size=7), size=st.integers(0, 90))
    def issue(self, where: list[int], size: int) -> None:
        messages = []
        for partition in where:
            self.count += 1
            messages.append((partition, b"%d." % self.count + b"x" * size))

        def happen() -> None:
            for partition, payload in messages:
                each = stamp(self.next[partition], partition)
                assert each not in self.issued
                self.issued[each] = payload
                self.next[partition] += 1

        before = dict(self.next)
        answer = self.do(lambda: self.producer.issue_many(messages), happen)
        if answer is not None:
            expected = [stamp(n, p) for p in PARTITIONS for n in range(before[p], self.next[p])]
            assert sorted(answer) == sorted(expected)  # type: ignore[call-overload]

    @rule(data=st.data())
    def acknowledge(self, data: st.DataObject) -> None:
        if self.issued:
            chosen = data.draw(st.lists(st.sampled_from(sorted(self.issued)), max_size=9))
            self.in_log |= set(chosen)
            self.do(lambda: self.producer.acknowledge(chosen), lambda: None)

    @rule(partition=st.sampled_from(PARTITIONS), ahead=st.integers(-3, 5))
    def reissue(self, partition: int, ahead: int) -> None:
        chosen = stamp(max(0, self.next[partition] + ahead), partition)

        def happen() -> None:
            skipped = range(self.next[partition], chosen.sequence)
            self.gaps |= {stamp(each, partition) for each in skipped}
            self.gaps.discard(chosen)
            self.next[partition] = max(self.next[partition], chosen.sequence + 1)

        if self.ending and chosen in self.gaps:
            # Whether this happened cannot be seen by where the partition stands.
            self.ending = None
        self.do(lambda: self.producer.reissue(chosen), happen)

    @rule(partition=st.sampled_from(PARTITIONS), ahead=st.integers(-3, 5), whole=st.booleans())
    def reconcile(self, partition: int, ahead: int, whole: bool) -> None:
        highest = max(0, self.next[partition] + ahead)
        held = range(highest + 1) if whole else range(highest, highest + 1)
        there = {stamp(each, partition) for each in held}
        self.in_log |= there & self.issued.keys()
        if there & self.gaps:
            self.ending = None

        def happen() -> None:
            self.gaps -= there
            self.next[partition] = max(self.next[partition], highest + 1)

        told = {partition: held if whole else highest}
        self.do(lambda: self.producer.reconcile(told), happen)

    @rule(clean=st.booleans())
    def reopen(self, clean: bool) -> None:
        if clean:
            self.do(self.producer.close, lambda: None)
            if not self.producer._closed:
                return
        self.producer.close() if clean else abandon(self.producer)
        self.start()

    @rule(aftermath=st.sampled_from(Aftermath), seed=st.integers(0, 99))
    def power_off(self, aftermath: Aftermath, seed: int) -> None:
        self.crash(aftermath, seed)

    @rule()
    def overtake(self) -> None:
        self.zombies.append(self.producer)
        lose_lock(self.root)
        self.start()

    @rule()
    def wake_up(self) -> None:
        for each in self.zombies:
            with pytest.raises(ProducerFenced):
                each.issue(0, b"zombie")
            each.close()
        self.zombies.clear()

    @invariant()
    def is_as_the_model(self) -> None:
        self.left = -1
        found = sent(self.producer)
        assert found.items() <= self.issued.items()
        assert found.keys() >= self.issued.keys() - self.in_log
        for partition in PARTITIONS:
            end = self.next[partition]
            assert self.producer.next_sequence(partition) == end
            for number in range(end + 3):
                each = stamp(number, partition)
                exact = number < end and each not in self.gaps
                assert self.producer.was_issued(each) == (number < end - WINDOW or exact)

    def teardown(self) -> None:
        for each in (*self.zombies, self.producer):
            abandon(each)
        self.scratch.cleanup()


TestProducerMachine = ProducerMachine.TestCase
TestProducerMachine.settings = settings(
    max_examples=100, stateful_step_count=30, suppress_health_check=list(HealthCheck)
)


NURSERY = """
import os, random, signal, sys, time
from pathlib import Path
from sluicegate.dedup.producer import IdempotentProducer, Options
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
