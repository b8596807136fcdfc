"""The kinds of checkpoints that the oracle damages: one streaming query each.

Imports nothing but the standard library, so that any environment's Python can read it.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Kind:
    """One query: what it reads, computes, keeps as state and writes.

    `source` is `file`, `rate`, `python` or `kafka` (a Python source whose offsets look like
    Kafka's), or two joined by `+`. `since` is the first version of Spark that can run it.
    """

    name: str
    source: str
    query: str
    provider: str
    sink: str
    state_format: int = 1
    offset_log: int = 1
    since: tuple[int, int] = (3, 5)
    named_sources: bool = False
    named_sink: bool = False
    is_async: bool = False
    confs: tuple[tuple[str, str], ...] = ()


_STREAMING = "spark.sql.streaming."
_SMALL_COMPACTION = (
    (_STREAMING + "fileSource.log.compactInterval", "3"),
    (_STREAMING + "fileSink.log.compactInterval", "3"),
)
_ROW_CHECKSUM = ((_STREAMING + "stateStore.rowChecksum.enabled", "true"),)
_JOIN_V3 = ((_STREAMING + "join.stateFormatVersion", "3"),)
_JOIN_V4 = ((_STREAMING + "join.stateFormatVersion", "4"),)

_4_0 = (4, 0)
_4_1 = (4, 1)
_4_2 = (4, 2)
_4_3 = (4, 3)
_ROCKSDB, _CHANGELOG = "rocksdb", "rocksdb-changelog"

KINDS = (
    Kind("file", "file", "stateless", "none", "parquet"),
    Kind("file-compact", "file", "stateless", "none", "json", confs=_SMALL_COMPACTION),
    Kind("file-batches", "file", "stateless", "none", "foreachBatch"),
    Kind("rate", "rate", "stateless", "none", "foreachBatch"),
    Kind("python", "python", "stateless", "none", "foreachBatch", since=_4_0),
    Kind("kafka", "kafka", "stateless", "none", "foreachBatch", since=_4_0),
    Kind(
        "named",
        "file+file",
        "union",
        "none",
        "json",
        offset_log=2,
        since=_4_3,
        named_sources=True,
        named_sink=True,
    ),
    # Spark allows it to few sinks, none of which keeps what it gets.
    Kind("async", "file", "stateless", "none", "noop", is_async=True),
    Kind("agg-hdfs", "file", "aggregation", "hdfs", "parquet"),
    Kind(
        "agg-hdfs-sums",
        "file",
        "aggregation",
        "hdfs",
        "foreachBatch",
        offset_log=2,
        since=_4_2,
        confs=_ROW_CHECKSUM,
    ),
    Kind("agg-rocksdb", "file", "aggregation", _ROCKSDB, "foreachBatch"),
    Kind("agg-changelog", "file", "aggregation", _CHANGELOG, "parquet"),
    Kind("agg-rocksdb-f2", "file", "aggregation", _ROCKSDB, "json", state_format=2, since=_4_1),
    Kind(
        "agg-changelog-f2",
        "file",
        "aggregation",
        _CHANGELOG,
        "parquet",
        state_format=2,
        since=_4_1,
        confs=_SMALL_COMPACTION,
    ),
    Kind("dedup-hdfs", "file", "dedup", "hdfs", "foreachBatch"),
    Kind("dedup-changelog", "file", "dedup", _CHANGELOG, "parquet"),
    Kind("join-hdfs", "file+file", "join", "hdfs", "parquet"),
    Kind("join-v3", "file+file", "join", _CHANGELOG, "foreachBatch", since=_4_1, confs=_JOIN_V3),
    Kind(
        "join-v4-f2",
        "file+file",
        "join",
        _CHANGELOG,
        "foreachBatch",
        state_format=2,
        since=_4_2,
        confs=_JOIN_V4,
    ),
    Kind("tws", "file", "tws", _ROCKSDB, "foreachBatch", since=_4_0),
    Kind("tws-f2", "file", "tws", _CHANGELOG, "parquet", state_format=2, since=_4_1),
    Kind("pandas", "file", "pandas", "hdfs", "foreachBatch"),
)


def kinds_of(version: str) -> tuple[Kind, ...]:
    """Return the kinds that a version of Spark can run."""
    spark = tuple(int(part) for part in version.split(".")[:2])
    return tuple(kind for kind in KINDS if kind.since <= spark)
