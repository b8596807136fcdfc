"""What can be wrong with a Spark checkpoint: every finding code, in one place."""

from __future__ import annotations

from sluicegate.findings import Severity, rule

OFFSETS_EMPTY = rule(
    "SG-OFFSETS-EMPTY",
    Severity.ERROR,
    "an offsets file that Spark will read is empty or cut",
    "Spark reads the newest two offsets files when it starts and fails on one that it cannot "
    "parse. Rewriting it from its neighbour with the true end offset loses nothing. Deleting it is "
    "not the same: with a file source the next batch merges files that the sink may already have.",
)
OFFSETS_GAP = rule(
    "SG-OFFSETS-GAP",
    Severity.ERROR,
    "the offsets file before the newest is missing",
    "Spark needs the newest offsets file and the one before it, and stops with `batch N-1 doesn't "
    "exist`. Rewriting the missing one loses nothing.",
)
OFFSETS_GAP_OLD = rule(
    "SG-OFFSETS-GAP-OLD",
    Severity.NOTE,
    "an older offsets file is missing",
    "Spark does not read it again, and with asynchronous progress tracking such gaps are normal. "
    "A rollback to a batch inside the gap is not possible.",
)
OFFSETS_MISSING = rule(
    "SG-OFFSETS-MISSING",
    Severity.ERROR,
    "there are no offsets files, but there are commits or state",
    "Spark 3.5 and 4.0 would process everything again as batch 0 and then fail; 4.3 stops with an "
    "assertion. Restore offsets/ from a backup before the job is started.",
)
OFFSETS_BEHIND_COMMIT = rule(
    "SG-OFFSETS-BEHIND-COMMIT",
    Severity.ERROR,
    "a batch is committed but its offsets file is missing",
    "Spark runs the batch before it again and then fails with CONCURRENT_STREAM_LOG_UPDATE. Either "
    "the commit goes too, or the offsets file is rewritten.",
)
COMMIT_EMPTY = rule(
    "SG-COMMIT-EMPTY",
    Severity.ERROR,
    "the newest commit file is empty or cut",
    "Spark stops with `Incomplete log file in the offset commit log`. Deleting it makes Spark run "
    "that batch again, which is normal; a version 2 commit can be rewritten, because its ids are "
    "in the names of the state files.",
)
COMMITS_BEHIND = rule(
    "SG-COMMITS-BEHIND",
    Severity.WARNING,
    "more than one batch is not committed",
    "Spark runs only the newest of them again, so this is not a rewind: what the others wrote is "
    "taken as written. It is normal with asynchronous progress tracking.",
)
METADATA_MISSING = rule(
    "SG-METADATA-MISSING",
    Severity.ERROR,
    "the file `metadata` with the query id is missing",
    "Spark 4.2 and later refuse to start. 3.5 and 4.0 take a new query id in silence, and a sink "
    "that recognises repeated batches by query id then writes them twice. Rewrite it with the "
    "original id.",
)
METADATA_DAMAGED = rule(
    "SG-METADATA-DAMAGED",
    Severity.ERROR,
    "the file `metadata` cannot be read",
    'It should hold `{"id":"<uuid>"}`. Rewrite it with the original id, which the driver log '
    "shows as the query's id.",
)
STATE_MISSING = rule(
    "SG-STATE-MISSING",
    Severity.ERROR,
    "a state file is missing that the next start needs",
    "The state of the last committed batch cannot be loaded (`CANNOT_LOAD_STATE_STORE`): a delta, "
    "changelog, zip or SST file of its chain is gone, and no newer snapshot covers it. Roll back "
    "to the last batch whose state loads.",
)
STATE_METADATA = rule(
    "SG-STATE-METADATA",
    Severity.WARNING,
    "the description of a stateful operator is damaged",
    "The metadata file of an operator cannot be read, or a schema file that it names is not there. "
    "Spark compares it with the query when it starts.",
)
UNREADABLE = rule(
    "SG-CHECKPOINT-UNREADABLE",
    Severity.ERROR,
    "a part of the checkpoint cannot be read",
    "The operating system refuses (permission, I/O error), or there is a file where a directory "
    "belongs, or a symbolic link, which is not followed.",
)
STATE_CORRUPT = rule(
    "SG-STATE-CORRUPT",
    Severity.ERROR,
    "a state file is damaged",
    "Its content does not decode to the end (`Stream is corrupted`, `EOFException`). Roll back to "
    "the last batch whose state loads.",
)
STATE_OLD_DAMAGED = rule(
    "SG-STATE-OLD-DAMAGED",
    Severity.WARNING,
    "a state file that the next start does not need is damaged",
    "A newer snapshot covers it, or it belongs to older batches. The job starts; a rollback to "
    "those batches would fail.",
)
STATE_TAIL = rule(
    "SG-STATE-TAIL",
    Severity.WARNING,
    "a state file is damaged behind its last record",
    "All records are there and Spark loads the file, because it does not look further. Something "
    "has cut or overwritten its end, though, and may have touched other files.",
)
STATE_AHEAD = rule(
    "SG-STATE-AHEAD",
    Severity.ERROR,
    "there is state of batches that the log does not have",
    "Left from a rollback that did not remove it. All looks right until a later restart loads a "
    "stale snapshot of the abandoned timeline and counts twice. State files above the newest batch "
    "must go (state format 1; format 2 is immune).",
)
SOURCE_LOG_GAP = rule(
    "SG-SOURCE-LOG-GAP",
    Severity.ERROR,
    "an entry of the file source's log is missing or cut",
    "The file source remembers which files it has read. Spark stops with `batch N doesn't exist` "
    "or `N.compact doesn't exist`. The entry can be rebuilt from path, time and batch id.",
)
SOURCE_LOG_AHEAD = rule(
    "SG-SOURCE-LOG-AHEAD",
    Severity.ERROR,
    "the file source's log is ahead of the offsets",
    "An offsets file was deleted and the source's log was not trimmed. The next batch merges those "
    "files, and if the sink has already committed that batch id, their rows are lost without a "
    "word. Trim the source's log to the newest offset.",
)
SOURCE_LOG_UNPLANNED = rule(
    "SG-SOURCE-LOG-UNPLANNED",
    Severity.WARNING,
    "the file source's log has entries that no batch has planned",
    "Normal after a crash while a batch was being planned: the next batch takes those files along. "
    "But if an offsets file was deleted by hand and the sink already has that batch, their rows "
    "will be lost; give the sink to be sure.",
)
SINK_LOG_GAP = rule(
    "SG-SINK-LOG-GAP",
    Severity.ERROR,
    "an entry of the file sink's log is missing or cut",
    "Readers of the output silently drop the rows of that batch, and the query dies at the next "
    "compaction. The entry can be rebuilt from the part files that no entry names.",
)
SINK_NO_LOG = rule(
    "SG-SINK-NO-LOG",
    Severity.WARNING,
    "the sink directory has no file sink log",
    "There is no `_spark_metadata` in it: it is not the output of Spark's file sink, but of "
    "another kind of sink, or a wrong path; or the log was removed, and readers then also see the "
    "files of failed batches.",
)
SINK_UNLISTED = rule(
    "SG-SINK-UNLISTED",
    Severity.WARNING,
    "the output holds files that the sink's log does not name",
    "Spark's readers do not see their rows. After a failed batch that is right; if an entry was "
    "lost, rows are missing.",
)
SINK_MISSING_FILE = rule(
    "SG-SINK-MISSING-FILE",
    Severity.ERROR,
    "the sink's log names a file that is not there",
    "Readers of the output fail or lose the rows of that file.",
)
SINK_AHEAD = rule(
    "SG-SINK-AHEAD",
    Severity.ERROR,
    "the sink has committed batches that the checkpoint does not know",
    "The query will use those batch ids again, and the sink will skip them as already written: "
    "rows are lost without a word. This follows a fresh checkpoint into an old sink, or a rollback "
    "without its sink.",
)
PARTITIONS_CHANGED = rule(
    "SG-PARTITIONS-CHANGED",
    Severity.ERROR,
    "the number of shuffle partitions does not match the state",
    "The offset log's `spark.sql.shuffle.partitions` differs from the partitions the state has. "
    "More partitions make Spark fail; fewer silently lose rows.",
)
PATHS_MOVED = rule(
    "SG-PATHS-MOVED",
    Severity.WARNING,
    "the checkpoint refers to paths elsewhere",
    "Absolute paths in it point outside of where it now lies: it was moved or is a copy. Reading "
    "a copy is fine; starting a job on it is not, before it has been relocated.",
)
TEMPORARY_FILES = rule(
    "SG-TEMPORARY-FILES",
    Severity.NOTE,
    "temporary files of crashed writes are lying around",
    "Spark ignores them. They may also be a write in progress, if the job runs.",
)
COMPACT_GROWTH = rule(
    "SG-COMPACT-GROWTH",
    Severity.WARNING,
    "a compact log file is growing large",
    "File sources and sinks carry every file they ever saw into each compact file, so batches "
    "become slower over time. Source: set maxFileAge; sink: `retention`, or another table format.",
)
CRC_STALE = rule(
    "SG-CRC-STALE",
    Severity.ERROR,
    "a file does not match the checksum beside it",
    "The visible `X.crc` of state format 2 does not match X, and Spark stops on it. Either X is "
    "damaged or the checksum is stale.",
)
CRC_HIDDEN = rule(
    "SG-CRC-HIDDEN",
    Severity.WARNING,
    "a hidden Hadoop checksum does not match its file",
    "Spark does not check `.X.crc` when it reads its logs, but does for SST files and ordinary "
    "reads. The file was edited by hand, or it is damaged.",
)
UNKNOWN_VERSION = rule(
    "SG-UNKNOWN-VERSION",
    Severity.WARNING,
    "a log has a version that this release does not know",
    "Written by a newer Spark. What cannot be understood is not judged; upgrade Sluicegate.",
)
REPARTITION_HALF_DONE = rule(
    "SG-REPARTITION-HALF-DONE",
    Severity.ERROR,
    "an offline repartition was not finished",
    "Spark's own repartition wrote the next offsets file with a new partition count and then "
    "failed before the state was rewritten (it cannot rewrite the HDFS provider's state). Delete "
    "that offsets file.",
)
CHANGE_INTERRUPTED = rule(
    "SG-CHANGE-INTERRUPTED",
    Severity.ERROR,
    "an operation of Sluicegate was interrupted",
    "A repair, rollback or reset was killed half-way. Spark refuses to start, because the newest "
    "offsets file is Sluicegate's barrier and no log entry. Nothing is lost: the operation can be "
    "finished with `sluicegate checkpoint repair`, or taken back with `sluicegate undo`.",
)
COPY_INCOMPLETE = rule(
    "SG-COPY-INCOMPLETE",
    Severity.ERROR,
    "the checkpoint is a part of one: making it was interrupted",
    "`sluicegate checkpoint seed` or `relocate`, or a change with `--into`, was killed before the "
    "new directory was complete. Spark refuses to start from it, because the newest offsets file "
    "is Sluicegate's barrier and no log entry. Remove the directory and make it again; the "
    "original is as it was.",
)
LOG_SUM_LEFT = rule(
    "SG-LOG-SUM-LEFT",
    Severity.ERROR,
    "the checksum of a deleted log entry is left",
    "An entry of a log was deleted by hand, and Hadoop's hidden `.N.crc` of it was not. Spark "
    "cannot write that entry again: the query dies with `Multiple streaming queries are "
    "concurrently using` or CONCURRENT_STREAM_LOG_UPDATE. The checksum must go, too.",
)
WRITERS_TWO = rule(
    "SG-WRITERS-TWO",
    Severity.ERROR,
    "two queries write to one checkpoint",
    "A second query ran one batch again, then one of the two died on the log file the other had "
    "written. Find the other one and stop it before anything is repaired.",
)
