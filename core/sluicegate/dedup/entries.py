"""Entries: what a ledger knows, as columns; what segments are made of."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from sluicegate.dedup.intervals import Intervals, Space
from sluicegate.dedup.keys import Keys
from sluicegate.dedup.sorting import order_of
from sluicegate.dedup.stamp import Column, Stamps, Texts


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


def joined(entries: Sequence[Entries]) -> Entries:
    """Several, at least one, one after the other; no longer in canonical order."""
    return Entries(
        pa.concat_arrays([each.producers for each in entries]),
        np.concatenate([each.partitions for each in entries]),
        np.concatenate([each.first for each in entries]),
        np.concatenate([each.last for each in entries]),
        np.concatenate([each.at for each in entries]),
        np.concatenate([each.expired for each in entries]),
    )


def overlap(entries: Sequence[Entries]) -> bool:
    """Whether any stamp was seen by more than one of these; none says a stamp twice itself."""
    if not any(len(each) for each in entries):
        return False
    both = joined(entries)
    seen = ~both.expired
    if not seen.any():
        return False
    keys = Keys().add(Stamps(both.producers, both.partitions, both.first))[seen]
    first, last = both.first[seen].view(np.uint64), both.last[seen].view(np.uint64)
    space = Space.of([keys], [first, last])
    low, high = space.encode(keys, first), space.encode(keys, last)
    order = order_of(low)
    low, high = low[order], np.maximum.accumulate(high[order])
    return bool((low[1:] <= high[:-1]).any())


def entries_of(keys: Keys, seen: Intervals, below: Intervals | None = None) -> Entries:
    """Intervals by the names of their keys, so that it does not matter who came first."""
    all_of = [seen] if below is None else [below, seen]
    ids = np.concatenate([each.keys for each in all_of])
    first = np.concatenate([each.first for each in all_of])
    end = np.concatenate([each.end for each in all_of])
    at = np.concatenate([each.at for each in all_of])
    expired = np.repeat([below is not None, False], [len(ids) - len(seen), len(seen)])
    used, places = _places(ids, len(keys))
    names, partitions = keys.names_of(used)
    # Stable: within a key its floor comes first, then its intervals as they are.
    order = np.argsort(_ranks(names, partitions)[places], kind="stable")
    places = places[order]
    return Entries(
        names.take(pa.array(places)),
        partitions[places],
        first[order].astype(np.int64),
        (end[order] - np.uint64(1)).astype(np.int64),
        at[order],
        expired[order],
    )


def _places(ids: Column, room: int) -> tuple[Column, Column]:
    """The distinct keys, and of each key its place among them."""
    if room > 4 * len(ids):
        used, places = np.unique(ids, return_inverse=True)
        return used, places
    there = np.zeros(room, bool)
    there[ids] = True
    used = np.flatnonzero(there)
    table = np.empty(room, np.int64)
    table[used] = np.arange(len(used))
    return used, table[ids]


def _ranks(names: Texts, partitions: Column) -> Column:
    """The rank of each key by name and partition."""
    table = pa.table({"name": names, "partition": partitions})
    order = pc.sort_indices(table, [("name", "ascending"), ("partition", "ascending")])
    small = np.uint16 if len(partitions) <= 1 << 16 else np.int64
    ranks = np.zeros(len(partitions), small)
    ranks[order.to_numpy()] = np.arange(len(partitions))
    return ranks
