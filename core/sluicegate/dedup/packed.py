"""Batches that are sorted: key, number and row are packed into one integer where they fit.

So values are sorted and not indexes; what mostly arrived in order is only merged.
"""

from __future__ import annotations

from typing import TypeAlias

import numpy as np

from sluicegate.dedup import intervals
from sluicegate.dedup.intervals import Intervals
from sluicegate.dedup.sorting import LARGE, ascending, merged
from sluicegate.dedup.stamp import Column

_RADIX = 1 << 16

Found: TypeAlias = tuple[Intervals, Column, Column, Column]
"""Runs, their starts among the distinct events, the rows of those, the rows of repeated ones."""


def found(keys: Column, numbers: Column, order: Column | None = None) -> Found:
    """The runs of rows as they came; of equal ones the first counts, or the smallest in `order`."""
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
        # Not worth a look for order: what arrived in order comes in smaller pieces.
        return ascending(packed)
    if int(keys.max()) < _RADIX:
        # Sixteen bits are sorted by radix, which keeps what arrived in order.
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
    runs = intervals.from_points(by_key, ascending)
    return runs, starts, rows[distinct], rows[~distinct]
