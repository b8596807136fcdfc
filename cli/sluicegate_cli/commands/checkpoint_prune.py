"""`sluicegate checkpoint prune`."""

from __future__ import annotations

from typing import Annotated

import typer

from sluicegate.errors import UsageError
from sluicegate.stream.gc import Retention
from sluicegate.stream.operations.prune import Prune
from sluicegate.stream.target import GatedStream
from sluicegate.units import counted, parse_duration
from sluicegate_cli.options import AsOption, TargetArgument
from sluicegate_cli.session import Session

CHANGES = True
SAVES_PLAN = True
EXAMPLES = (
    ("checkpoint prune clicks --keep-within 7d --dry-run", "what would be removed?"),
    ("checkpoint prune clicks --keep 1000 --keep-within 24h", "keep snapshots that match either"),
)
DOCUMENTS = ("sluicegate.plan",)


def run(
    ctx: typer.Context,
    target: TargetArgument = None,
    keep: Annotated[
        int | None,
        typer.Option("--keep", metavar="N", min=1, help="keep the newest N snapshots"),
    ] = None,
    keep_within: Annotated[
        str | None,
        typer.Option(metavar="DURATION", help="keep snapshots younger than this: 7d or PT12H"),
    ] = None,
    as_: AsOption = None,
) -> None:
    """Remove old snapshots of a gated stream, and files that nothing refers to any more.

    A pruned snapshot cannot be restored. The newest snapshot is always kept. The oldest kept
    snapshot is committed into the chain before files are removed, so the stream stays intact if
    this is interrupted.
    """
    session = Session.of(ctx)
    if keep is None and keep_within is None:
        raise UsageError("choose what to keep with --keep N or --keep-within DURATION")
    found = session.open(GatedStream, target, as_)
    stream, head = found.snapshot(None)
    seconds = parse_duration(keep_within) if keep_within else 0.0
    floor = Retention(keep or 1, seconds).floor(stream, head)
    rules = [f"keep {counted(keep, 'snapshot')}"] if keep else []
    rules += [f"keep snapshots younger than {keep_within}"] if keep_within else []
    session.carry_out(found.change(Prune(to=floor, note=" and ".join(rules))))
