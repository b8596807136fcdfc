"""A running job on the screen: one line that lives on a terminal, lines of JSON elsewhere."""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path
from typing import Protocol

from sluicegate import units
from sluicegate.spark.submit import Progress, Watch
from sluicegate_cli.output import Sink, write_error
from sluicegate_cli.output.printers import visible

SCHEMA = "sluicegate.progress"
_EVERY = 1.0
_CLEAR = "\r\x1b[2K"


class Display(Watch, Protocol):
    """A `Watch` that leaves the screen tidy."""

    def close(self) -> None:
        """The job has ended."""


def display(sink: Sink, consumer: str | None) -> Display:
    """The way to show a job here; `consumer` is the one whose positions it was started from."""
    return _Live(sink, consumer) if sys.stderr.isatty() else _Lines(sink, consumer)


class _Notes:
    """What is said of a job once, in every mode."""

    def __init__(self, sink: Sink, consumer: str | None) -> None:
        self._sink = sink
        self._consumer = consumer
        self._began = time.monotonic()

    def started(self, pid: int, log: Path) -> None:
        self._note(f"running, pid {pid}, log {log}")

    def stopping(self, *, kills: bool) -> None:
        if kills:
            self._note("killing the job")
        else:
            self._note("asked the job to end and waiting for it; once more kills it")

    def progressed(self, progress: Progress) -> None:
        if self._consumer and progress.committed not in (None, self._consumer):
            self._note(
                f"query {progress.query} commits to consumer {progress.committed}, but the job was "
                f"started from {self._consumer}: call the query {self._consumer}, or the next "
                "start reads all of this again"
            )
            self._consumer = None

    def _note(self, text: str) -> None:
        self._sink.note(text)


class _Live(_Notes):
    """One line: where the job is, how fast, and when it was last heard of."""

    def __init__(self, sink: Sink, consumer: str | None) -> None:
        super().__init__(sink, consumer)
        self._last: Progress | None = None
        self._heard = self._drawn = time.monotonic()

    def progressed(self, progress: Progress) -> None:
        super().progressed(progress)
        self._last, self._heard = progress, time.monotonic()

    def waited(self) -> None:
        now = time.monotonic()
        if now - self._drawn >= _EVERY:
            self._drawn = now
            write_error(_CLEAR + visible(self._line(now)))

    def close(self) -> None:
        write_error(_CLEAR)

    def _line(self, now: float) -> str:
        last = self._last
        if last is None:
            return f"running for {units.duration(now - self._began)}"
        what = "batch" if last.counts is None else "epoch"
        return (
            f"{last.query}: {what} {last.batch}, {last.rows_per_second:,.0f} rows/s, took "
            f"{units.duration(last.seconds)}, {_counts(last)}"
            f"{units.duration(now - self._heard)} ago"
        )

    def _note(self, text: str) -> None:
        write_error(_CLEAR)
        super()._note(text)


def _counts(progress: Progress) -> str:
    """What became of an epoch's events, in a few words."""
    if progress.counts is None:
        return ""
    shown = {name: progress.counts.get(name, 0) for name in ("duplicates", "rejected", "lag")}
    return "".join(f"{count:,} {name}, " for name, count in shown.items() if count)


class _Lines(_Notes):
    """A line of JSON per batch, but of each query at most one a second, and always the last."""

    def __init__(self, sink: Sink, consumer: str | None) -> None:
        super().__init__(sink, consumer)
        self._written: dict[str, float] = {}
        self._waiting: dict[str, Progress] = {}

    def progressed(self, progress: Progress) -> None:
        super().progressed(progress)
        self._waiting[progress.id] = progress
        self.waited()

    def waited(self) -> None:
        now = time.monotonic()
        due = [q for q in self._waiting if now - self._written.get(q, 0) >= _EVERY]
        for query in due:
            self._written[query] = now
            self._write(self._waiting.pop(query))

    def close(self) -> None:
        for progress in self._waiting.values():
            self._write(progress)
        self._waiting.clear()

    def _write(self, progress: Progress) -> None:
        document = {"schema": SCHEMA, "version": 1, **progress.fields()}
        write_error(json.dumps(document) + "\n")
