"""The logs of the file source and the file sink: the files that were read and written.

Both are compactible: every `interval`-th file is `N.compact` and repeats all entries so far, so
the newest compact file and the files after it hold all entries. Compact files grow forever and
reach gigabytes, so they are streamed, never loaded.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise

from sluicegate.checkpoint.format.log import (
    LogListing,
    count_lines,
    integer,
    parse_object,
    parse_version,
    stream_lines,
)
from sluicegate.errors import Corrupt
from sluicegate.storage import Storage

SINK_DIRECTORY = "_spark_metadata"
FILES_VERSION = 1


@dataclass(frozen=True, slots=True)
class SourceFile:
    """A file that the file source has read, and in which of its own log's batches."""

    path: str
    timestamp_ms: int
    batch: int


@dataclass(frozen=True, slots=True)
class SinkFile:
    """A file that the file sink has written (`add`) or deleted (`delete`)."""

    path: str
    size: int
    modified_ms: int
    action: str


@dataclass(frozen=True, slots=True)
class LogSize:
    """The size of a compactible log: its newest compact file and the entries after it."""

    entries: int
    compact_bytes: int


def needed_files(listing: LogListing) -> tuple[str, ...]:
    """The names of the files that together hold every entry, oldest first."""
    start = listing.last_compact
    after = [str(n) for n in listing.batches if start is None or n > start]
    return (*([] if start is None else [f"{start}.compact"]), *after)


def missing_numbers(listing: LogListing) -> list[range]:
    """The entries that reading the log back to its newest compact file needs and does not find.

    As ranges, because a stray name can be a huge number.
    """
    before = -1 if listing.last_compact is None else listing.last_compact
    after = [number for number in listing.batches if number > before]
    return [range(a + 1, b) for a, b in pairwise([before, *after]) if b > a + 1]


def read_source_files(storage: Storage, key: str) -> Iterator[SourceFile]:
    """The entries of one file of a file source's log."""
    place = f"{storage.uri}/{key}"
    for number, line in _entries(storage, key, place):
        where = f"{place}, line {number}"
        fields = parse_object(line, where)
        yield SourceFile(
            _path(fields.get("path"), where),
            integer(fields, "timestamp", where),
            integer(fields, "batchId", where),
        )


def read_sink_files(storage: Storage, key: str) -> Iterator[SinkFile]:
    """The entries of one file of a file sink's log."""
    place = f"{storage.uri}/{key}"
    for number, line in _entries(storage, key, place):
        where = f"{place}, line {number}"
        fields = parse_object(line, where)
        yield SinkFile(
            _path(fields.get("path"), where),
            integer(fields, "size", where),
            integer(fields, "modificationTime", where, default=0),
            str(fields.get("action", "add")),
        )


def measure(storage: Storage, directory: str, listing: LogListing) -> LogSize:
    """Count the entries of a log without parsing them."""
    entries = 0
    for name in needed_files(listing):
        with storage.open(f"{directory}/{name}") as stream:
            entries += count_lines(stream)
    compact = 0
    if listing.last_compact is not None:
        found = storage.stat(f"{directory}/{listing.last_compact}.compact")
        compact = found.size if found else 0
    return LogSize(entries, compact)


def _entries(storage: Storage, key: str, place: str) -> Iterator[tuple[int, str]]:
    with storage.open(key) as stream:
        lines = stream_lines(stream, place)
        parse_version(_decoded(next(lines), place), place, FILES_VERSION)
        for number, line in enumerate(lines, 2):
            if line:
                yield number, _decoded(line, place)


def _decoded(line: bytes, place: str) -> str:
    try:
        return line.decode()
    except UnicodeDecodeError as e:
        raise Corrupt(f"{place}: not UTF-8", place=place) from e


def _path(value: object, where: str) -> str:
    if not isinstance(value, str) or not value:
        raise Corrupt(f"{where}: the path is missing", place=where)
    return value
