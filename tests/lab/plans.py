"""The sources and queries of the recipes, as DataFrames. Imports pyspark and recipes only."""

from __future__ import annotations

import importlib
import json
import os
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as sf

if TYPE_CHECKING:
    from pyspark.sql.datasource import DataSource
    from pyspark.sql.streaming.stateful_processor import StatefulProcessor

    from tests.lab.recipes import Recipe

SCHEMA = "id long, key string, amount long, ts timestamp"
FILES_PER_RUN = 6
ROWS = 6
STEP_SECONDS = 10
START_SECONDS = 1_700_000_000


def output_mode(recipe: Recipe) -> str:
    """Return the output mode: append wherever the sink keeps rows, so that it needs watermarks."""
    if recipe.sink == "memory":
        # The only mode in which the memory sink may start from an existing checkpoint.
        return "complete"
    if recipe.query == "total":
        return "complete"
    if recipe.query == "aggregation" and recipe.sink in ("noop", "foreachBatch"):
        return "update"
    return "append"


def frame(spark: SparkSession, recipe: Recipe, inputs: Path, run: int) -> DataFrame:
    """Return the recipe's query for its run number `run`, its input written."""
    sources = [
        source(spark, kind, recipe, inputs / str(place), run)
        for place, kind in enumerate(recipe.source.split("+"))
    ]
    return _QUERIES[recipe.query](sources)


def source(spark: SparkSession, kind: str, recipe: Recipe, inputs: Path, run: int) -> DataFrame:
    """Return one source with the columns of SCHEMA."""
    reader = spark.readStream
    if recipe.named_sources:
        reader = reader.name(f"source_{inputs.name}")
    if kind == "file":
        # The second of two sources has nothing at first: its line in the offset log is `-`.
        if inputs.name == "0" or run > 0:
            write_files(inputs, run)
        inputs.mkdir(parents=True, exist_ok=True)
        return reader.schema(SCHEMA).option("maxFilesPerTrigger", 1).json(str(inputs))
    if kind == "python":
        return reader.format("counter").option("end", FILES_PER_RUN * ROWS * (run + 1)).load()
    rate = reader.format("rate-micro-batch").option("rowsPerBatch", ROWS)
    rate = rate.option("startTimestamp", START_SECONDS * 1000)
    rate = rate.option("advanceMillisPerBatch", STEP_SECONDS * 1000).option("numPartitions", 2)
    return rate.load().select(
        sf.col("value").alias("id"),
        (sf.col("value") % 5).cast("string").alias("key"),
        sf.col("value").alias("amount"),
        sf.col("timestamp").alias("ts"),
    )


def write_files(directory: Path, run: int) -> None:
    """Add the run's files, in which the last row of one file comes again in the next."""
    directory.mkdir(parents=True, exist_ok=True)
    for number in range(run * FILES_PER_RUN, (run + 1) * FILES_PER_RUN):
        path = directory / f"{number:03}.json"
        rows = [row(number * (ROWS - 1) + i, number) for i in range(ROWS)]
        path.write_text("".join(json.dumps(each) + "\n" for each in rows))
        # Spark reads files in the order of their modification times.
        os.utime(path, (START_SECONDS + number, START_SECONDS + number))


def row(identity: int, step: int) -> dict[str, Any]:
    """Return one row of SCHEMA as JSON has it."""
    moment = datetime.fromtimestamp(START_SECONDS + step * STEP_SECONDS, tz=UTC)
    return {"id": identity, "key": str(identity % 5), "amount": identity, "ts": moment.isoformat()}


def counter_source() -> type[DataSource]:
    """Return a Python data source that counts up to its option `end`, ROWS at a time."""
    from pyspark.sql.datasource import DataSource, SimpleDataSourceStreamReader

    class CounterReader(SimpleDataSourceStreamReader):
        def __init__(self, end: int) -> None:
            self.end = end

        def initialOffset(self) -> dict[str, int]:  # noqa: N802
            return {"next": 0}

        def read(self, start: dict[str, int]) -> tuple[Iterator[tuple[Any, ...]], dict[str, int]]:
            stop = min(start["next"] + ROWS, self.end)
            rows = [
                (i, str(i % 5), i, datetime.fromtimestamp(START_SECONDS + i, tz=UTC))
                for i in range(start["next"], stop)
            ]
            return iter(rows), {"next": max(stop, start["next"])}

        def readBetweenOffsets(  # noqa: N802
            self, start: dict[str, int], end: dict[str, int]
        ) -> Iterator[tuple[Any, ...]]:
            self.end = max(self.end, end["next"])
            return self.read(start)[0]

    class Counter(DataSource):
        @classmethod
        def name(cls) -> str:
            return "counter"

        def schema(self) -> str:
            return SCHEMA

        def simpleStreamReader(self, schema: Any) -> CounterReader:  # noqa: N802
            return CounterReader(int(self.options["end"]))

    return Counter


