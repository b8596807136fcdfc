"""Folding events into deltas: first where they are classified, then where their shard is folded.

Tasks send each other sums and counts per key, not events: the columns are `target` (the task that
folds), `shard`, `key`, `events`, one per value, and `result` and `data` for the one row that
reports to the driver what a task did. A sum that is lost is sent as not-a-number; deltas mark it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from sluicegate.errors import ProblemsFound
from sluicegate.job.records import TYPES
from sluicegate.job.work import Folded, Work
from sluicegate.shards.hashing import shards_of
from sluicegate.state import delta
from sluicegate.state.aggregates import EVENTS, Value
from sluicegate.state.backend import EpochIncomplete
from sluicegate.state.delta import KEY, LOST, Merge
from sluicegate.storage.blobs import Blobs, Ref
from sluicegate.stream.stream import open_stream

TARGET, SHARD, RESULT, SEGMENT = "target", "shard", "result", "data"
_AT_ONCE = 1 << 20
_BYTES_AT_ONCE = 64 << 20
_BATCH = 1 << 16


def columns(work: Work) -> pa.Schema:
    """The columns that classifying tasks send to folding tasks."""
    fixed = [(TARGET, pa.int32()), (SHARD, pa.int32()), (KEY, pa.string()), (EVENTS, pa.int64())]
    values = [(_column(n), _type(work, each)) for n, each in enumerate(work.values)]
    return pa.schema([*fixed, *values, (RESULT, pa.string()), (SEGMENT, pa.binary())])


def _column(number: int) -> str:
    """By number: Spark treats names that differ in case only as the same."""
    return f"value_{number}"


def _type(work: Work, value: Value) -> pa.DataType:
    return pa.int64() if value.how == "count" else TYPES[work.shape.columns[value.column]]


class SumOverflow(ProblemsFound):
    """A double is too large for a sum or an average, and the stream is configured to stop."""

    default_hint = (
        'make that sum null with on_overflow = "null" in the stream\'s table, or skip the record '
        "with: sluicegate offsets reset"
    )


class Folding:
    """The fresh events of one classifying task, folded per key."""

    def __init__(self, work: Work) -> None:
        self._work = work
        self._schema = columns(work)
        # By number: a column may have the name of an aggregate of another one.
        wanted = dict.fromkeys([work.shape.key or "", *(v.column for v in work.values)])
        self._names = {name: f"column_{number}" for number, name in enumerate(wanted)}
        self._waiting: list[pa.Table] = []
        self._rows = self._bytes = 0
        self._folded: list[pa.Table] = []
        self.events: dict[int, int] = {}

    def add(self, rows: pa.Table) -> None:
        """Add fresh events."""
        if not self._work.shape.key:
            return
        chosen = rows.select(list(self._names)).rename_columns([*self._names.values()])
        self._waiting.append(chosen)
        self._rows += chosen.num_rows
        self._bytes += chosen.nbytes
        if self._rows >= _AT_ONCE or self._bytes >= _BYTES_AT_ONCE:
            self._fold()

    def finish(self) -> Iterator[pa.RecordBatch]:
        """Everything that was folded, by shard."""
        self._fold()
        if not self._folded:
            return
        folded = pa.concat_tables(self._folded)
        keys = folded[KEY].combine_chunks()
        shards = shards_of(keys, self._work.shards)
        counts = np.bincount(shards, folded[EVENTS].to_numpy(), self._work.shards).astype(np.int64)
        self.events = {int(shard): int(counts[shard]) for shard in np.flatnonzero(counts)}
        arrays = [
            pa.array(self._work.targets[shards].astype(np.int32)),
            pa.array(shards.astype(np.int32)),
            *(column.combine_chunks() for column in folded.columns),
            pa.nulls(len(keys), pa.string()),
            pa.nulls(len(keys), pa.binary()),
        ]
        yield from pa.table(arrays, schema=self._schema).to_batches(_BATCH)

    def summary(self, result: str, segment: bytes) -> pa.RecordBatch:
        """The row that reports to the driver what was done."""
        given = {TARGET: 0, RESULT: result, SEGMENT: segment}
        arrays = [pa.array([given.get(each.name)], each.type) for each in self._schema]
        return pa.RecordBatch.from_arrays(arrays, schema=self._schema)

    def _fold(self) -> None:
        if not self._waiting:
            return
        rows = pa.concat_tables(self._waiting)
        each = [(self._names[v.column], v.how) for v in self._work.values]
        summed = [rows[column] for column, how in each if how == "sum"]
        fit = all(delta.fit(each) and delta.too_large(each) is None for each in summed)
        chosen = self._grouped(rows, each) if fit else self._one_by_one(rows)
        fields = [KEY, EVENTS, *(_column(n) for n in range(len(self._work.values)))]
        schema = pa.schema([self._schema.field(name) for name in fields])
        self._folded.append(pa.table(chosen, names=fields).cast(schema))
        self._waiting, self._rows, self._bytes = [], 0, 0

    def _grouped(self, rows: pa.Table, each: Sequence[tuple[str, str]]) -> list[pa.ChunkedArray]:
        # An average and a sum of one column are computed once.
        wanted = [([], "count_all"), *dict.fromkeys(each)]
        key = rows.column_names[0]
        grouped = rows.group_by(key, use_threads=False).aggregate(wanted)
        names = [key, "count_all", *(f"{column}_{how}" for column, how in each)]
        return [grouped[name] for name in names]

    def _one_by_one(self, rows: pa.Table) -> list[pa.ChunkedArray]:
        """Every event for itself: their sums could overflow the columns that tasks send."""
        ones = pa.chunked_array([pa.array(np.ones(rows.num_rows, np.int64))])
        return [rows.column(0), ones, *(self._alone(rows, each) for each in self._work.values)]

    def _alone(self, rows: pa.Table, value: Value) -> pa.ChunkedArray:
        column = rows[self._names[value.column]]
        if value.how == "count":
            return pc.is_valid(column)
        large = delta.too_large(column) if value.how == "sum" else None
        if large is None:
            return column
        if self._work.fails_on_overflow:
            first = pc.index(large, True).as_py()
            raise SumOverflow(
                f"{value.aggregate} of key {rows.column(0)[first].as_py()!a:.80} would overflow: "
                f"{value.column} is {column[first].as_py()}"
            )
        return pc.if_else(large, float("nan"), column)


def fold_shards(work: Work, task: int, batches: Iterable[pa.RecordBatch]) -> pa.Table:
    """Make the deltas of the shards of one task; returns the results for the driver."""
    rows = pa.Table.from_batches(list(batches), columns(work))
    results = rows.filter(pc.is_valid(rows[RESULT])).select([RESULT, SEGMENT])
    rows = rows.filter(pc.is_null(rows[RESULT]))
    if (rows[TARGET].to_numpy() != task).any():
        # Its own task would report the shard as unchanged, and one of the two results be lost.
        raise EpochIncomplete(f"task {task} got rows of another task")
    owned = np.flatnonzero(work.targets == task).tolist()
    changed = _deltas(work, rows) if rows.num_rows else {}
    unchanged = tuple(shard for shard in owned if shard not in changed)
    own = Folded(task, changed, unchanged).to_text()
    own_row = pa.table([[own], pa.nulls(1, pa.binary())], schema=results.schema)
    return pa.concat_tables([results, own_row])


def _deltas(work: Work, rows: pa.Table) -> Mapping[int, tuple[Ref, int]]:
    blobs = open_stream(work.stream, read_only=False).blobs
    merges = [(EVENTS, "sum"), *((_column(n), v.merge.value) for n, v in enumerate(work.values))]
    by_shard = delta.aggregate(rows, [SHARD, KEY], merges).sort_by(SHARD)
    shards = by_shard[SHARD].to_numpy()
    starts = np.flatnonzero(np.diff(shards, prepend=-1)).tolist()
    made = {}
    for start, end in zip(starts, [*starts[1:], len(shards)], strict=True):
        piece = by_shard.slice(start, end - start)
        events = int(pc.sum(piece[f"{EVENTS}_sum"]).as_py())
        made[int(shards[start])] = (_put(work, blobs, piece), events)
    return made


def _put(work: Work, blobs: Blobs, piece: pa.Table) -> Ref:
    values = {EVENTS: piece[f"{EVENTS}_sum"]}
    merges = {EVENTS: Merge.SUM}
    for number, each in enumerate(work.values):
        column = piece[f"{_column(number)}_{each.merge.value}"]
        lost = _lost(column)
        if lost is not None:
            column = pc.if_else(lost, pa.scalar(None, column.type), column)
            values[each.name + LOST], merges[each.name + LOST] = lost, Merge.MAX
        values[each.name], merges[each.name] = column, each.merge
    return blobs.put(delta.encode(delta.table(piece[KEY], values, merges)))


def _lost(column: pa.ChunkedArray) -> pa.ChunkedArray | None:
    """Which sums are lost; None if all are kept."""
    if not pa.types.is_floating(column.type):
        return None
    lost = pc.fill_null(pc.is_nan(column), False)
    return lost if pc.any(lost).as_py() else None
