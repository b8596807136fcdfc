"""What `submit` shows: the command it would run, a job that runs, and how it ended."""

from __future__ import annotations

from typing import Any

from sluicegate import units
from sluicegate.positions import to_spark
from sluicegate.spark.submit import (
    Cause,
    CheckpointState,
    Outcome,
    Ready,
    Starting,
    shown_setting,
)
from sluicegate_cli.output import Table, View, next_command
from sluicegate_cli.output.view import Cell
from sluicegate_cli.views.checkpoint import offset_document, offset_text

SCHEMA = "sluicegate.submit"
_ORIGIN = ("source", "offset", "comes from")


def ready_view(ready: Ready) -> View:
    """What would be run, and where every offset comes from."""
    return View(
        schema=SCHEMA,
        document={
            "dry_run": True,
            "command": ready.command.shown(),
            "environment": dict(ready.command.environment),
            "private": [shown_setting(each) for each in ready.command.private],
            "java": {"path": ready.java.path, "major": ready.java.major},
            "checkpoint": _checkpoint_document(ready.checkpoint),
            "starting": _starting_document(ready.starting),
            "notes": list(ready.notes),
        },
        tables=[
            Table(("field", "value"), _facts(ready), header=False),
            Table(_ORIGIN, _origins(ready), title="Where it starts"),
        ],
        # Again below the tables, where it is not folded and can be copied.
        lines=[ready.command.shown_line()],
    )


def outcome_view(ready: Ready, outcome: Outcome) -> View:
    """How a job ended, for programs."""
    ended, tally = outcome.ended, outcome.tally
    return View(
        schema=SCHEMA,
        document={
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
        },
    )


def failure_lines(outcome: Outcome) -> list[str]:
    """The end of a failed job's log, and what it means."""
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
    what = "epochs" if tally.last and tally.last.counts is not None else "batches"
    done = f": {tally.batches:,} {what}, {tally.rows:,} rows" if tally.batches else ""
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
        ("standing", ready.checkpoint.describe() if ready.checkpoint else None),
        ("store", ready.starting.store if ready.starting else None),
        ("consumer", ready.starting.consumer if ready.starting else None),
        ("in a private file", f"{private}{merged}" if private else None),
        ("command", command.shown_line()),
    ]
    return [(name, value) for name, value in rows if value]


def _origins(ready: Ready) -> list[tuple[str, str | int, str]]:
    """Every offset, and whose word it is; a checkpoint's is heard before a store's."""
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


def _checkpoint_document(state: CheckpointState | None) -> dict[str, Any] | None:
    if state is None:
        return None
    return {
        "path": str(state.path),
        "standing": state.standing.name.lower(),
        "next_batch": state.next_batch,
        "replays": state.replays,
        "replayed_events": state.replayed_events,
        "sources": [offset_document(each) for each in state.offsets],
        "findings": [finding.code for finding in state.findings],
        "writer": state.evidence.verdict.name.lower() if state.evidence else None,
        "evidence": state.evidence.lines if state.evidence else [],
    }


def _starting_document(starting: Starting | None) -> dict[str, Any] | None:
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


def _cause_document(cause: Cause) -> dict[str, str]:
    return {
        "code": cause.code,
        "cause": cause.title,
        "evidence": cause.evidence,
        "advice": cause.advice,
        "command": next_command(cause.command, cause.code),
    }
