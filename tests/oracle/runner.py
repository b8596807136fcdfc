"""Runs queries as they are asked for, with the Spark of the Python that runs it.

    python runner.py SCRATCH

Each line of standard input is a job: `job` (its number), `kind` (the fields of a Kind), `place` (a
directory that holds, or gets, `in` and `out`), `checkpoint`, `first` (number of the first input
file), `seconds` (time limit) and `stages`, each with `files` (how many input files there are to
be), `closed` (whether one more follows that is far ahead in event time), `per_batch` and
`no_data_batches`. A stage starts the query and ends when all is read. Standard output gets one
JSON line for each job, in any order: `job`, `error` (null, or what Spark says), `stage` (the number
of stages that went through), `rows` (sorted; only if all did). Imports pyspark and its siblings
only.
"""

from __future__ import annotations

import importlib
import json
import os
import sys
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO

from py4j.protocol import Py4JError  # type: ignore[import-untyped]
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as sf

if TYPE_CHECKING:
    from pyspark.sql.datasource import DataSource
    from pyspark.sql.streaming.query import StreamingQuery
    from pyspark.sql.streaming.readwriter import DataStreamWriter

    from tests.lab import ending_runner, make, plans
    from tests.oracle.kinds import Kind
else:
    import ending_runner
    import make
    import plans
    from kinds import Kind

# Most of a small batch is waiting for files to be renamed, so a few queries share two cores well.
AT_ONCE = 4
ROWS = 6
TOPIC = "orders"
# A rate source gives one batch for each start.
_MOST_STARTS = 12
_NO_DATA_BATCHES = "spark.sql.streaming.noDataMicroBatches.enabled"
_NO_WORKER = "Timed out while waiting for the Python worker to connect back"


def write_inputs(directory: Path, side: int, stage: dict[str, Any], first: int) -> None:
    """Write the input files that are missing; those that are there are left alone."""
    directory.mkdir(parents=True, exist_ok=True)
    closing = [ending_runner.CLOSING] if stage["closed"] else []
    for number in [*range(first, first + stage["files"]), *closing]:
        path = directory / f"{number:03}.json"
        if path.exists():
            continue
        rows = ending_runner.rows_of(number, side)
        path.write_text("".join(json.dumps(each) + "\n" for each in rows))
        # Spark reads files in the order of their modification times.
        os.utime(path, (plans.START_SECONDS + number, plans.START_SECONDS + number))


