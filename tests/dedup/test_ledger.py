"""The dedup engine against a Python set with floors: whatever happens to it, in any order."""

from __future__ import annotations

from contextlib import nullcontext
from itertools import pairwise

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as some
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from sluicegate.dedup import intervals, ledger, segment
from sluicegate.dedup import intervals as packed
from sluicegate.dedup.intervals import Intervals, Lookup
from sluicegate.dedup.keys import Coded
from sluicegate.dedup.ledger import DUPLICATE, EXPIRED, FRESH, Ledger, ledger_of
from sluicegate.dedup.segment import Entries
from sluicegate.dedup.stamp import REJECTED, Stamp, StampInvalid, Stamps
from tests.dedup.batches import (
    PRODUCERS,
    TOP,
    Key,
    Row,
    batches,
    partitions,
    producers,
    sequences,
    stamps,
)


@pytest.fixture(autouse=True)
def small_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    """Pieces so small that ordinary examples have several."""
    monkeypatch.setattr(ledger, "_PIECE", 8)


class Model:
    """What was seen, one by one."""

    def __init__(self) -> None:
        self.seen: dict[Key, dict[int, int]] = {}
        self.floors: dict[Key, int] = {}

    def insert(self, batch: list[Row], at: int) -> list[int]:
        verdicts = []
        for producer, partition, sequence in batch:
            key = producer, partition
            seen = self.seen.setdefault(key, {})
            if sequence < self.floors.get(key, 0):
                verdicts.append(EXPIRED)
            elif sequence in seen:
                verdicts.append(DUPLICATE)
            else:
                verdicts.append(FRESH)
                seen[sequence] = at
        return verdicts

    def expire(self, before: int) -> None:
        for key, seen in self.seen.items():
            if PRODUCERS[int(key[0])].endswith(REJECTED):
                continue
            # A run of numbers grew last when the newest of it came.
            for run in runs_of(sorted(seen)):
                if max(seen[n] for n in run) < before:
                    self.floors[key] = max(self.floors.get(key, 0), run[-1] + 1)
            floor = self.floors.get(key, 0)
            self.seen[key] = {n: at for n, at in seen.items() if n >= floor}

    @property
    def size(self) -> int:
        return sum(len(seen) for seen in self.seen.values())


def runs_of(numbers: list[int]) -> list[list[int]]:
    found = [numbers[:1]] if numbers else []
    for before, number in pairwise(numbers):
        if number == before + 1:
            found[-1].append(number)
        else:
            found.append([number])
    return found


class Machine(RuleBasedStateMachine):
    """Inserts, merges, compactions, retention and crashes, in any order."""

    @initialize()
    def start(self) -> None:
        self.model = Model()
        self.ledger = Ledger()
        # What is durable: a base and deltas, as a stream keeps them.
        self.segments: list[bytes] = []
        self.at = 0

    @rule(batch=batches)
    def insert(self, batch: list[Row]) -> None:
        self.at += 1
        columns = stamps(batch)
        before = self.ledger.check(columns).tolist()
        result = self.ledger.insert(columns, at_ms=self.at)
        expected = self.model.insert(batch, self.at)
        assert result.verdicts.tolist() == expected
        assert before == expected, "asking and telling agree"
        self.segments.append(segment.encode(result.fresh))

    @rule()
    def crash_and_reopen(self) -> None:
        self.ledger = ledger_of(*(segment.decode(data, "s") for data in self.segments))

    @rule(data=some.data())
    def merge_some(self, data: some.DataObject) -> None:
        if len(self.segments) < 2:
            return
        start = data.draw(some.integers(0, len(self.segments) - 2))
        end = data.draw(some.integers(start + 2, len(self.segments)))
        chosen = [segment.decode(each, "s") for each in self.segments[start:end]]
        self.segments[start:end] = [segment.encode(ledger_of(*chosen).entries())]

    @rule(age=some.integers(0, 4))
    def expire(self, age: int) -> None:
        self.crash_and_reopen()
        before = self.model.size
        self.model.expire(self.at - age)
        assert self.ledger.expire(self.at - age) == before - self.model.size
        self.segments = [segment.encode(self.ledger.entries())]

    @invariant()
    def knows_the_same(self) -> None:
        assert self.ledger.stamps == self.model.size


Machine.TestCase.settings = settings(max_examples=60, stateful_step_count=12, deadline=None)
TestMachine = Machine.TestCase


