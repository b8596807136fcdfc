"""What `explain` is tried on: expectations for the real logs, messages, and their wrappings.

The logs were written by Spark 3.5.9, 4.0.5 and 4.3.0 on damaged copies of real checkpoints, then
shortened, and their paths made neutral. Messages that no log has are from Spark's own tables of
error conditions, its Kafka source, and Kafka's client.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

LOGS = Path(__file__).parent / "logs"
REAL_LOGS = {
    name: (code, command)
    for line in (LOGS / "expected.txt").read_text().splitlines()
    for name, code, command in (line.split(" ", 2),)
}

_SITE = "\tat org.apache.spark.sql.execution.streaming."
_MORE = "\t... 20 more\n"
_PATH = "file:/data/orders/checkpoint"

_MALFORMED = "Log file was malformed: failed to read correct log version from "

DAMAGE = [
    # our own barriers
    (
        (
            f"java.lang.IllegalStateException: {_MALFORMED}sluicegate: op-1 (rollback) was "
            "interrupted; finish it with: sluicegate checkpoint repair /data/orders/checkpoint; "
            "or take it back with: sluicegate undo /data/orders/checkpoint."
        ),
        "SG-CHANGE-INTERRUPTED",
    ),
    (
        (
            f"java.lang.IllegalStateException: {_MALFORMED}sluicegate: this checkpoint is not "
            "complete; remove it and make it again: rm -r /new/orders; sluicegate checkpoint "
            "relocate /data/orders/checkpoint /new/orders."
        ),
        "SG-COPY-INCOMPLETE",
    ),
    # newest offsets file empty or cut
    (f"Failed to read log file {_PATH}/offsets/4. Incomplete log file", "SG-OFFSETS-EMPTY"),
    ("java.lang.IllegalStateException: Incomplete log file", "SG-OFFSETS-EMPTY"),
    ("com.fasterxml.jackson.core.io.JsonEOFException: Unexpected end", "SG-OFFSETS-EMPTY"),
    ("exception: Unexpected end-of-input in field name", "SG-OFFSETS-EMPTY"),
    (
        (
            "assertion failed: There are [0] sources in the checkpoint offsets and now there are "
            "[1] sources requested by the query. Cannot continue."
        ),
        "SG-OFFSETS-EMPTY",
    ),
    ("java.util.NoSuchElementException: next on empty iterator", "SG-OFFSETS-EMPTY"),
    # offsets N deleted while commits N exists, or two writers
    (
        (
            "[CONCURRENT_STREAM_LOG_UPDATE] Concurrent update to the log. Multiple streaming jobs "
            "detected for 3.\nPlease make sure only one streaming job runs."
        ),
        "SG-WRITERS-TWO",
    ),
    ("Multiple streaming jobs detected for 30.", "SG-WRITERS-TWO"),
    # offsets N-1 missing
    ("java.lang.IllegalStateException: batch 3 doesn't exist", "SG-OFFSETS-GAP"),
    ("The offset log for batch 118 doesn't exist, which is required", "SG-OFFSETS-GAP"),
    # all offsets missing
    ("java.lang.AssertionError: assertion failed", "SG-OFFSETS-MISSING"),
    ("Concurrent update to the log. Multiple streaming jobs detected for 0.", "SG-OFFSETS-MISSING"),
    # newest commit empty
    ("Incomplete log file in the offset commit log", "SG-COMMIT-EMPTY"),
    (
        (
            "JsonEOFException: Unexpected\n"
            f"{_SITE}checkpointing.CommitMetadata$.apply(CommitLog.scala:1)"
        ),
        "SG-COMMIT-EMPTY",
    ),
    (
        (
            f"a.b.Wrapped: x\n{_SITE}checkpointing.CommitLog.deserialize(CommitLog.scala:1)\n"
            f"Caused by: a.b.JsonEOFException: y\n{_MORE}"
        ),
        "SG-COMMIT-EMPTY",
    ),
    # metadata missing
    (
        (
            f"[STREAMING_CHECKPOINT_MISSING_METADATA_FILE] Checkpoint location {_PATH} is in an "
            "inconsistent state: the metadata file is missing"
        ),
        "SG-METADATA-MISSING",
    ),
    (f"Error reading stream metadata from {_PATH}/metadata", "SG-METADATA-DAMAGED"),
    # state file missing
    (
        (
            "[CANNOT_LOAD_STATE_STORE.CANNOT_READ_DELTA_FILE_NOT_EXISTS] An error occurred during "
            f"loading. Error reading delta file {_PATH}/state/0/0/3.delta of H: does not exist"
        ),
        "SG-STATE-MISSING",
    ),
    (
        f"Error reading streaming state file of {_PATH}/state/0/1/4.changelog does not exist. If",
        "SG-STATE-MISSING",
    ),
    (f"java.io.FileNotFoundException: No such file {_PATH}/state/0/1/9.zip", "SG-STATE-MISSING"),
    # state file corrupt
    ("java.io.IOException: Stream is corrupted", "SG-STATE-CORRUPT"),
    ("java.io.EOFException: Stream ended prematurely", "SG-STATE-CORRUPT"),
    (
        (
            "[CANNOT_LOAD_STATE_STORE.UNCATEGORIZED] An error occurred during loading state.\n"
            f"{_SITE}state.RocksDBStateStoreProvider.getStore(R.scala:1)\n"
            f"Caused by: java.io.EOFException\n{_MORE}"
        ),
        "SG-STATE-CORRUPT",
    ),
    (f"[CHECKPOINT_FILE_CHECKSUM_VERIFICATION_FAILED] File: {_PATH}/state/0/0/5", "SG-CRC-STALE"),
    # sources/0 entry lost or cut
    (f"{_PATH}/sources/0/2.compact doesn't exist (latestId: 4)", "SG-SOURCE-LOG-GAP"),
    (
        (
            "java.lang.IllegalStateException: batch 4 doesn't exist\n"
            f"{_SITE}checkpointing.HDFSMetadataLog$.verifyBatchIds(HDFSMetadataLog.scala:1)\n"
            f"{_SITE}runtime.FileStreamSourceLog.get(FileStreamSourceLog.scala:1)"
        ),
        "SG-SOURCE-LOG-GAP",
    ),
    # _spark_metadata entry lost
    ("[BATCH_METADATA_NOT_FOUND] Unable to find batch /o/_spark_metadata/4.", "SG-SINK-LOG-GAP"),
    ("/data/out/_spark_metadata/9.compact doesn't exist (latestId: 12)", "SG-SINK-LOG-GAP"),
    # shuffle.partitions edited by hand
    (f"FileNotFoundException: File {_PATH}/state/0/2/1.delta does not", "SG-PARTITIONS-CHANGED"),
    ("[STREAMING_UNFINISHED_REPARTITION_DETECTED] The latest", "SG-REPARTITION-HALF-DONE"),
]

OTHERS = [
    ("Some data may have been lost because they are not available", "SG-KAFKA-DATA-LOSS"),
    (
        (
            "org.apache.kafka.clients.consumer.OffsetOutOfRangeException: Fetch position "
            "FetchPosition{offset=5} is out of range for partition orders-0"
        ),
        "SG-KAFKA-DATA-LOSS",
    ),
    ("Offsets out of range with no configured reset policy for partitions", "SG-KAFKA-DATA-LOSS"),
    ("Cannot fetch offset 17 (GroupId: g, TopicPartition: orders-0)", "SG-KAFKA-DATA-LOSS"),
    ("Could not read records in offset [5, 9) for topic", "SG-KAFKA-DATA-LOSS"),
    (
        (
            "java.lang.IllegalStateException: Partition orders-0's offset was changed from 78 to "
            "0, some data may have been missed.\nSome data may have been lost because they are not "
            'available in Kafka any more; set the source option "failOnDataLoss" to "false".'
        ),
        "SG-KAFKA-OFFSETS-BACK",
    ),
    ("Cannot find earliest offsets of Set(orders-1). Some", "SG-KAFKA-PARTITIONS-GONE"),
    ("Set(orders-1) are gone. Some data may have been missed.", "SG-KAFKA-PARTITIONS-GONE"),
    ("Some of partitions in Kafka topic(s) have been lost", "SG-KAFKA-PARTITIONS-GONE"),
    ("org.apache.kafka.x.UnknownTopicOrPartitionException: This", "SG-KAFKA-PARTITIONS-GONE"),
    ("specific offsets, you must specify all TopicPartitions.", "SG-KAFKA-START-OFFSETS"),
    ("Timed out waiting for a node assignment. Call: describe", "SG-KAFKA-UNREACHABLE"),
    ("KafkaException: No resolvable bootstrap urls given", "SG-KAFKA-UNREACHABLE"),
    ("Timeout of 60000ms expired before the position for partition", "SG-KAFKA-UNREACHABLE"),
    ("org.apache.kafka.common.errors.TimeoutException: Call(x)", "SG-KAFKA-UNREACHABLE"),
    ("Bootstrap broker b:9092 (id: -1 rack: null) disconnected", "SG-KAFKA-UNREACHABLE"),
    ("JsonParseException: Unexpected character", "SG-OFFSETS-EMPTY"),
    ("MismatchedInputException: No content to map due to end-of-input", "SG-OFFSETS-EMPTY"),
    (f"Failed to read log file {_PATH}/sources/0/4. Incomplete log file", "SG-SOURCE-LOG-GAP"),
    ("exception: Stream ended prematurely", "SG-STATE-CORRUPT"),
    ("Multiple streaming queries are concurrently using /data/x", "SG-WRITERS-TWO"),
    ("UnsupportedLogVersion: maximum supported log version is v1, but", "SG-UNKNOWN-VERSION"),
    (
        "Error reading delta file /c/state/0/0/1.delta of H: key size cannot be -7",
        "SG-STATE-CORRUPT",
    ),
    ("org.rocksdb.RocksDBException: Corruption: block", "SG-STATE-CORRUPT"),
    ("java.io.IOException: Disk quota exceeded", "SG-STORAGE-FULL"),
    ("org.apache.hadoop.hdfs.DSQuotaExceededException: The", "SG-STORAGE-FULL"),
    ("AccessControlException: Permission denied: user=spark", "SG-STORAGE-DENIED"),
    ("java.nio.file.AccessDeniedException: s3a://b/c: 403", "SG-STORAGE-DENIED"),
    ("java.lang.OutOfMemoryError: Java heap space", "SG-RUNTIME-MEMORY"),
    ("ModuleNotFoundError: No module named 'pandas'", "SG-RUNTIME-PACKAGE"),
    ("Could not initialize class org.rocksdb.RocksDB", "SG-RUNTIME-ROCKSDB"),
    ("java.lang.NoClassDefFoundError: org/rocksdb/Options", "SG-RUNTIME-ROCKSDB"),
    ("RocksDB instance could not be acquired by [ThreadId: 1]", "SG-RUNTIME-STATE-BUSY"),
    ("Cannot change timeMode from A to B between restarts.", "SG-QUERY-SETTINGS"),
    ("StateSchemaNotCompatible: Provided schema doesn't match", "SG-QUERY-STATE-SCHEMA"),
    ("streaming query failed by state format invalidation.", "SG-QUERY-STATE-SCHEMA"),
    ("PATH_NOT_FOUND] Path does not exist: file:/data/in.", "SG-INPUT-MISSING"),
]

ABBREVIATED = [
    (
        "java.io.EOFException\n\tat java.io.DataInputStream.readInt(DataInputStream.java:1)\n"
        "\tat org.example.Client.read(Client.java:1)"
    ),
    (
        "java.io.IOException: Stream is corrupted\n\tat net.jpountz.lz4.L.read(L.java:1)\n"
        "\tat org.apache.spark.storage.ShuffleBlockFetcherIterator.next(S.scala:1)\n"
        f"{_SITE}state.StateStore$.get(StateStore.scala:1)"
    ),
    "com.fasterxml.jackson.core.io.JsonEOFException: x\n\tat org.example.Job.parse(Job.java:1)",
    (
        "java.io.FileNotFoundException: File file:/data/lookup.csv does not exist\n"
        "\tat org.example.Job.main(Job.java:1)"
    ),
    "26/11/16 05:00:01 INFO Log: batch 3 doesn't exist\n  the rest of it: batch 3 doesn't exist",
    (
        "26/11/16 05:00:01 WARN FileStreamSink: Assume no metadata directory. Error while looking\n"
        f"java.io.FileNotFoundException: File {_PATH}/state/0/0/3.delta does not exist"
    ),
]

HEALTHY = (
    "26/11/16 05:00:01 INFO MicroBatchExecution: Committed offsets for batch 4.\n"
    "26/11/16 05:00:02 WARN ResolveWriteToStream: spark.sql.adaptive.enabled is not supported.\n"
    "26/11/16 05:00:03 WARN HDFSBackedStateStoreProvider: The state for version 5 doesn't exist "
    "in loadedMaps. Reading snapshot file and delta files if needed...\n"
    "26/11/16 05:00:04 INFO MicroBatchExecution: Streaming query made progress\n"
)


def uuid_of(letter: str) -> str:
    """A query's id."""
    return "-".join(letter * n for n in (8, 4, 4, 4, 12))


