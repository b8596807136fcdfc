"""A query over a source whose offsets are in Kafka's form: `stream.py CHECKPOINT NAME`.

Runs until SIGTERM, which lets it finish its batch.
"""

from __future__ import annotations

import json
import signal
import sys
import time
from collections.abc import Iterator
from typing import Any

from pyspark.sql import SparkSession
from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition

import sluicegate

TOPIC = "events"
STEP = {"0": 3, "1": 1}


class Part(InputPartition):
    def __init__(self, first: int, last: int) -> None:
        self.first, self.last = first, last


class Reader(DataSourceStreamReader):
    """Every look finds a few more events in each of two partitions."""

    def __init__(self, start: str) -> None:
        self._start = start

    def initialOffset(self) -> dict[str, Any]:  # noqa: N802
        return {TOPIC: {"0": 0, "1": 0}} if self._start == "earliest" else json.loads(self._start)

    def latestOffset(self, start: dict[str, Any], limit: Any) -> dict[str, Any]:  # noqa: N802
        # By the clock, since Spark may ask any number of times, and in a new process.
        ticks = int(time.time() * 2)
        return {TOPIC: {name: ticks * step for name, step in STEP.items()}}

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> list[InputPartition]:
        # A few are enough to be read.
        return [Part(at, at + 1) for at in end[TOPIC].values()]

    def read(self, partition: InputPartition) -> Iterator[tuple[int]]:
        assert isinstance(partition, Part)
        yield from ((number,) for number in range(partition.first, partition.last))


class Events(DataSource):
    @classmethod
    def name(cls) -> str:
        return TOPIC

    def schema(self) -> str:
        return "value long"

    def streamReader(self, schema: Any) -> Reader:  # noqa: N802
        return Reader(self.options["start"])


def main(checkpoint: str, name: str) -> None:
    stopped: list[int] = []
    signal.signal(signal.SIGTERM, lambda number, _: stopped.append(number))
    spark = SparkSession.builder.config("spark.ui.enabled", "false").getOrCreate()
    sluicegate.commit_offsets(spark)
    spark.dataSource.register(Events)
    start = sluicegate.starting_offsets(spark)
    print(f"starts at {start}", flush=True)
    query = (
        spark.readStream.format(TOPIC)
        .option("start", start)
        .load()
        .writeStream.queryName(name)
        .format("noop")
        .option("checkpointLocation", checkpoint)
        .trigger(processingTime="1 second")
        .start()
    )
    while not stopped and query.isActive:
        time.sleep(0.1)
    query.stop()
    print("stopped between batches", flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
