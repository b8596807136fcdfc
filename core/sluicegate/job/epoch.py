"""Epochs: from the end positions of a micro-batch through one Spark job to a published snapshot.

The steps have names, which `step` is told as they are reached. Whatever kills the job between two
of them, what was not committed is invisible, and what was committed is published by the next start.
"""

from __future__ import annotations

import logging
import re
import time
import uuid
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial as bound
from typing import TYPE_CHECKING, Any

import numpy as np
from pyspark.sql.pandas.types import from_arrow_schema

from sluicegate.dedup import segment
from sluicegate.dedup.ledger import ledger_of
from sluicegate.dedup.segment import Entries, overlap
from sluicegate.errors import Fenced, ProblemsFound, StaleVersion
from sluicegate.job import tasks
from sluicegate.job.aggregate import TARGET, columns
from sluicegate.job.records import Shape
from sluicegate.job.work import Folded, Judged, Slice, Work
from sluicegate.positions import Positions
from sluicegate.sources.log.log import Log
from sluicegate.sources.log.spark import complete
from sluicegate.state.backend import EpochIncomplete
from sluicegate.storage.blobs import Ref
from sluicegate.stream import segments
from sluicegate.stream.append import Epoch
from sluicegate.stream.operations.rebalance import assignment_at
from sluicegate.stream.output import DATA, REJECTS, File, Output, Sink, encode
from sluicegate.stream.snapshot import Snapshot
from sluicegate.stream.spec import Description
from sluicegate.stream.state import state_backend
from sluicegate.stream.writer import Gate, Run

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


_TOLD = "told string, data binary"
# What Hadoop takes for a pattern.
_PATTERN = re.compile(r"[\\*?\[\]{}]")


@dataclass(frozen=True, slots=True)
class Told:
    """What the tasks of an attempt told; only those whose result Spark took are heard."""

    judged: list[Judged]
    folded: list[Folded]
    seen: list[Entries]

    def files(self, kind: str) -> tuple[File, ...]:
        """The files of a kind that were written."""
        return tuple(file for each in self.judged for file in each.files.get(kind, ()))

    @property
    def shards(self) -> dict[int, Ref | None]:
        """What every shard said of itself: its delta, or that it is unchanged."""
        said: dict[int, Ref | None] = {}
        for each in self.folded:
            said |= {shard: ref for shard, (ref, _) in each.changed.items()}
            said |= dict.fromkeys(each.unchanged)
        return said


def compute(spark: SparkSession, work: Work) -> Told:
    """Read, judge and fold in one pass: all that a stamp is judged by is where it is read."""
    if not work.slices:
        # Nothing but a new partition, in which there is nothing yet.
        return Told([], [Folded(0, {}, tuple(range(work.shards)))], [])
    schema = from_arrow_schema(columns(work))
    return _collect(work, _slices(spark, work).mapInArrow(bound(tasks.judge_slices, work), schema))


def compute_thoroughly(spark: SparkSession, work: Work) -> Told:
    """Bring equal stamps to one place first, and judge them there."""
    sent = from_arrow_schema(tasks.sent_columns(work.shape))
    read = _slices(spark, work).mapInArrow(bound(tasks.read_slices, work), sent)
    together = read.repartitionById(work.tasks, tasks.HOME)
    schema = from_arrow_schema(columns(work))
    return _collect(work, together.mapInArrow(bound(tasks.judge_all, work), schema))


def fresh_frame(spark: SparkSession, work: Work, files: Sequence[File]) -> DataFrame:
    """The events of an epoch without duplicates, as its tasks wrote them."""
    schema = from_arrow_schema(work.shape.rows)
    if not files:
        return spark.createDataFrame([], schema)
    # With its scheme: the default file system of the cluster may be another.
    place = "file://" + _PATTERN.sub(r"\\\g<0>", work.attempts)
    return spark.read.schema(schema).parquet(*(f"{place}/{each.name}" for each in files))


def write(frame: DataFrame, work: Work) -> tuple[File, ...]:
    """Write rows to where the epoch's tasks write; the files, as told by those who wrote them."""
    told = frame.mapInArrow(bound(tasks.write_rows, work.attempts), "told string").collect()
    return tuple(tasks.file_of(row.told) for row in told)