class TestBatches:
    def test_the_first_of_equal_ones_is_fresh(self) -> None:
        batch = [("p", 0, 5), ("p", 0, 4), ("p", 0, 5), ("p", 0, 4)]
        assert Ledger().insert(stamps(batch)).verdicts.tolist() == [
            FRESH,
            FRESH,
            DUPLICATE,
            DUPLICATE,
        ]

    def test_or_the_one_with_the_smallest_source_position(self) -> None:
        batch = [("p", 0, 5), ("p", 0, 5), ("q", 0, 5), ("p", 0, 5)]
        order = np.array([30, 10, 0, 20])
        result = Ledger().insert(stamps(batch), order=order)
        assert result.verdicts.tolist() == [DUPLICATE, FRESH, FRESH, DUPLICATE]

    def test_an_empty_one(self) -> None:
        found = Ledger().insert(stamps([]))
        assert (len(found.verdicts), len(found.fresh)) == (0, 0)
        assert len(Ledger().check(stamps([]))) == 0

    def test_contiguous_traffic_costs_one_interval(self) -> None:
        kept = Ledger()
        for start in range(0, 10_000, 500):
            kept.insert(Stamps.of(["p"] * 500, [0] * 500, range(start, start + 500)))
        assert (len(kept), kept.stamps) == (1, 10_000)

    @pytest.mark.parametrize(
        "columns",
        [
            (["p"], [0], [-1]),
            (["p"], [-1], [0]),
            (["p"], [2**31], [0]),
            ([None], [0], [0]),
            (["p", "q"], [0], [0]),
        ],
    )
    def test_what_is_no_stamp(self, columns: tuple[list[object], ...]) -> None:
        with pytest.raises(StampInvalid):
            Stamps.of(*columns)

    def test_dictionaries_and_chunks_are_taken_as_they_come(self) -> None:
        names = pa.chunked_array([pa.array(["a", "b"]), pa.array(["a"])])
        dictionary = pa.array(["unused", "a", "b"]).dictionary_encode().take(pa.array([1, 2, 1]))
        for column in (names, dictionary):
            kept = Ledger()
            result = kept.insert(Stamps.of(column, [0, 0, 0], [1, 1, 1]))
            assert result.verdicts.tolist() == [FRESH, FRESH, DUPLICATE]
            assert kept.keys == 2, "a name that no row has is no producer"

    def test_a_dictionary_with_a_name_twice(self) -> None:
        twice = pa.DictionaryArray.from_arrays(pa.array([0, 1, 2]), pa.array(["a", "a", "b"]))
        kept = Ledger()
        result = kept.insert(Stamps.of(twice, [0, 0, 0], [1, 1, 1]))
        assert result.verdicts.tolist() == [FRESH, DUPLICATE, FRESH]
        assert kept.keys == 2

    def test_a_dictionary_with_a_name_that_is_none(self) -> None:
        names = pa.array(["a", None])
        for rows, valid in (([0, 0], True), ([0, 1], False)):
            column = pa.DictionaryArray.from_arrays(pa.array(rows), names)
            with nullcontext() if valid else pytest.raises(StampInvalid):
                Stamps.of(column, [0, 0], [1, 2])

    @given(batches, some.data())
    def test_an_order_is_as_if_they_had_come_so(
        self, batch: list[Row], data: some.DataObject
    ) -> None:
        order = np.array(
            data.draw(some.lists(some.integers(0, 5), min_size=len(batch), max_size=len(batch))),
            np.int64,
        )
        sooner = np.argsort(order, kind="stable")
        expected = np.empty(len(batch), np.uint8)
        expected[sooner] = Ledger().insert(stamps([batch[i] for i in sooner])).verdicts
        assert Ledger().insert(stamps(batch), order=order).verdicts.tolist() == expected.tolist()
        assert Ledger().check(stamps(batch), order=order).tolist() == expected.tolist()

    @pytest.mark.parametrize("ordered", [False, True])
    @pytest.mark.parametrize("seed", range(4))
    def test_a_table_finds_what_sorting_finds(self, seed: int, ordered: bool) -> None:
        chance = np.random.default_rng(seed)
        codes, count = chance.integers(0, 50, 20_000), 60
        # Some codes are not used, and keys come in no order; of some keys the last numbers.
        coded = Coded(codes, chance.permutation(1000)[:count])
        numbers = chance.integers(0, 900, len(codes)) + np.where(codes % 2, TOP - 899, seed)
        order = chance.integers(0, 1000, len(codes)) if ordered else None
        found = ledger._from_table(coded, numbers, order)
        assert found
        runs, *rest = packed.found(coded.by_row(), numbers, order)
        assert found[0].equals(runs)
        assert [each.tolist() for each in found[1:3]] == [each.tolist() for each in rest[:2]]
        assert found[3].tolist() == sorted(rest[2].tolist())


