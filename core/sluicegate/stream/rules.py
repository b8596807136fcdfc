"""The rules that `verify` checks for gated streams."""

from __future__ import annotations

from sluicegate.findings import Severity, rule

HEAD_DAMAGED = rule(
    "SG-CHAIN-HEAD-DAMAGED",
    Severity.ERROR,
    "the HEAD hint is missing or damaged",
    "The file `HEAD` names the newest durable snapshot. Without it, the loss of a snapshot at the "
    "end of the chain would go unnoticed, so no job starts. After `sluicegate checkpoint repair`, "
    "the stream resumes from the newest snapshot that is there, as a new generation.",
)
SHORT = rule(
    "SG-CHAIN-SHORT",
    Severity.ERROR,
    "the chain ends before the newest snapshot that was known to be durable",
    "`HEAD`, or what the home remembers of the stream, names a snapshot that is not there: "
    "snapshots were deleted, or an old backup was restored. Restore the missing files if you can. "
    "After `sluicegate checkpoint repair`, the stream resumes from the newest snapshot that is "
    "there, under a number that was never used; events committed after it are read again.",
)
FOREIGN = rule(
    "SG-CHAIN-FOREIGN",
    Severity.ERROR,
    "stream identity mismatch",
    "The home remembers a stream of this name with another identity. The directory was replaced. "
    "Restore the right directory. If the old stream is abandoned, remove the hint that the message "
    "names.",
)
SNAPSHOT_DAMAGED = rule(
    "SG-CHAIN-SNAPSHOT-DAMAGED",
    Severity.ERROR,
    "a snapshot is missing or damaged",
    "The file of a snapshot is missing, cannot be read, does not match its checksum, or is not the "
    "one that its successor names as its parent. If it is the newest, the stream cannot resume; an "
    "older one only cannot be restored. `sluicegate checkpoint repair` appends a snapshot that "
    "records the damage, and the stream resumes from that snapshot.",
)
ORDER = rule(
    "SG-CHAIN-ORDER",
    Severity.ERROR,
    "a number that must only grow has decreased",
    "Generation, version of the assignment, epoch or creation time of a snapshot is lower than its "
    "parent's. No writer of this release makes such a snapshot.",
)
BELOW_FLOOR = rule(
    "SG-CHAIN-BELOW-FLOOR",
    Severity.NOTE,
    "pruned snapshots are still there",
    "A prune was interrupted before it removed all files. The next prune removes them.",
)
REPAIRED = rule(
    "SG-CHAIN-REPAIRED",
    Severity.NOTE,
    "damage that a repair has recorded",
    "These snapshots are damaged, missing or refer to damaged blobs, and a repair has recorded "
    "that in the chain. The stream does not need them, but it cannot be rolled back to them.",
)
BLOB_DAMAGED = rule(
    "SG-BLOB-DAMAGED",
    Severity.ERROR,
    "a blob is missing or damaged",
    "A file that snapshots refer to is missing, has another size, or does not match the digest in "
    "its name. Every snapshot that refers to it is unusable. Restore the blob from a backup if you "
    "can. Otherwise run `sluicegate checkpoint repair`: the stream then resumes from the newest "
    "complete snapshot.",
)
ORPHANS = rule(
    "SG-BLOB-ORPHANS",
    Severity.NOTE,
    "blobs that nothing refers to",
    "Attempts that were never committed left them. They are removed when they are a day old.",
)
UNREADABLE = rule(
    "SG-STREAM-UNREADABLE",
    Severity.ERROR,
    "a file of the stream cannot be read",
    "The operating system refuses to read it (permission, I/O error). It may be intact: nothing is "
    "discarded or repaired before it can be read.",
)
TEMPORARY = rule(
    "SG-STREAM-TEMPORARY",
    Severity.NOTE,
    "unfinished files of writers that died",
    "They were never part of the stream, and are removed when they are a day old.",
)
