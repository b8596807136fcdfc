"""The output of `submit`: the command it would run, a running job, and how it ended."""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path
from typing import Protocol, TypedDict

from sluicegate import units
from sluicegate.checkpoint.report import OffsetDocument, offset_document, offset_text
from sluicegate.positions import to_spark
from sluicegate.report import Cell, Report, Table, document
from sluicegate.spark.submit.command import shown_setting
from sluicegate.spark.submit.preflight import CheckpointState, Ready, Starting
from sluicegate.spark.submit.process import Watch
from sluicegate.spark.submit.progress import Progress, ProgressFields
from sluicegate.spark.submit.run import Cause, Outcome
from sluicegate_cli.output import Sink, next_command, write_error
from sluicegate_cli.output.console import visible

SCHEMA = "sluicegate.submit"
_ORIGIN = ("source", "offset", "comes from")


class JavaDocument(TypedDict):
    """The Java that Spark would use."""

    path: str
    major: int


class StartDocument(TypedDict):
    """A checkpoint before a start."""

    path: str
    status: str  # what the start will do
    next_batch: int
    replays: bool  # the first batch runs again
    replayed_events: int | None  # null: the offsets do not count events
    sources: list[OffsetDocument]  # at the end of the newest batch
    findings: list[str]  # codes
    writer: str | None  # whether another job writes; null: there is no checkpoint yet
    evidence: list[str]  # for it


class StartingDocument(TypedDict):
    """The consumer of an offset store that a job starts from."""

    store: str
    consumer: str
    commit: str | None  # null: it has no positions yet
    committed_at: str | None
    positions: dict[str, dict[str, int]] | None  # topic, partition, next offset


class CauseDocument(TypedDict):
    """Why a job failed, by its log."""

    code: str
    cause: str
    evidence: str
    advice: str
    command: str


@document("sluicegate.submit", version=1)
class ReadyDocument(TypedDict):
    """With `--dry-run`, the command that would be run."""

    dry_run: bool
    command: list[str]  # without secrets
    environment: dict[str, str]  # added to that of `submit`
    private: list[str]  # settings in a private file, without their secrets
    java: JavaDocument
    checkpoint: StartDocument | None
    starting: StartingDocument | None
    notes: list[str]


@document("sluicegate.submit", version=1)
class EndedDocument(TypedDict):
    """Without it, how the job ended."""

    dry_run: bool
    command: list[str]  # without secrets
    exit_code: int  # of the job, or minus the signal that killed it
    signal: int | None  # the first one that `submit` got
    seconds: float
    log: str
    batches: int
    rows: int
    last: ProgressFields | None  # the last batch
    causes: list[CauseDocument]
    tail: list[str]  # the last lines of the log, if the job failed


def ready_view(ready: Ready) -> Report:
    """The command that would be run, and the origin of every offset."""
    document: ReadyDocument = {
        "dry_run": True,
        "command": ready.command.shown(),
        "environment": dict(ready.command.environment),
        "private": [shown_setting(each) for each in ready.command.private],
        "java": {"path": ready.java.path, "major": ready.java.major},
        "checkpoint": _checkpoint_document(ready.checkpoint),
        "starting": _starting_document(ready.starting),
        "notes": list(ready.notes),
    }
    return Report(
        schema=SCHEMA,
        document=document,
        tables=[
            Table(("field", "value"), _facts(ready), header=False),
            Table(_ORIGIN, _origins(ready), title="Start positions"),
        ],
        # Again below the tables, where it is not folded and can be copied.
        lines=[ready.command.shown_line()],
    )


def outcome_view(ready: Ready, outcome: Outcome) -> Report:
    """How a job ended, for programs."""
    ended, tally = outcome.ended, outcome.tally
    document: EndedDocument = {
        "dry_run": False,
        "command": ready.command.shown(),
        "exit_code": ended.code,
        "signal": ended.signal,
        "seconds": round(ended.seconds, 3),
        "log": str(outcome.log),
        "batches": tally.batches,
        "rows": tally.rows,
        "last": tally.last.fields() if tally.last else None,
        "causes": [_cause_document(each) for each in outcome.causes],
        "tail": list(outcome.tail),
    }
    return Report(schema=SCHEMA, document=document)


def failure_lines(outcome: Outcome) -> list[str]:
    """The end of a failed job's log, and the causes found in it."""
    lines = [f"last lines of {outcome.log}:", *(f"  {line}" for line in outcome.tail)]
    for cause in outcome.causes:
        lines += [
            f"cause: {cause.title} ({cause.code})",
            f"  {cause.evidence}",
            f"  {cause.advice}",
        ]
    return lines if outcome.tail else []


