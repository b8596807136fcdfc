"""`sluicegate shards locate`."""

from __future__ import annotations

from typing import Annotated

import typer

from sluicegate_cli.options import AsOption, OwnerArgument
from sluicegate_cli.output.shards import located_view
from sluicegate_cli.session import Session

EXAMPLES = (("shards locate clicks alice bob", "which shard and node have these keys?"),)


def run(
    ctx: typer.Context,
    target: OwnerArgument,
    keys: Annotated[list[str], typer.Argument(metavar="KEY...", help="values of the key column")],
    as_: AsOption = None,
) -> None:
    """Say of keys to which shard they belong, and which node owns it.

    A key belongs to the shard FNV-1a 64 of its UTF-8 bytes, modulo the number of shards. Kafka
    chooses partitions by another rule, so keys are not located in its files.
    """
    session = Session.of(ctx)
    session.sink.show(located_view(session.target(target, as_).shards(), keys))
