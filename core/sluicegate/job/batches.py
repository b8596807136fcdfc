"""Epochs that your own streaming query drives, through `foreachBatch`: for any source of Spark.

    import sluicegate

    job = sluicegate.StreamJob.from_conf(spark)
    with job.batches() as gate:
        query = frame.writeStream.foreachBatch(gate).option("checkpointLocation", CHECKPOINT)
        query.start().awaitTermination()

with `source = "query:CHECKPOINT"` in the stream's table. Spark may call a batch again, also after a
kill, and with another checkpoint it begins again from nothing. So a batch has an identity: the id
of the query, its own number, and the offsets from which and to which it reads, as Spark has written
them into the checkpoint. A batch that is the newest of the stream is published again, and nothing
else; the one that follows it is run; everything else is refused.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from hashlib import blake2b
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
from pyspark import TaskContext

from sluicegate.checkpoint.format.log import read_offsets
from sluicegate.checkpoint.view import read_query_id
from sluicegate.errors import Fenced, NotFound, UsageError
from sluicegate.job.epoch import EpochContext, Epochs
from sluicegate.job.records import OFFSET, PARTITION
from sluicegate.positions import Positions
from sluicegate.sources.base import BATCH, Reached, Rows, Scan, Slice
from sluicegate.storage import Storage, open_storage
from sluicegate.stream.output import Publisher
from sluicegate.stream.snapshot import Snapshot
from sluicegate.stream.spec import Description
from sluicegate.stream.writer import Run
from sluicegate.units import command

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

HOOK = "query"
"""Where a snapshot keeps which batch it holds."""
_SPARK_TYPES = {"string": "string", "long": "bigint", "double": "double", "boolean": "boolean"}
_ROWS = 1 << 32
"""More than a task gets of one batch."""


class BatchRefused(Fenced):
    """Spark offers a batch that does not follow what the stream holds."""


@dataclass(frozen=True, slots=True)
class Batch:
    """Which batch of which query: its number, and digests of the offsets it reads between."""

    query: str
    number: int
    start: str | None
    end: str

    def follows(self, other: Batch) -> bool:
        """Whether it is the next one of the same query."""
        next_one = (other.query, other.number + 1, other.end)
        return (self.query, self.number, self.start) == next_one

    def __str__(self) -> str:
        start = (self.start or "the beginning")[:12]
        return f"batch {self.number} of query {self.query} ({start} to {self.end[:12]})"


def batch_of(checkpoint: Storage, number: int) -> Batch:
    """The batch that Spark is about to run, as its checkpoint describes it."""
    start = _digest(checkpoint, number - 1) if number else None
    end = _digest(checkpoint, number)
    assert end
    return Batch(read_query_id(checkpoint), number, start, end)


def _digest(checkpoint: Storage, number: int) -> str | None:
    try:
        offsets = read_offsets(checkpoint, number).offsets
    except NotFound as e:
        raise BatchRefused(
            f"{checkpoint.uri} has no offsets of batch {number}, so it is not known what the next "
            "one reads",
            hint=f"look at it with: {command('checkpoint', 'verify', checkpoint.uri)}",
            place=checkpoint.uri,
        ) from e
    digest = blake2b(digest_size=16)
    for at, each in enumerate(offsets):
        digest.update(f"{each.source}:{each.text}\n".encode())
        if each.number is not None:
            digest.update(_listed(checkpoint, at, each.number))
    return digest.hexdigest()


def _listed(checkpoint: Storage, source: int, number: int) -> bytes:
    """The files that a number stands for, where a source reads files."""
    for key in (f"sources/{source}/{number}", f"sources/{source}/{number}.compact"):
        with suppress(NotFound):
            return checkpoint.get(key)
    return b""


def is_done(head: Snapshot, batch: Batch, checkpoint: str) -> bool:
    """Whether the stream holds a batch; `BatchRefused` unless it does, or can be run now."""
    found = head.hooks.get(HOOK)
    if found is None:
        return False
    newest = Batch(**found)
    if newest == batch:
        return True
    if batch.follows(newest):
        return False
    back = command("checkpoint", "rollback", checkpoint, "--to", newest.number)
    raise BatchRefused(
        f"{head.stream} holds {newest}, but Spark offers {batch}",
        hint="restore the checkpoint that belongs to the stream; if the stream was rolled back, "
        f"roll the query back with it: {back}",
        place=checkpoint,
    )


@dataclass(frozen=True, slots=True)
class QueryBatch:
    """One batch as a `Source`: its frame; only Spark knows what lies behind it."""

    uri: str
    frame: Any
    batch: Batch
    description: Description
    dense: bool = False

    def identity(self) -> Mapping[str, str]:
        """The query."""
        return {BATCH: self.batch.query}

    def earliest(self) -> Positions:
        """Batches are numbered from 0."""
        return Positions({BATCH: {0: 0}})

    def latest(self) -> Positions:
        """Behind this batch."""
        return Positions({BATCH: {0: self.batch.number + 1}})

    def scan(self, _spark: Any, _slices: Sequence[Slice]) -> Scan:
        """The columns of the stream, as the query computes them."""
        return Scan(_chosen(self.frame, self.description), FrameReader(self.batch.number), ())

    def fingerprint(self, _topic: str, _partition: int, _end: int) -> str | None:
        """Not known: it is Spark that reads."""
        return None

    def sync(self, end: Positions) -> None:
        """Nothing to do: what Spark has read is durable, as far as its source is."""


def _chosen(frame: DataFrame, description: Description) -> DataFrame:
    """The columns that a stream needs, with their types."""
    missing = [name for name in description.columns if name not in frame.columns]
    if missing:
        raise UsageError(
            f"the frame has no column {missing[0]!r}; it has {', '.join(frame.columns)}",
            hint="select the columns that the stream's table names",
        )
    needed = {name: _SPARK_TYPES[kind] for name, kind in description.columns.items()}
    if PARTITION in frame.columns and OFFSET in frame.columns:
        needed |= {PARTITION: "int", OFFSET: "bigint"}
    return frame.select([frame[f"`{name}`"].cast(kind) for name, kind in needed.items()])


@dataclass(frozen=True, slots=True)
class FrameReader:
    """Reads the rows of a frame in a task, and gives each a place if it has none."""

    batch: int

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[Rows | Reached]:
        context = TaskContext.get()
        assert context
        count = 0
        for batch in batches:
            rows = pa.Table.from_batches([batch])
            if PARTITION not in rows.column_names:
                numbers = np.arange(count, count + rows.num_rows) + self.batch * _ROWS
                places = np.full(rows.num_rows, context.partitionId(), np.int32)
                rows = rows.append_column(PARTITION, pa.array(places))
                rows = rows.append_column(OFFSET, pa.array(numbers))
            count += rows.num_rows
            yield Rows(rows)


class BatchGate:
    """What `foreachBatch` calls: commits and publishes one batch after the other."""

    def __init__(
        self,
        run: Run,
        publisher: Publisher,
        description: Description,
        checkpoint: str,
        epochs: Callable[[EpochContext], Epochs],
    ) -> None:
        self._run = run
        self._publisher = publisher
        self._description = description
        self._checkpoint = checkpoint
        self._epochs = epochs

    def __call__(self, frame: DataFrame, number: int) -> None:
        """Run one batch, unless the stream holds it already."""
        batch = batch_of(open_storage(self._checkpoint, read_only=True), number)
        if is_done(self._run.refresh(), batch, self._checkpoint):
            # Spark did not get to know that it was committed.
            self._publisher.settle()
            return
        source = QueryBatch(self._checkpoint, frame, batch, self._description)
        hooks = {HOOK: asdict(batch)}
        context = EpochContext(self._run, source, self._publisher, self._description, hooks)
        self._epochs(context).commit(source.latest())
