"""`sluicegate shards locate`."""

from __future__ import annotations

from typing import Annotated

import typer

from sluicegate_cli.options import AsOption, OwnerArgument
from sluicegate_cli.output.shards import located_view
from sluicegate_cli.session import Session

EXAMPLES = (("shards locate clicks alice bob", "which shard and node have these keys?"),)
DOCUMENTS = ("sluicegate.shards-locate",)


def run(
    ctx: typer.Context,
    target: OwnerArgument,
    keys: Annotated[list[str], typer.Argument(metavar="KEY...", help="values of the key column")],
    as_: AsOption = None,
) -> None:
    """Show the shard of each key, and the node that owns the shard.

    The shard of a key is FNV-1a 64 of its UTF-8 bytes, modulo the number of shards. Kafka assigns
    keys to partitions by another rule, so Kafka files are refused.
    """
    session = Session.of(ctx)
    session.sink.show(located_view(session.target(target, as_).shards(), keys))
