"""The functions that run in Spark's tasks: over Arrow batches, and never twice for one result."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa
from pyspark import TaskContext

from sluicegate.gate.output import File
from sluicegate.log.log import Log
from sluicegate.pipeline.files import Writer
from sluicegate.pipeline.folding import fold_shards
from sluicegate.pipeline.judging import Judging
from sluicegate.pipeline.records import (
    OFFSET,
    PARTITION,
    REASON,
    REJECTS,
    VALUE,
    Records,
    Shape,
    parse,
)
from sluicegate.pipeline.work import Slice, Work
from sluicegate.shards.routing import shards_of

Batches = Iterator[pa.RecordBatch]
# No column of a record begins with an underscore.
HOME = "_home"


def judge_slices(work: Work, numbers: Batches) -> Batches:
    """Read slices of the source, judge their records and fold what is fresh."""
    judging = Judging(work)
    for batch in numbers:
        for number in batch.column(0).to_pylist():
            for records in _read(work, work.slices[number]):
                judging.add(records)
    yield from judging.finish()


def read_slices(work: Work, numbers: Batches) -> Batches:
    """Read slices of the source and send every record to where its stamp is judged."""
    for batch in numbers:
        for number in batch.column(0).to_pylist():
            for records in _read(work, work.slices[number]):
                yield from _sent(work, records)


def judge_all(work: Work, batches: Batches) -> Batches:
    """Judge records whose stamps all come here: of equal ones the smallest position counts."""
    judging = Judging(work)
    rows = pa.Table.from_batches(list(batches), sent_columns(work.shape))
    bad = rows.filter(rows[REASON].is_valid())
    good = rows.filter(rows[REASON].is_null()).combine_chunks()
    place = np.lexsort((good[OFFSET].to_numpy(), good[PARTITION].to_numpy()))
    order = np.empty(len(place), np.int64)
    order[place] = np.arange(len(place))
    judging.add(Records(good.select(work.shape.rows.names), bad.select(REJECTS.names)), order)
    yield from judging.finish()


def fold(work: Work, batches: Batches) -> Batches:
    """Fold what goes to the shards of this task, and pass on what the driver is to know."""
    context = TaskContext.get()
    assert context
    yield from fold_shards(work, context.partitionId(), batches).to_batches()


def sent_columns(shape: Shape) -> pa.Schema:
    """Records on their way to where they are judged: also those that are to be rejected."""
    extra = [(VALUE, pa.binary()), (REASON, pa.string()), (HOME, pa.int32())]
    return pa.schema([*shape.rows, *extra])


def _read(work: Work, piece: Slice) -> Iterator[Records]:
    log = Log.open(work.source)
    for each in log.read(piece.partition, piece.start, piece.end):
        yield parse(each.data, piece.partition, each.first, work.shape)


def _sent(work: Work, records: Records) -> Batches:
    schema = sent_columns(work.shape)
    for table in (_with_home(work, records.rows), records.rejects):
        if table.num_rows:
            given = {name: table[name] for name in table.column_names}
            columns = [given.get(each.name, pa.nulls(table.num_rows, each.type)) for each in schema]
            yield from pa.table(columns, schema=schema).combine_chunks().to_batches()


def _with_home(work: Work, rows: pa.Table) -> pa.Table:
    """Where a record is judged: equal stamps are judged in one place."""
    names = rows[work.shape.stamp[0]].combine_chunks()
    homes = shards_of(names, work.tasks) if rows.num_rows else np.empty(0)
    return rows.append_column(HOME, pa.array(homes.astype(np.int32)))


def write_rows(attempts: str, batches: Batches) -> Batches:
    """Write what a user's function gave, and tell of the file."""
    writer: Writer | None = None
    for batch in batches:
        if writer is None:
            writer = Writer(Path(attempts), batch.schema)
        writer.write(pa.Table.from_batches([batch]))
    for file in writer.close() if writer else ():
        yield pa.RecordBatch.from_pydict({"told": [json.dumps(file.fields())]})


def file_of(told: str) -> File:
    """The file that a task told of."""
    return File(*json.loads(told))


def first_reject(path: str) -> str:
    """The first record in a file of rejects, with the reason."""
    import pyarrow.parquet as pq

    row = pq.read_table(path).slice(0, 1).to_pylist()[0]
    return f"partition {row[PARTITION]}, offset {row[OFFSET]}: {row[REASON]}"
