"""The embedded log as a streaming source of Spark, which the job is compared with.

Options: `path` (the log), `startingPositions` (`{"topic": {"0": 123}}`; partitions that are not
named start at their beginning; without it everything is read from the beginning), `maxEvents` (the
most that a batch reads). Offsets have the form of Kafka's, so every tool that reads them can.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxRows,
    SupportsTriggerAvailableNow,
)
from pyspark.sql.types import StructType

from sluicegate.errors import UsageError
from sluicegate.positions import Positions, from_spark, to_spark
from sluicegate.sources.base import admitted, complete
from sluicegate.sources.log.log import Log

NAME = "sluicegate"
PATH, STARTING, MAX_EVENTS = "path", "startingPositions", "maxEvents"
_SCHEMA = "topic STRING, partition INT, offset BIGINT, value STRING"

Offsets = dict[str, dict[str, int]]


class LogSource(DataSource):
    """The log, by the name `sluicegate`."""

    @classmethod
    def name(cls) -> str:
        return NAME

    def schema(self) -> str:
        return _SCHEMA

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802 - Spark's
        del schema
        return LogStreamReader(dict(self.options))


class Range(InputPartition):
    """The part of a partition that one task reads."""

    def __init__(self, partition: int, start: int, end: int) -> None:
        super().__init__((partition, start, end))
        self.partition, self.start, self.end = partition, start, end


class LogStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """The reader that Spark calls while a query runs."""

    def __init__(self, options: Mapping[str, str]) -> None:
        lower = {name.lower(): value for name, value in options.items()}
        path = lower.get(PATH)
        if not path:
            raise UsageError("the source needs the path of a log", hint='.option("path", …)')
        self._path = path
        self._starting = lower.get(STARTING.lower())
        most = lower.get(MAX_EVENTS.lower())
        self._most = int(most) if most else None
        self._until: Positions | None = None

    def initialOffset(self) -> Offsets:  # noqa: N802 - Spark's name
        log = Log.open(self._path)
        given = from_spark(json.loads(self._starting)) if self._starting else Positions({})
        return _offsets(complete(log, given))

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802 - Spark's name
        return ReadMaxRows(self._most) if self._most else ReadAllAvailable()

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802 - Spark's name
        self._until = Log.open(self._path).latest()

    def latestOffset(self, start: Offsets, limit: ReadLimit) -> Offsets:  # noqa: N802 - Spark's
        log = Log.open(self._path)
        begin = complete(log, from_spark(start))
        end = self._until or log.latest()
        most = limit.max_rows if isinstance(limit, ReadMaxRows) else None
        return _offsets(admitted(begin, end, most))

    def reportLatestOffset(self) -> Offsets:  # noqa: N802 - Spark's name
        return _offsets(Log.open(self._path).latest())

    def partitions(self, start: Offsets, end: Offsets) -> Sequence[Range]:
        log = Log.open(self._path)
        begin = complete(log, from_spark(start))
        return [
            Range(each.partition, begin.get(each.topic, each.partition) or 0, each.offset)
            for each in from_spark(end)
            if each.offset > (begin.get(each.topic, each.partition) or 0)
        ]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        assert isinstance(partition, Range)
        log = Log.open(self._path)
        for piece in log.read(partition.partition, partition.start, partition.end):
            yield _batch(log.topic, partition.partition, piece.first, piece.data)


def _offsets(positions: Positions) -> Offsets:
    offsets: Any = to_spark(positions)
    return {topic: {str(p): at for p, at in of.items()} for topic, of in offsets.items()}


def _batch(topic: str, partition: int, first: int, data: bytes) -> pa.RecordBatch:
    """Lines as rows; no line is parsed."""
    ends = np.flatnonzero(np.frombuffer(data, np.uint8) == ord("\n"))
    count = len(ends)
    # Every text ends where the next one begins, so the newlines must go.
    body = data.replace(b"\n", b"")
    offsets = np.zeros(count + 1, np.int32)
    offsets[1:] = ends - np.arange(count)
    buffers = [None, pa.py_buffer(offsets.tobytes()), pa.py_buffer(body)]
    values = pa.Array.from_buffers(pa.string(), count, buffers)
    return pa.RecordBatch.from_arrays(
        [
            pa.array([topic] * count, pa.string()),
            pa.array(np.full(count, partition, np.int32)),
            pa.array(np.arange(first, first + count)),
            values,
        ],
        names=["topic", "partition", "offset", "value"],
    )
