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
    ("dedup compact clicks --retain 30d", "and give up producers that were silent so long"),
)


def run(
    ctx: typer.Context,
    target: TargetArgument = None,
    retain: Annotated[
        str | None, typer.Option(metavar="DURATION", help="give up what did not grow for so long")
    ] = None,
    as_: AsOption = None,
) -> None:
    """Merge the segments of a stream's dedup log into one.

    It knows the same before and after, which is proven before anything is replaced. With --retain,
    what is older is given up, and a floor is kept per producer: what arrives below it goes to the
    rejects, never silently in or out.

    It runs beside a job and does not disturb it. A saved plan holds while the job goes on, until
    the job itself has merged what the plan names, after 16 epochs at most (exit code 5).
    """
    session = Session.of(ctx)
    before = time.time() - parse_duration(retain) if retain is not None else None
    note = f"retain {retain}" if retain is not None else ""
    operation = CompactDedup(before=before, note=note)
    session.carry_out(session.open(GatedStream, target, as_).change(operation))
