"""Writing to one partition of a log, alone."""

from __future__ import annotations

import os
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType
from typing import Self

from sluicegate.errors import Fenced
from sluicegate.locks import FileLock
from sluicegate.log.files import LOCK, partition_name
from sluicegate.log.log import Log
from sluicegate.log.tail import LogWriterStopped, Tail, check_segment_bytes
from sluicegate.storage.calls import Calls

__all__ = ["SEGMENT_BYTES", "LogWriter", "LogWriterStopped"]

SEGMENT_BYTES = 64 << 20


class LogWriter:
    """The one writer of a partition until it is closed; `Locked` if there is another.

    A segment is full at `segment_bytes`; what one call appends is never divided. After a write that
    failed it stops: opening it again finds out what the log holds.
    """

    def __init__(
        self,
        uri: str,
        partition: int = 0,
        *,
        segment_bytes: int = SEGMENT_BYTES,
        patience: float = 0.0,
        calls: Calls | None = None,
    ) -> None:
        self._log = Log.open(uri, calls=calls)
        self._log.bases(partition)
        self._pid = os.getpid()
        with ExitStack() as stack:
            lock = writer_lock(self._log, partition)
            stack.enter_context(lock.hold(timeout=patience))
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
        """Add records, durable when it returns; gives the offset of the next one.

        If it raises, some or all of them may be in the log, those first that come first.
        """
        if os.getpid() != self._pid:
            raise Fenced("the writer was opened by the process this one was forked from")
        return self._tail.append(lines)

    def close(self) -> None:
        """Give up the lock."""
        self._held.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, _type: object, _error: BaseException | None, _traceback: TracebackType | None
    ) -> None:
        self.close()


def writer_lock(log: Log, partition: int) -> FileLock:
    """The lock of those who append to a partition."""
    return FileLock(Path(log.uri, partition_name(partition), LOCK))
