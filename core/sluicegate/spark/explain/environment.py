"""Causes outside the checkpoint: storage, memory, a changed query, the job's own function.

Only a log shows them, so they have log patterns and no checks. If several patterns match one line,
the first is taken: order matters.
"""

from __future__ import annotations

from sluicegate.findings import LAST_RESORT, LogPattern, Severity, Site, rule

_INSPECT = "checkpoint inspect {checkpoint}"
_OTHER_SOURCES = (
    r"There are \[(?P<sources>\d{1,9})\] sources in the checkpoint offsets and now there are "
    r"\[(?P<sources_now>\d{1,9})\]"
)
_NOT_RESUMABLE = (
    r"does not support recovering from checkpoint location"
    r"(?:\. Delete (?P<checkpoint>\S{1,1024})/offsets)?"
)

FULL = rule(
    "SG-STORAGE-FULL",
    Severity.ERROR,
    "the disk or quota under the checkpoint is full",
    "Spark could not write a log or state file and the query ended. Files that were being written "
    "may be left empty or cut, and then stop the next start too.",
    LogPattern(
        "Free some space first. Then verify the checkpoint before the job is started: a file may "
        "have been cut.",
        texts=(r"No space left on device", r"Disk quota exceeded", r"QuotaExceededException"),
        first=True,
    ),
)
DENIED = rule(
    "SG-STORAGE-DENIED",
    Severity.ERROR,
    "the job may not read or write a file that it needs",
    "Permission denied, a read-only file system or an object store's refusal ended the query. "
    "Nothing is damaged: once access is restored, the job resumes where it stopped.",
    LogPattern(
        "Compare the owner and mode of the path with the user the job runs as, or the bucket's "
        "policy with its role; then start the job again.",
        texts=(
            r"[eE]xception: (?P<path>\S{1,1024}) \((?:Permission denied|Read-only file system)\)",
            r"AccessControlException",
            r"AccessDeniedException",
            r"Permission denied: user=",
        ),
        first=True,
    ),
    LogPattern(
        "Check that the checkpoint's directory is writable, then start the job again.",
        classes=("STREAMING_CHECKPOINT_LOG_WRITE_FAILURE",),
        weak=True,
        first=True,
    ),
)
SCHEME = rule(
    "SG-STORAGE-SCHEME",
    Severity.ERROR,
    "Spark has no file system for the checkpoint's address",
    "The scheme is misspelt, or the library for it (hadoop-aws, hadoop-azure, …) is not among the "
    "job's packages. The query did not start.",
    LogPattern(
        "Correct the address, or add the library to the job's packages.",
        "doctor",
        texts=(
            r"No FileSystem for scheme",
            r"ClassNotFoundException: Class org\.apache\.hadoop\.fs\.",
        ),
    ),
    LogPattern(
        "Correct the address, or add the library to the job's packages.",
        "doctor",
        classes=("CANNOT_LOAD_CHECKPOINT_FILE_MANAGER",),
        weak=True,
    ),
)
MEMORY = rule(
    "SG-RUNTIME-MEMORY",
    Severity.ERROR,
    "the job ran out of memory",
    "The HDFS state store keeps all state in the executors' heap; RocksDB keeps it on local disk. "
    "Nothing committed is lost: Spark runs the batch again.",
    LogPattern(
        "Give the executors more memory, or add executors. A query with much state should use "
        "RocksDB, which needs a fresh checkpoint.",
        _INSPECT,
        classes=("HDFS_STORE_PROVIDER_OUT_OF_MEMORY", "ROCKSDB_STORE_PROVIDER_OUT_OF_MEMORY"),
        texts=(r"java\.lang\.OutOfMemoryError",),
        first=True,
    ),
)
PACKAGE = rule(
    "SG-RUNTIME-PACKAGE",
    Severity.ERROR,
    "the job's Python lacks a package",
    "The Python that runs the driver or the workers (spark.pyspark.python, PYSPARK_PYTHON) cannot "
    "import a module that the job needs. It may be another Python than the one that starts the "
    "job. The checkpoint is not touched.",
    LogPattern(
        "Install the package for that Python on every host that runs tasks, or start the job with "
        "a Python that has it: --conf spark.pyspark.python=PYTHON.",
        "doctor",
        texts=(r"ModuleNotFoundError: No module named '(?P<module>[\w.]{1,200})'",),
    ),
)
ROCKSDB = rule(
    "SG-RUNTIME-ROCKSDB",
    Severity.ERROR,
    "RocksDB's native library cannot be loaded",
    "It is unpacked into java.io.tmpdir and loaded from there: the directory is mounted noexec or "
    "full, or the library does not fit the C library or processor. The checkpoint is not touched.",
    LogPattern(
        "Point java.io.tmpdir of driver and executors to a directory that is neither noexec nor "
        "full (-Djava.io.tmpdir=… in spark.*.extraJavaOptions).",
        "doctor",
        texts=(
            r"UnsatisfiedLinkError: \S{0,1024}rocksdb",
            r"Could not initialize class org\.(?:apache\.spark\S{1,99}RocksDB|rocksdb)",
            r"NoClassDefFoundError: org/rocksdb",
        ),
    ),
)
BUSY = rule(
    "SG-RUNTIME-STATE-BUSY",
    Severity.WARNING,
    "a state store was still held by another task",
    "An earlier attempt of the same task had not released its RocksDB instance. The next start "
    "usually succeeds.",
    LogPattern(
        "Start the job again. If the error returns, look for tasks that hang or run twice "
        "(spark.speculation).",
        _INSPECT,
        classes=("UNRELEASED_THREAD_ERROR",),
        texts=(r"RocksDB instance could not be acquired by",),
    ),
)
SCHEMA = rule(
    "SG-QUERY-STATE-SCHEMA",
    Severity.ERROR,
    "the query's keys or values no longer fit its state",
    "Columns or types of a stateful operator were changed since the checkpoint was written. Spark "
    "refuses to start rather than misread the state; the state itself is intact.",
    LogPattern(
        "Revert the change, and the job continues. If the change is intended, it needs a fresh "
        "checkpoint, seeded at the old one's offsets. Do not switch the schema check off.",
        _INSPECT,
        classes=(
            "STATE_STORE_KEY_SCHEMA_NOT_COMPATIBLE",
            "STATE_STORE_VALUE_SCHEMA_NOT_COMPATIBLE",
            "STATE_STORE_COLUMN_FAMILY_SCHEMA_INCOMPATIBLE",
            "STATE_STORE_INVALID_VALUE_SCHEMA_EVOLUTION",
            "STATE_STORE_INVALID_VARIABLE_TYPE_CHANGE",
            "STATE_STORE_VALUE_SCHEMA_EVOLUTION_THRESHOLD_EXCEEDED",
            "STATE_STORE_KEY_ROW_FORMAT_VALIDATION_FAILURE",
            "STATE_STORE_VALUE_ROW_FORMAT_VALIDATION_FAILURE",
            "KEY_ROW_FORMAT_VALIDATION_FAILURE",
            "VALUE_ROW_FORMAT_VALIDATION_FAILURE",
        ),
        texts=(
            r"StateSchemaNotCompatible",
            r"Provided (?:key |value )?schema doe?s?n(?:'t| not) match",
            r"failed by state format invalidation",
        ),
    ),
)
OPERATORS = rule(
    "SG-QUERY-OPERATORS",
    Severity.ERROR,
    "the query's stateful operators were changed",
    "An aggregation, join or dropDuplicates was added, removed or exchanged since the checkpoint "
    "was written. Spark refuses to start; the state itself is intact.",
    LogPattern(
        "Revert the change, and the job continues. If the change is intended, it needs a fresh "
        "checkpoint, seeded at the old one's offsets.",
        _INSPECT,
        classes=("STREAMING_STATEFUL_OPERATOR_NOT_MATCH_IN_STATE_METADATA",),
    ),
)
SETTINGS = rule(
    "SG-QUERY-SETTINGS",
    Severity.ERROR,
    "a setting was changed that a checkpoint fixes permanently",
    "The state store's provider, format or layout is chosen when a checkpoint is made. Spark "
    "refuses to start with another one.",
    LogPattern(
        "Set it back to the checkpoint's value; inspect shows the fixed settings.",
        _INSPECT,
        classes=(
            "STATE_STORE_INVALID_CONFIG_AFTER_RESTART",
            "STATE_STORE_INVALID_PROVIDER",
            "STATE_CHECKPOINT_FORMAT_VERSION_MISMATCH",
            "STREAM_STREAM_JOIN_INCOMPATIBLE_STATE_STORE_CONFIGS",
            "CANNOT_ENABLE_ON_EXISTING_CHECKPOINT",
        ),
        texts=(r"Cannot change \S{1,200} from .{1,400} between restarts",),
    ),
)
SOURCES = rule(
    "SG-QUERY-SOURCES",
    Severity.ERROR,
    "the query's sources are not those of the checkpoint",
    "A source was added, removed or replaced by one of another kind since the checkpoint was "
    "written. Spark matches offsets to sources by their order and refuses to start.",
    LogPattern(
        "Restore the previous sources of the query, in their order. A source of another kind needs "
        "a fresh checkpoint, seeded at the offsets it should start from.",
        _INSPECT,
        texts=(_OTHER_SOURCES, r"No usable value for logOffset"),
    ),
)
SINK = rule(
    "SG-QUERY-SINK",
    Severity.ERROR,
    "the sink cannot resume from a checkpoint",
    "The memory and console sinks keep nothing, so Spark refuses to start them on a checkpoint "
    "that has batches. Deleting its offsets, as Spark suggests, loses the position.",
    LogPattern(
        "Use a sink that can resume, or give this one its own checkpoint. Do not delete the "
        "offsets of a checkpoint that another job uses.",
        _INSPECT,
        texts=(_NOT_RESUMABLE,),
    ),
)
PARTLY_READ = rule(
    "SG-QUERY-BATCH-PARTLY-READ",
    Severity.ERROR,
    "foreachBatch did not read its entire batch",
    "show(), limit() or take() inside foreachBatch leave partitions unread, whose state is then "
    "not written. Spark 4.1 and later refuse to commit such a batch.",
    LogPattern(
        "Read the entire batch in foreachBatch (persist() it first, then show or count), and "
        "start the job again.",
        _INSPECT,
        classes=("STATE_STORE_COMMIT_VALIDATION_FAILED",),
    ),
)
INPUT = rule(
    "SG-INPUT-MISSING",
    Severity.ERROR,
    "an input file or directory is gone",
    "A file that the source has listed was deleted or moved before it was read, or the directory "
    "it reads is missing. Spark stops at each start until it is restored; rows of files that are "
    "not restored are lost.",
    LogPattern(
        "Restore the file, or find out what deletes files before they are read. Only if losing its "
        "rows is acceptable: spark.sql.files.ignoreMissingFiles=true for one start.",
        texts=(
            r"NOT_EXIST\] Encountered error while reading file (?P<path>\S{1,1024}?)\.(?:\s|$)",
            r"SparkFileNotFoundException: File (?P<path2>\S{1,1024}) does not exist",
            r"PATH_NOT_FOUND\] Path does not exist: (?P<path22>\S{1,1024}?)\.(?:\s|$)",
        ),
    ),
    LogPattern(
        "Restore the file, or find out what deletes files before they are read. Only if losing its "
        "rows is acceptable: spark.sql.files.ignoreMissingFiles=true for one start.",
        texts=(r"FileNotFoundException: File (?P<path>\S{1,1024}) does not exist",),
        sites=(Site.INPUT,),
    ),
)
FUNCTION = rule(
    "SG-QUERY-FUNCTION",
    Severity.ERROR,
    "the job's own function raised an error",
    "The function given to foreachBatch or foreach, or a stateful processor, failed. The batch is "
    "not committed, and Spark runs it again at the next start: rows that the function had already "
    "written are written twice unless it checks the batch id.",
    LogPattern(
        "Fix the function or its environment, then start the job again. The checkpoint is intact.",
        _INSPECT,
        classes=(
            "FOREACH_BATCH_USER_FUNCTION_ERROR",
            "FOREACH_USER_FUNCTION_ERROR",
            "FLATMAPGROUPSWITHSTATE_USER_FUNCTION_ERROR",
            "TRANSFORM_WITH_STATE_USER_FUNCTION_ERROR",
        ),
        texts=(r"An exception was raised by the Python Proxy",),
        weak=True,
        family=LAST_RESORT,
    ),
)
