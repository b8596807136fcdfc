"""Runs queries to the end of their input, with the Spark of the Python that runs it.

    python ending_runner.py JOBS RESULTS

JOBS is a JSON list of jobs: `recipe` (the fields of a Recipe), `place` (a directory that holds, or
gets, `in` and `out`), `checkpoint` (a directory), `files` (how many input files there are to be),
`closed` (whether one more follows that is far ahead in event time) and `per_batch` (how many files
a batch reads). Each job writes the files that are not there yet, runs the query from its
checkpoint, if any, until all is read, and reads what the sink holds. RESULTS gets one JSON line for
each job, in any order: `job` (its number), `rows` (sorted), `batches` (ids in the order they were
run), and `error` (null, or all that Spark says). A job that fails does not stop the others. Imports
pyspark and its siblings only.

What comes out does not depend on how files fall into batches: no row is late, and what is left of
rows that are duplicates is the same for each of them.
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from py4j.protocol import Py4JError  # type: ignore[import-untyped]
from pyspark import SparkContext
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as sf

if TYPE_CHECKING:
    from pyspark.sql.streaming.query import StreamingQuery
    from pyspark.sql.streaming.readwriter import DataStreamWriter

    from tests.lab import make, plans
    from tests.lab.recipes import Recipe
else:
    import make
    import plans
    from recipes import Recipe

# Most of a small batch is waiting for files to be renamed, so a few queries share two cores well.
AT_ONCE = 3
FRESH = 4
# Each file brings rows of these many files before it again: one that was seen long ago is told from
# a new one only by a state that is whole.
REPEATED = (1, 3, 5)
CLOSING = 999
_LATE_SECONDS = 10
_NO_WORKER = "Timed out while waiting for the Python worker to connect back"
_BATCH = "batch={}.json"
# What makes a row of an aggregation that is written anew whenever it changes.
_GROUP = ("window", "key")


def rows_of(number: int, side: int) -> list[dict[str, Any]]:
    """Return the rows of one input file, which depend on nothing but its number and its source.

    On the left: rows with new ids, and some ids of earlier files in other rows, ten seconds late.
    On the right: rows for the ids of the left file before and of the left file after it.
    """
    if side == 1:
        return [_row(number, FRESH * near + i, 0) for near in _near(number) for i in range(2)]
    fresh = [_row(number, FRESH * number + i, 0) for i in range(FRESH)]
    seen = [
        _row(number, FRESH * (number - back) + i, _LATE_SECONDS)
        for i, back in enumerate(REPEATED)
        if number >= back and number != CLOSING
    ]
    return fresh + seen


def _near(number: int) -> tuple[int, ...]:
    return (number - 1, number + 1) if number else (1,)


def _row(number: int, identity: int, late: int) -> dict[str, Any]:
    moment = plans.START_SECONDS + number * plans.STEP_SECONDS - late
    return {
        "id": identity,
        "key": str(identity % 3),
        "amount": identity * 1000 + number,
        "ts": datetime.fromtimestamp(moment, tz=UTC).isoformat(),
    }


def write_files(directory: Path, side: int, files: int, *, closed: bool) -> None:
    """Write the input files that are missing; those that are there are left alone."""
    directory.mkdir(parents=True, exist_ok=True)
    for number in [*range(files), *([CLOSING] if closed else [])]:
        path = directory / f"{number:03}.json"
        if path.exists():
            continue
        path.write_text("".join(json.dumps(each) + "\n" for each in rows_of(number, side)))
        # Spark reads files in the order of their modification times.
        os.utime(path, (plans.START_SECONDS + number, plans.START_SECONDS + number))


def source(spark: SparkSession, kind: str, inputs: Path, job: dict[str, Any]) -> DataFrame:
    """Return one source of the job, its input written."""
    if kind == "python":
        end = job["files"] * plans.ROWS
        return spark.readStream.format("counter").option("end", end).load()
    write_files(inputs, int(inputs.name), job["files"], closed=job["closed"])
    reader = spark.readStream.schema(plans.SCHEMA).option("maxFilesPerTrigger", job["per_batch"])
    return reader.json(str(inputs))


def _stateless(sources: list[DataFrame]) -> DataFrame:
    return sources[0].where("amount % 7 <> 0")


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


_QUERIES: dict[str, Callable[[list[DataFrame]], DataFrame]] = {
    "stateless": _stateless,
    "aggregation": _aggregation,
    "dedup": _dedup,
    "join": _join,
    "tws": _tws,
}


def as_json(frame: DataFrame) -> list[str]:
    """Return the rows as text, so that no Python type or time zone comes between them."""
    return [row[0] for row in frame.select(sf.to_json(sf.struct("*"))).collect()]


def writer(recipe: Recipe, frame: DataFrame, checkpoint: str, directory: Path) -> DataStreamWriter:
    """Return the query's writer; with foreachBatch, the sink knows which batches it has."""
    out = frame.writeStream.option("checkpointLocation", checkpoint)
    out = out.outputMode(plans.output_mode(recipe))
    if recipe.sink != "foreachBatch":
        return out.format(recipe.sink).option("path", str(directory))

    def consume(batch: DataFrame, batch_id: int) -> None:
        # Computed even if it is not wanted, or the state would lack what this batch does to it.
        rows = as_json(batch)
        path = directory / _BATCH.format(batch_id)
        if path.exists():
            return
        directory.mkdir(exist_ok=True)
        unfinished = path.with_name(f".{path.name}")
        unfinished.write_text(json.dumps(rows))
        unfinished.replace(path)

    return out.foreachBatch(consume)


