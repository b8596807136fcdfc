"""The files of a log: its directory, its marker, and its segments with their newline index.

    sluicegate.log                         the marker: incarnation, topic, partitions at creation
    partition-<p>/<base, 20 digits>.jsonl  a segment: the records from offset `base` on
    partition-<p>/writer.lock              held while a writer appends to the partition

The first segment is made with the partition, so a partition without one is unfinished or has lost
its records: the partitions that the marker counts must have one.

Counts stay valid, because segments only grow and complete records are never removed. So the marks
are kept for the life of the process: opening the log again, or polling it, only reads what is new.
One byte is checked before a mark is used, in case the file was replaced.
"""

from __future__ import annotations

import os
import re
from bisect import bisect_left, bisect_right
from collections import OrderedDict
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from shlex import quote
from threading import Lock
from types import TracebackType
from typing import Self

from sluicegate.errors import Corrupt, Fenced, UsageError
from sluicegate.identity import Marker
from sluicegate.sources.base import OutOfRange
from sluicegate.storage import Storage, validate_name
from sluicegate.storage.local import Translated

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


MAX_RECORD = 16 << 20
"""Most bytes of one record, its newline included."""
_SKIP = 1 << 20
_RECORD = 256
_SLACK = 1 << 16


@dataclass(frozen=True, slots=True)
class Piece:
    """Records `first` to `first + count - 1` of a partition: complete lines with newlines."""

    first: int
    count: int
    data: bytes


