"""A query over the source in Java, for every version of Spark: `versions.py CHECKPOINT NAME LAST`.

Ends by itself once the batch LAST is committed.
"""

from __future__ import annotations

import sys
import time
from pathlib import Path

from pyspark.sql import SparkSession

import sluicegate


def main(checkpoint: str, name: str, last: str) -> None:
    spark = SparkSession.builder.config("spark.ui.enabled", "false").getOrCreate()
    sluicegate.commit_offsets(spark)
    start = sluicegate.starting_offsets(spark)
    print(f"starts at {start}", flush=True)
    query = (
        spark.readStream.format("Events")
        .option("start", start)
        .load()
        .writeStream.queryName(name)
        .format("noop")
        .option("checkpointLocation", checkpoint)
        .trigger(processingTime="500 milliseconds")
        .start()
    )
    while query.isActive and not Path(checkpoint, "commits", last).exists():
        time.sleep(0.1)
    query.stop()
    # Listeners are called a moment later.
    time.sleep(1)
    spark.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])
