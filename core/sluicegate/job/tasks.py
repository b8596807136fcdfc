"""The functions that run in Spark's tasks, over Arrow batches; repeated attempts agree.

A worker keeps the ledger of a stream from epoch to epoch and adds only what is new; each attempt
works on a fork of it, so a repeated attempt gives the same result.
"""

from __future__ import annotations

import hashlib
import json
import os
import socket
import uuid
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import astuple
from functools import wraps
from pathlib import Path
from typing import ParamSpec

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyspark import TaskContext

from sluicegate.dedup import segment
from sluicegate.dedup.ledger import DUPLICATE, EXPIRED, FRESH, Ledger, ledger_of
from sluicegate.dedup.stamp import REJECTED, Stamps
from sluicegate.errors import NotFound, SluicegateError, StorageFailed
from sluicegate.job.aggregate import Folding, fold_shards
from sluicegate.job.records import (
    OFFSET,
    PARTITION,
    REASON,
    REJECT_COLUMNS,
    VALUE,
    Records,
    Shape,
    as_json,
    checked,
    parse,
)
from sluicegate.job.work import Classified, Work
from sluicegate.shards.hashing import shards_of
from sluicegate.sinks.base import DATA, REJECTS, File
from sluicegate.sources.base import Chunk, Reached, Rows
from sluicegate.state.backend import EpochIncomplete
from sluicegate.storage.blobs import Ref
from sluicegate.storage.local import Translated
from sluicegate.stream.stream import open_stream


class Writer:
    """One file, made when there is something to write; its name is unique among attempts."""

    def __init__(self, directory: Path, schema: pa.Schema) -> None:
        self._path = directory / f"part-{uuid.uuid4().hex}.parquet"
        self._schema = schema
        self._writer: pq.ParquetWriter | None = None
        self._rows = 0

    def write(self, rows: pa.Table) -> None:
        """Add rows."""
        if not rows.num_rows:
            return
        chosen = rows.select(self._schema.names).cast(self._schema)
        with self._writing():
            if self._writer is None:
                self._writer = pq.ParquetWriter(self._path, self._schema, compression="zstd")
            self._writer.write_table(chosen)
        self._rows += rows.num_rows

    def close(self) -> tuple[File, ...]:
        """The file, durable; none if nothing was written."""
        if self._writer is None:
            return ()
        with self._writing():
            self._writer.close()
        with self._writing(), self._path.open("rb") as stream:
            os.fsync(stream.fileno())
            digest = hashlib.file_digest(stream, _blake2b).hexdigest()
            size = stream.tell()
        return (File(self._path.name, size, self._rows, digest),)

    @contextmanager
    def _writing(self) -> Iterator[None]:
        """Report what the operating system refuses as our own error."""
        try:
            with Translated(self._path):
                yield
        except NotFound as e:
            directory = self._path.parent
            raise StorageFailed(
                f"{directory} does not exist on {socket.gethostname()}",
                hint="mount the sink on every host that runs tasks, then start the job again with: "
                "sluicegate submit STREAM",
                place=str(directory),
            ) from e


def _blake2b() -> hashlib.blake2b:
    return hashlib.blake2b(digest_size=32)


_BELOW_FLOOR = "its stamp is below the retention floor, so it may be a duplicate"
_ledgers: dict[str, tuple[tuple[Ref, ...], Ledger]] = {}


def ledger_for(work: Work) -> Ledger:
    """All stamps that were seen before an epoch."""
    known, ledger = _ledgers.get(work.stream, ((), Ledger()))
    if known != work.dedup:
        blobs = open_stream(work.stream, read_only=True).blobs
        is_longer = work.dedup[: len(known)] == known
        refs = work.dedup[len(known) :] if is_longer and known else work.dedup
        entries = [segment.decode(blobs.get(ref), ref.key) for ref in refs]
        if is_longer and known:
            for each in entries:
                ledger.absorb(each)
        else:
            ledger = ledger_of(*entries)
        _ledgers[work.stream] = (work.dedup, ledger)
    return ledger


