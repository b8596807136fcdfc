"""Segments: the entries of a ledger as Parquet files, which Spark and DuckDB can read.

Columns: `producer` (text), `partition` (int32), `first` and `last` (int64, both included), `at`
(int64, milliseconds since 1970: when the interval last grew), `expired` (true: below a retention
floor, where it is no longer known what was seen). Sorted by producer, partition, expired first,
number.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from sluicegate.arrow import column, values_of
from sluicegate.dedup.intervals import Intervals, Space, order_of
from sluicegate.dedup.keys import Keys
from sluicegate.dedup.stamp import MAX_PARTITION, Column, Stamps, Texts
from sluicegate.errors import Corrupt


@dataclass(frozen=True, slots=True, eq=False)
class Entries:
    """The content of a ledger as columns: intervals that were seen, or that are below a floor.

    Both ends are included. Sorted by producer, partition, kind and number, so that ledgers with the
    same content give the same columns. `at` is when an interval last grew, in milliseconds.
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
        """Whether both have the same stamps and floors, regardless of times."""
        return (
            self.producers.equals(other.producers)
            and np.array_equal(self.partitions, other.partitions)
            and np.array_equal(self.first, other.first)
            and np.array_equal(self.last, other.last)
            and np.array_equal(self.expired, other.expired)
        )


def joined(entries: Sequence[Entries]) -> Entries:
    """Several, at least one, one after the other; no longer in canonical order."""
    if len(entries) == 1:
        return entries[0]
    return Entries(
        pa.concat_arrays([each.producers for each in entries]),
        np.concatenate([each.partitions for each in entries]),
        np.concatenate([each.first for each in entries]),
        np.concatenate([each.last for each in entries]),
        np.concatenate([each.at for each in entries]),
        np.concatenate([each.expired for each in entries]),
    )


def overlap(entries: Sequence[Entries]) -> bool:
    """Whether any stamp is in more than one of these; none has a stamp twice itself."""
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
    """Intervals by the names of their keys, so that the order of arrival does not matter."""
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
        names.take(column(places)),
        partitions[places],
        first[order].astype(np.int64),
        (end[order] - np.uint64(1)).astype(np.int64),
        at[order],
        expired[order],
    )


def _places(ids: Column, room: int) -> tuple[Column, Column]:
    """The distinct keys, and the place of each key among them."""
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
    table = pa.table({"name": names, "partition": column(partitions)})
    order = pc.sort_indices(table, [("name", "ascending"), ("partition", "ascending")])
    small = np.uint16 if len(partitions) <= 1 << 16 else np.int64
    ranks = np.zeros(len(partitions), small)
    ranks[values_of(order)] = np.arange(len(partitions))
    return ranks


_SCHEMA = pa.schema(
    [
        pa.field("producer", pa.string(), nullable=False),
        pa.field("partition", pa.int32(), nullable=False),
        pa.field("first", pa.int64(), nullable=False),
        pa.field("last", pa.int64(), nullable=False),
        pa.field("at", pa.int64(), nullable=False),
        pa.field("expired", pa.bool_(), nullable=False),
    ]
)


class SegmentDamaged(Corrupt):
    """A blob is not a segment of a dedup log."""

    default_hint = "check the stream with: sluicegate checkpoint verify STREAM"


def encode(entries: Entries) -> bytes:
    """The bytes of a segment; ledgers with the same content give the same bytes."""
    table = pa.table(
        {
            "producer": entries.producers,
            "partition": column(entries.partitions.astype(np.int32)),
            "first": column(entries.first),
            "last": column(entries.last),
            "at": column(entries.at),
            "expired": column(entries.expired),
        },
        schema=_SCHEMA,
    )
    sink = pa.BufferOutputStream()
    # Intervals of one producer lie together, so numbers are small steps: deltas pack them well.
    pq.write_table(
        table,
        sink,
        compression="zstd",
        use_dictionary=["producer"],
        column_encoding=dict.fromkeys(("first", "last", "at"), "DELTA_BINARY_PACKED"),
    )
    return bytes(sink.getvalue())


