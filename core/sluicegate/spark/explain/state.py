"""Causes in the checkpoint's state files. Order counts, and the texts are real, as in `logs`."""

from __future__ import annotations

from sluicegate.spark import rules
from sluicegate.spark.explain.cause import VERIFY_DATA, Cause, Site
from sluicegate.spark.explain.outside import OPERATORS

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
