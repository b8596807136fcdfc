"""A query that runs until it is stopped: `python running.py DIRECTORY`.

Stateful, with a file sink and tiny batches, so that every log of its checkpoint moves quickly.
Runs with the bare Python of any environment that has PySpark.
"""

from __future__ import annotations

import sys
from pathlib import Path

from pyspark.sql import SparkSession
from pyspark.sql.functions import col, window

CONFS = {
    "spark.ui.enabled": "false",
    "spark.sql.shuffle.partitions": "2",
    "spark.sql.streaming.minBatchesToRetain": "5",
    "spark.sql.streaming.stateStore.minDeltasForSnapshot": "3",
    "spark.sql.streaming.stateStore.maintenanceInterval": "500ms",
    "spark.sql.streaming.fileSink.log.compactInterval": "4",
    "spark.sql.streaming.fileSource.log.compactInterval": "4",
}


def main(root: Path) -> None:
    """Run until killed."""
    builder = SparkSession.builder.master("local[2]")
    for name, value in CONFS.items():
        builder = builder.config(name, value)
    spark = builder.getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    read = spark.readStream.format("rate").option("rowsPerSecond", 50).load()
    counted = (
        read.withWatermark("timestamp", "1 second")
        .groupBy(window("timestamp", "1 second"), (col("value") % 5).alias("key"))
        .count()
    )
    query = (
        counted.writeStream.format("json")
        .option("path", str(root / "out"))
        .option("checkpointLocation", str(root / "checkpoint"))
        .start()
    )
    query.awaitTermination()


if __name__ == "__main__":
    main(Path(sys.argv[1]))
