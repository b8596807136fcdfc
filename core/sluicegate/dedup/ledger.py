"""The ledger: which stamps were seen, exactly, and below which floors nothing is known any more.

This is the one engine that decides what is a duplicate. It works on columns, never on single
events.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from sluicegate.dedup import intervals
from sluicegate.dedup.batch import Batch
from sluicegate.dedup.intervals import Intervals, Lookup
from sluicegate.dedup.keys import Keys
from sluicegate.dedup.stamp import Column, Stamps, Texts

FRESH, DUPLICATE, EXPIRED = 0, 1, 2
# What fits into a core's cache while it is sorted.
_PIECE = 1 << 17


@dataclass(frozen=True, slots=True, eq=False)
class Entries:
    """What a ledger knows, as columns: intervals that were seen, or that are below a floor.

    Both ends are included. Sorted by producer, partition, kind and number, so that ledgers that
    know the same give the same columns. `at` is when an interval last grew, in milliseconds.
    """

    producers: Texts
    partitions: Column
    first: Column
    last: Column
    at: Column
    expired: Column

    def __len__(self) -> int:
        return len(self.first)

    def same_stamps(self, other: Entries) -> bool:
        """Whether both know the same stamps and floors, whenever they learnt of them."""
        return (
            self.producers.equals(other.producers)
            and np.array_equal(self.partitions, other.partitions)
            and np.array_equal(self.first, other.first)
            and np.array_equal(self.last, other.last)
            and np.array_equal(self.expired, other.expired)
        )


@dataclass(frozen=True, slots=True, eq=False)
class Judgement:
    """What became of every stamp of a batch, and the fresh ones as something to remember."""

    verdicts: Column
    fresh: Entries

    def count(self, verdict: int) -> int:
        """How many stamps got a verdict."""
        return int(np.count_nonzero(self.verdicts == verdict))


class Ledger:
    """Stamps that were seen, in memory."""

    def __init__(self) -> None:
        self._keys = Keys()
        self._seen = intervals.nothing()
        # Per key, the first sequence of which something is known; 0: no floor.
        self._floors: Column = np.empty(0, np.uint64)

    def __len__(self) -> int:
        return len(self._seen)

    @property
    def stamps(self) -> int:
        """How many stamps it has seen and still knows."""
        return self._seen.numbers

    @property
    def keys(self) -> int:
        """How many (producer, partition) it knows."""
        return len(self._keys)

    @property
    def bytes(self) -> int:
        """The memory that it takes while it rests."""
        columns = (self._seen.keys, self._seen.first, self._seen.end, self._seen.at, self._floors)
        return sum(each.nbytes for each in columns) + self._keys.bytes

    def insert(self, stamps: Stamps, at_ms: int = 0, order: Column | None = None) -> Judgement:
        """Judge a batch and remember what is fresh; of equal stamps the first one is fresh.

        `order`, if given, says which of equal ones is first: the one where it is smallest.
        """
        if not len(stamps):
            return Judgement(np.empty(0, np.uint8), Ledger().entries())
        verdicts = []
        recent = intervals.nothing()
        highest = int(stamps.sequences.max())
        seen = Lookup(self._seen, highest)
        for batch in self._batches(stamps, order):
            judged, new = self._judge(batch, [seen, Lookup(recent, highest)])
            recent = intervals.union([recent, new])
            verdicts.append(judged)
        recent = replace(recent, at=np.full(len(recent), at_ms))
        self._seen = intervals.union([self._seen, recent])
        return Judgement(np.concatenate(verdicts), self._entries(recent, np.empty(0, np.int64)))

    def check(self, stamps: Stamps, order: Column | None = None) -> Column:
        """The verdict on every stamp, without remembering anything."""
        if not len(stamps):
            return np.empty(0, np.uint8)
        keys = self._keys.find(stamps)
        if (keys < 0).any():
            # Unknown, but it may repeat within the batch: numbers above all keys tell them apart.
            keys = np.where(keys < 0, len(self._keys) + Keys().add(stamps), keys)
        known = [Lookup(self._seen, int(stamps.sequences.max()))]
        return self._judge(Batch.of(keys, stamps.sequences, order), known)[0]

    def absorb(self, entries: Entries) -> None:
        """Add what another ledger knows."""
        if not len(entries):
            return
        keys = self._keys.add(Stamps(entries.producers, entries.partitions, entries.first))
        self._grow_floors()
        first = entries.first.astype(np.uint64)
        end = entries.last.astype(np.uint64) + np.uint64(1)
        below = entries.expired
        np.maximum.at(self._floors, keys[below], end[below])
        order = np.lexsort((first, keys))
        order = order[~below[order]]
        seen = Intervals(keys[order], first[order], end[order], entries.at[order])
        self._seen = intervals.union([self._seen, seen])
        self._cut_below_floors()

    def expire(self, before_ms: int) -> int:
        """Give up what did not grow since a time, by raising floors; gives how many stamps went.

        Whatever arrives below a floor later can no longer be told from a duplicate.
        """
        old = self._seen.at < before_ms
        before = self.stamps
        self._grow_floors()
        np.maximum.at(self._floors, self._seen.keys[old], self._seen.end[old])
        self._cut_below_floors()
        return before - self.stamps

    def entries(self) -> Entries:
        """Everything it knows, in canonical order."""
        return self._entries(self._seen, np.flatnonzero(self._floors))

    def _batches(self, stamps: Stamps, order: Column | None) -> Iterator[Batch]:
        """The stamps sorted: in pieces, beside each other, if they arrived mostly in order."""
        if order is not None or len(stamps) < 2 * _PIECE:
            yield self._batch(stamps, order)
            return
        pieces = stamps.slices(_PIECE)
        first = self._batch(pieces[0])
        if len(first.runs) > _PIECE // 8:
            yield self._batch(stamps)
            return
        yield first
        with ThreadPoolExecutor(os.cpu_count()) as pool:
            yield from pool.map(self._batch, pieces[1:])

    def _batch(self, stamps: Stamps, order: Column | None = None) -> Batch:
        return Batch.of(self._keys.add(stamps), stamps.sequences, order)

    def _judge(self, batch: Batch, known: list[Lookup]) -> tuple[Column, Intervals]:
        """The verdict on every row, and what is fresh.

        Whole runs are judged where that is possible: what arrives in order is mostly new.
        """
        self._grow_floors()
        verdicts = np.zeros(len(batch), np.uint8)
        verdicts[batch.repeated] = DUPLICATE
        runs = batch.runs
        floored = bool(self._floors.any())
        touched = np.logical_or.reduce([each.overlapping(runs) for each in known])
        if floored:
            touched |= runs.first < self._floor_of(runs.keys)
        if not touched.any():
            return verdicts, runs
        points = batch.points_of(np.flatnonzero(touched))
        verdict = np.zeros(len(points.rows), np.uint8)
        for each in known:
            verdict[each.contains(points.keys, points.numbers)] = DUPLICATE
        verdicts[points.rows] = verdict
        if floored:
            # Whether it was seen is not known any more below a floor; that goes before all else.
            verdicts[batch.numbers.view(np.uint64) < self._floor_of(batch.keys)] = EXPIRED
            verdict = verdicts[points.rows]
        left = verdict == FRESH
        fresh = intervals.from_points(points.keys[left], points.numbers[left])
        return verdicts, intervals.union([runs.take(~touched), fresh])

    def _floor_of(self, keys: Column) -> Column:
        """The floor of each key; 0 where there is none."""
        known = keys < len(self._floors)
        floors: Column = np.where(known, self._floors[np.where(known, keys, 0)], np.uint64(0))
        return floors

    def _grow_floors(self) -> None:
        more = len(self._keys) - len(self._floors)
        if more:
            self._floors = np.concatenate([self._floors, np.zeros(more, np.uint64)])

    def _cut_below_floors(self) -> None:
        """Forget what is below the floors."""
        seen = self._seen
        floors = self._floor_of(seen.keys)
        kept = seen.end > floors
        first = np.maximum(seen.first, floors)
        self._seen = Intervals(seen.keys[kept], first[kept], seen.end[kept], seen.at[kept])

    def _entries(self, seen: Intervals, floored: Column) -> Entries:
        names, partitions = self._keys.columns()
        keys = np.concatenate([floored, seen.keys])
        first = np.concatenate([np.zeros(len(floored), np.uint64), seen.first])
        end = np.concatenate([self._floors[floored], seen.end])
        at = np.concatenate([np.zeros(len(floored), np.int64), seen.at])
        expired = np.repeat([True, False], [len(floored), len(seen)])
        order = np.lexsort((first, ~expired, _ranks(names, partitions, keys)))
        return Entries(
            names.take(pa.array(keys[order])),
            partitions[keys[order]],
            first[order].astype(np.int64),
            (end[order] - np.uint64(1)).astype(np.int64),
            at[order],
            expired[order],
        )


def ledger_of(*entries: Entries) -> Ledger:
    """The ledger that knows what all of these know."""
    ledger = Ledger()
    for each in entries:
        ledger.absorb(each)
    return ledger


def _ranks(names: Texts, partitions: Column, keys: Column) -> Column:
    """The place of each key among all by name and partition, so that arrival does not matter."""
    used, inverse = np.unique(keys, return_inverse=True)
    table = pa.table({"name": names.take(pa.array(used)), "partition": partitions[used]})
    order = pc.sort_indices(table, [("name", "ascending"), ("partition", "ascending")])
    ranks = np.empty(len(used), np.int64)
    ranks[order.to_numpy()] = np.arange(len(used))
    return ranks[inverse]
