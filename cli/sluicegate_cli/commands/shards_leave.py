"""`sluicegate shards leave`."""

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
    ("shards leave clicks node-3 --dry-run", "where would its shards go?"),
    ("shards leave partitions.json 4 --output smaller.json", "empty a Kafka broker"),
)
DOCUMENTS = ("sluicegate.plan",)


def run(
    ctx: typer.Context,
    target: OwnerArgument,
    nodes: NodesArgument,
    idempotent: IdempotentOption = False,
    max_moves: MaxMovesOption = None,
    output: OutputOption = None,
    force: Annotated[bool, typer.Option("--force", help="even if no node is left")] = False,
    as_: AsOption = None,
) -> None:
    """Remove nodes. Their shards move to the others, and as few other shards move as possible.

    Removing the last node needs --force: then no shard has an owner, and Spark decides how the
    work is distributed.
    """
    from sluicegate.shards.membership import leave

    session = Session.of(ctx)
    found = session.target(target, as_).shards()
    current = found.assignment
    plan = leave(current, nodes, idempotent=idempotent, force=force, max_moves=max_moves)
    session.carry_out(found.change(plan, "leave", f"leave {', '.join(nodes)}", output=output))