def output(spark: SparkSession, recipe: Recipe, frame: DataFrame, place: Path) -> list[str]:
    """Return what a reader of the sink's output finds, sorted."""
    directory = place / "out"
    if recipe.sink == "foreachBatch":
        return sorted(_folded(recipe, directory))
    return sorted(as_json(spark.read.schema(frame.schema).format(recipe.sink).load(str(directory))))


def _folded(recipe: Recipe, directory: Path) -> list[str]:
    """Return the batches of the sink put together, later ones taking the place of earlier ones."""
    rows = [row for _, path in sorted(_batches(directory)) for row in json.loads(path.read_text())]
    if plans.output_mode(recipe) == "append":
        return rows
    latest = {json.dumps([json.loads(row)[name] for name in _GROUP]): row for row in rows}
    return list(latest.values())


def _batches(directory: Path) -> Iterator[tuple[int, Path]]:
    for path in directory.glob(_BATCH.format("*")):
        yield int(path.stem.partition("=")[2]), path


def run(recipe: Recipe, out: DataStreamWriter) -> tuple[StreamingQuery | None, str | None]:
    """Run the query until it has read all there is; return it, and what it died of.

    Spark waits ten seconds for a Python worker, which is too short on a machine that is busy with
    something else. The query has not begun then, so it is started once more.
    """
    query, error = _run_once(recipe, out)
    return _run_once(recipe, out) if error and _NO_WORKER in error else (query, error)


def _run_once(recipe: Recipe, out: DataStreamWriter) -> tuple[StreamingQuery | None, str | None]:
    query = None
    try:
        if recipe.source == "python":
            # Under AvailableNow a Python source gives a single batch.
            query = out.start()
            query.processAllAvailable()
            query.stop()
        else:
            query = out.trigger(availableNow=True).start()
            query.awaitTermination()
    except (PySparkException, Py4JError) as error:
        return query, f"{error}\n\n{_causes(query)}" if query else str(error)
    return query, None


def _causes(query: StreamingQuery) -> str:
    """Return the stack trace of the query's failure: Python's message leaves out the causes."""
    failure = query._jsq.exception()
    jvm: Any = SparkContext._jvm
    return str(jvm.org.apache.spark.util.Utils.exceptionString(failure.get()))


def work(spark: SparkSession, number: int, job: dict[str, Any]) -> dict[str, Any]:
    """Do one job in a session of its own, and return its result."""
    recipe = Recipe(**job["recipe"])
    place = Path(job["place"])
    place.mkdir(parents=True, exist_ok=True)
    own = spark.newSession()
    for key, value in make.settings_of(recipe).items():
        own.conf.set(key, value)
    if recipe.source == "python":
        own.dataSource.register(plans.counter_source())
    sources = [
        source(own, kind, place / "in" / str(side), job)
        for side, kind in enumerate(recipe.source.split("+"))
    ]
    frame = _QUERIES[recipe.query](sources)
    out = writer(recipe, frame, job["checkpoint"], place / "out")
    query, error = run(recipe, out)
    events = query._jsq.recentProgress() if query else []
    rows: list[str] = []
    try:
        rows = output(own, recipe, frame, place)
    except (PySparkException, Py4JError) as unreadable:
        error = f"{error}\n\n{unreadable}" if error else str(unreadable)
    return {
        "job": number,
        "rows": rows,
        "batches": [json.loads(event.json())["batchId"] for event in events],
        "error": error,
    }


def lanes(jobs: list[dict[str, Any]]) -> list[list[tuple[int, dict[str, Any]]]]:
    """Return the numbered jobs, those of one case together.

    Copies of a checkpoint have its query id, and Spark lets only one query of an id run at a time.
    """
    found: dict[str, list[tuple[int, dict[str, Any]]]] = {}
    for number, job in enumerate(jobs):
        found.setdefault(job["recipe"]["name"], []).append((number, job))
    return list(found.values())


def in_turn(spark: SparkSession, lane: list[tuple[int, dict[str, Any]]]) -> list[dict[str, Any]]:
    """Do jobs one after the other."""
    return [work(spark, number, job) for number, job in lane]


def main(jobs: Path, results: Path) -> None:
    """Do all jobs, and report each as it ends."""
    asked = json.loads(jobs.read_text())
    with tempfile.TemporaryDirectory(prefix="lab-") as scratch, results.open("w") as stream:
        spark = make.session(Path(scratch))
        with ThreadPoolExecutor(AT_ONCE) as pool:
            for results_of_lane in pool.map(partial(in_turn, spark), lanes(asked)):
                stream.writelines(json.dumps(result) + "\n" for result in results_of_lane)
        spark.stop()


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
