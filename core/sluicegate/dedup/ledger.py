"""The ledger: exactly which stamps were seen; it classifies stamps as new, duplicate or too old.

Events whose numbers lie close together per key, as counters do, are put into a table of all
possible numbers; nothing is sorted. Others are sorted, see `intervals`.

This is the only code that decides what is a duplicate. It works on columns, never on single
events.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace

import numpy as np

from sluicegate.dedup import intervals
from sluicegate.dedup.intervals import Found, Intervals, Lookup
from sluicegate.dedup.keys import Coded, Keys
from sluicegate.dedup.segment import Entries, entries_of, joined
from sluicegate.dedup.stamp import REJECTED, Column, Stamps

# A table may have so many times as many places as there are rows.
_SPARSE = 4


@dataclass(frozen=True, slots=True, eq=False)
class Points:
    """Single events of some runs."""

    keys: Column
    numbers: Column
    rows: Column


@dataclass(frozen=True, slots=True, eq=False)
class Batch:
    """The distinct (key, number) of a batch ascending, as runs; and where each came from."""

    coded: Coded
    numbers: Column
    runs: Intervals
    starts: Column  # where each run begins among the distinct ones
    rows: Column  # of the distinct ones
    repeated: Column  # rows that repeat another row

    def __len__(self) -> int:
        return len(self.numbers)

    @classmethod
    def of(cls, coded: Coded, numbers: Column, order: Column | None = None) -> Batch:
        """From rows as they came; of equal ones the first is kept, or the smallest in `order`."""
        found = _from_table(coded, numbers, order)
        if found is None:
            found = intervals.found(coded.by_row(), numbers, order)
        return cls(coded, numbers, *found)

    def points_of(self, chosen: Column) -> Points:
        """The events of some runs one by one; of repeated ones the one that is kept."""
        runs = self.runs.take(chosen)
        counts = (runs.end - runs.first).astype(np.int64)
        total = int(counts.sum())
        before = np.repeat(np.cumsum(counts) - counts, counts)
        inside = np.arange(total) - before
        numbers = np.repeat(runs.first, counts) + inside.astype(np.uint64)
        rows = self.rows[np.repeat(self.starts[chosen], counts) + inside]
        return Points(np.repeat(runs.keys, counts), numbers, rows)


def _from_table(coded: Coded, numbers: Column, order: Column | None) -> Found | None:
    """The same by a table with a place for every number a key may have; None if that is too large.

    The places of a key are adjacent, lowest number first, with one free place between keys.
    """
    most = _SPARSE * len(numbers)
    if len(coded.keys) > most:
        return None
    codes = coded.codes.astype(np.int64, copy=False)
    low = np.full(len(coded.keys), np.iinfo(np.int64).max)
    high = np.full(len(coded.keys), -1)
    np.minimum.at(low, codes, numbers)
    np.maximum.at(high, codes, numbers)
    used = np.flatnonzero(high >= 0)
    used = used[np.argsort(coded.keys[used])]
    low, widths = low[used], high[used] - low[used]
    if int(widths.max()) > most or int(widths.sum()) > most:
        return None
    ends = np.cumsum(widths + 2)
    begins = ends - widths - 1
    shift = np.zeros(len(coded.keys), np.int64)
    shift[used] = begins - low
    places = numbers + shift.take(codes)
    table, repeated = _filled(places, int(ends[-1]) + 1, order)
    there = table >= 0
    edges = np.flatnonzero(there[1:] != there[:-1]) + 1
    first, end = edges[0::2], edges[1::2]
    key = np.searchsorted(begins, first, side="right") - 1
    base = low[key].view(np.uint64) - begins[key].view(np.uint64)
    lengths = end - first
    runs = Intervals(
        coded.keys[used[key]],
        first.view(np.uint64) + base,
        end.view(np.uint64) + base,
        np.zeros(len(first), np.int64),
    )
    return runs, np.cumsum(lengths) - lengths, table[there], repeated


def _filled(places: Column, room: int, order: Column | None) -> tuple[Column, Column]:
    """The row that is kept for every place, -1 where there is none; and the other rows."""
    kind = np.int32 if len(places) < 1 << 31 else np.int64
    rows = np.arange(len(places), dtype=kind)
    table = np.full(room, -1, kind)
    # Backwards: of several rows for one place the one that is written last stays. Copied, because
    # numpy is fast only on indexes that lie in order.
    table[places[::-1].copy()] = rows[::-1].copy()
    repeated = np.flatnonzero(table.take(places) != rows)
    if order is None or not len(repeated):
        return table, repeated
    several = np.zeros(room, bool)
    several[places[repeated]] = True
    chosen = np.flatnonzero(several[places])
    chosen = chosen[np.argsort(order[chosen], kind="stable")][::-1]
    table[places[chosen]] = chosen
    return table, np.flatnonzero(table.take(places) != rows)


class Ledger:
    """Stamps that were seen, in memory."""

    def __init__(self) -> None:
        self._keys = Keys()
        self._seen = intervals.nothing()
        # Its column is never changed, only replaced: forks share it.
        self._floors = Floors.of(np.empty(0, np.uint64))
        self._classifier: Classifier | None = None

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
        """The memory that it takes between batches."""
        seen = self._seen
        columns = (seen.keys, seen.first, seen.end, seen.at, self._floors.numbers)
        return sum(each.nbytes for each in columns) + self._keys.bytes

    def insert(self, stamps: Stamps, at_ms: int = 0, order: Column | None = None) -> Classification:
        """Classify a batch and remember fresh stamps; of equal stamps the first one is fresh.

        `order` decides which of equal ones is first: the one with the smallest value.
        """
        classifier = Classifier(self._keys, self._floors, [Lookup(self._seen)])
        verdicts, recent = classifier.insert(stamps, order)
        recent = replace(recent, at=np.full(len(recent), at_ms))
        self._now_seen(intervals.union([self._seen, recent]))
        return Classification(verdicts, recent, self._keys)

    def check(self, stamps: Stamps, order: Column | None = None) -> Column:
        """The verdict on every stamp, without remembering anything."""
        return Classifier(self._keys, self._floors, [Lookup(self._seen)]).check(stamps, order)

    def fork(self) -> Fork:
        """An independent ledger with the same stamps; cheap, because all is shared."""
        if self._classifier is None:
            self._classifier = Classifier(self._keys.final(), self._floors, [Lookup(self._seen)])
        return Fork(self._classifier)

    def absorb(self, entries: Entries) -> None:
        """Add the entries of another ledger."""
        if not len(entries):
            return
        keys = self._keys.add(Stamps(entries.producers, entries.partitions, entries.first))
        first = entries.first.view(np.uint64)
        end = entries.last.view(np.uint64) + np.uint64(1)
        below = entries.expired
        at = entries.at
        if below.any():
            self._raise_floors(keys[below], end[below])
            keys, first, end, at = keys[~below], first[~below], end[~below], at[~below]
        self._now_seen(intervals.union([self._seen, intervals.coalesced(keys, first, end, at)]))

    def expire(self, before_ms: int) -> int:
        """Drop stamps of intervals that did not grow since a time; returns how many.

        It raises floors: whether a stamp below one is a duplicate is no longer known. Stamps of
        rejected records stay.
        """
        old = (self._seen.at < before_ms) & ~self._keys.ending(REJECTED)[self._seen.keys]
        before = self.stamps
        self._raise_floors(self._seen.keys[old], self._seen.end[old])
        self._now_seen(self._seen)
        return before - self.stamps

    def entries(self) -> Entries:
        """Everything it knows, in canonical order."""
        floors = self._floors.numbers
        floored = np.flatnonzero(floors)
        if not len(floored):
            return entries_of(self._keys, self._seen)
        zeros = np.zeros(len(floored), np.uint64)
        below = Intervals(floored, zeros, floors[floored], zeros.astype(np.int64))
        return entries_of(self._keys, self._seen, below)

    def _raise_floors(self, keys: Column, to: Column) -> None:
        if not len(keys):
            return
        floors = np.zeros(len(self._keys), np.uint64)
        floors[: len(self._floors.numbers)] = self._floors.numbers
        np.maximum.at(floors, keys, to)
        self._floors = Floors.of(floors)

    def _now_seen(self, seen: Intervals) -> None:
        """Replace the seen stamps, without those below the floors."""
        if self._floors.any:
            floors = self._floors.at(seen.keys)
            kept = seen.end > floors
            first = np.maximum(seen.first, floors)
            seen = Intervals(seen.keys[kept], first[kept], seen.end[kept], seen.at[kept])
        self._seen = seen
        self._classifier = None


class Fork:
    """A ledger on top of another one, which does not change; it keeps only what it learnt since.

    The cost of a batch depends on its size and on what was learnt, not on the ledger below.
    """

    def __init__(self, below: Classifier) -> None:
        self._below = below
        self._keys = Keys(below.keys)
        self._learnt = intervals.nothing()

    def insert(self, stamps: Stamps, at_ms: int = 0, order: Column | None = None) -> Classification:
        """Classify a batch and learn fresh stamps, as `Ledger.insert` does."""
        verdicts, recent = self._classifier().insert(stamps, order)
        recent = replace(recent, at=np.full(len(recent), at_ms))
        self._learnt = intervals.union([self._learnt, recent])
        return Classification(verdicts, recent, self._keys)

    def check(self, stamps: Stamps, order: Column | None = None) -> Column:
        """The verdict on every stamp, without learning anything."""
        return self._classifier().check(stamps, order)

    def learnt(self) -> Entries:
        """Only the stamps that were fresh since the fork, in canonical order."""
        return entries_of(self._keys, self._learnt)

    def _classifier(self) -> Classifier:
        below = self._below
        return Classifier(self._keys, below.floors, [*below.seen, Lookup(self._learnt)])


def ledger_of(*entries: Entries) -> Ledger:
    """The ledger with all these entries, added at once."""
    ledger = Ledger()
    if entries:
        ledger.absorb(joined(entries))
    return ledger


FRESH, DUPLICATE, EXPIRED = 0, 1, 2
# A piece that fits into a core's cache while it is sorted.
_PIECE = 1 << 18


class Classification:
    """The verdict on every stamp of a batch, and the fresh stamps."""

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
        return entries_of(self._keys, self._seen)


@dataclass(frozen=True, slots=True, eq=False)
class Floors:
    """Per key, the retention floor: the first known sequence; 0, or none yet: no floor."""

    numbers: Column
    any: bool

    @classmethod
    def of(cls, numbers: Column) -> Floors:
        return cls(numbers, bool(numbers.any()))

    def at(self, keys: Column) -> Column:
        """The floor of each key; 0 where there is none."""
        if not len(self.numbers):
            return np.zeros(len(keys), np.uint64)
        known = keys < len(self.numbers)
        floors: Column = np.where(known, self.numbers[np.where(known, keys, 0)], np.uint64(0))
        return floors


@dataclass(frozen=True, slots=True, eq=False)
class Classifier:
    """Classifies batches by seen stamps and floors; remembers only new keys."""

    keys: Keys
    floors: Floors
    seen: Sequence[Lookup]

    def insert(self, stamps: Stamps, order: Column | None) -> tuple[Column, Intervals]:
        """The verdict on every stamp, and the fresh ones; new keys are kept.

        `order` decides which of equal ones is first: the one with the smallest value.
        """
        if not len(stamps):
            return np.empty(0, np.uint8), intervals.nothing()
        if order is not None and bool((order[1:] >= order[:-1]).all()):
            order = None
        verdicts = []
        recent: list[Lookup] = []
        for batch in self._batches(stamps, order):
            verdict, new = self._classify(batch, [*self.seen, *recent])
            verdicts.append(verdict)
            # Small sets are united before they meet large ones, so that each is copied rarely.
            while recent and len(recent[-1].within) <= 2 * len(new):
                new = intervals.union([recent.pop().within, new])
            recent.append(Lookup(new))
        return np.concatenate(verdicts), intervals.union([each.within for each in recent])

    def check(self, stamps: Stamps, order: Column | None) -> Column:
        """The verdict on every stamp."""
        if not len(stamps):
            return np.empty(0, np.uint8)
        coded = self.keys.coded(stamps, add=False)
        unknown = np.flatnonzero(coded.keys < 0)
        # They may repeat within the batch: numbers above all keys keep them distinct.
        coded.keys[unknown] = len(self.keys) + np.arange(len(unknown))
        return self._classify(Batch.of(coded, stamps.sequences, order), self.seen)[0]

    def _batches(self, stamps: Stamps, order: Column | None) -> Iterator[Batch]:
        """The stamps sorted: in parallel pieces, if they arrived mostly in order."""
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
        return Batch.of(self.keys.coded(stamps, add=True), stamps.sequences, order)

    def _classify(self, batch: Batch, known: Sequence[Lookup]) -> tuple[Column, Intervals]:
        """The verdict on every row, and the fresh stamps.

        Entire runs are classified where possible: stamps that arrive in order are mostly new.
        """
        verdicts = np.zeros(len(batch), np.uint8)
        verdicts[batch.repeated] = DUPLICATE
        runs = batch.runs
        touched = np.zeros(len(runs), bool)
        asked = []
        for each in known:
            overlapping = each.overlapping(runs)
            if overlapping.any():
                touched |= overlapping
                asked.append(each)
        if self.floors.any:
            touched |= runs.first < self.floors.at(runs.keys)
        if not touched.any():
            return verdicts, runs
        points = batch.points_of(np.flatnonzero(touched))
        verdict = np.zeros(len(points.rows), np.uint8)
        for each in asked:
            verdict[each.contains(points.keys, points.numbers)] = DUPLICATE
        verdicts[points.rows] = verdict
        if self.floors.any:
            # Below a floor it is no longer known whether a stamp was seen; this overrides all else.
            verdicts[batch.numbers.view(np.uint64) < self.floors.at(batch.coded.by_row())] = EXPIRED
            verdict = verdicts[points.rows]
        left = verdict == FRESH
        fresh = intervals.from_points(points.keys[left], points.numbers[left])
        return verdicts, intervals.union([runs.take(~touched), fresh])