class RecordClassifier:
    """One task's share of an epoch: fresh records are written and folded, others are counted."""

    def __init__(self, work: Work) -> None:
        self._work = work
        self._fork = ledger_for(work).fork()
        self._folding = Folding(work)
        attempts = Path(work.attempts)
        self._rows = Writer(attempts, work.shape.rows) if work.writes_rows else None
        self._rejects = Writer(attempts, REJECT_COLUMNS)
        self._reached: list[Reached] = []
        self._counts = dict.fromkeys(("read", "applied", "duplicates", "rejected"), 0)

    def add(self, records: Records) -> None:
        """Add records; of equal ones the first is applied."""
        rows = records.rows
        self._counts["read"] += rows.num_rows + records.rejects.num_rows
        self._reject(records.rejects)
        if not rows.num_rows:
            return
        if self._work.deduplicates:
            rows = self._fresh(rows)
        self._counts["applied"] += rows.num_rows
        if self._rows:
            self._rows.write(rows)
        self._folding.add(rows)

    def reach(self, slices: Iterable[Reached]) -> None:
        """Slices that were read to their end."""
        self._reached += slices

    def finish(self) -> Iterator[pa.RecordBatch]:
        """The rows for the folding tasks, and last the result for the driver."""
        yield from self._folding.finish()
        written = {DATA: self._rows.close() if self._rows else (), REJECTS: self._rejects.close()}
        classified = Classified(
            reached=tuple(self._reached),
            files={kind: files for kind, files in written.items() if files},
            events=self._folding.events,
            **self._counts,
        )
        yield self._folding.summary(classified.to_text(), segment.encode(self._fork.learnt()))

    def _fresh(self, rows: pa.Table) -> pa.Table:
        verdicts = self._fork.insert(self._stamps(rows), self._work.at_ms).verdicts
        self._counts["duplicates"] += int(np.count_nonzero(verdicts == DUPLICATE))
        if (verdicts == EXPIRED).any():
            self._reject(self._expired(rows.filter(pa.array(verdicts == EXPIRED))))
        if (verdicts == FRESH).all():
            return rows
        return rows.filter(pa.array(verdicts == FRESH))

    def _stamps(self, rows: pa.Table) -> Stamps:
        if self._work.shape.stamp:
            return Stamps.of(*(rows[name] for name in self._work.shape.stamp))
        return _positions(rows, self._work.incarnation)

    def _expired(self, rows: pa.Table) -> pa.Table:
        columns = {
            PARTITION: rows[PARTITION],
            OFFSET: rows[OFFSET],
            VALUE: as_json(rows),
            REASON: pa.array([_BELOW_FLOOR] * rows.num_rows, pa.string()),
        }
        return pa.table(columns, schema=REJECT_COLUMNS)

    def _reject(self, rejects: pa.Table) -> None:
        """Keep rejected records aside, once each: after a reset they are read again."""
        if not rejects.num_rows:
            return
        if self._work.deduplicates:
            stamps = _positions(rejects, self._work.incarnation + REJECTED)
            verdicts = self._fork.insert(stamps, self._work.at_ms).verdicts
            self._counts["duplicates"] += int(np.count_nonzero(verdicts == DUPLICATE))
            rejects = rejects.filter(pa.array(verdicts != DUPLICATE))
        self._counts["rejected"] += rejects.num_rows
        self._rejects.write(rejects)


def _positions(rows: pa.Table, producer: str) -> Stamps:
    """The places of records as stamps."""
    codes = pa.array(np.zeros(rows.num_rows, np.int32))
    names = pa.DictionaryArray.from_arrays(codes, pa.array([producer]))
    return Stamps.of(names, rows[PARTITION], rows[OFFSET])


Batches = Iterator[pa.RecordBatch]
# No column of a record begins with an underscore.
HOME = "_home"
P = ParamSpec("P")
_MARKER = -1
"""The partition of a row that is no record."""


def _task(function: Callable[P, Batches]) -> Callable[P, Batches]:
    """A function whose errors keep their hint and place: Spark passes on only their text."""

    @wraps(function)
    def run(*args: P.args, **kwargs: P.kwargs) -> Batches:
        try:
            yield from function(*args, **kwargs)
        except SluicegateError as e:
            e.with_notes()
            raise

    return run


@_task
def classify_slices(work: Work, batches: Batches) -> Batches:
    """Read slices of the source, classify their records and fold the fresh ones."""
    classifier = RecordClassifier(work)
    for each in _read(work, batches):
        if isinstance(each, Records):
            classifier.add(each)
        else:
            classifier.reach([each])
    yield from classifier.finish()


@_task
def read_slices(work: Work, batches: Batches) -> Batches:
    """Read slices of the source and send every record to the task that classifies its stamp."""
    for each in _read(work, batches):
        if isinstance(each, Records):
            yield from _sent(work, each)
        else:
            yield _marker(work, each)


