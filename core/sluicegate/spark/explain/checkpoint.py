"""Causes in the checkpoint: its logs, and its state files. Order counts.

Order counts: of several causes that fit one line, the first is taken. The texts were seen by
damaging real checkpoints and starting Spark 3.5, 4.0 and 4.3 on them.
"""

from __future__ import annotations

from sluicegate.checkpoint import rules
from sluicegate.spark.explain.environment import OPERATORS
from sluicegate.spark.explain.patterns import LAST_RESORT, VERIFY_DATA, Cause, Site

_LOG = "log"
_UNREADABLE = r"Failed to read log file \S{1,1024}"
_NOT_FOUND = r"Unable to find batch \S{1,1024}"
_JSON_CUT = (
    r"JsonEOFException",
    r"JsonParseException",
    r"MismatchedInputException",
    r"exception: Unexpected end-of-input",
)
_BATCH = r"\bbatch (?P<batch>\d{1,19}) doesn't exist"
# What our own barriers say, which Spark repeats.
_INTERRUPTED = (
    r"sluicegate: op-\d{1,19} \(\S{1,20}\) was interrupted; finish it with: "
    r"sluicegate checkpoint repair (?P<checkpoint>[^\s;]{1,1024})"
)
_NOT_COMPLETE = (
    r"sluicegate: this checkpoint is not complete; remove it and make it again: "
    r"rm -r (?P<checkpoint>[^\s;]{1,1024})"
)

_WRITE_ID = (
    "Write `metadata` anew with the original id, which older driver logs show as the query's id. "
    "A new id would make a sink that knows repeated batches by it write them twice."
)
_KEEP_SOURCE_LOG = (
    "Do not delete the source's log: it remembers which files were read. The lost entry can be "
    "rebuilt from path, time and batch id."
)
_KEEP_OFFSETS = (
    "Do not delete the offsets file: with a file source that loses rows without a word. It can be "
    "rewritten from the one before it."
)
_COMMIT_MAY_GO = (
    "No row is lost by this: without that commit file Spark runs the batch once more. With state "
    "format 2 a commit holds ids and has to be rewritten instead."
)
_REWRITE_GAP = (
    "The missing file can be rewritten, which loses nothing. Do not delete the newest one, even "
    "if Spark's message suggests it."
)

