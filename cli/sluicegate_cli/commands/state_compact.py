"""`sluicegate state compact`."""

from __future__ import annotations

import typer

from sluicegate.stream.operations.compact import CompactState
from sluicegate.stream.target import GatedStream
from sluicegate_cli.options import AsOption, TargetArgument
from sluicegate_cli.session import Session

CHANGES = True
SAVES_PLAN = True
EXAMPLES = (("state compact clicks --dry-run", "is it worth it?"),)
DOCUMENTS = ("sluicegate.plan",)


def run(ctx: typer.Context, target: TargetArgument = None, as_: AsOption = None) -> None:
    """Merge the deltas of every shard into one. The state is the same before and after.

    A running job is not disturbed. A saved plan stays valid while the job runs, until the job
    itself merges the deltas that the plan names, after 16 epochs at most (exit code 5).
    """
    session = Session.of(ctx)
    session.carry_out(session.open(GatedStream, target, as_).change(CompactState()))
