"""Epochs: from the end positions of a micro-batch through one Spark job to a published snapshot.

The steps have names, which are passed to `step` as they are reached. If the job is killed between
two of them, uncommitted output is invisible, and the next start publishes committed output.
"""

from __future__ import annotations

import logging
import re
import time
import uuid
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from functools import partial as bound
from typing import TYPE_CHECKING, Any

import numpy as np
from pyspark.sql import functions
from pyspark.sql.pandas.types import from_arrow_schema

from sluicegate import units
from sluicegate.dedup import segment
from sluicegate.dedup.ledger import ledger_of
from sluicegate.dedup.segment import Entries, overlap
from sluicegate.errors import Fenced, ProblemsFound, StaleVersion
from sluicegate.job import tasks
from sluicegate.job.aggregate import TARGET, columns
from sluicegate.job.records import OFFSET, PARTITION, Shape
from sluicegate.job.work import Classified, Folded, Work
from sluicegate.positions import Positions
from sluicegate.sinks.base import DATA, REJECTS, File, Output, Reach
from sluicegate.sources.base import Reached, Scan, Slice, Source, complete
from sluicegate.state.backend import EpochIncomplete
from sluicegate.storage.blobs import Ref
from sluicegate.stream import segments
from sluicegate.stream.append import Epoch
from sluicegate.stream.operations.rebalance import assignment_at
from sluicegate.stream.output import Publisher, encode
from sluicegate.stream.snapshot import Snapshot
from sluicegate.stream.spec import Description
from sluicegate.stream.state import state_backend
from sluicegate.stream.writer import Run, StreamWriter

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession


_RESULT_COLUMNS = "result string, data binary"
# Characters that Hadoop treats as a pattern.
_PATTERN = re.compile(r"[\\*?\[\]{}]")


@dataclass(frozen=True, slots=True)
class Results:
    """The results of the tasks of an attempt; Spark drops those of failed and repeated tasks."""

    classified: list[Classified]
    folded: list[Folded]
    seen: list[Entries]

    def files(self, kind: str) -> tuple[File, ...]:
        """The files of a kind that were written."""
        return tuple(file for each in self.classified for file in each.files.get(kind, ()))

    @property
    def reached(self) -> list[Reached]:
        """The slices that were read to their end."""
        return [reached for each in self.classified for reached in each.reached]

    @property
    def shards(self) -> dict[int, Ref | None]:
        """The result of every shard: its delta, or None for unchanged."""
        found: dict[int, Ref | None] = {}
        for each in self.folded:
            found |= {shard: ref for shard, (ref, _) in each.changed.items()}
            found |= dict.fromkeys(each.unchanged)
        return found


def compute(frame: DataFrame | None, work: Work) -> Results:
    """Read, classify and fold in one pass: each task classifies the stamps that it reads."""
    if frame is None:
        # Nothing but a new partition, in which there is nothing yet.
        return Results([], [Folded(0, {}, tuple(range(work.shards)))], [])
    schema = from_arrow_schema(columns(work))
    return _collect(work, frame.mapInArrow(bound(tasks.classify_slices, work), schema))


def compute_thoroughly(frame: DataFrame, work: Work) -> Results:
    """Bring equal stamps to one task first, and classify them there, by their places.

    Spark sorts, because it can do so on disk: what a task gets need not fit into memory.
    """
    sent = from_arrow_schema(tasks.sent_columns(work.shape))
    read = frame.mapInArrow(bound(tasks.read_slices, work), sent)
    together = routed(read, work.tasks, tasks.HOME).sortWithinPartitions(PARTITION, OFFSET)
    schema = from_arrow_schema(columns(work))
    return _collect(work, together.mapInArrow(bound(tasks.classify_all, work), schema))


def fresh_frame(spark: SparkSession, work: Work, files: Sequence[File]) -> DataFrame:
    """The events of an epoch without duplicates, as its tasks wrote them."""
    schema = from_arrow_schema(work.shape.rows)
    if not files:
        return spark.createDataFrame([], schema)
    # With its scheme: the default file system of the cluster may be another.
    place = "file://" + _PATTERN.sub(r"\\\g<0>", work.attempts)
    return spark.read.schema(schema).parquet(*(f"{place}/{each.name}" for each in files))


def write(frame: DataFrame, work: Work) -> tuple[File, ...]:
    """Write rows to where the epoch's tasks write; the files, as reported by the tasks."""
    rows = frame.mapInArrow(bound(tasks.write_rows, work.attempts), "result string").collect()
    return tuple(tasks.file_of(row.result) for row in rows)