def topic_source() -> type[DataSource]:
    """Return a Python data source with the offsets of a Kafka topic of two partitions."""
    from pyspark.sql.datasource import DataSource, SimpleDataSourceStreamReader

    class TopicReader(SimpleDataSourceStreamReader):
        def __init__(self, end: int, rows: int) -> None:
            self.end, self.rows = end, rows

        def initialOffset(self) -> dict[str, dict[str, int]]:  # noqa: N802
            return {TOPIC: {"0": 0, "1": 0}}

        def read(self, start: dict[str, Any]) -> tuple[Iterator[tuple[Any, ...]], dict[str, Any]]:
            stop = {
                part: max(at, min(at + self.rows // 2, self.end))
                for part, at in start[TOPIC].items()
            }
            return self.readBetweenOffsets(start, {TOPIC: stop}), {TOPIC: stop}

        def readBetweenOffsets(  # noqa: N802
            self, start: dict[str, Any], end: dict[str, Any]
        ) -> Iterator[tuple[Any, ...]]:
            moment = datetime.fromtimestamp(plans.START_SECONDS, tz=UTC)
            rows = [
                (at * 2 + int(part), part, at, moment)
                for part, last in end[TOPIC].items()
                for at in range(start[TOPIC].get(part, 0), last)
            ]
            return iter(rows)

    class Topic(DataSource):
        @classmethod
        def name(cls) -> str:
            return "topic"

        def schema(self) -> str:
            return plans.SCHEMA

        def simpleStreamReader(self, schema: Any) -> TopicReader:  # noqa: N802
            return TopicReader(int(self.options["end"]), int(self.options["rows"]))

    return Topic


def source(  # noqa: PLR0917
    spark: SparkSession, kind: Kind, name: str, inputs: Path, stage: dict[str, Any], first: int
) -> DataFrame:
    """Return one source of a stage, its input written."""
    reader = spark.readStream
    if kind.named_sources:
        reader = reader.name(f"source_{inputs.name}")
    if name == "python":
        return reader.format("counter").option("end", stage["files"] * plans.ROWS).load()
    if name == "kafka":
        rows = ROWS * stage["per_batch"]
        end = stage["files"] * ROWS // 2
        return reader.format("topic").option("end", end).option("rows", rows).load()
    if name == "rate":
        reader = reader.format("rate-micro-batch").option("rowsPerBatch", ROWS)
        reader = reader.option("startTimestamp", plans.START_SECONDS * 1000)
        reader = reader.option("advanceMillisPerBatch", 10_000).option("numPartitions", 2)
        return reader.load().select(sf.col("value").alias("id"), sf.col("value").alias("amount"))
    write_inputs(inputs, int(inputs.name), stage, first)
    reader = reader.schema(plans.SCHEMA).option("maxFilesPerTrigger", stage["per_batch"])
    return reader.json(str(inputs))


def _stateless(sources: list[DataFrame]) -> DataFrame:
    return sources[0].where("amount % 7 <> 0")


def _union(sources: list[DataFrame]) -> DataFrame:
    return sources[0].unionByName(sources[1])


def _aggregation(sources: list[DataFrame]) -> DataFrame:
    marked = sources[0].withWatermark("ts", "15 seconds")
    grouped = marked.groupBy(sf.window("ts", "30 seconds"), "key")
    return grouped.agg(sf.count("*").alias("rows"), sf.sum("amount").alias("amount"))


def _dedup(sources: list[DataFrame]) -> DataFrame:
    return sources[0].dropDuplicates(["id"]).select("id", "key")


def _join(sources: list[DataFrame]) -> DataFrame:
    left, right = (
        each.withWatermark("ts", "15 seconds").select(
            *(sf.col(column).alias(f"{side}_{column}") for column in ("id", "amount", "ts"))
        )
        for side, each in zip(("left", "right"), sources, strict=True)
    )
    near = "right_ts BETWEEN left_ts - INTERVAL 20 SECONDS AND left_ts + INTERVAL 20 SECONDS"
    return left.join(right, sf.expr(f"left_id = right_id AND {near}"))


def _tws(sources: list[DataFrame]) -> DataFrame:
    marked = sources[0].withWatermark("ts", "15 seconds")
    return marked.groupBy("key").transformWithStateInPandas(
        plans.counting_processor(), "key string, id long, seen long", "append", "eventTime"
    )


def _pandas(sources: list[DataFrame]) -> DataFrame:
    """Count what each key has seen, and show the count with every row."""
    from pyspark.sql.streaming.state import GroupStateTimeout

    def count(key: tuple[str], frames: Iterator[Any], state: Any) -> Iterator[Any]:
        seen = set(state.get[0].split(",")) if state.exists else set()
        shown = []
        for identity in (int(each) for frame in frames for each in frame["id"]):
            shown.append((key[0], identity, str(identity) in seen))
            seen.add(str(identity))
        state.update((",".join(sorted(seen)),))
        pandas = importlib.import_module("pandas")
        yield pandas.DataFrame(shown, columns=["key", "id", "again"])

    return (
        sources[0]
        .groupBy("key")
        .applyInPandasWithState(
            count,
            "key string, id long, again boolean",
            "ids string",
            "append",
            GroupStateTimeout.NoTimeout,
        )
    )


_QUERIES: dict[str, Callable[[list[DataFrame]], DataFrame]] = {
    "stateless": _stateless,
    "union": _union,
    "aggregation": _aggregation,
    "dedup": _dedup,
    "join": _join,
    "tws": _tws,
    "pandas": _pandas,
}


class TimeLimit(Exception):
    """The query had not read its input when its time was over."""


def writer(kind: Kind, frame: DataFrame, checkpoint: str, directory: Path) -> DataStreamWriter:
    """Return the query's writer."""
    out = ending_runner.writer(kind, frame, checkpoint, directory)  # type: ignore[arg-type]
    if kind.is_async:
        out = out.option("asyncProgressTrackingEnabled", "true")
        out = out.option("asyncProgressTrackingCheckpointIntervalMs", "0")
    if kind.named_sink:
        # 4.3 has no Python method for it yet.
        out._jwrite.name("ledger")
    return out


def run(kind: Kind, out: DataStreamWriter, stage: dict[str, Any], seconds: int) -> None:
    """Run the query until it has read all there is; raise what it died of."""
    if kind.source == "rate":
        for _ in range(_MOST_STARTS):
            query = _run_available(out, seconds)
            ends = [_rate_end(event) for event in query._jsq.recentProgress()]
            if max(ends, default=0) >= stage["files"] * ROWS:
                return
        raise TimeLimit(f"the end was not reached in {_MOST_STARTS} starts")
    if kind.source in ("python", "kafka") or kind.is_async:
        _run_to_end(out, seconds)
    else:
        _run_available(out, seconds)


def _rate_end(event: Any) -> int:
    """Return the end of a rate source's batch; versions differ in whether it is text."""
    end = json.loads(event.json())["sources"][0]["endOffset"]
    end = json.loads(end) if isinstance(end, str) else end
    return int(end["offset"]) if end else 0


def _run_available(out: DataStreamWriter, seconds: int) -> StreamingQuery:
    query = out.trigger(availableNow=True).start()
    if not query.awaitTermination(seconds):
        query.stop()
        raise TimeLimit(f"the query did not end in {seconds} s")
    return query


def _run_to_end(out: DataStreamWriter, seconds: int) -> None:
    """Run a query whose source gives a single batch, or that is not allowed, under AvailableNow."""
    query = out.start()
    late = threading.Timer(seconds, query.stop)
    late.start()
    try:
        query.processAllAvailable()
        if not late.is_alive():
            raise TimeLimit(f"the query did not end in {seconds} s")
    finally:
        late.cancel()
        query.stop()


def work(spark: SparkSession, job: dict[str, Any]) -> dict[str, Any]:
    """Do one job in a session of its own, and return its result."""
    fields = job["kind"]
    fields["since"] = tuple(fields["since"])
    kind = Kind(**fields)
    place = Path(job["place"])
    place.mkdir(parents=True, exist_ok=True)
    own = spark.newSession()
    for key, value in make.settings_of(kind).items():  # type: ignore[arg-type]
        own.conf.set(key, value)
    if kind.source == "python":
        own.dataSource.register(plans.counter_source())
    if kind.source == "kafka":
        own.dataSource.register(topic_source())
    done = 0
    try:
        for stage in job["stages"]:
            frame = _stage(own, kind, job, stage)
            done += 1
        recipe: Any = kind
        rows = [] if kind.sink == "noop" else ending_runner.output(own, recipe, frame, place)
    except (PySparkException, Py4JError, TimeLimit, OSError) as error:
        return {"job": job["job"], "error": str(error)[:4000], "stage": done, "rows": []}
    return {"job": job["job"], "error": None, "stage": done, "rows": rows}


def _stage(own: SparkSession, kind: Kind, job: dict[str, Any], stage: dict[str, Any]) -> DataFrame:
    place = Path(job["place"])
    sources = [
        source(own, kind, name, place / "in" / str(side), stage, job["first"])
        for side, name in enumerate(kind.source.split("+"))
    ]
    frame = _QUERIES[kind.query](sources)
    own.conf.set(_NO_DATA_BATCHES, str(stage["no_data_batches"]).lower())
    for attempt in range(2):
        try:
            run(kind, writer(kind, frame, job["checkpoint"], place / "out"), stage, job["seconds"])
        except (PySparkException, Py4JError) as error:
            # Spark waits ten seconds for a Python worker: too short on a busy machine.
            if attempt or _NO_WORKER not in str(error):
                raise
        else:
            break
    return frame


def main(scratch: Path) -> None:
    """Do jobs until standard input ends, and report each as it ends."""
    # Python workers and Spark itself print to standard output, too: results go to a copy of it.
    results = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)
    spark = make.session(scratch)
    print(json.dumps({"ready": True}), file=results)
    lock = threading.Lock()
    with ThreadPoolExecutor(AT_ONCE) as pool:
        for line in sys.stdin:
            pool.submit(_answer, spark, json.loads(line), results, lock)
    spark.stop()


def _answer(
    spark: SparkSession, job: dict[str, Any], results: TextIO, lock: threading.Lock
) -> None:
    try:
        result = work(spark, job)
    except Exception as error:  # noqa: BLE001  # a job that is not answered waits for ever
        result = {"job": job["job"], "error": f"runner: {error!r}", "stage": 0, "rows": []}
    with lock:
        print(json.dumps(result), file=results)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
