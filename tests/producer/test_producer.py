"""Producers: no stamp for two messages and no message under two stamps, whatever happens."""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sluicegate.dedup.stamp import MAX_PARTITION, MAX_PRODUCER_BYTES, MAX_SEQUENCE, Stamp
from sluicegate.errors import Locked, NotFound, UsageError
from sluicegate.producer.outbox import MAX_GROUP
from sluicegate.producer.producer import IdempotentProducer, Options, SequencesExhausted
from sluicegate.producer.state import MARKER, Ranges
from tests.producer.producers import ID, SMALL, abandon, segments, sent, stamp
from tests.support.faults import Disk


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

    def test_a_closed_one_is_refused(self, home: Path) -> None:
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
            "import sys; from sluicegate.producer.producer import IdempotentProducer as P\n"
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

    def test_a_range_at_once(self, home: Path) -> None:
        """Whether all of it is pending or not, and only what was issued."""
        with IdempotentProducer.open(home, SMALL) as producer:
            stamps = producer.issue_many([(0, b"%d" % n) for n in range(10)] + [(1, b"x")])
            assert producer.acknowledge(stamps[3]) == 1
            assert producer.acknowledge_range(0, 2, 5) == 2
            assert producer.acknowledge_range(0, 5, 5) == producer.acknowledge_range(0, 3, 5) == 0
            assert producer.acknowledge_range(0, 7, 9) == 2
            for wrong in ((0, 9, 11), (3, 0, 1), (0, -1, 1)):
                with pytest.raises(UsageError):
                    producer.acknowledge_range(*wrong)
            # Far more than are pending: those are looked at, not the range.
            more = producer.issue_many([(2, b"y")] * 3000)
            assert producer.acknowledge(more[1:]) == 2999
            assert producer.acknowledge_range(2, 0, 3000) == 1
            left = [b"0", b"1", b"5", b"6", b"9", b"x"]
            assert list(sent(producer).values()) == left
        with IdempotentProducer.open(home, SMALL) as producer:
            assert list(sent(producer).values()) == left


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
    def test_the_highest_shows_nothing_of_those_below(self, home: Path) -> None:
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
