"""Sorting large columns: by value where the row fits beside it, and by all processors."""

from __future__ import annotations

import os
from concurrent.futures import ThreadPoolExecutor

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