def summary(outcome: Outcome) -> str:
    """A job that ended well, in one line."""
    tally = outcome.tally
    gated = tally.last is not None and tally.last.counts is not None
    names = ("epoch", "epochs") if gated else ("batch", "batches")
    amount = f"{units.counted(tally.batches, *names)}, {units.counted(tally.rows, 'row')}"
    done = f": {amount}" if tally.batches else ""
    return f"Done in {units.duration(outcome.ended.seconds)}{done}. Log: {outcome.log}"


def _facts(ready: Ready) -> list[tuple[str, Cell]]:
    command = ready.command
    private = ", ".join(shown_setting(each) for each in command.private)
    defaults = command.spark_submit.defaults
    merged = f", with {defaults} in front" if defaults and private else ""
    rows = [
        ("application", ready.request.app),
        ("spark-submit", f"{command.spark_submit.path} ({command.spark_submit.why})"),
        ("Java", f"{ready.java.path} ({ready.java.major})"),
        ("checkpoint", str(ready.checkpoint.path) if ready.checkpoint else None),
        ("status", ready.checkpoint.describe() if ready.checkpoint else None),
        ("store", ready.starting.store if ready.starting else None),
        ("consumer", ready.starting.consumer if ready.starting else None),
        ("in a private file", f"{private}{merged}" if private else None),
        ("command", command.shown_line()),
    ]
    return [(name, value) for name, value in rows if value]


def _origins(ready: Ready) -> list[tuple[str, str | int, str]]:
    """Every offset with its origin; a checkpoint takes precedence over a store."""
    state = ready.checkpoint
    if state and state.offsets:
        return [(o.source, offset_text(o), f"offsets/{state.last_batch}") for o in state.offsets]
    if ready.starting and ready.starting.record:
        record = ready.starting.record
        return [
            (
                f"{each.topic}[{each.partition}]",
                each.offset,
                f"commit {record.id}, {units.utc(record.committed_at(each))}, by {record.by}",
            )
            for each in record.positions
        ]
    return [("every source", "-", "the application itself")]


def _checkpoint_document(state: CheckpointState | None) -> StartDocument | None:
    if state is None:
        return None
    return {
        "path": str(state.path),
        "status": state.next_start.name.lower(),
        "next_batch": state.next_batch,
        "replays": state.replays,
        "replayed_events": state.replayed_events,
        "sources": [offset_document(each) for each in state.offsets],
        "findings": [finding.code for finding in state.findings],
        "writer": state.evidence.verdict.name.lower() if state.evidence else None,
        "evidence": state.evidence.lines if state.evidence else [],
    }


def _starting_document(starting: Starting | None) -> StartingDocument | None:
    if starting is None:
        return None
    record = starting.record
    return {
        "store": starting.store,
        "consumer": starting.consumer,
        "commit": record.id if record else None,
        "committed_at": units.utc(record.at) if record else None,
        "positions": to_spark(record.positions) if record else None,
    }


def _cause_document(cause: Cause) -> CauseDocument:
    return {
        "code": cause.code,
        "cause": cause.title,
        "evidence": cause.evidence,
        "advice": cause.advice,
        "command": next_command(cause.command, cause.code),
    }


PROGRESS_SCHEMA = "sluicegate.progress"
_EVERY = 1.0
_CLEAR = "\r\x1b[2K"


@document("sluicegate.progress", version=1)
class ProgressDocument(ProgressFields):
    """A finished batch of a running job: one line on standard error."""


class Display(Watch, Protocol):
    """A `Watch` that cleans up the screen at the end."""

    def close(self) -> None:
        """The job has ended."""


def display(sink: Sink, consumer: str | None) -> Display:
    """The display of a job on this terminal; the job was started from positions of `consumer`."""
    return _Live(sink, consumer) if sys.stderr.isatty() else _Lines(sink, consumer)


class _Notes:
    """Notes about a job that every mode shows once."""

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
            self._note("asked the job to end and waiting for it; a second signal kills it")

    def progressed(self, progress: Progress) -> None:
        if self._consumer and progress.committed not in (None, self._consumer):
            self._note(
                f"query {progress.query} commits to consumer {progress.committed}, but the job was "
                f"started from {self._consumer}: name the query {self._consumer}, or the next "
                "start reads these events again"
            )
            self._consumer = None

    def _note(self, text: str) -> None:
        self._sink.note(text)


class _Live(_Notes):
    """One line: the position of the job, its rate, and the age of its last report."""

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
    """The counts of an epoch's events, as text."""
    if progress.counts is None:
        return ""
    shown = {name: progress.counts.get(name, 0) for name in ("duplicates", "rejected", "lag")}
    return "".join(f"{count:,} {name}, " for name, count in shown.items() if count)


class _Lines(_Notes):
    """A line of JSON per batch; at most one per second and query, and always the last."""

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
        document = {"schema": PROGRESS_SCHEMA, "version": 1, **progress.fields()}
        write_error(json.dumps(document) + "\n")
