"""Forks of a ledger, and whether several have seen the same: against plain ledgers and sets."""

from __future__ import annotations

import time

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as some

from sluicegate.dedup import keys, segment
from sluicegate.dedup import ledger as engine
from sluicegate.dedup.ledger import DUPLICATE, EXPIRED, FRESH, Fork, Ledger, ledger_of
from sluicegate.dedup.segment import Entries, overlap
from sluicegate.dedup.stamp import Stamps
from tests.dedup.batches import Row, batches, stamps

several = some.lists(batches, max_size=4)


@pytest.fixture(autouse=True, params=["small", "large"])
def sizes(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Pieces, and few names, so small that ordinary examples have more; and as they are."""
    if request.param == "small":
        monkeypatch.setattr(engine, "_PIECE", 8)
        monkeypatch.setattr(keys, "_FEW", 0)


def parent_of(before: list[list[Row]], retain: int) -> Ledger:
    parent = Ledger()
    for at, batch in enumerate(before):
        parent.insert(stamps(batch), at_ms=at)
    parent.expire(len(before) - retain)
    return parent


def bytes_of(entries: Entries) -> bytes:
    return segment.encode(entries)


class TestFork:
    @settings(deadline=None, max_examples=60)
    @given(several, some.integers(0, 4), several, batches)
    def test_it_classifies_as_a_ledger_that_knows_the_same(
        self, before: list[list[Row]], retain: int, since: list[list[Row]], asked: list[Row]
    ) -> None:
        parent = parent_of(before, retain)
        known = parent.entries()
        plain, fork = ledger_of(known), parent.fork()
        for at, batch in enumerate(since, start=10):
            columns = stamps(batch)
            expected = plain.insert(columns, at_ms=at)
            found = fork.insert(columns, at_ms=at)
            assert found.verdicts.tolist() == expected.verdicts.tolist()
            assert bytes_of(found.fresh) == bytes_of(expected.fresh)
        columns = stamps(asked)
        assert fork.check(columns).tolist() == plain.check(columns).tolist()
        learnt = fork.learnt()
        assert bytes_of(parent.entries()) == bytes_of(known), "the parent is as it was"
        assert not overlap([known, learnt]), "learnt is only what was not known"
        assert bytes_of(ledger_of(known, learnt).entries()) == bytes_of(plain.entries())

    @settings(deadline=None, max_examples=40)
    @given(several, batches, batches, some.booleans())
    def test_what_the_parent_and_other_forks_learn_is_not_known_to_it(
        self, before: list[list[Row]], theirs: list[Row], ours: list[Row], forget: bool
    ) -> None:
        parent = parent_of(before, 4)
        alone, fork, other = parent.fork(), parent.fork(), parent.fork()
        expected = alone.insert(stamps(ours)).verdicts.tolist()
        parent.insert(stamps(theirs))
        other.insert(stamps(theirs))
        if forget:
            parent.expire(100)
        assert fork.insert(stamps(ours)).verdicts.tolist() == expected
        again = parent.fork().check(stamps(ours)).tolist()
        assert again == ledger_of(parent.entries()).check(stamps(ours)).tolist()

    def test_new_keys_of_the_parent_are_not_taken_for_its_own(self) -> None:
        parent = Ledger()
        parent.insert(stamps([("p", 0, 1)]))
        fork = parent.fork()
        parent.insert(stamps([("theirs", 0, 5)]))
        result = fork.insert(stamps([("ours", 0, 5), ("theirs", 0, 5), ("p", 1, 5), ("p", 0, 1)]))
        assert result.verdicts.tolist() == [FRESH, FRESH, FRESH, DUPLICATE]

    def test_an_order_decides_who_is_first(self) -> None:
        parent = Ledger()
        parent.insert(stamps([("p", 0, 1)]))
        result = parent.fork().insert(
            stamps([("p", 0, 2), ("p", 0, 2), ("p", 0, 1)]), order=np.array([5, 3, 4])
        )
        assert result.verdicts.tolist() == [1, 0, 1]

    def test_floors_of_the_parent_hold(self) -> None:
        parent = Ledger()
        parent.insert(stamps([("p", 0, 7)]), at_ms=1)
        parent.expire(2)
        fork = parent.fork()
        result = fork.insert(stamps([("p", 0, 3), ("p", 0, 8), ("q", 0, 3)]))
        assert result.verdicts.tolist() == [EXPIRED, FRESH, FRESH]
        assert not fork.learnt().expired.any(), "floors were not learnt here"


def seconds_of(fork: Fork, producers: int) -> float:
    """Processor time of many small batches, without what is made once."""
    names = [f"p{n}" for n in range(0, producers, producers // 50)]
    batch = [
        Stamps.of(names, [0] * len(names), [10**7 + number] * len(names)) for number in range(40)
    ]
    fork.insert(batch[0])
    started = time.process_time()
    for each in batch[1:]:
        fork.insert(each)
    return time.process_time() - started


def test_a_small_batch_does_not_cost_what_the_history_does(
    request: pytest.FixtureRequest,
) -> None:
    if request.node.callspec.params["sizes"] == "small":
        pytest.skip("is about large ones")
    forks = []
    for producers in (1_000, 300_000):
        numbers = np.arange(4 * producers)
        names = np.array([f"p{n}" for n in range(producers)])[numbers % producers]
        ledger = Ledger()
        ledger.insert(Stamps.of(names, numbers * 0, numbers // producers * 2))
        assert len(ledger) == len(numbers), "one interval per stamp"
        forks.append((ledger, producers))
    small, large = (
        min(seconds_of(ledger.fork(), producers) for _ in range(3)) for ledger, producers in forks
    )
    assert large < 5 * small, "though three hundred times as much is known"


class TestOverlap:
    @settings(deadline=None, max_examples=80)
    @given(some.lists(batches, max_size=4))
    def test_whether_a_stamp_is_in_more_than_one(self, sets: list[list[Row]]) -> None:
        found = [ledger.entries() for ledger in map(ledger_with, sets)]
        distinct = [set(each) for each in sets]
        assert overlap(found) == (len(set().union(*distinct)) < sum(map(len, distinct)))

    def test_neighbours_and_other_partitions_do_not_overlap(self) -> None:
        one = ledger_with([("p", 0, n) for n in (1, 2, 3)]).entries()
        beside = ledger_with([("p", 0, 4), ("p", 0, 0), ("p", 1, 2), ("q", 0, 2)]).entries()
        assert not overlap([one, beside])
        assert overlap([one, beside, ledger_with([("p", 0, 3)]).entries()])

    def test_a_floor_has_seen_nothing(self) -> None:
        floor = ledger_with([("p", 0, 9)])
        floor.expire(1)
        assert not overlap([floor.entries(), ledger_with([("p", 0, 3)]).entries()])
        assert not overlap([floor.entries(), floor.entries()])
        assert not overlap([])


def ledger_with(batch: list[Row]) -> Ledger:
    ledger = Ledger()
    ledger.insert(stamps(batch))
    return ledger
