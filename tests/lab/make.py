"""Makes the lab's checkpoints with the Spark of the Python that runs it.

    python make.py OUT [--only NAME,…]

writes, for every recipe that this Spark supports, `OUT/<recipe>/checkpoint`, `in` (files the query
read), `out` (file sinks) and `expect.json` (what the run itself reported). Imports pyspark and its
siblings only, so it works in environments that do not hold the project.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import os
import shutil
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyspark
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession

if TYPE_CHECKING:
    from pyspark.sql.streaming.query import StreamingQuery
    from pyspark.sql.streaming.readwriter import DataStreamWriter

    from tests.lab import plans
    from tests.lab.recipes import RECIPES, Recipe
else:
    import plans
    from recipes import RECIPES, Recipe

SPARK = tuple(int(part) for part in pyspark.__version__.split(".")[:2])
PARTITIONS = 2
REPARTITIONED = 3
# A rate source gives one batch for each start under AvailableNow, a file source one for each file.
RATE_RUNS = 8
RUNS = 2
# With the ending `failed`, each of the two runs ends at one of these.
FAILING_BATCHES = (4, 9)
ASYNC_RUN_SECONDS = 1.5

_STREAMING = "spark.sql.streaming."
_STATE = _STREAMING + "stateStore."
_PACKAGE = "org.apache.spark.sql.execution.streaming."
_ROCKSDB_PROVIDER = _PACKAGE + "state.RocksDBStateStoreProvider"
_SESSION = {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    # A dozen rows a batch: compiling for them takes most of the time.
    "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1",
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.shuffle.partitions": str(PARTITIONS),
    # Snapshots come from background maintenance: these make it visible within a dozen batches.
    _STATE + "minDeltasForSnapshot": "3",
    _STATE + "maintenanceInterval": "300ms",
}


class MeantToFail(Exception):
    """Raised inside foreachBatch, so that a batch has offsets and no commit."""


def unsupported(recipe: Recipe) -> str | None:
    """Return why this environment cannot make the recipe, or None."""
    if recipe.min_spark > SPARK:
        return f"needs Spark {recipe.min_spark[0]}.{recipe.min_spark[1]}"
    modules = {"tws": ("pandas", "pyarrow", "google.protobuf")}.get(recipe.query, ())
    if "python" in recipe.source:
        modules = (*modules, "pyarrow")
    for module in modules:
        if importlib.util.find_spec(module.split(".", maxsplit=1)[0]) is None:
            return f"needs {module}"
    return None


def session(scratch: Path) -> SparkSession:
    """Start the one session of this process; `scratch` takes what Spark writes besides."""
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    builder = SparkSession.builder.master("local[2]").appName("lab")
    settings = _SESSION | {
        "spark.local.dir": str(scratch / "local"),
        "spark.sql.warehouse.dir": str(scratch / "warehouse"),
    }
    for key, value in settings.items():
        builder = builder.config(key, value)
    spark = builder.getOrCreate()
    spark.sparkContext.setLogLevel("OFF")
    if SPARK >= (4, 0) and importlib.util.find_spec("pyarrow"):
        spark.dataSource.register(plans.counter_source())
    return spark


def settings_of(recipe: Recipe) -> dict[str, str]:
    """Return the session settings that make the recipe what it is."""
    settings = dict(recipe.confs)
    if recipe.provider.startswith("rocksdb"):
        settings[_STATE + "providerClass"] = _ROCKSDB_PROVIDER
        changelog = "true" if recipe.provider == "rocksdb-changelog" else "false"
        settings[_STATE + "rocksdb.changelogCheckpointing.enabled"] = changelog
    if recipe.state_format == 2:
        settings[_STATE + "checkpointFormatVersion"] = "2"
    if recipe.offset_log == 2:
        settings[_STREAMING + "offsetLog.formatVersion"] = "2"
    if recipe.named_sources:
        settings[_STREAMING + "queryEvolution.enableSourceEvolution"] = "true"
    if recipe.named_sink:
        settings[_STREAMING + "queryEvolution.enableSinkEvolution"] = "true"
    return settings


def writer(recipe: Recipe, frame: DataFrame, place: Path, failed: set[int]) -> DataStreamWriter:
    """Return the query's writer; `failed` remembers which batches have had their failure."""
    out = frame.writeStream.option("checkpointLocation", str(place / "checkpoint"))
    out = out.outputMode(plans.output_mode(recipe))
    if recipe.sink == "foreachBatch":

        def consume(batch: DataFrame, batch_id: int) -> None:
            batch.collect()
            if recipe.ending == "failed" and batch_id in set(FAILING_BATCHES) - failed:
                failed.add(batch_id)
                raise MeantToFail(str(batch_id))

        out = out.foreachBatch(consume)
    else:
        out = out.format(recipe.sink).queryName(recipe.name.replace("-", "_"))
    if recipe.sink in ("parquet", "json"):
        out = out.option("path", str(place / "out"))
    if recipe.ending == "async":
        out = out.option("asyncProgressTrackingEnabled", "true")
        out = out.option("asyncProgressTrackingCheckpointIntervalMs", "1000")
    if recipe.named_sink:
        # 4.3 has no Python method for it yet.
        out._jwrite.name("ledger")
    return out


