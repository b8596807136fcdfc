"""`sluicegate shards show`."""

from __future__ import annotations

import typer

from sluicegate_cli.inputs import shard_weights
from sluicegate_cli.options import AsOption, ShardsArgument, WeightsOption
from sluicegate_cli.output import Mode
from sluicegate_cli.output.shards import shards_view
from sluicegate_cli.session import Session

EXAMPLES = (
    ("shards show clicks", "how many shards does each node have?"),
    ("shards show clicks --weights keys", "by the number of keys in their state"),
    ("shards show partitions.json", "a plain assignment file, such as Kafka's"),
)
DOCUMENTS = ("sluicegate.shards",)


def run(
    ctx: typer.Context,
    target: ShardsArgument = None,
    weights: WeightsOption = None,
    as_: AsOption = None,
) -> None:
    """Show the nodes of a stream, or of an assignment file, and the load of each.

    The imbalance is how far the most loaded node is above its share, which is in proportion to its
    capacity.
    """
    session = Session.of(ctx)
    found = session.target(target, as_).shards()
    column, measure = shard_weights(found, weights)
    bars = session.sink.mode is Mode.TABLE
    session.sink.show(shards_view(found, column, measure, bars=bars))