def counted(work: Work, results: Results) -> dict[str, int]:
    """The counts of all tasks, if they add up: every record read once, every event folded once."""
    names = ("read", "applied", "duplicates", "rejected")
    counts = {name: sum(getattr(each, name) for each in results.classified) for name in names}
    _check_reached(work, results)
    asked = sum(each.end - each.start for each in work.slices)
    if work.dense and counts["read"] != asked:
        raise EpochIncomplete(f"{counts['read']:,} of {units.counted(asked, 'record')} were read")
    if counts["read"] != counts["applied"] + counts["duplicates"] + counts["rejected"]:
        raise EpochIncomplete(f"the records do not add up: {counts}")
    if work.shape.key is not None:
        sent: Counter[int] = Counter()
        for each in results.classified:
            sent.update(each.events)
        got = {s: n for each in results.folded for s, (_, n) in each.changed.items()}
        if dict(sent) != got or sum(got.values()) != counts["applied"]:
            raise EpochIncomplete("the folded events are not those that were classified")
    return counts


def _check_reached(work: Work, results: Results) -> None:
    """Every planned slice was read to its end, once."""
    planned = Counter((s.topic, s.partition, s.start, s.end) for s in work.slices)
    found = Counter((r.topic, r.partition, r.start, r.end) for r in results.reached)
    for topic, partition, start, end in planned - found:
        raise EpochIncomplete(f"{topic}[{partition}] was not read from {start:,} to {end:,}")
    for topic, partition, start, end in found - planned:
        raise EpochIncomplete(f"{topic}[{partition}] was read twice from {start:,} to {end:,}")


def routed(frame: DataFrame, count: int, column: str) -> DataFrame:
    """Put each row into the partition, of `count`, whose number a column has; into 0 if none."""
    return frame.repartition(count, _partition_key(frame.sparkSession, count, column))


@cache
def _partition_key(spark: SparkSession, count: int, column: str) -> Column:
    """For each partition a number that Spark's hash partitioning sends there, found by trying."""
    # `repartitionById`, which Spark has since 4.1 only, moves the rows no faster.
    found: dict[int, int] = {}
    tried = 16 * count
    while len(found) < count:
        query = f"SELECT transform(sequence(0, {tried}), each -> pmod(hash(each), {count}))"
        [[places]] = spark.sql(query).collect()
        found = {place: key for key, place in enumerate(places)}
        tried *= 2
    keys = ", ".join(str(found[place]) for place in range(count))
    return functions.expr(f"array({keys})[coalesce({column}, 0)]")


def _collect(work: Work, classified: DataFrame) -> Results:
    frame = classified.select("result", "data").where("result is not null")
    if work.shape.key is not None:
        sent = routed(classified, work.tasks, TARGET)
        frame = sent.mapInArrow(bound(tasks.fold, work), _RESULT_COLUMNS)
    results = Results([], [], [])
    for text, data in frame.collect():
        if data is None:
            results.folded.append(Folded.from_text(text))
        else:
            results.classified.append(Classified.from_text(text))
            results.seen.append(segment.decode(bytes(data), "the stamps of a task"))
    return results


_log = logging.getLogger("sluicegate.job")
STEPS = ("claimed", "planned", "computed", "staged", "ready", "committed", "published", "reported")
"""`claimed` once, the others for each epoch: `computed` after all tasks, `ready` before the commit,
`published` after the rename, `reported` after the hooks."""

Step = Callable[[str], None]
Process = Callable[["DataFrame", "EpochInfo"], "DataFrame | None"]


class RecordsRejected(ProblemsFound):
    """There are records that cannot be applied, and the stream is configured to stop for them."""

    default_hint = (
        'fix the producer, then keep these records aside with on_reject = "keep", or skip them '
        "with: sluicegate offsets reset"
    )


@dataclass(frozen=True, slots=True)
class EpochInfo:
    """What the user's function gets to know of an epoch; the same for every attempt."""

    number: int
    start: Positions
    end: Positions


@dataclass(frozen=True, slots=True)
class EpochContext:
    """What the epochs of a run need: the writer, the source, the sink, the job's description."""

    run: Run
    source: Source
    publisher: Publisher
    description: Description
    hooks: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Done:
    """An epoch that was committed, and what it took."""

    snapshot: Snapshot
    counts: Mapping[str, int]
    kinds: tuple[str, ...] = ()
    seconds: float = 0.0