@_task
def classify_all(work: Work, batches: Batches) -> Batches:
    """Classify records whose equal stamps all come here, by their places: the first is applied."""
    classifier = RecordClassifier(work)
    for piece in _pieces(work, batches):
        is_marker = pc.equal(piece[PARTITION], _MARKER)
        markers = piece.filter(is_marker)[VALUE].to_pylist()
        classifier.reach(Reached(*json.loads(each)) for each in markers)
        rows = piece.filter(pc.invert(is_marker))
        bad = rows.filter(rows[REASON].is_valid()).select(REJECT_COLUMNS.names)
        good = rows.filter(rows[REASON].is_null()).select(work.shape.rows.names)
        classifier.add(Records(good.combine_chunks(), bad))
    yield from classifier.finish()


_PIECE_BYTES = 64 << 20
"""Far below the 2 GB that a column of texts can hold."""


def _pieces(work: Work, batches: Batches) -> Iterator[pa.Table]:
    """Sent records in tables of bounded size; `EpochIncomplete` if they are not in order."""
    some: list[pa.RecordBatch] = []
    size, last = 0, (_MARKER, 0)
    for batch in batches:
        some.append(batch)
        size += batch.nbytes
        last = _last_place(batch, last)
        if size >= _PIECE_BYTES:
            yield pa.Table.from_batches(some, sent_columns(work.shape))
            some, size = [], 0
    if some:
        yield pa.Table.from_batches(some, sent_columns(work.shape))


def _last_place(batch: pa.RecordBatch, before: tuple[int, int]) -> tuple[int, int]:
    """Where the last record of a batch lies; all must be in order."""
    partitions = np.append(before[0], batch[PARTITION].to_numpy())
    offsets = np.append(before[1], batch[OFFSET].to_numpy())
    up, same = np.diff(partitions) > 0, np.diff(partitions) == 0
    if not (up | (same & (np.diff(offsets) >= 0))).all():
        # Another one of equal records would be applied, and perhaps not the same at each attempt.
        raise EpochIncomplete("a task got records that are not sorted by their places")
    return int(partitions[-1]), int(offsets[-1])


@_task
def fold(work: Work, batches: Batches) -> Batches:
    """Fold the rows for the shards of this task, and pass on the results for the driver."""
    context = TaskContext.get()
    assert context
    yield from fold_shards(work, context.partitionId(), batches).to_batches()


def sent_columns(shape: Shape) -> pa.Schema:
    """The columns of records on their way to classification, also of rejected ones."""
    extra = [(VALUE, pa.binary()), (REASON, pa.string()), (HOME, pa.int32())]
    return pa.schema([*shape.rows, *extra])


def _read(work: Work, batches: Batches) -> Iterator[Records | Reached]:
    assert work.read
    for each in work.read(batches):
        match each:
            case Chunk():
                yield parse(each.data, each.partition, each.first, work.shape)
            case Rows():
                yield checked(each.table, work.shape)
            case Reached():
                yield each


def _marker(work: Work, reached: Reached) -> pa.RecordBatch:
    """A row that tells the first classifying task of a slice that was read to its end."""
    given = {PARTITION: _MARKER, OFFSET: 0, VALUE: json.dumps(astuple(reached)).encode(), HOME: 0}
    schema = sent_columns(work.shape)
    arrays = [pa.array([given.get(each.name)], each.type) for each in schema]
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


def _sent(work: Work, records: Records) -> Batches:
    schema = sent_columns(work.shape)
    for table in (_with_home(work, records.rows), records.rejects):
        if table.num_rows:
            given = {name: table[name] for name in table.column_names}
            columns = [given.get(each.name, pa.nulls(table.num_rows, each.type)) for each in schema]
            yield from pa.table(columns, schema=schema).combine_chunks().to_batches()


def _with_home(work: Work, rows: pa.Table) -> pa.Table:
    """The rows with the task that classifies them: the same for equal stamps."""
    names = rows[work.shape.stamp[0]].combine_chunks()
    homes = shards_of(names, work.tasks) if rows.num_rows else np.empty(0)
    return rows.append_column(HOME, pa.array(homes.astype(np.int32)))


@_task
def write_rows(attempts: str, batches: Batches) -> Batches:
    """Write the rows of a user's function, and report the file."""
    writer: Writer | None = None
    for batch in batches:
        if writer is None:
            writer = Writer(Path(attempts), batch.schema)
        writer.write(pa.Table.from_batches([batch]))
    for file in writer.close() if writer else ():
        yield pa.RecordBatch.from_pydict({"result": [json.dumps(file.fields())]})


def file_of(result: str) -> File:
    """The file that a task reported."""
    return File(*json.loads(result))


def first_reject(path: str) -> str:
    """The first record in a file of rejects, with the reason."""
    import pyarrow.parquet as pq

    row = pq.read_table(path).slice(0, 1).to_pylist()[0]
    return f"partition {row[PARTITION]}, offset {row[OFFSET]}: {row[REASON]}"