def started(letter: str, directory: str) -> str:
    """The line with which Spark starts a query."""
    return (
        f"26/11/16 05:00:00 INFO MicroBatchExecution: Starting q [id = {uuid_of(letter)}, runId = "
        f"{uuid_of('0')}]. Use {directory} to store the query checkpoint.\n"
    )


def _foreach(message: str) -> str:
    proxy = "An exception was raised by the Python Proxy. Return Message: Traceback (most recent"
    return (
        f"26/11/16 05:00:00 ERROR MicroBatchExecution: Query q [id = {uuid_of('a')}, runId = "
        f"{uuid_of('0')}] terminated with error\n"
        "org.apache.spark.sql.execution.streaming.sources.ForeachBatchUserFuncException: "
        "[FOREACH_BATCH_USER_FUNCTION_ERROR] An error occurred in the user provided function in "
        f"foreach batch sink. Reason: {proxy} call last):\n"
        '  File "/opt/jobs/orders.py", line 49, in <lambda>\n'
        "py4j.protocol.Py4JJavaError: An error occurred while calling o487.collectToPython.\n"
        f": org.apache.spark.SparkException: {message}\n\n SQLSTATE: 39000\n"
        "\tat org.apache.spark.sql.execution.streaming.sources.ForeachBatchSink.addBatch(F.scala)\n"
        f"Caused by: py4j.Py4JException: {proxy} call last):\n"
        f": org.apache.spark.SparkException: {message}\n"
    )


