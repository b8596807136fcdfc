"""Progress reports of a running application, one line of JSON per batch through a named pipe.

A pipe and not a file: it cannot grow, and if `submit` is gone, the reports are just lost.
"""

from __future__ import annotations

import json
import os
import select
import shutil
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Self, TypedDict

_CHUNK = 1 << 16
_LONGEST = 16 << 20


class ProgressFields(TypedDict):
    """One finished batch of a query as plain values."""

    query: str
    id: str
    batch: int  # for gated streams, the epoch
    rows: int
    rows_per_second: float
    seconds: float
    at: str
    ends: list[Any]  # the end offsets of its sources, as Spark has them
    committed: str | None  # the consumer whose positions were committed with it
    durations: Mapping[str, int] | None  # ms, by Spark's names
    counts: Mapping[str, int] | None  # gated streams only: the outcome of the events


@dataclass(frozen=True, slots=True)
class Progress:
    """One finished batch of a query; `ends` are the end offsets of its sources, as Spark has them.

    `committed` names the consumer whose positions were committed to the offset store with it.
    For gated streams the batches are epochs, and `counts` has the outcome of their events.
    """

    query: str
    id: str
    batch: int
    rows: int
    rows_per_second: float
    seconds: float
    at: str
    ends: tuple[Any, ...] = ()
    committed: str | None = None
    durations: Mapping[str, int] | None = None
    counts: Mapping[str, int] | None = None

    def fields(self) -> ProgressFields:
        """As plain values."""
        return {
            "query": self.query,
            "id": self.id,
            "batch": self.batch,
            "rows": self.rows,
            "rows_per_second": self.rows_per_second,
            "seconds": self.seconds,
            "at": self.at,
            "ends": list(self.ends),
            "committed": self.committed,
            "durations": self.durations,
            "counts": self.counts,
        }


def encode(progress: Progress) -> bytes:
    """The line that reports a batch."""
    return json.dumps(progress.fields(), separators=(",", ":")).encode() + b"\n"


def decode(line: bytes) -> Progress | None:
    """The batch that a line reports; None if it is not such a line, or an incomplete one."""
    try:
        fields = json.loads(line)
    except (ValueError, RecursionError):
        return None
    match fields:
        case {
            "query": str(query),
            "id": str(query_id),
            "batch": int(batch),
            "rows": int(rows),
            "rows_per_second": int() | float() as rate,
            "seconds": int() | float() as seconds,
            "at": str(at),
            "ends": list(ends),
            "committed": None | str() as committed,
            "durations": None | dict() as durations,
            "counts": None | dict() as counts,
        }:
            more = (tuple(ends), committed, durations, counts)
            return Progress(query, query_id, batch, rows, rate, seconds, at, *more)
    return None


class ProgressPipe:
    """The reading end; the application gets its `path`."""

    def __init__(self) -> None:
        self._directory = Path(tempfile.mkdtemp(prefix="sluicegate-submit-"))
        self.path = self._directory / "progress"
        os.mkfifo(self.path, 0o600)
        self._fd = os.open(self.path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        # Kept open, or the pipe would be at its end, and always readable, whenever no
        # application has it open.
        self._writer = os.open(self.path, os.O_WRONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        self._rest = b""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        at: TracebackType | None,
    ) -> None:
        os.close(self._fd)
        os.close(self._writer)
        shutil.rmtree(self._directory, ignore_errors=True)

    def read(self, timeout: float) -> list[Progress]:
        """The reports since the last call; waits for the first one up to `timeout` seconds."""
        found: list[Progress] = []
        while select.select([self._fd], [], [], 0 if found else timeout)[0]:
            *lines, self._rest = (self._rest + os.read(self._fd, _CHUNK)).split(b"\n")
            found += [progress for line in lines if (progress := decode(line))]
            if len(self._rest) > _LONGEST:
                self._rest = b""
        return found


_TIMEOUT = 0.2


class Reports:
    """The writing end of the pipe; it never raises an error."""

    def __init__(self, path: str | None) -> None:
        self._fd = _open(path) if path else None
        self._is_torn = False

    @property
    def is_open(self) -> bool:
        return self._fd is not None

    def send(self, progress: Progress) -> None:
        """Report a batch; the report is lost if there is no reader."""
        if self._fd is None:
            return
        rest = (b"\n" if self._is_torn else b"") + encode(progress)
        try:
            self._is_torn = not self._write(self._fd, rest)
        except OSError:
            # The reader is gone for good.
            os.close(self._fd)
            self._fd = None

    def _write(self, fd: int, rest: bytes) -> bool:
        while rest:
            if not select.select([], [fd], [], _TIMEOUT)[1]:
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
        # Another machine, or there is no reader any more.
        return None