def decode(data: bytes, place: str) -> Entries:
    """The entries in a segment, or `SegmentDamaged`."""
    try:
        # Without threads: they are no faster, even with a million producers.
        table = pq.ParquetFile(pa.BufferReader(data)).read(use_threads=False)
    except (pa.ArrowException, OSError, UnicodeDecodeError) as e:
        raise SegmentDamaged(f"{place} is not a segment: {e}", place=place) from e
    if not table.schema.equals(_SCHEMA):
        raise SegmentDamaged(f"{place} is not a segment: {table.schema.names}", place=place)
    producers, *numbers = (_column(table, name) for name in _SCHEMA.names)
    partitions, first, last, at, expired = (values_of(each) for each in numbers)
    entries = Entries(producers, partitions.astype(np.int64), first, last, at, expired)
    _check(entries, place)
    return entries


def _column(table: pa.Table, name: str) -> pa.Array:
    chunks = table[name]
    if chunks.num_chunks == 1:
        # Not combined, which would copy it.
        return chunks.chunk(0)
    combined = chunks.combine_chunks()
    if isinstance(combined, pa.ChunkedArray):
        return pa.concat_arrays(combined.chunks)
    return combined


def _check(entries: Entries, place: str) -> None:
    if not len(entries):
        return
    valid = (
        int(entries.first.min()) >= 0
        and bool((entries.first <= entries.last).all())
        and int(entries.partitions.min()) >= 0
        and int(entries.partitions.max()) <= MAX_PARTITION
        and not entries.producers.null_count
    )
    if not valid:
        raise SegmentDamaged(f"{place}: a number is out of range", place=place)


@dataclass(frozen=True, slots=True)
class Statistics:
    """Statistics of a dedup log; times are in milliseconds, None if there are none."""

    producers: int
    partitions: int
    stamps: int
    intervals: int
    floors: int
    gaps: int
    missing: int
    oldest_gap_at: int | None
    widest: tuple[str, int, int] | None  # producer, partition and number of its intervals


def statistics(entries: Entries) -> Statistics:
    """The counts of some entries."""
    seen = ~entries.expired
    first, last, at = entries.first[seen], entries.last[seen], entries.at[seen]
    owner = _owners(entries)
    mine = owner[seen]
    same = mine[1:] == mine[:-1]
    missing = (first[1:] - last[:-1] - 1)[same]
    # A gap is as old as the interval below it: since then nothing closed it.
    oldest = int(at[:-1][same].min()) if same.any() else None
    return Statistics(
        producers=len(entries.producers.unique()),
        partitions=int(owner[-1]) + 1 if len(owner) else 0,
        stamps=int(
            (last.astype(np.uint64) - first.astype(np.uint64)).sum() + np.uint64(len(first))
        ),
        intervals=len(first),
        floors=int(entries.expired.sum()),
        gaps=int(same.sum()),
        missing=int(missing.astype(np.uint64).sum()) if len(missing) else 0,
        oldest_gap_at=oldest,
        widest=_widest(entries, mine, np.flatnonzero(seen)),
    )


def _owners(entries: Entries) -> Column:
    """A number per (producer, partition), ascending along the entries."""
    if not len(entries):
        return np.empty(0, np.int64)
    names = values_of(entries.producers.dictionary_encode().indices)
    changes = (names[1:] != names[:-1]) | (entries.partitions[1:] != entries.partitions[:-1])
    return np.concatenate([[0], np.cumsum(changes)])


def _widest(
    entries: Entries,
    mine: Column,
    rows: Column,
) -> tuple[str, int, int] | None:
    if not len(mine):
        return None
    counts = np.bincount(mine)
    row = int(rows[np.flatnonzero(mine == int(counts.argmax()))[0]])
    return entries.producers[row].as_py(), int(entries.partitions[row]), int(counts.max())
