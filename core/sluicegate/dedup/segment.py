"""Segments: what a ledger knows as a Parquet file, which Spark and DuckDB read as it is.

Columns: `producer` (text), `partition` (int32), `first` and `last` (int64, both included), `at`
(int64, milliseconds since 1970: when the interval last grew), `expired` (true: below a floor, where
it is not known any more what was seen). Sorted by producer, partition, expired first, number.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from sluicegate.dedup.entries import Entries
from sluicegate.dedup.stamp import MAX_PARTITION
from sluicegate.errors import Corrupt

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

    default_hint = "see what it belongs to with: sluicegate checkpoint verify STREAM"


def encode(entries: Entries) -> bytes:
    """The bytes of a segment; ledgers that know the same give the same."""
    table = pa.table(
        {
            "producer": entries.producers,
            "partition": entries.partitions.astype(np.int32),
            "first": entries.first,
            "last": entries.last,
            "at": entries.at,
            "expired": entries.expired,
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
    """What a segment knows, or `SegmentDamaged`."""
    try:
        table = pq.read_table(pa.BufferReader(data)).combine_chunks()
    except (pa.ArrowException, OSError) as e:
        raise SegmentDamaged(f"{place} is not a segment: {e}", place=place) from e
    if not table.schema.equals(_SCHEMA):
        raise SegmentDamaged(f"{place} is not a segment: {table.schema.names}", place=place)
    producers, *numbers = (_column(table, name) for name in _SCHEMA.names)
    partitions, first, last, at, expired = (each.to_numpy(zero_copy_only=False) for each in numbers)
    entries = Entries(producers, partitions.astype(np.int64), first, last, at, expired)
    _check(entries, place)
    return entries


def _column(table: pa.Table, name: str) -> pa.Array:
    chunks = table[name].combine_chunks()
    return pa.concat_arrays(chunks.chunks) if isinstance(chunks, pa.ChunkedArray) else chunks


def _check(entries: Entries, place: str) -> None:
    if not len(entries):
        return
    sound = (
        int(entries.first.min()) >= 0
        and bool((entries.first <= entries.last).all())
        and int(entries.partitions.min()) >= 0
        and int(entries.partitions.max()) <= MAX_PARTITION
        and not entries.producers.null_count
    )
    if not sound:
        raise SegmentDamaged(f"{place}: a number is out of range", place=place)
