"""The code that runs inside a PySpark application; the only place that imports PySpark.

    import sluicegate

    spark = SparkSession.builder.getOrCreate()
    sluicegate.commit_offsets(spark)
    reader = spark.readStream.format("kafka").option("subscribe", "orders")
    orders = reader.option("startingOffsets", sluicegate.starting_offsets(spark)).load()
    orders.writeStream.queryName("billing")…

started with `sluicegate submit --app job.py --offsets-store DIR --consumer billing`.
"""

from __future__ import annotations

from typing import Any

__all__ = ["OffsetsListener", "StreamJob", "commit_offsets", "starting_offsets"]
_HOMES = {
    "OffsetsListener": "listener",
    "StreamJob": "job",
    "commit_offsets": "listener",
    "starting_offsets": "listener",
}


def __getattr__(name: str) -> Any:
    """Imported when it is asked for: a task needs little of it."""
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)