LOG_CAUSES = (
    Cause(
        rules.CHANGE_INTERRUPTED,
        "Finish it, or take it back with `sluicegate undo`. Until then Spark refuses on purpose; "
        "do not remove the offsets file that it cannot read.",
        "checkpoint repair {checkpoint}",
        texts=(_INTERRUPTED,),
        first=True,
    ),
    Cause(
        rules.COPY_INCOMPLETE,
        "Remove the directory and make it again: the log says how. The original is as it was. Do "
        "not remove the offsets file that Spark cannot read: it is what keeps the job from "
        "starting on a part of a checkpoint.",
        texts=(_NOT_COMPLETE,),
        first=True,
    ),
    Cause(
        rules.METADATA_MISSING,
        _WRITE_ID,
        classes=("STREAMING_CHECKPOINT_MISSING_METADATA_FILE",),
    ),
    Cause(
        rules.METADATA_DAMAGED,
        _WRITE_ID,
        texts=(r"Error reading stream metadata from (?P<checkpoint>\S{1,1024})/metadata",),
        family=_LOG,
    ),
    Cause(
        rules.METADATA_DAMAGED,
        _WRITE_ID,
        texts=(*_JSON_CUT, r"MappingException"),
        sites=(Site.METADATA,),
        family=_LOG,
    ),
    Cause(
        rules.UNKNOWN_VERSION,
        "Start the job with the Spark version that wrote the checkpoint, or a later one. If "
        "nobody changed the version, the first line of the file is damaged.",
        classes=("INVALID_LOG_VERSION", "INVALID_CHANGE_LOG_READER_VERSION"),
        texts=(r"UnsupportedLogVersion", r"(?:maximum|only) supported log version is v\d"),
    ),
    Cause(
        rules.SINK_LOG_GAP,
        "Readers may be missing rows already: audit that first. The lost entry can be rebuilt "
        "from the part files that no entry names.",
        "audit {checkpoint} --sink {sink}",
        texts=(
            rf"(?:{_UNREADABLE}|{_NOT_FOUND})/_spark_metadata/",
            r"/_spark_metadata/\d{1,19}\.compact doesn't exist",
        ),
        family=_LOG,
    ),
    Cause(
        rules.SINK_LOG_GAP,
        "Readers may be missing rows already: audit that first. The lost entry can be rebuilt "
        "from the part files that no entry names.",
        "audit {checkpoint} --sink {sink}",
        texts=(*_JSON_CUT, r"Incomplete log file"),
        sites=(Site.SINK,),
        family=_LOG,
    ),
    Cause(
        rules.SOURCE_LOG_GAP,
        _KEEP_SOURCE_LOG,
        texts=(
            rf"(?:{_UNREADABLE}|{_NOT_FOUND})/sources/",
            r"/sources/\S{1,200}\.compact doesn't exist",
        ),
        family=_LOG,
    ),
    Cause(
        rules.SOURCE_LOG_GAP,
        _KEEP_SOURCE_LOG,
        texts=(_BATCH, r"\bbatches \((?P<first>\d{1,19}), ", r"Incomplete log file", *_JSON_CUT),
        sites=(Site.SOURCE,),
        family=_LOG,
    ),
    Cause(
        rules.COMMIT_EMPTY,
        _COMMIT_MAY_GO,
        texts=(
            r"Incomplete log file in the offset commit log",
            rf"{_UNREADABLE}/commits/(?P<batch>\d{{1,19}})",
        ),
        family=_LOG,
    ),
    Cause(
        rules.COMMIT_EMPTY,
        _COMMIT_MAY_GO,
        texts=(*_JSON_CUT, r"Incomplete log file"),
        sites=(Site.COMMITS,),
        family=_LOG,
    ),
    Cause(
        rules.OFFSETS_EMPTY,
        _KEEP_OFFSETS,
        classes=("MALFORMED_LOG_FILE",),
        texts=(
            rf"{_UNREADABLE}/offsets/(?P<batch>\d{{1,19}})",
            r"There are \[0\] sources in the checkpoint offsets",
            r"Log file was malformed: failed to read correct log version",
        ),
        family=_LOG,
    ),
    Cause(
        rules.OFFSETS_EMPTY,
        _KEEP_OFFSETS,
        texts=(r"Incomplete log file", r"next on empty iterator", *_JSON_CUT),
        sites=(Site.OFFSETS,),
        bare=True,
        family=_LOG,
        also=(rules.COMMIT_EMPTY, rules.SOURCE_LOG_GAP, rules.METADATA_DAMAGED),
    ),
    Cause(
        rules.OFFSETS_GAP,
        _REWRITE_GAP,
        texts=(r"The offset log for batch (?P<batch>\d{1,19}) doesn't exist",),
        family=_LOG,
    ),
    Cause(
        rules.OFFSETS_GAP,
        _REWRITE_GAP,
        texts=(_BATCH,),
        sites=(Site.START,),
        bare=True,
        family=_LOG,
        also=(rules.SOURCE_LOG_GAP,),
    ),
    Cause(
        rules.OFFSETS_MISSING,
        "Restore offsets/ from a backup before the job is started again. Spark 3.5 and 4.0 have "
        "by now processed everything once more as batch 0: look for doubled rows.",
        texts=(r"Multiple streaming jobs detected for (?P<batch>0)\b",),
        also=(rules.WRITERS_TWO,),
    ),
    Cause(
        rules.OFFSETS_MISSING,
        "Restore offsets/ from a backup before the job is started again.",
        texts=(r"assertion failed(?: SQLSTATE|$)",),
        sites=(Site.START,),
        bare=True,
    ),
    Cause(
        rules.WRITERS_TWO,
        "Look for the other query: a driver that the cluster manager started again, a second "
        "deployment. Stop one of them; then have the checkpoint checked.",
        "status {checkpoint}",
        classes=("CONCURRENT_QUERY",),
        texts=(
            r"as another query with same id is already active",
            r"Multiple streaming queries are concurrently using",
            r"rename destination (?P<checkpoint>\S{1,1024})/metadata already exists",
        ),
    ),
    Cause(
        rules.WRITERS_TWO,
        "If verify finds the checkpoint sound, another query writes there: a driver that the "
        "cluster manager started again, a second deployment. Otherwise a batch is committed whose "
        "offsets file is gone.",
        classes=("CONCURRENT_STREAM_LOG_UPDATE",),
        texts=(r"Multiple streaming jobs detected for (?P<batch>\d{1,19})",),
        also=(rules.OFFSETS_BEHIND_COMMIT,),
    ),
    Cause(
        rules.COMMITS_BEHIND,
        "If commits were deleted to go back, that is no rewind: only the newest batch is run "
        "again. The way back is `sluicegate checkpoint rollback`.",
        texts=(r"latest batch id is \d{1,19}, which is not trailing batchid (?P<batch>\d{1,19})",),
        weak=True,
        family=LAST_RESORT,
    ),
)


_STATE = "state"
_NO_FILE = r"(?:FileNotFoundException|NoSuchFileException|NoSuchKey|No such file)"
# Partition 0 is in every query: its absence says nothing about the number of partitions.
_NO_FIRST_VERSION = (
    rf"(?:Error reading|{_NO_FILE}).{{1,1024}}/state/\d{{1,9}}/[1-9]\d{{0,8}}/"
    r"(?:[A-Za-z][\w-]{0,99}/)?1\.(?:delta|changelog)"
)
_ROLL_BACK = (
    "Have all state files decoded: that finds the last batch whose state still loads, to which "
    "the checkpoint can be rolled back."
)