def run(recipe: Recipe, out: DataStreamWriter) -> StreamingQuery:
    """Start the query, let it work through what there is, and return it ended."""
    if recipe.ending == "failed":
        query = out.start()
        try:
            query.awaitTermination()
        except StreamingQueryException as error:
            if MeantToFail.__name__ not in str(error):
                raise
    elif recipe.ending == "async":
        query = out.start()
        time.sleep(ASYNC_RUN_SECONDS)
        query.stop()
    elif "python" in recipe.source:
        # Under AvailableNow a Python source gives a single batch.
        query = out.start()
        query.processAllAvailable()
        query.stop()
    else:
        query = out.trigger(availableNow=True).start()
        query.awaitTermination()
    return query


def make(spark: SparkSession, recipe: Recipe, place: Path) -> None:
    """Make one recipe's checkpoint in `place`, which is emptied first."""
    shutil.rmtree(place, ignore_errors=True)
    place.mkdir(parents=True)
    settings = settings_of(recipe)
    for key, value in settings.items():
        spark.conf.set(key, value)
    expect = run_all(spark, recipe, place)
    for key in settings:
        spark.conf.unset(key)
    (place / "expect.json").write_text(json.dumps(expect, indent=1) + "\n")


def run_all(spark: SparkSession, recipe: Recipe, place: Path) -> dict[str, Any]:
    """Run the query, start it again from its checkpoint, and return what it reported."""
    batches: list[dict[str, Any]] = []
    failed: set[int] = set()
    query_ids = set()
    runs = RATE_RUNS if recipe.source == "rate" and recipe.ending == "clean" else RUNS
    for number in range(runs):
        frame = plans.frame(spark, recipe, place / "in", number)
        query = run(recipe, writer(recipe, frame, place, failed))
        query_ids.add(str(query.id))
        # Python's own progress objects differ from version to version, the JVM's JSON does not.
        events = [json.loads(event.json()) for event in query._jsq.recentProgress()]
        batches += [report(event, number) for event in events]
        if recipe.ending == "repartitioned" and number == 0:
            spark._streamingCheckpointManager.repartition(str(place / "checkpoint"), REPARTITIONED)
    (query_id,) = query_ids
    return {
        "recipe": recipe.name,
        "spark": pyspark.__version__,
        "query_id": query_id,
        "runs": runs,
        "shuffle_partitions": REPARTITIONED if recipe.ending == "repartitioned" else PARTITIONS,
        "stopped_cleanly": recipe.ending in ("clean", "repartitioned"),
        "last_batch": batches[-1]["batch"],
        "uncommitted_batch": max(failed, default=None),
        "batches": batches,
    }


def report(event: dict[str, Any], number: int) -> dict[str, Any]:
    """Return what a progress event says about its batch."""
    return {
        "batch": event["batchId"],
        "run": number,
        "rows": event["numInputRows"],
        "sources": [[source["startOffset"], source["endOffset"]] for source in event["sources"]],
        "operators": [
            {"name": operator["operatorName"], "state_rows": operator["numRowsTotal"]}
            for operator in event["stateOperators"]
        ],
        "event_time": event.get("eventTime", {}),
    }


def main() -> None:
    """Make the recipes that the command line asks for."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("out", type=Path)
    parser.add_argument("--only", help="names of recipes, separated by commas")
    arguments = parser.parse_args()
    names = {recipe.name for recipe in RECIPES}
    only = set(arguments.only.split(",")) if arguments.only else names
    if unknown := only - names:
        parser.error(f"no such recipe: {', '.join(sorted(unknown))}")
    out = arguments.out.resolve()
    with tempfile.TemporaryDirectory(prefix="lab-") as scratch:
        spark = session(Path(scratch))
        for recipe in RECIPES:
            if recipe.name not in only:
                continue
            if reason := unsupported(recipe):
                print(f"{recipe.name}: skipped, {reason}", flush=True)
                continue
            began = time.monotonic()
            make(spark, recipe, out / recipe.name)
            print(f"{recipe.name}: made in {time.monotonic() - began:.1f} s", flush=True)
        spark.stop()


if __name__ == "__main__":
    main()
