"""The ledger: which stamps were seen, exactly, and below which floors nothing is known any more.

This is the one engine that decides what is a duplicate. It works on columns, never on single
events.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from sluicegate.dedup import intervals
from sluicegate.dedup.entries import Entries, entries_of, joined, overlap
from sluicegate.dedup.intervals import Intervals, Lookup
from sluicegate.dedup.judge import DUPLICATE, EXPIRED, FRESH, Floors, Judge, Judgement
from sluicegate.dedup.keys import Keys
from sluicegate.dedup.stamp import Column, Stamps

__all__ = [
    "DUPLICATE",
    "EXPIRED",
    "FRESH",
    "Entries",
    "Fork",
    "Judgement",
    "Ledger",
    "ledger_of",
    "overlap",
]


class Ledger:
    """Stamps that were seen, in memory."""

    def __init__(self) -> None:
        self._keys = Keys()
        self._seen = intervals.nothing()
        # Its column is never changed, only replaced: forks share it.
        self._floors = Floors.of(np.empty(0, np.uint64))
        self._judge: Judge | None = None

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
        seen = self._seen
        columns = (seen.keys, seen.first, seen.end, seen.at, self._floors.numbers)
        return sum(each.nbytes for each in columns) + self._keys.bytes

    def insert(self, stamps: Stamps, at_ms: int = 0, order: Column | None = None) -> Judgement:
        """Judge a batch and remember what is fresh; of equal stamps the first one is fresh.

        `order`, if given, says which of equal ones is first: the one where it is smallest.
        """
        judge = Judge(self._keys, self._floors, [Lookup(self._seen)])
        verdicts, recent = judge.insert(stamps, order)
        recent = replace(recent, at=np.full(len(recent), at_ms))
        self._now_seen(intervals.union([self._seen, recent]))
        return Judgement(verdicts, recent, self._keys)

    def check(self, stamps: Stamps, order: Column | None = None) -> Column:
        """The verdict on every stamp, without remembering anything."""
        return Judge(self._keys, self._floors, [Lookup(self._seen)]).check(stamps, order)

    def fork(self) -> Fork:
        """A ledger that knows the same, and goes on by itself; cheap, because all is shared."""
        if self._judge is None:
            self._judge = Judge(self._keys.final(), self._floors, [Lookup(self._seen)])
        return Fork(self._judge)

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
            self._raise_floors(keys[below], end[below])
            keys, first, end, at = keys[~below], first[~below], end[~below], at[~below]
        self._now_seen(intervals.union([self._seen, intervals.coalesced(keys, first, end, at)]))

    def expire(self, before_ms: int) -> int:
        """Give up what did not grow since a time, by raising floors; gives how many stamps went.

        Whatever arrives below a floor later can no longer be told from a duplicate.
        """
        old = self._seen.at < before_ms
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
        """Know this from now on, but for what is below the floors."""
        if self._floors.any:
            floors = self._floors.at(seen.keys)
            kept = seen.end > floors
            first = np.maximum(seen.first, floors)
            seen = Intervals(seen.keys[kept], first[kept], seen.end[kept], seen.at[kept])
        self._seen = seen
        self._judge = None


class Fork:
    """A ledger on top of another that stays as it is, and what was learnt since.

    A batch costs what the batch and the learnt part are large, not what lies below them.
    """

    def __init__(self, below: Judge) -> None:
        self._below = below
        self._keys = Keys(below.keys)
        self._learnt = intervals.nothing()

    def insert(self, stamps: Stamps, at_ms: int = 0, order: Column | None = None) -> Judgement:
        """Judge a batch and learn what is fresh, as `Ledger.insert` does."""
        verdicts, recent = self._judge().insert(stamps, order)
        recent = replace(recent, at=np.full(len(recent), at_ms))
        self._learnt = intervals.union([self._learnt, recent])
        return Judgement(verdicts, recent, self._keys)

    def check(self, stamps: Stamps, order: Column | None = None) -> Column:
        """The verdict on every stamp, without learning anything."""
        return self._judge().check(stamps, order)

    def learnt(self) -> Entries:
        """Only what was fresh since the fork, in canonical order."""
        return entries_of(self._keys, self._learnt)

    def _judge(self) -> Judge:
        below = self._below
        return Judge(self._keys, below.floors, [*below.seen, Lookup(self._learnt)])


def ledger_of(*entries: Entries) -> Ledger:
    """The ledger that knows what all of these know; all at once, however many they are."""
    ledger = Ledger()
    if entries:
        ledger.absorb(joined(entries))
    return ledger
