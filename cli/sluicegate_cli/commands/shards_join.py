"""`sluicegate shards join`."""

from __future__ import annotations

from typing import Annotated

import typer

from sluicegate_cli.options import (
    AsOption,
    IdempotentOption,
    MaxMovesOption,
    NodesArgument,
    OutputOption,
    OwnerArgument,
)
from sluicegate_cli.session import Session

CHANGES = True
SAVES_PLAN = True
EXAMPLES = (
    ("shards join clicks node-1 node-2 --dry-run", "which shards would they get?"),
    ("shards join clicks node-3 --capacity 2", "twice as many shards as the others"),
)
DOCUMENTS = ("sluicegate.plan",)


def run(
    ctx: typer.Context,
    target: OwnerArgument,
    nodes: NodesArgument,
    capacity: Annotated[
        int, typer.Option(metavar="N", min=1, help="relative capacity of each of these nodes")
    ] = 1,
    idempotent: IdempotentOption = False,
    max_moves: MaxMovesOption = None,
    output: OutputOption = None,
    as_: AsOption = None,
) -> None:
    """Add nodes, and move their share of the shards to them with the fewest possible moves.

    In a gated stream a node is a group of shards that Spark processes in one task; no machine is
    started. A running job uses the new assignment from its next epoch on.
    """
    from sluicegate.shards.membership import join

    session = Session.of(ctx)
    found = session.target(target, as_).shards()
    wanted = dict.fromkeys(nodes, capacity)
    plan = join(found.assignment, wanted, idempotent=idempotent, max_moves=max_moves)
    session.carry_out(found.change(plan, "join", f"join {', '.join(nodes)}", output=output))