def _processor() -> StatefulProcessor:
    """Return a processor with a value, a map and a timer for each key."""
    from pyspark.sql.streaming.stateful_processor import StatefulProcessor

    pandas = importlib.import_module("pandas")

    class Totals(StatefulProcessor):
        def init(self, handle: Any) -> None:
            self.handle = handle
            self.total = handle.getValueState("total", "total long")
            self.seen = handle.getMapState("seen", "id long", "amount long")

        def handleInputRows(  # noqa: N802
            self,
            key: Any,
            rows: Iterator[Any],
            timerValues: Any,  # noqa: N803
        ) -> Iterator[Any]:
            total = self.total.get()[0] if self.total.exists() else 0
            for each in rows:
                total += int(each["amount"].sum())
                for identity in each["id"]:
                    self.seen.updateValue((int(identity),), (total,))
            self.total.update((total,))
            self.handle.registerTimer(timerValues.getCurrentWatermarkInMs() + 20_000)
            yield pandas.DataFrame({"key": [key[0]], "total": [total]})

        def handleExpiredTimer(  # noqa: N802
            self,
            key: Any,
            timerValues: Any,  # noqa: N803
            expiredTimerInfo: Any,  # noqa: N803
        ) -> Iterator[Any]:
            self.seen.clear()
            yield pandas.DataFrame({"key": [key[0]], "total": [-1]})

        def close(self) -> None:
            pass

    return Totals()


def counting_processor() -> StatefulProcessor:
    """Return a processor that tells of each id how often its key has seen it before and now."""
    from pyspark.sql.streaming.stateful_processor import StatefulProcessor

    pandas = importlib.import_module("pandas")

    class Seen(StatefulProcessor):
        def init(self, handle: Any) -> None:
            self.seen = handle.getMapState("seen", "id long", "times long")

        def handleInputRows(  # noqa: N802
            self,
            key: Any,
            rows: Iterator[Any],
            timerValues: Any,  # noqa: N803
        ) -> Iterator[Any]:
            told = []
            for each in rows:
                for identity in map(int, each["id"]):
                    before = self.seen.getValue((identity,)) if self._knows(identity) else (0,)
                    self.seen.updateValue((identity,), (before[0] + 1,))
                    told.append((key[0], identity, before[0] + 1))
            yield pandas.DataFrame(told, columns=["key", "id", "seen"])

        def _knows(self, identity: int) -> bool:
            return bool(self.seen.containsKey((identity,)))

        def close(self) -> None:
            pass

    return Seen()


def _stateless(sources: list[DataFrame]) -> DataFrame:
    united = sources[0]
    for other in sources[1:]:
        united = united.unionByName(other)
    return united.where("amount % 7 <> 0")


def _watermarked(sources: list[DataFrame]) -> DataFrame:
    return sources[0].withWatermark("ts", "5 seconds")


def _aggregation(sources: list[DataFrame]) -> DataFrame:
    return _watermarked(sources).groupBy(sf.window("ts", "20 seconds"), "key").count()


def _dedup(sources: list[DataFrame]) -> DataFrame:
    return sources[0].dropDuplicates(["id"])


def _dedup_watermark(sources: list[DataFrame]) -> DataFrame:
    return _watermarked(sources).dropDuplicatesWithinWatermark(["id"])


def _dedup_aggregation(sources: list[DataFrame]) -> DataFrame:
    unique = _watermarked(sources).dropDuplicates(["id", "ts"])
    return unique.groupBy(sf.window("ts", "20 seconds")).count()


def _session(sources: list[DataFrame]) -> DataFrame:
    return _watermarked(sources).groupBy(sf.session_window("ts", "15 seconds"), "key").count()


def _limit(sources: list[DataFrame]) -> DataFrame:
    return sources[0].limit(40)


def _total(sources: list[DataFrame]) -> DataFrame:
    """Without a key all is counted in one partition, whatever the number of partitions."""
    return sources[0].groupBy().count()


def _join(sources: list[DataFrame]) -> DataFrame:
    left, right = (
        each.withWatermark("ts", "10 seconds").select(
            *(sf.col(column).alias(f"{side}_{column}") for column in ("id", "amount", "ts"))
        )
        for side, each in zip(("left", "right"), sources, strict=True)
    )
    near = "right_ts BETWEEN left_ts - INTERVAL 20 SECONDS AND left_ts + INTERVAL 20 SECONDS"
    return left.join(right, sf.expr(f"left_id = right_id AND {near}"))


def _tws(sources: list[DataFrame]) -> DataFrame:
    return (
        _watermarked(sources)
        .groupBy("key")
        .transformWithStateInPandas(_processor(), "key string, total long", "append", "eventTime")
    )


_QUERIES = {
    "stateless": _stateless,
    "aggregation": _aggregation,
    "dedup": _dedup,
    "dedup-watermark": _dedup_watermark,
    "dedup-aggregation": _dedup_aggregation,
    "join": _join,
    "session": _session,
    "limit": _limit,
    "total": _total,
    "tws": _tws,
}