class Epochs:
    """Computes and commits the epochs of one run, one after the other."""

    def __init__(
        self,
        spark: SparkSession,
        context: EpochContext,
        process: Process | None = None,
        step: Step = lambda _: None,
    ) -> None:
        self._spark = spark
        self._context = context
        self._process = process
        self._step = step
        self._sink = context.publisher.sink

    def commit(self, end: Positions) -> Done | None:
        """Read up to these positions and commit the epoch; None if nothing moved."""
        began = time.monotonic()
        while True:
            head = self._context.run.refresh()
            if end == head.positions:
                return None
            self._step("planned")
            try:
                done = self._attempt(head, end)
            except StaleVersion as e:
                _log.info("routing again: %s", e.message)
                continue
            self._context.publisher.publish(done.snapshot, done.kinds)
            self._step("published")
            return replace(done, seconds=time.monotonic() - began)

    def _attempt(self, head: Snapshot, end: Positions) -> Done:
        work, results, nonce = self._compute(head, end)
        self._step("computed")
        counts = counted(work, results)
        if counts["rejected"] and self._context.description.fails_on_reject:
            first = tasks.first_reject(f"{work.attempts}/{results.files(REJECTS)[0].name}")
            count = units.counted(counts["rejected"], "record")
            raise RecordsRejected(f"{count} cannot be applied: {first}")
        # What is adopted has been published before.
        output = Output({}) if head.adopting else self._output(head, end, work, results)
        reach = Reach(head.generation, head.positions, end)
        self._sink.stage(nonce, output, reach)
        try:
            self._step("staged")
            counts["written"] = output.rows(DATA)
            epoch = replace(self._epoch(head, end, work, results), events=counts["applied"])
            snapshot = self._commit(replace(epoch, counters=counts), output, nonce)
        except Fenced:
            # It is not committed and never will be: the next attempt writes its own output.
            self._sink.drop(nonce)
            raise
        self._step("committed")
        return Done(snapshot, counts, output.kinds)

    def _commit(self, epoch: Epoch, output: Output, nonce: str) -> Snapshot:
        listed = self._context.run.stream.blobs.put(encode(output)) if output else None
        # Records that are not durable in the log must not be applied: they could still change.
        self._context.source.sync(epoch.end)
        self._step("ready")
        return self._context.run.commit(replace(epoch, output=listed), nonce)

    def _compute(self, head: Snapshot, end: Positions) -> tuple[Work, Results, str]:
        nonce, sink = uuid.uuid4().hex, self._sink
        scan, work = self._work(head, end, nonce)
        results = compute(scan.frame if scan else None, work)
        if scan and overlap(results.seen):
            # A stamp came through two partitions: only all stamps together show the duplicates.
            _log.info(
                "stamps overlap between partitions: all stamps of the epoch are classified together"
            )
            sink.drop(nonce)
            nonce = uuid.uuid4().hex
            work = replace(work, attempts=sink.attempts(nonce))
            results = compute_thoroughly(scan.frame, work)
        return work, results, nonce

    def _work(self, head: Snapshot, end: Positions, nonce: str) -> tuple[Scan | None, Work]:
        source, description = self._context.source, self._context.description
        start = complete(source, head.positions)
        every = (
            Slice(p.topic, p.partition, start.get(p.topic, p.partition) or 0, p.offset) for p in end
        )
        slices = tuple(each for each in every if each.start < each.end)
        scan = source.scan(self._spark, slices) if slices else None
        # One topic so far: a record does not say which it is of.
        [(topic, identity)] = source.identity().items()
        targets, count = self._targets(head)
        return scan, Work(
            slices=scan.slices if scan else (),
            read=scan.read if scan else None,
            shape=Shape(description.columns, description.stamp, description.key),
            incarnation=f"{topic}@{identity}",
            stream=self._context.run.stream.uri,
            dedup=head.dedup.refs,
            at_ms=round(time.time() * 1000),
            attempts=self._sink.attempts(nonce),
            writes_rows=description.writes_rows or self._process is not None,
            values=description.values,
            shards=description.shards,
            targets=targets,
            tasks=count,
            deduplicates=description.deduplicates,
            fails_on_overflow=description.fails_on_overflow,
            dense=source.dense,
        )

    def _targets(self, head: Snapshot) -> tuple[Any, int]:
        """The task of each shard: that of its node; without nodes as many as Spark has cores."""
        assignment = assignment_at(self._context.run.stream, head)
        if assignment.nodes:
            return np.asarray(assignment.owners), len(assignment.nodes)
        count = min(assignment.n_shards, self._spark.sparkContext.defaultParallelism)
        return np.arange(assignment.n_shards) % count, count

    def _epoch(self, head: Snapshot, end: Positions, work: Work, results: Results) -> Epoch:
        stream = self._context.run.stream
        deltas: Mapping[int, Ref] = {}
        if work.shape.key is not None:
            # One for each attempt: results of an abandoned attempt do not count.
            backend = state_backend(StreamWriter(stream))
            backend.accept(head.epoch + 1, head.version, results.shards)
            deltas = backend.epoch_complete(head.epoch + 1, range(work.shards))
        seen = ledger_of(*results.seen).entries()
        return Epoch(
            start=head.positions,
            end=end,
            events=0,
            deltas=deltas,
            version=head.version,
            generation=head.generation,
            stamps=segments.put(stream.blobs, seen) if work.deduplicates else None,
            number=head.epoch + 1,
            hooks=self._context.hooks,
            fingerprints={(r.topic, r.partition): (r.end, r.fingerprint) for r in results.reached},
        )

    def _output(self, head: Snapshot, end: Positions, work: Work, results: Results) -> Output:
        written = results.files(DATA)
        if self._process is not None:
            frame = fresh_frame(self._spark, work, written)
            result = self._process(frame, EpochInfo(head.epoch + 1, head.positions, end))
            written = write(result, work) if result is not None else ()
        return Output({DATA: written, REJECTS: results.files(REJECTS)})
