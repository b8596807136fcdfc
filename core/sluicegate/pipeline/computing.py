"""Computing one epoch with Spark: one job, one shuffle, and what its tasks tell about it."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial as bound
from typing import TYPE_CHECKING

from pyspark.sql.pandas.types import from_arrow_schema

from sluicegate.blobs import Ref
from sluicegate.dedup import segment
from sluicegate.dedup.ledger import Entries
from sluicegate.gate.output import File
from sluicegate.pipeline import tasks
from sluicegate.pipeline.folding import TARGET, columns
from sluicegate.pipeline.work import Folded, Judged, Work
from sluicegate.state.backend import EpochIncomplete

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
        """What every shard said of itself: its partial, or that it is unchanged."""
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