STATE_CAUSES = (
    Cause(
        rules.REPARTITION_HALF_DONE,
        "With the job down, that one offsets file must go; then the job starts with the partitions "
        "it had.",
        classes=(
            "STREAMING_UNFINISHED_REPARTITION_DETECTED",
            "STATE_REPARTITION_INVALID_CHECKPOINT",
        ),
    ),
    Cause(
        rules.CRC_STALE,
        "If the file decodes to its end, the checksum beside it is stale and may go; if not, the "
        "file is damaged, and the way out is a rollback.",
        VERIFY_DATA,
        classes=("CHECKPOINT_FILE_CHECKSUM_VERIFICATION_FAILED",),
        family=_STATE,
    ),
    Cause(
        rules.CRC_HIDDEN,
        "If the file was edited by hand, its hidden `.crc` is stale and may go; if not, the file "
        "is damaged, and the way out is a rollback.",
        VERIFY_DATA,
        texts=(r"ChecksumException: Checksum error: (?P<path>\S{1,1024})",),
        family=_STATE,
    ),
    Cause(
        rules.STATE_CORRUPT,
        _ROLL_BACK,
        VERIFY_DATA,
        classes=(
            "CANNOT_READ_DELTA_FILE_KEY_SIZE",
            "CANNOT_READ_SNAPSHOT_FILE_KEY_SIZE",
            "CANNOT_READ_SNAPSHOT_FILE_VALUE_SIZE",
            "CANNOT_READ_CHECKPOINT",
            "UNEXPECTED_FILE_SIZE",
            "AUTO_SNAPSHOT_REPAIR_FAILED",
            "STATE_STORE_ROW_CHECKSUM_VERIFICATION_FAILED",
        ),
        texts=(
            r"Error reading (?:delta|snapshot) file \S{1,1024} of .{1,999}(?:key|value) size",
            r"Copied \S{1,1024} to .{1,999}, expected \d{1,19} bytes, found \d{1,19} bytes",
            r"RocksDBException: (?:Corruption|block checksum mismatch|Bad table magic number)",
        ),
        family=_STATE,
    ),
    Cause(
        rules.STATE_CORRUPT,
        _ROLL_BACK,
        VERIFY_DATA,
        texts=(
            r"Stream is corrupted",
            r"\b(?:LZ4|EOF|Zip|Mapping|ZstdIO)Exception",
            r"exception: Stream ended prematurely",
            r"NoSuchFileException: \S{1,1024}/metadata",
        ),
        sites=(Site.STATE, Site.SCHEMA),
        bare=True,
        family=_STATE,
    ),
    Cause(
        rules.PARTITIONS_CHANGED,
        "This partition has no state at all. Either spark.sql.shuffle.partitions was raised in "
        "the offset log by hand, or the partition's directory is lost, or another state store "
        "provider wrote it: verify tells which.",
        texts=(_NO_FIRST_VERSION,),
        weak=True,
        family=_STATE,
        also=(rules.STATE_MISSING, rules.COMMIT_EMPTY),
    ),
    Cause(
        rules.STATE_MISSING,
        "Restore the file from a backup if there is one. Otherwise roll back to the last batch "
        "whose state loads, which verify finds.",
        classes=(
            "CANNOT_READ_DELTA_FILE_NOT_EXISTS",
            "CANNOT_READ_MISSING_SNAPSHOT_FILE",
            "CANNOT_READ_STREAMING_STATE_FILE",
            "CANNOT_FIND_BASE_SNAPSHOT_CHECKPOINT",
            "INVALID_CHECKPOINT_LINEAGE",
            "SNAPSHOT_PARTITION_ID_NOT_FOUND",
        ),
        texts=(
            r"Error reading (?:delta|snapshot|streaming state) file .{1,2048} does not exist",
            rf"{_NO_FILE}.{{1,1024}}/state/\d{{1,9}}/\d{{1,9}}/",
        ),
        family=_STATE,
    ),
    Cause(
        rules.STATE_MISSING,
        "If state/ was deleted, restore it from a backup. If the query was given a stateful "
        "operator that it did not have before, it needs a fresh checkpoint.",
        classes=("STREAMING_STATEFUL_OPERATOR_MISSING_STATE_DIRECTORY",),
        family=_STATE,
        also=(OPERATORS,),
    ),
    Cause(
        rules.STATE_CORRUPT,
        "The log does not say why the state cannot be loaded; look for `Caused by` in the "
        "executors' logs. Verify finds missing and damaged state files without them.",
        VERIFY_DATA,
        classes=("CANNOT_LOAD_STATE_STORE",),
        texts=(r"An error occurred during loading state",),
        weak=True,
        family=_STATE,
        also=(rules.STATE_MISSING,),
    ),
)
