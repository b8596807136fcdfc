"""`sluicegate dedup compact`."""

from __future__ import annotations

import time
from typing import Annotated

import typer

from sluicegate.stream.operations.compact_dedup import CompactDedup
from sluicegate.stream.target import GatedStream
from sluicegate.units import parse_duration
from sluicegate_cli.options import AsOption, TargetArgument
from sluicegate_cli.session import Session

CHANGES = True
SAVES_PLAN = True
EXAMPLES = (
    ("dedup compact clicks --dry-run", "what would it save?"),
    ("dedup compact clicks --retain 30d", "also drop producers that were idle for 30 days"),
)
DOCUMENTS = ("sluicegate.plan",)


def run(
    ctx: typer.Context,
    target: TargetArgument = None,
    retain: Annotated[
        str | None,
        typer.Option(metavar="DURATION", help="drop producers that were idle for this long"),
    ] = None,
    as_: AsOption = None,
) -> None:
    """Merge the segments of a stream's dedup log into one.

    Its content is unchanged; this is verified before the swap. With --retain, older entries are
    dropped, and a retention floor is kept per producer: events below it are rejected, never
    silently applied or dropped.

    A running job is not disturbed. A saved plan stays valid while the job runs, until the job
    itself merges the segments that the plan names, after 16 epochs at most (exit code 5).
    """
    session = Session.of(ctx)
    before = time.time() - parse_duration(retain) if retain is not None else None
    note = f"retain {retain}" if retain is not None else ""
    operation = CompactDedup(before=before, note=note)
    session.carry_out(session.open(GatedStream, target, as_).change(operation))
