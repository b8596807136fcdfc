"""`sluicegate demo`."""

from __future__ import annotations

import sys
from typing import Annotated, TypedDict

import typer

from sluicegate import units
from sluicegate.errors import EXIT_DONE, ProblemsFound
from sluicegate.ops import demo
from sluicegate.report import Report, Table, document
from sluicegate_cli.session import Session

EXAMPLES = (
    ("demo", "three kills, about a minute"),
    ("demo --kills 10 --json", "more of them, for a script"),
)
DOCUMENTS = ("sluicegate.demo",)


@document("sluicegate.demo", version=1)
class DemoDocument(TypedDict):
    """The counts of a demonstration."""

    produced: int
    retries: int  # events that were sent more than once
    kills: int
    epochs: int
    duplicates: int  # dropped by the job
    applied: int
    output_rows: int
    lost: int
    duplicated: int
    keys_wrong: int  # keys with a wrong sum
    seconds: float


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
    document: DemoDocument = {
        "produced": outcome.produced,
        "retries": outcome.retries,
        "kills": outcome.kills,
        "epochs": outcome.epochs,
        "duplicates": outcome.duplicates,
        "applied": outcome.applied,
        "output_rows": outcome.output_rows,
        "lost": outcome.lost,
        "duplicated": outcome.duplicated,
        "keys_wrong": outcome.keys_wrong,
        "seconds": outcome.seconds,
    }
    return Report(
        schema="sluicegate.demo",
        document=document,
        tables=[Table(("events", "count"), rows, header=False)],
        lines=[f"{verdict}, in {units.duration(outcome.seconds)}."],
    )
