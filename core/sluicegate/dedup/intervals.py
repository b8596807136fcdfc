"""Sets of numbers per key, as sorted disjoint intervals in numpy columns; and their sorting.

An interval is half-open, `first` to `end`, in unsigned 64 bits, so that 2^63-1 can be in it. All
algorithms work on one order of (key, number), encoded in one integer: directly if both fit into 64
bits, and by rank where they do not.

So values are sorted and not indexes; numbers that mostly arrived in order are only merged.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Literal, TypeAlias

import numpy as np

from sluicegate.dedup.stamp import Column

LARGE = 1 << 19


def order_of(values: Column) -> Column:
    """The rows that make unsigned values ascending; equal ones as they came."""
    row_bits = max(len(values) - 1, 1).bit_length()
    if int(values.max()).bit_length() + row_bits > 64:
        return np.argsort(values, kind="stable")
    # Sorting values is much faster than sorting indexes.
    packed = values << np.uint64(row_bits)
    packed |= np.arange(len(values), dtype=np.uint64)
    packed = ascending(packed)
    packed &= np.uint64((1 << row_bits) - 1)
    return packed.view(np.int64)


def ascending(values: Column) -> Column:
    """The same values in order."""
    if len(values) <= LARGE:
        return np.sort(values)
    with ThreadPoolExecutor() as pool:
        parts = list(pool.map(np.sort, np.array_split(values, os.cpu_count() or 1)))
    return merged(parts)


def merged(parts: list[Column]) -> Column:
    """Parts that are in order, as one."""
    both = np.concatenate(parts)
    # The stable sort takes ascending parts as they are.
    both.sort(kind="stable")
    return both


Side: TypeAlias = Literal["left", "right"]


@dataclass(frozen=True, slots=True, eq=False)
class Intervals:
    """Disjoint, not adjacent, ascending by key and number; `at` is when each last grew."""

    keys: Column
    first: Column
    end: Column
    at: Column

    def __len__(self) -> int:
        return len(self.keys)

    @property
    def numbers(self) -> int:
        """How many numbers are in them."""
        return int((self.end - self.first).sum(dtype=np.uint64)) if len(self) else 0

    def equals(self, other: Intervals) -> bool:
        """Whether both hold the same numbers of the same keys."""
        return (
            np.array_equal(self.keys, other.keys)
            and np.array_equal(self.first, other.first)
            and np.array_equal(self.end, other.end)
        )

    def take(self, chosen: Column) -> Intervals:
        """Some of them, by mask or by ascending index."""
        return Intervals(self.keys[chosen], self.first[chosen], self.end[chosen], self.at[chosen])


def nothing() -> Intervals:
    """The empty set."""
    signed, unsigned = np.empty(0, np.int64), np.empty(0, np.uint64)
    return Intervals(signed, unsigned, unsigned, signed)


def from_points(keys: Column, numbers: Column, at: int = 0) -> Intervals:
    """The intervals of points that are ascending by key and number, each there once."""
    if not len(keys):
        return nothing()
    numbers = numbers.astype(np.uint64, copy=False)
    begins = np.empty(len(keys), bool)
    begins[0] = True
    np.not_equal(numbers[1:], numbers[:-1] + np.uint64(1), out=begins[1:])
    begins[1:] |= keys[1:] != keys[:-1]
    starts = np.flatnonzero(begins)
    stops = np.append(starts[1:], len(keys)) - 1
    ends = numbers[stops] + np.uint64(1)
    return Intervals(keys[starts], numbers[starts], ends, np.full(len(starts), at))


def union(sets: Sequence[Intervals]) -> Intervals:
    """The numbers in any of the sets."""
    sets = [each for each in sets if len(each)]
    if not sets:
        return nothing()
    if len(sets) == 1:
        return sets[0]
    space = Space.of(
        [each.keys for each in sets], [each.end for each in sets] + [each.first for each in sets]
    )
    return _joined(
        space,
        np.concatenate([space.encode(each.keys, each.first) for each in sets]),
        np.concatenate([space.encode(each.keys, each.end) for each in sets]),
        np.concatenate([each.at for each in sets]),
    )


def coalesced(keys: Column, first: Column, end: Column, at: Column) -> Intervals:
    """Intervals in any order, overlapping or not, as a set."""
    if not len(keys):
        return nothing()
    space = Space.of([keys], [first, end])
    return _joined(space, space.encode(keys, first), space.encode(keys, end), at)


def _joined(space: Space, low: Column, reach: Column, at: Column) -> Intervals:
    """Encoded intervals in any order as a set; the columns are used up."""
    if not (low[1:] >= low[:-1]).all():
        order = order_of(low)
        low, reach, at = low.take(order), reach.take(order), at.take(order)
    np.maximum.accumulate(reach, out=reach)
    begins = np.empty(len(low), bool)
    begins[0] = True
    np.greater(low[1:], reach[:-1], out=begins[1:])
    if not begins.all():
        starts = np.flatnonzero(begins)
        low, reach = low[starts], reach[np.append(starts[1:], len(begins)) - 1]
        at = np.maximum.reduceat(at, starts)
    return Intervals(space.keys(low), space.decode(low), space.decode(reach), at)


def difference(one: Intervals, other: Intervals) -> Intervals:
    """The numbers in one set and not in the other."""
    if not len(one) or not len(other):
        return one
    keys = np.concatenate([one.keys, one.keys, other.keys, other.keys])
    edges = np.concatenate([one.first, one.end, other.first, other.end])
    space = Space.of([keys], [edges])
    place = space.encode(keys, edges)
    ours, theirs = len(one), len(other)
    inside = np.repeat(np.array([1, -1, 0, 0]), [ours, ours, theirs, theirs])
    outside = np.repeat(np.array([0, 0, 1, -1]), [ours, ours, theirs, theirs])
    order = np.argsort(place, kind="stable")
    place, keys, edges = place[order], keys[order], edges[order]
    left = (np.cumsum(inside[order]) > 0) & (np.cumsum(outside[order]) == 0)
    pieces = np.flatnonzero(left[:-1] & (place[:-1] < place[1:]))
    origin = np.searchsorted(space.encode(one.keys, one.first), place[pieces], side="right") - 1
    return Intervals(keys[pieces], edges[pieces], edges[pieces + 1], one.at[origin])


class Lookup:
    """A set that is prepared for many queries."""

    def __init__(self, within: Intervals) -> None:
        self.within = within
        if not len(within):
            return
        # Keys and numbers above the set are looked up as if they were just above it.
        self._key = within.keys[-1] + 1
        self._number = within.end.max()
        lowest = np.zeros(1, np.uint64)
        self._space = Space.of([np.array([self._key])], [lowest, within.first, within.end])
        self._first = self._space.encode(within.keys, within.first)
        self._end = self._space.encode(within.keys, within.end)

    def overlapping(self, runs: Intervals) -> Column:
        """For every run, whether any of its numbers is in the set."""
        if not len(self.within) or not len(runs):
            return np.zeros(len(runs), bool)
        # The last interval that begins before the run ends; it overlaps if it ends after its start.
        end = self._encoded(runs.keys, runs.end, "left")
        at = np.searchsorted(self._first, end, side="left") - 1
        first = self._encoded(runs.keys, runs.first, "right")
        found: Column = (at >= 0) & (self._end[at] > first)
        return found

    def contains(self, keys: Column, numbers: Column) -> Column:
        """For every point, whether it is in the set."""
        if not len(self.within) or not len(keys):
            return np.zeros(len(keys), bool)
        points = self._encoded(keys, numbers, "right")
        at = np.searchsorted(self._first, points, side="right") - 1
        found: Column = (at >= 0) & (points < self._end[at])
        return found

    def _encoded(self, keys: Column, numbers: Column, side: Side) -> Column:
        numbers = self._space.near(np.minimum(numbers.view(np.uint64), self._number), side)
        return self._space.encode(np.minimum(keys, self._key), numbers)


class Space:
    """One order for pairs of key and number, both from 0."""

    def __init__(self, bits: int, ranks: Column | None = None) -> None:
        self._bits = bits
        self._shift = np.uint64(bits)
        self._mask = np.uint64((1 << bits) - 1)
        self._ranks = ranks

    @classmethod
    def direct(cls, highest: int) -> Space | None:
        """A space for numbers up to a highest, as they are; None if they leave no room for keys."""
        bits = highest.bit_length()
        return cls(bits) if bits < 64 else None

    @classmethod
    def of(cls, keys: Sequence[Column], numbers: Sequence[Column]) -> Space:
        """The space that has room for these keys and numbers."""
        space = cls.direct(max(int(each.max()) for each in numbers))
        if space and space.has_room(max(int(each.max()) for each in keys)):
            return space
        ranks = np.unique(np.concatenate(list(numbers)))
        return cls(len(ranks).bit_length(), ranks)

    def has_room(self, key: int) -> bool:
        """Whether keys up to this one fit."""
        return self._bits + key.bit_length() <= 64

    def near(self, numbers: Column, side: Side) -> Column:
        """Numbers as the space has them: the next one above, or below, where it lacks them."""
        if self._ranks is None:
            return numbers
        if side == "left":
            at = np.searchsorted(self._ranks, numbers, side="left")
            return self._ranks[np.minimum(at, len(self._ranks) - 1)]
        below: Column = self._ranks[np.searchsorted(self._ranks, numbers, side="right") - 1]
        return below

    def encode(self, keys: Column, numbers: Column) -> Column:
        """The pairs as integers in the same order."""
        low = numbers if self._ranks is None else np.searchsorted(self._ranks, numbers)
        encoded: Column = keys.view(np.uint64) << self._shift
        encoded |= low.astype(np.uint64, copy=False)
        return encoded

    def keys(self, encoded: Column) -> Column:
        """The keys of encoded pairs."""
        return (encoded >> self._shift).view(np.int64)

    def decode(self, encoded: Column) -> Column:
        """The numbers of encoded pairs."""
        low = encoded & self._mask
        return low if self._ranks is None else self._ranks[low.astype(np.int64)]


_RADIX = 1 << 16

Found: TypeAlias = tuple[Intervals, Column, Column, Column]
"""Runs, their starts among the distinct events, the rows of those, the rows of repeated ones."""


def found(keys: Column, numbers: Column, order: Column | None = None) -> Found:
    """The runs of rows; of equal ones the first is kept, or the smallest in `order`."""
    if order is not None:
        sooner = np.argsort(order, kind="stable")
        runs, starts, rows, repeated = found(keys[sooner], numbers[sooner])
        return runs, starts, sooner[rows], sooner[repeated]
    low, high = int(numbers.min()), int(numbers.max())
    # Room for one more, so that the last number of a key and the first of the next never touch.
    bits = (high - low + 2).bit_length()
    row_bits = max(len(keys) - 1, 1).bit_length()
    if int(keys.max()).bit_length() + bits + row_bits > 64:
        return _unpacked(keys, numbers)
    return _packed(keys, numbers, low, bits, row_bits)


def _packed(keys: Column, numbers: Column, low: int, bits: int, row_bits: int) -> Found:
    packed = keys.astype(np.uint64)
    packed <<= np.uint64(bits)
    packed |= (numbers - low if low else numbers).view(np.uint64)
    packed <<= np.uint64(row_bits)
    packed |= np.arange(len(keys), dtype=np.uint64)
    packed = _sorted(packed, keys)
    rows = (packed & np.uint64((1 << row_bits) - 1)).view(np.int64)
    packed >>= np.uint64(row_bits)
    distinct = np.empty(len(packed), bool)
    distinct[0] = True
    np.not_equal(packed[1:], packed[:-1], out=distinct[1:])
    repeated = rows[~distinct]
    if len(repeated):
        packed, rows = packed[distinct], rows[distinct]
    begins = np.empty(len(packed), bool)
    begins[0] = True
    np.not_equal(packed[1:], packed[:-1] + np.uint64(1), out=begins[1:])
    starts = np.flatnonzero(begins)
    at, until = packed[starts], packed[np.append(starts[1:], len(packed)) - 1]
    mask, base = np.uint64((1 << bits) - 1), np.uint64(low)
    runs = Intervals(
        (at >> np.uint64(bits)).astype(np.int64),
        (at & mask) + base,
        (until & mask) + base + np.uint64(1),
        np.zeros(len(starts), np.int64),
    )
    return runs, starts, rows, repeated


def _sorted(packed: Column, keys: Column) -> Column:
    """The same values ascending."""
    if len(packed) > LARGE:
        # No check for order here: stamps that arrived in order come in smaller pieces.
        return ascending(packed)
    if int(keys.max()) < _RADIX:
        # Sixteen bits are sorted by radix, which keeps the order of arrival.
        packed = packed[np.argsort(keys.astype(np.uint16), kind="stable")]
    late = packed < np.maximum.accumulate(packed)
    count = int(np.count_nonzero(late))
    if count == 0:
        return packed
    if count > len(packed) // 4:
        return np.sort(packed)
    return merged([packed[~late], np.sort(packed[late])])


def _unpacked(keys: Column, numbers: Column) -> Found:
    """The same for numbers too far apart to be packed: slower, and no counter needs it."""
    rows = np.lexsort((numbers, keys))
    by_key, ascending = keys[rows], numbers[rows].astype(np.uint64)
    distinct = np.ones(len(rows), bool)
    distinct[1:] = (ascending[1:] != ascending[:-1]) | (by_key[1:] != by_key[:-1])
    by_key, ascending = by_key[distinct], ascending[distinct]
    begins = np.ones(len(by_key), bool)
    begins[1:] = (ascending[1:] != ascending[:-1] + np.uint64(1)) | (by_key[1:] != by_key[:-1])
    starts = np.flatnonzero(begins)
    runs = from_points(by_key, ascending)
    return runs, starts, rows[distinct], rows[~distinct]
