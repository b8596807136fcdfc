"""Keys: a number for every (producer, partition) that was ever seen, in the order they came."""

from __future__ import annotations

from dataclasses import dataclass
from threading import Lock

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from sluicegate.arrow import column, texts, values_of
from sluicegate.dedup.stamp import Column, Stamps, Texts

_UNKNOWN = np.int64(-1)
# The same as Arrow's `index_in` counts.
_NOWHERE = column(np.array([-1], np.int32))[0]
_ROOMY = 1 << 20
# So few names are scanned faster than they are sorted.
_FEW = 1 << 14


@dataclass(frozen=True, slots=True, eq=False)
class Coded:
    """A small code for every row, and the distinct key of each code; -1 for none."""

    codes: Column
    keys: Column

    def by_row(self) -> Column:
        """The key of every row."""
        return self.keys[self.codes]


class Keys:
    """Small numbers for names, so that each name is compared only once.

    With `below`, only keys that it lacks are kept here; it must not grow any more.
    """

    def __init__(self, below: Keys | None = None) -> None:
        self._below = below
        self._offset = len(below) if below else 0
        self._chunks: list[Texts] = []
        self._known = 0
        self._lock = Lock()
        # Producer and partition in one number, ascending, and the key of each.
        self._pairs: Column = np.empty(0, np.int64)
        self._ids: Column = np.empty(0, np.int64)
        # Made once they do not grow any more: the pair of each key, and the names in order.
        self._final = False
        self._by_id: Column | None = None
        self._sorted: tuple[Texts, Column] | None = None

    def __len__(self) -> int:
        return self._offset + len(self._pairs)

    @property
    def bytes(self) -> int:
        """The memory that it takes."""
        return int(self.producers.nbytes) + self._pairs.nbytes + self._ids.nbytes

    @property
    def producers(self) -> Texts:
        """Every producer's name once, in the order they came."""
        if len(self._chunks) != 1:
            self._chunks = [pa.concat_arrays(self._chunks or [texts([])])]
        return self._chunks[0]

    def final(self) -> Keys:
        """The same keys, which stay as they are when these grow; nothing is copied."""
        with self._lock:
            copy = Keys(self._below)
            copy._chunks, copy._known = [self.producers], self._known
            copy._pairs, copy._ids = self._pairs, self._ids
            copy._final = True
        return copy

    def names_of(self, keys: Column) -> tuple[Texts, Column]:
        """Names and partitions of some keys."""
        if self._below is None:
            pairs = self._pairs_by_id()[keys]
            return self.producers.take(column(pairs >> 32)), pairs & 0xFFFFFFFF
        ours = keys >= self._offset
        names, partitions = self._below.names_of(keys[~ours])
        pairs = self._pairs_by_id()[keys[ours] - self._offset]
        both = pa.concat_arrays([names, self.producers.take(column(pairs >> 32))])
        place = np.argsort(np.argsort(ours, kind="stable"), kind="stable")
        numbers = np.concatenate([partitions, pairs & 0xFFFFFFFF])
        return both.take(column(place)), numbers[place]

    def ending(self, suffix: str) -> Column:
        """For every key, whether the name of its producer has this end."""
        names, _ = self.names_of(np.arange(len(self)))
        return values_of(pc.ends_with(names, pattern=suffix))

    def find(self, stamps: Stamps) -> Column:
        """The key of every stamp; -1 if it has none."""
        return self.coded(stamps, add=False).by_row()

    def add(self, stamps: Stamps) -> Column:
        """The key of every stamp; those that have none get one."""
        return self.coded(stamps, add=True).by_row()

    def coded(self, stamps: Stamps, *, add: bool) -> Coded:
        """The same as codes, for batches with few keys and many rows."""
        if not len(stamps):
            return Coded(np.empty(0, np.int64), np.empty(0, np.int64))
        # A dictionary that was just made has no names that do not occur; a given one may.
        all_occur = stamps is not (stamps := stamps.encoded())
        codes = values_of(stamps.producers.indices)
        places = int(stamps.partitions.max()) + 1
        cell = codes
        if places > 1:
            cell = codes.astype(np.int64) * places
            cell += stamps.partitions
        names = stamps.producers.dictionary
        cells, table = _distinct(cell, len(names) * places, all_occur=all_occur and places == 1)
        with self._lock:
            ids = self._keys_of(names, cells // places, cells % places, add=add)
        if table is None:
            return Coded(np.searchsorted(cells, cell), ids)
        table[cells] = ids
        return Coded(cell, table)

    def _keys_of(self, names: Texts, used: Column, partitions: Column, *, add: bool) -> Column:
        """The key of each name that is used, with its partition; new ones are appended, or -1."""
        if self._below is not None:
            found = self._below._keys_of(names, used, partitions, add=False)  # noqa: SLF001
            rest = np.flatnonzero(found < 0)
            if not len(rest):
                return found
            used, partitions = used[rest], partitions[rest]
        producers = self._producers(names, used, add=add)
        pairs = (producers << 32) | partitions
        pairs[producers < 0] = _UNKNOWN
        ids = self._pair_ids(pairs, add=add)
        if self._below is None:
            return ids
        found[rest] = np.where(ids < 0, _UNKNOWN, ids + self._offset)
        return found

    def _producers(self, names: Texts, used: Column, *, add: bool) -> Column:
        """The number of each name that is used, ascending; new ones are appended, or -1."""
        begins = np.ones(len(used), bool)
        np.not_equal(used[1:], used[:-1], out=begins[1:])
        if np.count_nonzero(begins) < len(names):
            names = names.take(column(used[begins]))
        if self._final and self._known > max(_FEW, 4 * len(names)):
            found = self._bisect(names)
        elif self._known > 4 * len(names):
            # The hash table is made of the smaller side.
            there = pc.index_in(self.producers, value_set=names)
            at = np.flatnonzero(values_of(there.is_valid()))
            found = np.full(len(names), _UNKNOWN)
            found[values_of(there.drop_null())] = at
        else:
            index = pc.index_in(names, value_set=self.producers)
            found = values_of(index.fill_null(_NOWHERE)).astype(np.int64)
        fresh = np.flatnonzero(found < 0)
        if add and len(fresh):
            self._chunks.append(names.take(column(fresh)))
            found[fresh] = self._known + np.arange(len(fresh))
            self._known += len(fresh)
        return found[np.cumsum(begins) - 1] if len(found) < len(used) else found

    def _bisect(self, names: Texts) -> Column:
        """The number of each name, or -1, by halves: all names at a time.

        Arrow has `search_sorted` only since release 25, and no hash table that can be kept.
        """
        if self._sorted is None:
            order = pc.sort_indices(self.producers)
            self._sorted = self.producers.take(order), values_of(order).astype(np.int64)
        ordered, order = self._sorted
        low, high = np.zeros(len(names), np.int64), np.full(len(names), len(ordered))
        for _ in range(len(ordered).bit_length()):
            middle = np.minimum((low + high) // 2, len(ordered) - 1)
            below = pc.less(ordered.take(column(middle)), names)
            right = values_of(below) & (low < high)
            high = np.where(right | (low >= high), high, middle)
            low = np.where(right, middle + 1, low)
        at = np.minimum(low, len(ordered) - 1)
        there = values_of(pc.equal(ordered.take(column(at)), names))
        return np.where(there, order[at], _UNKNOWN)

    def _pair_ids(self, pairs: Column, *, add: bool) -> Column:
        at = np.searchsorted(self._pairs, pairs)
        at_most = np.minimum(at, max(len(self._pairs) - 1, 0))
        there = self._pairs[at_most] == pairs if len(self._pairs) else np.zeros(len(pairs), bool)
        ids = np.where(there, self._ids[at_most] if len(self._ids) else _UNKNOWN, _UNKNOWN)
        fresh = np.flatnonzero(~there & (pairs >= 0))
        if add and len(fresh):
            new = len(self._pairs) + np.arange(len(fresh))
            ids[fresh] = new
            self._insert(at[fresh], pairs[fresh], new)
        return ids

    def _insert(self, places: Column, pairs: Column, ids: Column) -> None:
        order = np.argsort(pairs)
        if not len(self._pairs):
            # As when a log is read: there is nothing to move, and moving takes longer than sorting.
            self._pairs, self._ids = pairs[order], ids[order]
            return
        self._pairs = np.insert(self._pairs, places[order], pairs[order])
        self._ids = np.insert(self._ids, places[order], ids[order])

    def _pairs_by_id(self) -> Column:
        if self._by_id is not None:
            return self._by_id
        pairs = np.empty(len(self._pairs), np.int64)
        pairs[self._ids] = self._pairs
        if self._final:
            self._by_id = pairs
        return pairs


def _distinct(cell: Column, room: int, *, all_occur: bool) -> tuple[Column, Column | None]:
    """The distinct numbers among many; with a table that has room for all, if that is small."""
    if all_occur:
        return np.arange(room), np.empty(room, np.int64)
    if room > max(4 * len(cell), _ROOMY):
        return np.unique(cell), None
    # A table of all possible numbers is cheaper than sorting the numbers.
    there = np.zeros(room, bool)
    there[cell] = True
    return np.flatnonzero(there), np.full(room, _UNKNOWN)