def counted(work: Work, told: Told) -> dict[str, int]:
    """What the tasks counted, if it adds up: every record read once, every event folded once."""
    names = ("read", "applied", "duplicates", "rejected")
    counts = {name: sum(getattr(each, name) for each in told.judged) for name in names}
    asked = sum(each.end - each.start for each in work.slices)
    if counts["read"] != asked:
        raise EpochIncomplete(f"{asked:,} records were to be read, {counts['read']:,} were")
    if counts["read"] != counts["applied"] + counts["duplicates"] + counts["rejected"]:
        raise EpochIncomplete(f"the records do not add up: {counts}")
    if work.shape.key is not None:
        sent: Counter[int] = Counter()
        for each in told.judged:
            sent.update(each.events)
        got = {s: n for each in told.folded for s, (_, n) in each.changed.items()}
        if dict(sent) != got or sum(got.values()) != counts["applied"]:
            raise EpochIncomplete("the events that were folded are not those that were judged")
    return counts


def _slices(spark: SparkSession, work: Work) -> DataFrame:
    """One task for each slice, which gets its number."""
    count = len(work.slices)
    return spark.range(0, count, 1, count)


def _collect(work: Work, judged: DataFrame) -> Told:
    frame = judged.select("told", "data").where("told is not null")
    if work.shape.key is not None:
        sent = judged.repartitionById(work.tasks, TARGET)
        frame = sent.mapInArrow(bound(tasks.fold, work), _TOLD)
    told = Told([], [], [])
    for text, data in frame.collect():
        if data is None:
            told.folded.append(Folded.from_text(text))
        else:
            told.judged.append(Judged.from_text(text))
            told.seen.append(segment.decode(bytes(data), "what a task saw"))
    return told


_log = logging.getLogger("sluicegate.job")
STEPS = ("claimed", "planned", "computed", "staged", "ready", "committed", "published", "told")
"""`claimed` once, the others for each epoch: `computed` after all tasks, `ready` before the commit,
`published` after the rename, `told` after the hooks."""

Step = Callable[[str], None]
Process = Callable[["DataFrame", "EpochInfo"], "DataFrame | None"]


class RecordsRejected(ProblemsFound):
    """There are records that cannot be applied, and the stream is to stop for those."""

    default_hint = (
        'mend what produces them, then keep these aside with on_reject = "keep", or move past '
        "them with: sluicegate offsets reset"
    )


@dataclass(frozen=True, slots=True)
class EpochInfo:
    """What the user's function is told of an epoch; the same for every attempt at it."""

    number: int
    start: Positions
    end: Positions


@dataclass(frozen=True, slots=True)
class Gated:
    """What a run works with: who commits, what it reads, where its output goes, what it does."""

    run: Run
    source: Log
    sink: Sink
    description: Description


@dataclass(frozen=True, slots=True)
class Done:
    """An epoch that was committed, and what it took."""

    snapshot: Snapshot
    counts: Mapping[str, int]
    seconds: float


