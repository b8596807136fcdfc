"""Keys: a number for every (producer, partition) that was ever seen, in the order they came."""

from __future__ import annotations

from threading import Lock

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from sluicegate.dedup.stamp import Column, Stamps, Texts

_UNKNOWN = np.int64(-1)
_ROOMY = 1 << 20


class Keys:
    """Names that are told apart once, and small numbers from then on."""

    def __init__(self) -> None:
        self._chunks: list[Texts] = []
        self._known = 0
        self._lock = Lock()
        # Producer and partition in one number, ascending, and the key of each.
        self._pairs: Column = np.empty(0, np.int64)
        self._ids: Column = np.empty(0, np.int64)

    def __len__(self) -> int:
        return len(self._pairs)

    @property
    def bytes(self) -> int:
        """The memory that it takes."""
        return int(self.producers.nbytes) + self._pairs.nbytes + self._ids.nbytes

    @property
    def producers(self) -> Texts:
        """Every producer's name once, in the order they came."""
        if len(self._chunks) != 1:
            self._chunks = [pa.concat_arrays(self._chunks or [pa.array([], pa.string())])]
        return self._chunks[0]

    def columns(self) -> tuple[Texts, Column]:
        """Names and partitions of all keys, in the order of the keys."""
        pairs = np.empty(len(self), np.int64)
        pairs[self._ids] = self._pairs
        return self.producers.take(pa.array(pairs >> 32)), pairs & 0xFFFFFFFF

    def find(self, stamps: Stamps) -> Column:
        """The key of every stamp; -1 if it has none."""
        return self._resolve(stamps, add=False)

    def add(self, stamps: Stamps) -> Column:
        """The key of every stamp; those that have none get one."""
        return self._resolve(stamps, add=True)

    def _resolve(self, stamps: Stamps, *, add: bool) -> Column:
        if not len(stamps):
            return np.empty(0, np.int64)
        # A dictionary that was just made has no names that do not occur; a given one may.
        all_occur = stamps is not (stamps := stamps.encoded())
        codes = stamps.producers.indices.to_numpy(zero_copy_only=False)
        places = int(stamps.partitions.max()) + 1
        cell = codes
        if places > 1:
            cell = codes.astype(np.int64) * places
            cell += stamps.partitions
        names = stamps.producers.dictionary
        cells, table = _distinct(cell, len(names) * places, all_occur=all_occur and places == 1)
        with self._lock:
            producers = self._producers(names, cells // places, add=add)
            pairs = (producers << 32) | (cells % places)
            pairs[producers < 0] = _UNKNOWN
            ids = self._pair_ids(pairs, add=add)
        if table is None:
            found: Column = ids[np.searchsorted(cells, cell)]
        else:
            table[cells] = ids
            found = table.take(cell)
        return found

    def _producers(self, names: Texts, used: Column, *, add: bool) -> Column:
        """The number of each name that is used; new ones are appended, or -1."""
        chosen, inverse = np.unique(used, return_inverse=True)
        names = names.take(pa.array(chosen))
        if self._known > 4 * len(names):
            # The hash table is made of the smaller side.
            there = pc.index_in(self.producers, value_set=names)
            at = np.flatnonzero(there.is_valid().to_numpy(zero_copy_only=False))
            found = np.full(len(names), _UNKNOWN)
            found[there.drop_null().to_numpy(zero_copy_only=False)] = at
        else:
            index = pc.index_in(names, value_set=self.producers)
            found = index.fill_null(-1).to_numpy(zero_copy_only=False).astype(np.int64)
        fresh = np.flatnonzero(found < 0)
        if add and len(fresh):
            self._chunks.append(names.take(pa.array(fresh)))
            found[fresh] = self._known + np.arange(len(fresh))
            self._known += len(fresh)
        return found[inverse]

    def _pair_ids(self, pairs: Column, *, add: bool) -> Column:
        at = np.searchsorted(self._pairs, pairs)
        at_most = np.minimum(at, max(len(self._pairs) - 1, 0))
        there = self._pairs[at_most] == pairs if len(self._pairs) else np.zeros(len(pairs), bool)
        ids = np.where(there, self._ids[at_most] if len(self._ids) else _UNKNOWN, _UNKNOWN)
        fresh = np.flatnonzero(~there & (pairs >= 0))
        if add and len(fresh):
            new = len(self._pairs) + np.arange(len(fresh))
            ids[fresh] = new
            order = np.argsort(pairs[fresh])
            places = at[fresh][order]
            self._pairs = np.insert(self._pairs, places, pairs[fresh][order])
            self._ids = np.insert(self._ids, places, new[order])
        return ids


def _distinct(cell: Column, room: int, *, all_occur: bool) -> tuple[Column, Column | None]:
    """The distinct numbers among many; with a table that has room for all, if that is small."""
    if all_occur:
        return np.arange(room), np.empty(room, np.int64)
    if room > max(4 * len(cell), _ROOMY):
        return np.unique(cell), None
    # A table of all that could be is cheaper than sorting all that are.
    there = np.zeros(room, bool)
    there[cell] = True
    return np.flatnonzero(there), np.empty(room, np.int64)
