"""Writing to one partition of a log, alone.

Records are acknowledged when they are fsynced. The complete records of a dead writer stay, because
a consumer may have read them, and the rest is cut off. A file is durable before the next segment is
begun, so only the newest can be in doubt.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from contextlib import ExitStack, suppress
from pathlib import Path
from types import TracebackType
from typing import Self

from sluicegate.errors import Fenced, UsageError
from sluicegate.locks import FileLock
from sluicegate.sources.log import layout
from sluicegate.sources.log.layout import LOCK, MAX_RECORD, Segment, partition_name
from sluicegate.sources.log.log import Log
from sluicegate.storage import LocalStorage
from sluicegate.storage.local import Calls, Translated

MAX_APPEND = 256 << 20
"""Most bytes of one append."""
_APPEND = os.O_RDWR | os.O_APPEND | os.O_CLOEXEC | os.O_NOFOLLOW


class LogWriterStopped(Fenced):
    """A write failed or another writer interfered, so the log must be read again."""

    default_hint = "open it again: it then continues after the last record in the log"


class Tail:
    """The newest segment of one partition, open for appending.

    Call `refresh` first, and again after the lock was released in between.
    """

    def __init__(self, log: Log, partition: int, segment_bytes: int, calls: Calls | None) -> None:
        self._log = log
        self._partition = partition
        self._segment_bytes = segment_bytes
        self._calls = calls or Calls()
        self._storage = LocalStorage(Path(log.uri), calls=calls)
        self._fd: int | None = None
        self._base = self._count = self._size = 0
        self._stopped: str | None = None

    @property
    def end(self) -> int:
        """The offset of the next record."""
        return self._base + self._count

    def refresh(self) -> None:
        """Find the newest segment and its complete records, and cut off the bytes behind them."""
        self._refuse_stopped()
        base = self._log.bases(self._partition)[-1]
        if self._fd is None or base != self._base or not self._is_in_place():
            self._open(base)
        assert self._fd is not None
        with Translated(self._path):
            size = os.fstat(self._fd).st_size
            if size == self._size:
                return
        with Segment(self._storage, self._log.incarnation, self._partition, base) as segment:
            self._count = segment.count()
            self._size = segment.counted_bytes
        if self._size < size:
            with Translated(self._path):
                self._calls.truncate(self._fd, self._size)
                self._calls.sync(self._fd)

    def append(self, lines: Sequence[bytes]) -> int:
        """Add records durably, all with one fsync; returns the offset of the next one."""
        self._refuse_stopped()
        if not lines:
            return self.end
        data = joined(lines)
        try:
            if self._size and self._size + len(data) > self._segment_bytes:
                self._roll()
            self._write(data)
        except BaseException as e:
            # The next writer finds out how much of it was written.
            self._stopped = str(e) or type(e).__name__
            self.close()
            raise
        self._size += len(data)
        self._count += len(lines)
        return self.end

    def close(self) -> None:
        """Close the file."""
        fd, self._fd = self._fd, None
        if fd is not None:
            with suppress(OSError):
                os.close(fd)

    @property
    def _path(self) -> Path:
        return Path(self._log.uri, layout.segment_key(self._partition, self._base))

    def _open(self, base: int) -> None:
        self.close()
        # Another log may have taken its place.
        self._log.partitions()
        self._base, self._count, self._size = base, 0, -1
        # Its writer may have died before it was durable, and we build on it.
        self._storage.sync(layout.segment_key(self._partition, base))
        with Translated(self._path):
            self._fd = os.open(self._path, _APPEND)

    def _roll(self) -> None:
        """Begin the next segment; others may have written to this one, so it is fsynced first."""
        assert self._fd is not None
        end = self.end
        with Translated(self._path):
            self._calls.sync(self._fd)
        key = layout.segment_key(self._partition, end)
        if not self._storage.put_if_absent(key, b""):
            raise LogWriterStopped(f"{self._log.uri}/{key} was made by another writer")
        self._open(end)
        self._size = 0

    def _write(self, data: bytes) -> None:
        assert self._fd is not None
        with Translated(self._path):
            self._calls.write(self._fd, data)
            self._calls.sync(self._fd)
            size = os.fstat(self._fd).st_size
        if size != self._size + len(data) or not self._is_in_place():
            raise LogWriterStopped(
                f"{self._path} was changed by another process while it was locked"
            )

    def _is_in_place(self) -> bool:
        """Whether the open file still has its name."""
        assert self._fd is not None
        try:
            return os.path.samestat(os.fstat(self._fd), os.lstat(self._path))
        except OSError:
            return False

    def _refuse_stopped(self) -> None:
        if self._stopped is not None:
            raise LogWriterStopped(f"writing to {self._path} stopped: {self._stopped:.300}")


def joined(lines: Sequence[bytes]) -> bytes:
    """The records as they are written, or `UsageError` for invalid ones."""
    data = b"\n".join(lines) + b"\n"
    if data.count(b"\n") != len(lines):
        raise UsageError("a record contains a newline", hint="write it as JSON on one line")
    shortest, longest = min(map(len, lines)), max(map(len, lines))
    if shortest == 0 or longest >= MAX_RECORD or len(data) > MAX_APPEND:
        raise UsageError(
            f"cannot append records of {shortest} to {longest} bytes, {len(data)} in all",
            hint=f"a record has 1 to {MAX_RECORD - 1} bytes, and one append up to {MAX_APPEND}",
        )
    return data


def check_segment_bytes(size: int) -> int:
    """The size, if segments can be that large."""
    if type(size) is not int or not 1 <= size <= 2**40:
        raise UsageError(f"{size!r} is not a size of segments")
    return size


SEGMENT_BYTES = 64 << 20


class LogWriter:
    """The only writer of a partition until it is closed; `Locked` if there is another.

    A segment is full at `segment_bytes`; the records of one call are never divided. After a failed
    write it stops: opening it again finds out what the log holds.
    """

    def __init__(
        self,
        uri: str,
        partition: int = 0,
        *,
        segment_bytes: int = SEGMENT_BYTES,
        timeout: float = 0.0,
        calls: Calls | None = None,
    ) -> None:
        self._log = Log.open(uri, calls=calls)
        self._log.bases(partition)
        self._pid = os.getpid()
        with ExitStack() as stack:
            lock = writer_lock(self._log, partition)
            stack.enter_context(lock.hold(timeout=timeout))
            tail = Tail(self._log, partition, check_segment_bytes(segment_bytes), calls)
            stack.callback(tail.close)
            tail.refresh()
            self._tail = tail
            self._held = stack.pop_all()

    @property
    def end(self) -> int:
        """The offset that the next record gets."""
        return self._tail.end

    def append(self, lines: Sequence[bytes]) -> int:
        """Add records, durable when it returns; returns the offset of the next one.

        If it raises, some or all of them may be in the log, those first that come first.
        """
        if os.getpid() != self._pid:
            raise Fenced("the writer was opened by the process this one was forked from")
        return self._tail.append(lines)

    def close(self) -> None:
        """Release the lock."""
        self._held.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, _type: object, _error: BaseException | None, _traceback: TracebackType | None
    ) -> None:
        self.close()


def writer_lock(log: Log, partition: int) -> FileLock:
    """The lock for appending to a partition."""
    return FileLock(Path(log.uri, partition_name(partition), LOCK))