class Epochs:
    """Computes and commits the epochs of one run, one after the other."""

    def __init__(
        self,
        spark: SparkSession,
        gated: Gated,
        process: Process | None = None,
        step: Step = lambda _: None,
    ) -> None:
        self._spark = spark
        self._gated = gated
        self._process = process
        self._step = step

    def commit(self, end: Positions) -> Done | None:
        """Read up to these positions and commit what that comes to; None if nothing moved."""
        began = time.monotonic()
        while True:
            head = self._gated.run.refresh()
            if end == head.positions:
                return None
            self._step("planned")
            try:
                done = self._attempt(head, end)
            except StaleVersion as e:
                _log.info("routing again: %s", e.message)
                continue
            self._gated.sink.publish(done.snapshot)
            self._step("published")
            return replace(done, seconds=time.monotonic() - began)

    def _attempt(self, head: Snapshot, end: Positions) -> Done:
        work, told, nonce = self._compute(head, end)
        self._step("computed")
        counts = counted(work, told)
        if counts["rejected"] and self._gated.description.fails_on_reject:
            first = tasks.first_reject(f"{work.attempts}/{told.files(REJECTS)[0].name}")
            raise RecordsRejected(f"{counts['rejected']:,} records cannot be applied: {first}")
        output = self._output(head, end, work, told)
        self._gated.sink.stage(nonce, output)
        try:
            self._step("staged")
            counts["written"] = output.rows(DATA)
            epoch = replace(self._epoch(head, end, work, told), events=counts["applied"])
            snapshot = self._commit(replace(epoch, counters=counts), output, nonce)
        except Fenced:
            # It is not committed and never will be: what is routed anew is written anew.
            self._gated.sink.drop(nonce)
            raise
        self._step("committed")
        return Done(snapshot, counts, 0.0)

    def _commit(self, epoch: Epoch, output: Output, nonce: str) -> Snapshot:
        listed = self._gated.run.stream.blobs.put(encode(output)) if output else None
        # What is not durable in the log must not be counted: it might be written differently.
        self._gated.source.sync(epoch.end)
        self._step("ready")
        return self._gated.run.commit(replace(epoch, output=listed), nonce)

    def _compute(self, head: Snapshot, end: Positions) -> tuple[Work, Told, str]:
        nonce, sink = uuid.uuid4().hex, self._gated.sink
        work = self._work(head, end, nonce)
        told = compute(self._spark, work)
        if overlap(told.seen):
            # A stamp came through two partitions: only a look at all of them together can tell.
            _log.info("stamps overlap between partitions: the epoch is judged as a whole")
            sink.drop(nonce)
            nonce = uuid.uuid4().hex
            work = replace(work, attempts=str(sink.attempts(nonce)))
            told = compute_thoroughly(self._spark, work)
        return work, told, nonce

    def _work(self, head: Snapshot, end: Positions, nonce: str) -> Work:
        log, description = self._gated.source, self._gated.description
        start = complete(log, head.positions)
        slices = [
            Slice(each.partition, start.get(each.topic, each.partition) or 0, each.offset)
            for each in end
        ]
        targets, count = self._targets(head)
        return Work(
            source=log.uri,
            slices=tuple(each for each in slices if each.start < each.end),
            shape=Shape(description.columns, description.stamp, description.key),
            incarnation=f"{log.topic}@{log.incarnation}",
            stream=self._gated.run.stream.uri,
            dedup=head.dedup.refs,
            at_ms=round(time.time() * 1000),
            attempts=str(self._gated.sink.attempts(nonce)),
            writes_rows=description.writes_rows or self._process is not None,
            values=description.values,
            shards=description.shards,
            targets=targets,
            tasks=count,
            judged=description.judged,
        )

    def _targets(self, head: Snapshot) -> tuple[Any, int]:
        """The task of each shard: that of its node; without nodes as many as Spark has cores."""
        assignment = assignment_at(self._gated.run.stream, head)
        if assignment.nodes:
            return np.asarray(assignment.owners), len(assignment.nodes)
        count = min(assignment.n_shards, self._spark.sparkContext.defaultParallelism)
        return np.arange(assignment.n_shards) % count, count

    def _epoch(self, head: Snapshot, end: Positions, work: Work, told: Told) -> Epoch:
        stream = self._gated.run.stream
        deltas: Mapping[int, Ref] = {}
        if work.shape.key is not None:
            # One for each attempt: what an attempt said that was given up does not count.
            backend = state_backend(Gate(stream))
            backend.accept(head.epoch + 1, head.version, told.shards)
            deltas = backend.epoch_complete(head.epoch + 1, range(work.shards))
        seen = ledger_of(*told.seen).entries()
        return Epoch(
            start=head.positions,
            end=end,
            events=0,
            deltas=deltas,
            version=head.version,
            generation=head.generation,
            stamps=segments.put(stream.blobs, seen) if work.judged else None,
            number=head.epoch + 1,
        )

    def _output(self, head: Snapshot, end: Positions, work: Work, told: Told) -> Output:
        written = told.files(DATA)
        if self._process is not None:
            frame = fresh_frame(self._spark, work, written)
            result = self._process(frame, EpochInfo(head.epoch + 1, head.positions, end))
            written = write(result, work) if result is not None else ()
        return Output({DATA: written, REJECTS: told.files(REJECTS)})
