"""The directory of a log: its files, and the errors for damaged ones.

    sluicegate.log                         the marker: incarnation, topic, partitions at creation
    partition-<p>/<base, 20 digits>.jsonl  a segment: the records from offset `base` on
    partition-<p>/writer.lock              held while a writer appends to the partition

The first segment is made with the partition, so a partition without one is unfinished or has lost
its records: the partitions that the marker counts must have one.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from shlex import quote

from sluicegate.errors import Corrupt, Fenced, NotFound, UsageError
from sluicegate.identity import Marker
from sluicegate.storage import Storage, validate_name

MARKER = Marker("sluicegate.log", "log", "an embedded log")
MAKE = "Log.create(DIRECTORY)"
LOCK = "writer.lock"
MAX_PARTITIONS = 65536
_PARTITION = re.compile(r"partition-(0|[1-9][0-9]{0,9})", re.ASCII)
_SEGMENT = re.compile(r"([0-9]{20})\.jsonl", re.ASCII)
_MAX_BASE = 2**63 - 1


class LogDamaged(Corrupt):
    """A file of a log is missing, or does not match its name."""

    default_hint = "nothing was changed; restore the log's directory from a backup"


class LogReplaced(Fenced):
    """The log was replaced by another one, whose offsets mean other records."""

    default_hint = "restore the log that was there, or begin a new stream on the new one"


class OutOfRange(NotFound):
    """Records that a log does not hold: trimmed away, or not written yet."""

    default_hint = "show the offsets it holds with: sluicegate offsets lag STREAM"


@dataclass(frozen=True, slots=True)
class Identity:
    """The content of a log's marker."""

    incarnation: str
    topic: str
    partitions: int


def read_marker(storage: Storage) -> Identity:
    """Which log this is; `NotFound` if it is none, `Corrupt` if its marker is damaged."""
    mark = MARKER.read(storage, make=MAKE)
    match mark.more:
        case {"topic": str(topic), "partitions": int(count)} if 1 <= count <= MAX_PARTITIONS:
            return Identity(mark.id, topic, count)
    place = f"{storage.uri}/{MARKER.name}"
    raise LogDamaged(f"{place}: it lacks its topic or number of partitions", place=place)


def check_shape(topic: str, partitions: int) -> None:
    """Refuse a topic or a number of partitions that no log can have."""
    validate_name(topic, "topic")
    if type(partitions) is not int or not 1 <= partitions <= MAX_PARTITIONS:
        raise UsageError(
            f"{partitions!r} is not a number of partitions",
            hint=f"a log has 1 to {MAX_PARTITIONS} of them",
        )


def partition_name(partition: int) -> str:
    """The directory of a partition."""
    return f"partition-{partition}"


def segment_key(partition: int, base: int) -> str:
    """A segment's file."""
    return f"partition-{partition}/{base:020d}.jsonl"


def list_partitions(storage: Storage) -> list[int]:
    """The partitions that have a directory, ascending."""
    found = []
    for entry in storage.list():
        match = _PARTITION.fullmatch(entry.name)
        if match and entry.kind != "directory":
            place = f"{storage.uri}/{entry.name}"
            raise LogDamaged(f"{place} is not a directory", place=place)
        if match:
            found.append(int(match[1]))
    return sorted(found)


def list_segments(storage: Storage, partition: int) -> list[int]:
    """The bases of a partition's segments, ascending; none if it was not finished."""
    found = []
    for entry in storage.list(partition_name(partition)):
        if not entry.name.endswith(".jsonl"):
            continue
        match = _SEGMENT.fullmatch(entry.name)
        place = f"{storage.uri}/{partition_name(partition)}/{entry.name}"
        if match is None or int(match[1]) > _MAX_BASE:
            raise LogDamaged(f"{place} is not named by an offset, as segments are", place=place)
        if entry.kind != "file":
            raise LogDamaged(f"{place} is not a regular file", place=place)
        found.append(int(match[1]))
    return found


def refuse_foreign(storage: Storage) -> None:
    """Refuse to make a log where something else is, or where a log lost its marker."""
    shown = quote(storage.uri)
    for entry in storage.list():
        if entry.name == MARKER.name:
            # Another process has just made the log.
            return
        match = _PARTITION.fullmatch(entry.name)
        if match is None:
            raise UsageError(
                f"{storage.uri} is not an embedded log, and not empty: it has {entry.name!a:.80}",
                hint="name a new or empty directory",
                place=storage.uri,
            )
        bases = list_segments(storage, int(match[1])) if entry.kind == "directory" else [1]
        first = storage.stat(segment_key(int(match[1]), 0)) if bases == [0] else None
        if (bases not in ([], [0]) or (first and first.size)) and not storage.stat(MARKER.name):
            raise LogDamaged(
                f"{storage.uri} holds records, but the marker {MARKER.name} is missing",
                hint=f"restore {shown}/{MARKER.name} from a backup",
                place=storage.uri,
            )
