"""`sluicegate demo`."""

from __future__ import annotations

import sys
from dataclasses import asdict
from typing import Annotated

import typer

from sluicegate import units
from sluicegate.errors import EXIT_DONE, ProblemsFound
from sluicegate.ops import demo
from sluicegate.report import Report, Table
from sluicegate_cli.session import Session

EXAMPLES = (
    ("demo", "three kills, about a minute"),
    ("demo --kills 10 --json", "more of them, for a script"),
)


def run(
    ctx: typer.Context,
    kills: Annotated[
        int, typer.Option(metavar="N", min=0, max=1000, help="how often to kill the job")
    ] = 3,
    events: Annotated[
        int, typer.Option(metavar="N", min=1000, max=100_000_000, help="events to produce")
    ] = 200_000,
) -> int:
    """Show on this machine that killing a Spark job loses nothing and duplicates nothing.

    A producer writes events to an embedded log and sends some of them twice. A gated Spark job
    counts them, is killed with SIGKILL at random moments, and started again. Afterwards its counts
    and its output must match the log, every event exactly once.
    """
    session = Session.of(ctx)
    program = [sys.executable, "-P", "-m", "sluicegate_cli"]
    outcome = demo.run(program, kills, events, session.sink.note)
    session.sink.show(_view(outcome))
    return EXIT_DONE if outcome.well else ProblemsFound.exit_code


def _view(outcome: demo.Outcome) -> Report:
    rows: list[tuple[str, str | int]] = [
        ("events produced", f"{outcome.produced:,}"),
        ("sent more than once", f"{outcome.retries:,}"),
        ("kills of the job", outcome.kills),
        ("epochs committed", outcome.epochs),
        ("duplicates dropped", f"{outcome.duplicates:,}"),
        ("events counted", f"{outcome.applied:,}"),
        ("rows published", f"{outcome.output_rows:,}"),
        ("lost", outcome.lost),
        ("counted twice", outcome.duplicated),
        ("keys with a wrong sum", outcome.keys_wrong),
    ]
    verdict = (
        "No event was lost or duplicated"
        if outcome.well
        else "FAILED: events were lost or duplicated"
    )
    return Report(
        schema="sluicegate.demo",
        document=asdict(outcome),
        tables=[Table(("events", "count"), rows, header=False)],
        lines=[f"{verdict}, in {units.duration(outcome.seconds)}."],
    )
