"""Where records begin in a segment: newlines, counted once and remembered.

What was counted stays true, because segments only grow and whole records are never taken back. So
the marks are kept for the whole process: whoever opens the log again, or polls it, only looks at
what is new. One byte is looked at before a mark is believed, in case somebody exchanged the file.
"""

from __future__ import annotations

import os
from bisect import bisect_right
from collections import OrderedDict
from dataclasses import dataclass
from threading import Lock

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
        """The whole records that were counted."""
        return self.records[-1]

    @property
    def size(self) -> int:
        """The bytes they take."""
        return self.places[-1]

    def before(self, record: int) -> tuple[int, int]:
        """The nearest known record at or before one, and where it begins."""
        at = bisect_right(self.records, record) - 1
        return self.records[at], self.places[at]

    def with_mark(self, count: int, size: int) -> Marks:
        """The same with one more place, if that is further than any."""
        if size <= self.size:
            return self
        # Ends of what was counted are kept only as far as they lie apart.
        keep = len(self.places)
        if keep > 1 and self.places[-1] - self.places[-2] < _CHUNK:
            keep -= 1
        return Marks((*self.records[:keep], count), (*self.places[:keep], size))


_marks: OrderedDict[Key, Marks] = OrderedDict()
_mutex = Lock()


def marks_of(key: Key) -> Marks:
    """What this process knows of a segment."""
    with _mutex:
        marks = _marks.setdefault(key, Marks())
        _marks.move_to_end(key)
        while len(_marks) > _REMEMBERED:
            _marks.popitem(last=False)
    return marks


def forget(key: Key) -> None:
    """Count a segment anew next time."""
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
    """Keep what was counted, unless somebody has counted further."""
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
