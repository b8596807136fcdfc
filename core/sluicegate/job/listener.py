"""For applications that keep positions in an offset store: where to start, and what to commit.

Spark reports a batch after it is in the commit log, and does not wait for listeners. So the store
is never ahead of the query. If the job is killed in between, the store is behind, usually by one
batch, which is read again. The query's id and the batch's number fence each commit: a late report
of an older batch of the same query is refused.
"""

from __future__ import annotations

import json
import logging
import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from pyspark.sql.streaming.listener import StreamingQueryListener

from sluicegate.checkpoint.format.log import SourceOffset
from sluicegate.errors import NotFound, SluicegateError
from sluicegate.offsets import Fence, LockFileOffsetStore, OffsetStore, StaleCommit
from sluicegate.positions import Position, Positions, from_spark, to_spark
from sluicegate.spark.submit import command
from sluicegate.spark.submit.progress import Progress, Reports

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.listener import (
        QueryProgressEvent,
        QueryStartedEvent,
        QueryTerminatedEvent,
        StreamingQueryProgress,
    )


_EARLIEST = -2


def starting_offsets(
    spark: SparkSession,
    *,
    partitions: Mapping[str, int] | None = None,
    new_consumer: str = "earliest",
) -> str:
    """The value for Kafka's option `startingOffsets`: the positions that `submit` was given.

    Kafka's source wants every partition of every topic it reads, and no others. `partitions`, a
    number of partitions by topic, leaves other topics out and lets partitions that were added
    since begin at their start. A consumer without positions begins at `new_consumer`. An
    application that `submit` did not start with `--offsets-store` gets `NotFound`.
    """
    text = spark.conf.get(command.STARTING_OFFSETS, None)
    if text is None and spark.conf.get(command.CONSUMER, None) is not None:
        return new_consumer
    if text is None:
        raise NotFound(
            f"starting offsets are missing: {command.STARTING_OFFSETS} is not set",
            hint="start the application with: sluicegate submit --app APP --offsets-store DIR "
            "--consumer NAME",
        )
    return text if partitions is None else _completed(from_spark(json.loads(text)), partitions)


def _completed(known: Positions, partitions: Mapping[str, int]) -> str:
    kept = Positions.of(
        Position(topic, number, offset)
        for topic, count in partitions.items()
        for number in range(count)
        if (offset := known.get(topic, number)) is not None
    )
    value = to_spark(kept)
    for topic, count in partitions.items():
        of_topic = value.setdefault(topic, {})
        for number in range(count):
            of_topic.setdefault(str(number), _EARLIEST)
    return json.dumps(value, separators=(",", ":"))


_log = logging.getLogger("sluicegate.job")


def commit_offsets(
    spark: SparkSession,
    *,
    store: str | None = None,
    consumers: Mapping[str, str] | None = None,
) -> OffsetsListener:
    """Let finished batches of all queries of a session be committed, and be reported to `submit`.

    The end offsets of a query's Kafka-form sources go to the consumer with the name of the query;
    `consumers` maps names of queries to other consumers. A query without a name commits to the
    consumer that `submit` was given. Without `store`, it is the store that `submit` was given.
    """
    place = store or spark.conf.get(command.OFFSETS_STORE, None)
    reports = Reports(spark.conf.get(command.PROGRESS, None))
    if place is None and not reports.is_open:
        raise NotFound(
            "there is no offset store to commit to, and no `submit` to report to",
            hint="start the application with: sluicegate submit --app APP --offsets-store DIR "
            "--consumer NAME; or name a store: commit_offsets(spark, store=DIR)",
        )
    opened = LockFileOffsetStore.open(place) if place else None
    listener = OffsetsListener(
        opened, reports, consumers or {}, spark.conf.get(command.CONSUMER, None)
    )
    spark.streams.addListener(listener)
    return listener