def _structured(message: str) -> str:
    thrown = {"class": "java.lang.Exception", "msg": message, "stacktrace": []}
    return json.dumps({"level": "ERROR", "msg": "Query terminated", "exception": thrown})


def _each_line(message: str, form: Callable[[str], str]) -> str:
    return "".join(form(line) + "\n" for line in message.split("\n"))


WRAPPINGS: dict[str, Callable[[str], str]] = {
    "bare": lambda m: m,
    "log4j": lambda m: f"26/11/16 05:00:01 ERROR MicroBatchExecution: {m}\n",
    "caused by": lambda m: f"org.apache.spark.SparkException: Job aborted\nCaused by: {m}\n",
    "streaming query": lambda m: (
        "pyspark.errors.exceptions.captured.StreamingQueryException: [STREAM_FAILED] Query [id = "
        f"{uuid_of('a')}, runId = {uuid_of('0')}] terminated with exception: {m}"
    ),
    "foreachBatch": _foreach,
    "foreachBatch in one line": lambda m: f"[FOREACH_BATCH_USER_FUNCTION_ERROR] Reason: {m}",
    "colours": lambda m: f"\x1b[0;31mPy4JJavaError\x1b[0m: \x1b[1m{m}\x1b[0m",
    "structured": _structured,
    "container": lambda m: _each_line(m, lambda line: json.dumps({"log": line + "\n"})),
    "kubernetes": lambda m: _each_line(m, lambda line: f"2026-11-16T05:10:37.320Z stderr F {line}"),
    "quoted": lambda m: _each_line(m, lambda line: f"> {line}"),
    "other line ends": lambda m: m.replace("\n", "\r\n") + "\r\n",
}