class TestStamp:
    @given(producers, partitions, sequences)
    def test_text_and_back(self, producer: int, partition: int, sequence: int) -> None:
        stamp = Stamp(PRODUCERS[producer], partition, sequence)
        assert Stamp.parse(str(stamp)) == stamp

    @pytest.mark.parametrize(
        "text",
        ["", "a", "a/0", "a/0/x", "a/-1/0", "a/0/-1", f"a/0/{2**63}", f"a/{2**31}/0", "a/٣/0"],
    )
    def test_what_is_none(self, text: str) -> None:
        with pytest.raises(StampInvalid):
            Stamp.parse(text)

    def test_a_name_that_is_too_long_or_no_text(self) -> None:
        for name in ("x" * 65537, "\ud800"):
            with pytest.raises(StampInvalid):
                Stamp(name, 0, 0).checked()


numbers = some.one_of(some.integers(0, 30), some.integers(2**63 - 20, 2**63 - 1))
points = some.sets(some.tuples(some.integers(0, 3), numbers), max_size=60)


def of_points(chosen: set[tuple[int, int]]) -> Intervals:
    ascending = sorted(chosen)
    keys = np.array([key for key, _ in ascending], np.int64)
    return intervals.from_points(keys, np.array([n for _, n in ascending], np.uint64))


def to_points(found: Intervals) -> set[tuple[int, int]]:
    return {
        (int(key), number)
        for key, first, end in zip(found.keys, found.first, found.end, strict=True)
        for number in range(int(first), int(end))
    }


class TestIntervals:
    @given(some.lists(points, max_size=5))
    def test_union(self, sets: list[set[tuple[int, int]]]) -> None:
        found = intervals.union([of_points(each) for each in sets])
        assert to_points(found) == set().union(*sets)
        assert found.equals(of_points(set().union(*sets))), "disjoint, ascending, not adjacent"
        assert found.numbers == len(set().union(*sets))

    @given(points, points)
    def test_difference(self, one: set[tuple[int, int]], other: set[tuple[int, int]]) -> None:
        assert to_points(intervals.difference(of_points(one), of_points(other))) == one - other

    @given(points, some.lists(some.tuples(some.integers(0, 3), numbers), max_size=60))
    def test_membership(self, inside: set[tuple[int, int]], asked: list[tuple[int, int]]) -> None:
        lookup = Lookup(of_points(inside))
        keys = np.array([key for key, _ in asked], np.int64)
        found = lookup.contains(keys, np.array([n for _, n in asked], np.uint64))
        assert found.tolist() == [each in inside for each in asked]

    @given(points, points)
    def test_overlap(self, inside: set[tuple[int, int]], other: set[tuple[int, int]]) -> None:
        asked = of_points(other)
        found = Lookup(of_points(inside)).overlapping(asked)
        assert found.tolist() == [
            bool(to_points(asked.take(np.array([i]))) & inside) for i in range(len(asked))
        ]


class TestSegments:
    def entries(self) -> Entries:
        kept = Ledger()
        kept.insert(stamps([("b", 1, 5), ("a/é", 0, 7), ("a/é", 0, 8), ("b", 0, TOP)]), at_ms=9)
        return kept.entries()

    def test_ledgers_that_know_the_same_give_the_same_bytes(self) -> None:
        one, other = Ledger(), Ledger()
        batch = [("b", 1, 5), ("a", 0, 7), ("c", 0, 8), ("a", 0, 8)]
        one.insert(stamps(batch), at_ms=1)
        for row in reversed(batch):
            other.insert(stamps([row]), at_ms=1)
        assert segment.encode(one.entries()) == segment.encode(other.entries())

    def test_any_reader_of_parquet_can_read_it(self) -> None:
        table = pq.read_table(pa.BufferReader(segment.encode(self.entries())))
        assert table.to_pylist()[0] == {
            "producer": "a/é", "partition": 0, "first": 7, "last": 8, "at": 9, "expired": False,
        }  # fmt: skip

    def test_every_cut_and_flip_is_noticed_or_harmless(self) -> None:
        data = segment.encode(self.entries())
        for at in range(0, len(data), 7):
            for bad in (data[:at], data[:at] + bytes([data[at] ^ 0x40]) + data[at + 1 :]):
                # Blobs are checked by their digest; here it only must not end in a traceback.
                try:
                    segment.decode(bad, "s")
                except segment.SegmentDamaged:
                    continue

    def test_another_table_is_none(self) -> None:
        sink = pa.BufferOutputStream()
        pq.write_table(pa.table({"x": [1]}), sink)
        with pytest.raises(segment.SegmentDamaged, match="is not a segment"):
            segment.decode(bytes(sink.getvalue()), "s")
