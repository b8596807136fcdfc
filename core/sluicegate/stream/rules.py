"""What can be wrong with a gated stream."""

from __future__ import annotations

from sluicegate.findings import Severity, rule

HEAD_DAMAGED = rule(
    "SG-CHAIN-HEAD-DAMAGED",
    Severity.ERROR,
    "the HEAD hint is missing or damaged",
    "The file `HEAD` names the newest snapshot that was durable. Without it, a snapshot that was "
    "lost at the end of the chain cannot be noticed, so no job starts. `sluicegate checkpoint "
    "repair` goes on from the newest snapshot that is there, as a new generation.",
)
SHORT = rule(
    "SG-CHAIN-SHORT",
    Severity.ERROR,
    "the chain ends before the newest snapshot that was known to be durable",
    "`HEAD`, or what the home remembers of the stream, names a snapshot that is not there: "
    "snapshots were deleted, or an old backup was restored. If the missing files can be brought "
    "back, do that. `sluicegate checkpoint repair` goes on from the newest snapshot that is there, "
    "under a number above all that were ever used; what was committed after it is read again.",
)
FOREIGN = rule(
    "SG-CHAIN-FOREIGN",
    Severity.ERROR,
    "this is another stream than the one that belongs here",
    "The home remembers a stream of this name with another identity. The directory was replaced. "
    "Put the right one back; if the old stream is given up for good, remove the hint that the "
    "message names.",
)
SNAPSHOT_DAMAGED = rule(
    "SG-CHAIN-SNAPSHOT-DAMAGED",
    Severity.ERROR,
    "a snapshot is missing or damaged",
    "The file of a snapshot is missing, cannot be read, does not match its checksum, or is not the "
    "one that its successor names as its parent. If it is the newest, the stream cannot go on; if "
    "it is an older one, only going back to it is impossible. `sluicegate checkpoint repair` "
    "appends a snapshot that says so, from which the stream goes on.",
)
ORDER = rule(
    "SG-CHAIN-ORDER",
    Severity.ERROR,
    "a number that only grows went back",
    "Generation, version of the assignment, epoch or creation time of a snapshot is lower than its "
    "parent's. No writer of this release makes such a snapshot.",
)
BELOW_FLOOR = rule(
    "SG-CHAIN-BELOW-FLOOR",
    Severity.NOTE,
    "snapshots below the floor are still there",
    "A prune was interrupted before it removed everything it gave up. The next one removes it.",
)
REPAIRED = rule(
    "SG-CHAIN-REPAIRED",
    Severity.NOTE,
    "damage that a repair has dealt with",
    "These snapshots are damaged, missing or refer to damaged blobs, and a repair has said so in "
    "the chain. The stream does not need them; it only cannot go back to them.",
)
BLOB_DAMAGED = rule(
    "SG-BLOB-DAMAGED",
    Severity.ERROR,
    "a blob is missing or damaged",
    "A file that snapshots refer to is missing, has another size, or does not match the digest in "
    "its name. Every snapshot that refers to it is unusable. `sluicegate checkpoint repair` goes "
    "on from the newest snapshot that is whole; if the blob can be restored from a backup, do "
    "that instead.",
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
    "The operating system refuses to read it (permission, I/O error). It may be well: nothing is "
    "judged, given up or repaired before it can be read.",
)
TEMPORARY = rule(
    "SG-STREAM-TEMPORARY",
    Severity.NOTE,
    "unfinished files of writers that died",
    "They were never part of the stream, and are removed when they are a day old.",
)
