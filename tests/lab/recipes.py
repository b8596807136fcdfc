"""The checkpoints the lab makes: each recipe is one streaming query, healthy and restarted.

Imports nothing but the standard library, so that any environment's Python can read it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Query = Literal[
    "stateless",
    "aggregation",
    "dedup",
    "dedup-watermark",
    "dedup-aggregation",
    "join",
    "session",
    "limit",
    "total",
    "tws",
]
Provider = Literal["none", "hdfs", "rocksdb", "rocksdb-changelog"]
Sink = Literal["parquet", "json", "foreachBatch", "memory", "noop"]
Ending = Literal["clean", "failed", "async", "repartitioned"]


@dataclass(frozen=True, slots=True)
class Recipe:
    """One query to run, and how it ends.

    `source` names one source, or two joined by `+`. `named_sources` needs the offset log v2,
    `named_sink` makes the commit log v3. `confs` are session settings on top of the lab's own.
    `ending`: `failed` leaves one batch to replay, `async` leaves gaps in the logs.
    """

    name: str
    source: str
    query: Query
    provider: Provider
    sink: Sink
    state_format: Literal[1, 2] = 1
    offset_log: Literal[1, 2] = 1
    min_spark: tuple[int, int] = (3, 5)
    named_sources: bool = False
    named_sink: bool = False
    ending: Ending = "clean"
    confs: tuple[tuple[str, str], ...] = ()


_STREAMING = "spark.sql.streaming."
_SMALL_COMPACTION = (
    (_STREAMING + "fileSource.log.compactInterval", "3"),
    (_STREAMING + "fileSink.log.compactInterval", "3"),
)
# Purging begins after this many batches instead of 100, so the logs no longer start at 0.
_PURGED = ((_STREAMING + "minBatchesToRetain", "3"),)
_JOIN_V3 = ((_STREAMING + "join.stateFormatVersion", "3"),)
_JOIN_V4 = ((_STREAMING + "join.stateFormatVersion", "4"),)
_ZSTD = ((_STREAMING + "stateStore.compression.codec", "zstd"),)
_ROW_CHECKSUM = ((_STREAMING + "stateStore.rowChecksum.enabled", "true"),)

V4_0 = (4, 0)
V4_1 = (4, 1)
V4_2 = (4, 2)
V4_3 = (4, 3)

RECIPES = (
    Recipe("stateless-parquet", "file", "stateless", "none", "parquet"),
    Recipe("stateless-compact3", "file", "stateless", "none", "json", confs=_SMALL_COMPACTION),
    Recipe("stateless-failed", "rate", "stateless", "none", "foreachBatch", ending="failed"),
    Recipe("stateless-async", "rate", "stateless", "none", "noop", ending="async"),
    Recipe("stateless-python", "python", "stateless", "none", "foreachBatch", min_spark=V4_0),
    Recipe(
        "stateless-named",
        "file+rate",
        "stateless",
        "none",
        "parquet",
        offset_log=2,
        min_spark=V4_2,
        named_sources=True,
    ),
    Recipe("agg-hdfs", "file", "aggregation", "hdfs", "parquet"),
    Recipe("agg-hdfs-purged", "file", "aggregation", "hdfs", "noop", confs=_PURGED),
    Recipe("agg-hdfs-zstd", "rate", "aggregation", "hdfs", "memory", confs=_ZSTD),
    Recipe(
        "agg-hdfs-checksum",
        "file",
        "aggregation",
        "hdfs",
        "noop",
        offset_log=2,
        min_spark=V4_2,
        confs=_ROW_CHECKSUM,
    ),
    Recipe("agg-rocksdb", "file", "aggregation", "rocksdb", "memory"),
    Recipe(
        "agg-changelog-failed",
        "rate",
        "aggregation",
        "rocksdb-changelog",
        "foreachBatch",
        ending="failed",
    ),
    Recipe(
        "agg-changelog-purged", "file", "aggregation", "rocksdb-changelog", "noop", confs=_PURGED
    ),
    Recipe(
        "agg-rocksdb-f2", "file", "aggregation", "rocksdb", "noop", state_format=2, min_spark=V4_1
    ),
    Recipe(
        "agg-changelog-f2",
        "python",
        "aggregation",
        "rocksdb-changelog",
        "parquet",
        state_format=2,
        offset_log=2,
        min_spark=V4_2,
        named_sources=True,
    ),
    Recipe(
        "agg-rocksdb-f2-sink",
        "file",
        "aggregation",
        "rocksdb",
        "json",
        state_format=2,
        min_spark=V4_3,
        named_sink=True,
    ),
    Recipe(
        "agg-repartitioned",
        "file",
        "aggregation",
        "rocksdb-changelog",
        "noop",
        min_spark=V4_2,
        ending="repartitioned",
    ),
    Recipe("dedup-hdfs", "rate", "dedup", "hdfs", "foreachBatch"),
    Recipe("dedup-changelog", "file", "dedup", "rocksdb-changelog", "json"),
    Recipe(
        "dedup-rocksdb-f2-failed",
        "rate",
        "dedup",
        "rocksdb",
        "foreachBatch",
        ending="failed",
        state_format=2,
        min_spark=V4_1,
    ),
    Recipe("dedup-watermark-rocksdb", "file", "dedup-watermark", "rocksdb", "noop"),
    Recipe("dedup-agg-hdfs", "file", "dedup-aggregation", "hdfs", "noop"),
    Recipe("session-hdfs", "file", "session", "hdfs", "noop"),
    Recipe("limit-rocksdb", "file", "limit", "rocksdb", "noop"),
    Recipe("total-hdfs", "file", "total", "hdfs", "noop"),
    Recipe("join-hdfs", "file+file", "join", "hdfs", "parquet"),
    Recipe("join-rocksdb", "file+rate", "join", "rocksdb", "noop"),
    Recipe(
        "join-v3-changelog",
        "file+file",
        "join",
        "rocksdb-changelog",
        "noop",
        min_spark=V4_1,
        confs=_JOIN_V3,
    ),
    Recipe(
        "join-changelog-f2",
        "file+file",
        "join",
        "rocksdb-changelog",
        "noop",
        state_format=2,
        min_spark=V4_1,
    ),
    Recipe(
        "join-v4-f2-named",
        "file+file",
        "join",
        "rocksdb-changelog",
        "noop",
        state_format=2,
        offset_log=2,
        min_spark=V4_2,
        named_sources=True,
        confs=_JOIN_V4,
    ),
    Recipe("tws-rocksdb", "file", "tws", "rocksdb", "noop", min_spark=V4_0),
    Recipe(
        "tws-changelog-f2",
        "file",
        "tws",
        "rocksdb-changelog",
        "parquet",
        state_format=2,
        min_spark=V4_1,
    ),
)
