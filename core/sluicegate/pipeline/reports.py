"""Telling the `submit` that started this application how its batches get on."""

from __future__ import annotations

import os
import select

from sluicegate.spark.submit.progress import Progress, encode

_PATIENCE = 0.2


class Reports:
    """The writing end of the pipe; whatever is wrong with it, nothing is raised."""

    def __init__(self, path: str | None) -> None:
        self._fd = _open(path) if path else None
        self._is_torn = False

    @property
    def is_open(self) -> bool:
        return self._fd is not None

    def send(self, progress: Progress) -> None:
        """Report a batch; lost if nobody reads."""
        if self._fd is None:
            return
        rest = (b"\n" if self._is_torn else b"") + encode(progress)
        try:
            self._is_torn = not self._write(self._fd, rest)
        except OSError:
            # Whoever read it is gone for good.
            os.close(self._fd)
            self._fd = None

    def _write(self, fd: int, rest: bytes) -> bool:
        while rest:
            if not select.select([], [fd], [], _PATIENCE)[1]:
                return False
            try:
                rest = rest[os.write(fd, rest) :]
            except BlockingIOError:
                return False
        return True


def _open(path: str) -> int | None:
    try:
        return os.open(path, os.O_WRONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        # Another machine, or nobody reads any more.
        return None
