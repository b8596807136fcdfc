"""Logs for tests: where they lie, what they hold."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

from sluicegate.sources.log import layout
from sluicegate.sources.log.log import Log
from sluicegate.sources.log.writer import LogWriter


@contextmanager
def in_memory() -> Iterator[Path]:
    """In memory where there is such a place: the labs decide what survives, so fsyncs only cost."""
    memory = Path("/dev/shm")
    with TemporaryDirectory(dir=memory if os.access(memory, os.W_OK) else None) as path:
        yield Path(path)


def lines(first: int, count: int) -> list[bytes]:
    """Records with their number, of different lengths."""
    return [b'{"n":%d%s}' % (n, b" " * (n * 7 % 23)) for n in range(first, first + count)]


def filled(root: Path, count: int, *, batch: int = 10, segment_bytes: int = 400) -> Log:
    """A log of one partition with so many records, in small segments."""
    log = Log.create(str(root))
    with LogWriter(str(root), segment_bytes=segment_bytes) as writer:
        for first in range(0, count, batch):
            writer.append(lines(first, min(batch, count - first)))
    return log


def held(log: Log, partition: int = 0, max_bytes: int = 64) -> list[bytes]:
    """Every record of a partition; the pieces follow each other."""
    start = log.bases(partition)[0]
    return read(log, start, log.end(partition), partition, max_bytes)


def read(log: Log, start: int, end: int, partition: int = 0, max_bytes: int = 64) -> list[bytes]:
    """The records of a range, and that its pieces are as promised."""
    found: list[bytes] = []
    for piece in log.read(partition, start, end, max_bytes):
        assert piece.first == start + len(found)
        assert piece.data.endswith(b"\n")
        records = piece.data[:-1].split(b"\n")
        assert piece.count == len(records) > 0
        assert len(piece.data) <= max_bytes or piece.count == 1
        found += records
    assert len(found) == end - start
    return found


def forget() -> None:
    """As in a new process: nothing is remembered of any segment."""
    layout._marks.clear()
