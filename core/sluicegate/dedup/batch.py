"""A batch of numbered events: its repetitions found, and its runs of numbers.

Events whose numbers lie close together per key, which is what counters give, are put into a table
of all that there could be; nothing is sorted. Others are sorted, see `packed`.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from sluicegate.dedup import packed
from sluicegate.dedup.intervals import Intervals
from sluicegate.dedup.keys import Coded
from sluicegate.dedup.packed import Found
from sluicegate.dedup.stamp import Column

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
    repeated: Column  # rows that say again what another row says

    def __len__(self) -> int:
        return len(self.numbers)

    @classmethod
    def of(cls, coded: Coded, numbers: Column, order: Column | None = None) -> Batch:
        """From rows as they came; of equal ones the first counts, or the smallest in `order`."""
        found = _from_table(coded, numbers, order)
        if found is None:
            found = packed.found(coded.by_row(), numbers, order)
        return cls(coded, numbers, *found)

    def points_of(self, chosen: Column) -> Points:
        """The events of some runs one by one; of repeated ones the one that counts."""
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

    The places of a key lie together, lowest number first, and one that stays free is between keys.
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
    """The row that counts for every place, -1 where there is none; and the rows that do not."""
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
