"""`sluicegate shards weights`."""

from __future__ import annotations

from typing import Annotated

import typer

from sluicegate_cli.options import AsOption, ShardsArgument, WeightsOption
from sluicegate_cli.output.shards import weights_view
from sluicegate_cli.session import Session

EXAMPLES = (
    ("shards weights clicks", "which shards are heavy?"),
    ("shards weights map.csv --weights events.csv", "an assignment file, with weights from a file"),
)
DOCUMENTS = ("sluicegate.shards-weights",)


def run(
    ctx: typer.Context,
    target: ShardsArgument = None,
    weights: WeightsOption = None,
    limit: Annotated[int, typer.Option(metavar="N", min=1, help="heaviest shards to show")] = 50,
    as_: AsOption = None,
) -> None:
    """Show the weights of the shards, heaviest first: keys and bytes of their state, or a file.

    A file has lines of shard,weight, or JSON from shard to weight; shards that are not in it have
    weight 0. `shards rebalance --weights` uses the same weights.
    """
    session = Session.of(ctx)
    found = session.target(target, as_).shards()
    session.sink.show(weights_view(found, weights, limit))