class OffsetsListener(StreamingQueryListener):
    """The listener; it logs errors and raises none into Spark."""

    def __init__(
        self,
        store: OffsetStore | None,
        reports: Reports,
        consumers: Mapping[str, str],
        given: str | None,
    ) -> None:
        self._store = store
        self._reports = reports
        self._consumers = consumers
        self._given = given
        self._nameless: str | None = None
        self._committed: dict[str, Positions] = {}

    def onQueryStarted(self, event: QueryStartedEvent) -> None:  # noqa: N802 - Spark's name
        consumer = self._consumer(event.name, str(event.id))
        if self._store is None:
            return
        if consumer is None:
            _log.error("query %s is not committed: give it a name with queryName", event.id)
            return
        if self._given in (None, consumer):
            return
        _log.warning(
            "query %s commits to consumer %s, but the application was started with the positions "
            "of %s: rename the query, or call commit_offsets(spark, consumers={%r: %r})",
            event.name,
            consumer,
            self._given,
            event.name,
            self._given,
        )

    def onQueryProgress(self, event: QueryProgressEvent) -> None:  # noqa: N802 - Spark's name
        try:
            consumer = self._try_to_commit(event.progress)
            self._reports.send(_report(event.progress, consumer))
        except Exception:  # noqa: BLE001 - the query must not fail
            _log.exception("a finished batch could not be committed or reported")

    def onQueryTerminated(self, event: QueryTerminatedEvent) -> None:  # noqa: N802 - Spark's name
        if self._nameless == str(event.id):
            self._nameless = None

    def _try_to_commit(self, progress: StreamingQueryProgress) -> str | None:
        try:
            return self._commit(progress)
        except SluicegateError as e:
            _log.log(
                logging.WARNING if isinstance(e, StaleCommit) else logging.ERROR,
                "batch %d of query %s was not committed: %s",
                progress.batchId,
                progress.name or progress.id,
                e.message,
            )
            return None

    def _commit(self, progress: StreamingQueryProgress) -> str | None:
        """Commit a batch; gives the consumer if its positions are in the store now."""
        positions = end_positions([source.endOffset for source in progress.sources])
        query = str(progress.id)
        consumer = self._consumer(progress.name, query)
        if self._store is None or consumer is None or not len(positions):
            return None
        # Spark also reports batches without data, which would cost an fsync each.
        if self._committed.get(query) != positions:
            self._store.save_many(consumer, positions, fence=Fence(query, progress.batchId))
            self._committed[query] = positions
        return consumer

    def _consumer(self, name: str | None, query: str) -> str | None:
        if name:
            return self._consumers.get(name, name)
        # Two of them would overwrite each other's positions.
        self._nameless = self._nameless or query
        return self._given if self._nameless == query else None


def end_positions(ends: list[str | None]) -> Positions:
    """The positions in the end offsets of a query's sources; the lowest of each partition."""
    least: dict[tuple[str, int], int] = {}
    for text in ends:
        for each in _positions(text):
            place = each.topic, each.partition
            least[place] = min(each.offset, least.get(place, each.offset))
    return Positions.of(Position(*place, offset) for place, offset in least.items())


def _positions(text: str | None) -> Positions:
    try:
        found = SourceOffset("", text).positions
    except SluicegateError:
        found = None
    return found if found is not None else Positions({})


def _report(progress: StreamingQueryProgress, committed: str | None) -> Progress:
    rate: Any = progress.processedRowsPerSecond
    return Progress(
        query=progress.name or str(progress.id)[:8],
        id=str(progress.id),
        batch=progress.batchId,
        rows=progress.numInputRows,
        rows_per_second=round(rate, 1) if rate and math.isfinite(rate) else 0.0,
        seconds=progress.batchDuration / 1000,
        at=progress.timestamp,
        ends=tuple(_value(source.endOffset) for source in progress.sources),
        committed=committed,
        durations=dict(progress.durationMs),
    )


def _value(text: str | None) -> Any:
    """An offset as a value, if it is JSON, as nearly every source writes it."""
    try:
        return json.loads(text) if text else None
    except ValueError:
        return text