class Segment:
    """A segment that is open for reading, for the length of a `with` block."""

    def __init__(self, storage: Storage, incarnation: str, partition: int, base: int) -> None:
        name = segment_key(partition, base)
        self._base = base
        self._place = Path(storage.uri, name)
        self._stream = storage.open(name)
        self._fd = self._stream.fileno()
        found = os.fstat(self._fd)
        self._size = found.st_size
        self._key = incarnation, partition, base, found.st_dev, found.st_ino
        self._marks = marks_of(self._key)

    def __enter__(self) -> Self:
        if self._size < self._marks.size or not self._begins_record(self._marks.size):
            self._stream.close()
            forget(self._key)
            raise self._damaged(
                f"was replaced or truncated: it had {self._marks.size} bytes before"
            )
        return self

    def __exit__(
        self, _type: object, _error: BaseException | None, _traceback: TracebackType | None
    ) -> None:
        self._stream.close()
        remember(self._key, self._marks)

    def count(self, up_to: int | None = None) -> int:
        """How many complete records it holds; with `up_to`, perhaps only as many as those."""
        if up_to is None or self._marks.count < up_to:
            with Translated(self._place):
                self._marks = count_on(self._fd, self._size, self._marks, up_to)
        return self._marks.count

    @property
    def counted_bytes(self) -> int:
        """The size of the counted records."""
        return self._marks.size

    def read(self, start: int, end: int, max_bytes: int, until: int | None) -> Iterator[Piece]:
        """The records from `start` to before `end`; `until` is where the next segment begins."""
        record, at = self._marks.before(start - self._base)
        offset = self._base + record
        while offset < start:
            count, data = self._lines(at, _SKIP, start - offset)
            self._refuse_end(count, offset, until)
            offset, at = offset + count, at + len(data)
        while offset < end:
            size = self._bytes_to(end, offset, at, max_bytes)
            count, data = self._lines(at, size, end - offset)
            self._refuse_end(count, offset, until)
            yield Piece(offset, count, data)
            offset, at = offset + count, at + len(data)
            self._marks = self._marks.with_mark(offset - self._base, at)
        if offset == until and at != self._size:
            raise self._damaged(f"has records beyond {until}, where the next begins")

    def _lines(self, at: int, size: int, most: int) -> tuple[int, bytes]:
        """The number of complete lines at a place, and their bytes: about `size`, or one line."""
        while True:
            with Translated(self._place):
                data = os.pread(self._fd, size, at)
            if found := data.count(NEWLINE):
                break
            if len(data) < size:
                return 0, b""
            if size >= MAX_RECORD:
                raise self._damaged(f"byte {at}: a record over {MAX_RECORD} bytes")
            size, most = min(size * 4, MAX_RECORD), 1
        if found <= most:
            return found, data[: data.rfind(NEWLINE) + 1]
        return most, data[: nth_end(data, most)]

    def _bytes_to(self, end: int, offset: int, at: int, max_bytes: int) -> int:
        """How much to read at once: up to the end if its place is known, else an estimate."""
        records, places = self._marks.records, self._marks.places
        known = bisect_left(records, end - self._base)
        if known < len(records):
            return max(1, min(max_bytes, places[known] - at))
        average = self._marks.size // self._marks.count + 1 if self._marks.count else _RECORD
        return min(max_bytes, (end - offset) * average * 5 // 4 + _SLACK)

    def _begins_record(self, at: int) -> bool:
        with Translated(self._place):
            return at == 0 or os.pread(self._fd, 1, at - 1) == NEWLINE

    def _refuse_end(self, count: int, offset: int, until: int | None) -> None:
        if count:
            return
        if until is None:
            raise OutOfRange(f"{self._place} ends at {offset}", place=str(self._place))
        raise self._damaged(
            f"ends at {offset}, but the next begins at {until}: records are missing"
        )

    def _damaged(self, what: str) -> LogDamaged:
        return LogDamaged(f"{self._place} {what}", place=str(self._place))


NEWLINE = b"\n"
_CHUNK = 1 << 20
_REMEMBERED = 1024

Key = tuple[str, int, int, int, int]
"""Incarnation, partition and base of a segment, device and inode of its file."""


@dataclass(frozen=True, slots=True)
class Marks:
    """Records and bytes at some places of a segment, ascending; the last is as far as counted."""

    records: tuple[int, ...] = (0,)
    places: tuple[int, ...] = (0,)

    @property
    def count(self) -> int:
        """The complete records that were counted."""
        return self.records[-1]

    @property
    def size(self) -> int:
        """Their size in bytes."""
        return self.places[-1]

    def before(self, record: int) -> tuple[int, int]:
        """The nearest known record at or before one, and where it begins."""
        at = bisect_right(self.records, record) - 1
        return self.records[at], self.places[at]

    def with_mark(self, count: int, size: int) -> Marks:
        """The same with one more place, if that is further than any."""
        if size <= self.size:
            return self
        # Marks are kept only if they are far enough apart.
        keep = len(self.places)
        if keep > 1 and self.places[-1] - self.places[-2] < _CHUNK:
            keep -= 1
        return Marks((*self.records[:keep], count), (*self.places[:keep], size))


_marks: OrderedDict[Key, Marks] = OrderedDict()
_mutex = Lock()


def marks_of(key: Key) -> Marks:
    """The marks of a segment that this process knows."""
    with _mutex:
        marks = _marks.setdefault(key, Marks())
        _marks.move_to_end(key)
        while len(_marks) > _REMEMBERED:
            _marks.popitem(last=False)
    return marks


def forget(key: Key) -> None:
    """Count a segment again next time."""
    with _mutex:
        _marks.pop(key, None)


def count_on(fd: int, size: int, marks: Marks, up_to: int | None = None) -> Marks:
    """The marks of a file of `size` bytes, counting only behind what is known.

    Ends early when there are `up_to` records.
    """
    at, count = marks.size, marks.count
    while at < size and (up_to is None or count < up_to):
        chunk = os.pread(fd, min(_CHUNK, size - at), at)
        if not chunk:
            break
        if found := chunk.count(NEWLINE):
            count += found
            marks = marks.with_mark(count, at + chunk.rfind(NEWLINE) + 1)
        at += len(chunk)
    return marks


def remember(key: Key, marks: Marks) -> None:
    """Keep the marks, unless another thread has counted further."""
    with _mutex:
        known = _marks.get(key)
        if known is None or known.size < marks.size:
            _marks[key] = marks


def nth_end(data: bytes, count: int, start: int = 0) -> int:
    """Behind the newline that is the `count`-th from `start`; there must be so many.

    By halves, so that it costs about two passes over the bytes whatever `count` is.
    """
    low, high = start, len(data)
    while count:
        if high - low <= 4096:
            for _ in range(count):
                low = data.index(NEWLINE, low, high) + 1
            return low
        middle = (low + high) // 2
        inside = data.count(NEWLINE, low, middle)
        if inside >= count:
            high = middle
        else:
            count -= inside
            low = middle
    return low
