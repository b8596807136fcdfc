"""`sluicegate checkpoint prune`."""

from __future__ import annotations

from typing import Annotated

import typer

from sluicegate.errors import UsageError
from sluicegate.stream.gc import Retention
from sluicegate.stream.operations.prune import Prune
from sluicegate.stream.target import GatedStream
from sluicegate.units import parse_duration
from sluicegate_cli.options import AsOption, TargetArgument
from sluicegate_cli.session import Session

CHANGES = True
SAVES_PLAN = True
EXAMPLES = (
    ("checkpoint prune clicks --keep-within 7d --dry-run", "what would go?"),
    ("checkpoint prune clicks --keep 1000 --keep-within 24h", "keep what either of them keeps"),
)


def run(
    ctx: typer.Context,
    target: TargetArgument = None,
    keep: Annotated[
        int | None,
        typer.Option("--keep", metavar="N", min=1, help="so many of the newest snapshots"),
    ] = None,
    keep_within: Annotated[
        str | None, typer.Option(metavar="DURATION", help="all snapshots younger than 7d or PT12H")
    ] = None,
    as_: AsOption = None,
) -> None:
    """Give up old snapshots of a gated stream, and remove what nothing refers to any more.

    What was given up cannot be rolled back to. The newest snapshot always stays. A floor is
    committed into the chain before anything is removed, so an interruption leaves a whole stream.
    """
    session = Session.of(ctx)
    if keep is None and keep_within is None:
        raise UsageError("say what to keep with --keep N or --keep-within DURATION")
    found = session.open(GatedStream, target, as_)
    stream, head = found.snapshot(None)
    seconds = parse_duration(keep_within) if keep_within else 0.0
    floor = Retention(keep or 1, seconds).floor(stream, head)
    said = [f"keep {keep} snapshots"] if keep else []
    said += [f"keep what is younger than {keep_within}"] if keep_within else []
    session.carry_out(found.change(Prune(to=floor, note=" and ".join(said))))
