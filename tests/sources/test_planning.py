"""Ranges of the log: how much an epoch may read, and where reading begins."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sluicegate.positions import Positions
from sluicegate.sources.base import OutOfRange, admitted, adopted, complete
from sluicegate.sources.log.log import Log
from sluicegate.sources.log.writer import LogWriter

counts = st.lists(st.integers(0, 1000), min_size=1, max_size=8)


def at(offsets: list[int]) -> Positions:
    return Positions({"events": dict(enumerate(offsets))})


@given(counts, st.integers(1, 3000), st.integers(0, 10**6))
def test_a_batch_reads_just_what_it_may(counts: list[int], most: int, first: int) -> None:
    begin, end = at([first] * len(counts)), at([first + count for count in counts])
    got = [each.offset - first for each in admitted(begin, end, most)]
    assert sum(got) == min(most, sum(counts)), "never beyond, and never less than there is"
    assert all(0 <= share <= count for share, count in zip(got, counts, strict=True))
    waiting = [share for share, count in zip(got, counts, strict=True) if count]
    if most >= len(waiting):
        assert all(waiting), "every partition that has something gets on"
        exact = [(count - 1) * (most - len(waiting)) for count in counts if count]
        total = sum(counts) - len(waiting)
        if most < sum(counts):
            for share, wanted in zip(waiting, exact, strict=True):
                assert abs(share - 1 - wanted / total) < 1, "in proportion, but for rounding"


@given(counts, st.integers(1, 12))
def test_all_is_read_and_none_waits_for_ever(counts: list[int], most: int) -> None:
    begin, end = at([0] * len(counts)), at(counts)
    since = [0] * len(counts)
    while begin != end:
        after = admitted(begin, end, most)
        for n, (old, new) in enumerate(zip(begin, after, strict=True)):
            since[n] = since[n] + 1 if old.offset == new.offset < counts[n] else 0
            # Whenever another drops out, the round may begin again.
            assert since[n] <= len(counts) ** 2
        begin = after


def test_without_a_limit_all_is_read() -> None:
    assert admitted(at([5, 5]), at([9, 5]), None) == at([9, 5])


class TestBeginning:
    @pytest.fixture
    def log(self, tmp_path: Path) -> Log:
        log = Log.create(str(tmp_path / "events"), partitions=2)
        for partition, count in ((0, 10), (1, 4)):
            with LogWriter(log.uri, partition) as writer:
                writer.append([b'{"n":%d}' % n for n in range(count)])
        return log

    def test_a_partition_that_is_not_named_is_read_from_its_beginning(self, log: Log) -> None:
        assert complete(log, Positions({})) == at([0, 0])
        assert complete(log, Positions({"events": {0: 7}})) == at([7, 0])

    def test_positions_outside_the_log_are_refused(self, log: Log) -> None:
        for topic, partition, offset in (("events", 0, 11), ("events", 2, 0), ("other", 0, 0)):
            with pytest.raises(OutOfRange):
                complete(log, Positions({topic: {partition: offset}}))
        # Exactly at the end is where the next record will be.
        assert complete(log, at([10, 4])) == at([10, 4])


def test_adopted_events_come_first() -> None:
    """Only those whose output is adopted are read, until all of them are."""
    begin, end = Positions({"a": {0: 2, 1: 5}}), Positions({"a": {0: 9, 1: 9, 2: 4}})
    assert adopted(begin, end, Positions({})) == end
    until = adopted(begin, end, Positions({"a": {0: 7, 1: 3}}))
    assert until == Positions({"a": {0: 7, 1: 5}})
    with pytest.raises(OutOfRange, match="events up to 10 were published"):
        adopted(begin, end, Positions({"a": {0: 10}}))
