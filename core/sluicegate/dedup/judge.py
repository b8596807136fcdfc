"""Judging: of every stamp of a batch whether it is fresh, a duplicate, or below a floor."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import numpy as np

from sluicegate.dedup import intervals
from sluicegate.dedup.batch import Batch
from sluicegate.dedup.entries import Entries, entries_of
from sluicegate.dedup.intervals import Intervals, Lookup
from sluicegate.dedup.keys import Keys
from sluicegate.dedup.stamp import Column, Stamps

FRESH, DUPLICATE, EXPIRED = 0, 1, 2
# What fits into a core's cache while it is sorted.
_PIECE = 1 << 18


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
        return entries_of(self._keys, self._seen)


@dataclass(frozen=True, slots=True, eq=False)
class Floors:
    """Per key, the first sequence of which something is known; 0, or none yet: no floor."""

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
class Judge:
    """Judges batches by what was seen and by floors; remembers nothing but new keys."""

    keys: Keys
    floors: Floors
    seen: Sequence[Lookup]

    def insert(self, stamps: Stamps, order: Column | None) -> tuple[Column, Intervals]:
        """The verdict on every stamp, and the fresh ones; new keys are kept.

        `order`, if given, says which of equal ones is first: the one where it is smallest.
        """
        if not len(stamps):
            return np.empty(0, np.uint8), intervals.nothing()
        if order is not None and bool((order[1:] >= order[:-1]).all()):
            order = None
        verdicts = []
        recent: list[Lookup] = []
        for batch in self._batches(stamps, order):
            judged, new = self._judge(batch, [*self.seen, *recent])
            verdicts.append(judged)
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
        # They may repeat within the batch: numbers above all keys tell them apart.
        coded.keys[unknown] = len(self.keys) + np.arange(len(unknown))
        return self._judge(Batch.of(coded, stamps.sequences, order), self.seen)[0]

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
        return Batch.of(self.keys.coded(stamps, add=True), stamps.sequences, order)

    def _judge(self, batch: Batch, known: Sequence[Lookup]) -> tuple[Column, Intervals]:
        """The verdict on every row, and what is fresh.

        Whole runs are judged where that is possible: what arrives in order is mostly new.
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
            # Whether it was seen is not known any more below a floor; that goes before all else.
            verdicts[batch.numbers.view(np.uint64) < self.floors.at(batch.coded.by_row())] = EXPIRED
            verdict = verdicts[points.rows]
        left = verdict == FRESH
        fresh = intervals.from_points(points.keys[left], points.numbers[left])
        return verdicts, intervals.union([runs.take(~touched), fresh])
