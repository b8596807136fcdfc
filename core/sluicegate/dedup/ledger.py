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
_PIECE = 1 << 18


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


class Judgement:
    """What became of every stamp of a batch, and the fresh ones as something to remember."""

    def __init__(self, verdicts: Column, seen: Intervals, keys: Keys) -> None:
        self.verdicts = verdicts
        self._seen = seen
        self._keys = keys

    def count(self, verdict: int) -> int:
        """How many stamps got a verdict."""
        return int(np.count_nonzero(self.verdicts == verdict))

    @property
    def fresh(self) -> Entries:
        """The stamps that were fresh; made when it is asked for."""
        return _entries(self._keys, self._seen)


class Ledger:
    """Stamps that were seen, in memory."""

    def __init__(self) -> None:
        self._keys = Keys()
        self._seen = intervals.nothing()
        # Per key, the first sequence of which something is known; 0, or none yet: no floor.
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
            return Judgement(np.empty(0, np.uint8), intervals.nothing(), self._keys)
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
        return Judgement(np.concatenate(verdicts), recent, self._keys)

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
        first = entries.first.view(np.uint64)
        end = entries.last.view(np.uint64) + np.uint64(1)
        below = entries.expired
        at = entries.at
        if below.any():
            self._grow_floors()
            np.maximum.at(self._floors, keys[below], end[below])
            keys, first, end, at = keys[~below], first[~below], end[~below], at[~below]
        self._seen = intervals.union([self._seen, intervals.coalesced(keys, first, end, at)])
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
        floored = np.flatnonzero(self._floors)
        if not len(floored):
            return _entries(self._keys, self._seen)
        zeros = np.zeros(len(floored), np.uint64)
        below = Intervals(floored, zeros, self._floors[floored], zeros.astype(np.int64))
        return _entries(self._keys, self._seen, below)

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
        if not len(self._floors):
            return np.zeros(len(keys), np.uint64)
        known = keys < len(self._floors)
        floors: Column = np.where(known, self._floors[np.where(known, keys, 0)], np.uint64(0))
        return floors

    def _grow_floors(self) -> None:
        """Give every key a floor, before one is raised; most ledgers never have any."""
        more = len(self._keys) - len(self._floors)
        if more:
            self._floors = np.concatenate([self._floors, np.zeros(more, np.uint64)])

    def _cut_below_floors(self) -> None:
        """Forget what is below the floors."""
        if not self._floors.any():
            return
        seen = self._seen
        floors = self._floor_of(seen.keys)
        kept = seen.end > floors
        first = np.maximum(seen.first, floors)
        self._seen = Intervals(seen.keys[kept], first[kept], seen.end[kept], seen.at[kept])


def ledger_of(*entries: Entries) -> Ledger:
    """The ledger that knows what all of these know; all at once, however many they are."""
    ledger = Ledger()
    if entries:
        ledger.absorb(
            Entries(
                pa.concat_arrays([each.producers for each in entries]),
                np.concatenate([each.partitions for each in entries]),
                np.concatenate([each.first for each in entries]),
                np.concatenate([each.last for each in entries]),
                np.concatenate([each.at for each in entries]),
                np.concatenate([each.expired for each in entries]),
            )
        )
    return ledger


def _entries(keys: Keys, seen: Intervals, below: Intervals | None = None) -> Entries:
    """Intervals by the names of their keys, so that it does not matter who came first."""
    names, partitions = keys.columns()
    all_of = [seen] if below is None else [below, seen]
    ids = np.concatenate([each.keys for each in all_of])
    first = np.concatenate([each.first for each in all_of])
    end = np.concatenate([each.end for each in all_of])
    at = np.concatenate([each.at for each in all_of])
    expired = np.repeat([below is not None, False], [len(ids) - len(seen), len(seen)])
    # Stable: within a key its floor comes first, then its intervals as they are.
    order = np.argsort(_ranks(names, partitions, ids), kind="stable")
    return Entries(
        names.take(pa.array(ids[order])),
        partitions[ids[order]],
        first[order].astype(np.int64),
        (end[order] - np.uint64(1)).astype(np.int64),
        at[order],
        expired[order],
    )


def _ranks(names: Texts, partitions: Column, ids: Column) -> Column:
    """The place of each key among those that occur, by name and partition."""
    there = np.zeros(len(partitions), bool)
    there[ids] = True
    used = np.flatnonzero(there)
    table = pa.table({"name": names.take(pa.array(used)), "partition": partitions[used]})
    order = pc.sort_indices(table, [("name", "ascending"), ("partition", "ascending")])
    small = np.uint16 if len(used) <= 1 << 16 else np.int64
    ranks = np.zeros(len(partitions), small)
    ranks[used[order.to_numpy()]] = np.arange(len(used))
    found: Column = ranks[ids]
    return found
