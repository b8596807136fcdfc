"""`sluicegate shards rebalance`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from sluicegate.units import counted
from sluicegate_cli.inputs import parse_capacities, parse_part, read_text, shard_weights
from sluicegate_cli.options import (
    AsOption,
    MaxMovesOption,
    OutputOption,
    ShardsArgument,
    WeightsOption,
)
from sluicegate_cli.session import Session

if TYPE_CHECKING:
    from sluicegate.shards.owned import OwnedShards

CHANGES = True
SAVES_PLAN = True
EXAMPLES = (
    ("shards rebalance clicks --dry-run", "is it out of balance, and what would have to move?"),
    ("shards rebalance clicks --weights keys --max-imbalance 10%", "by keys, with few moves"),
    ("shards rebalance partitions.json --max-moves 20 --output step.json", "Kafka, in steps"),
)
DOCUMENTS = ("sluicegate.plan",)


def run(
    ctx: typer.Context,
    target: ShardsArgument = None,
    weights: WeightsOption = None,
    max_moves: MaxMovesOption = None,
    max_imbalance: Annotated[
        str | None, typer.Option(metavar="PART", help="how far above its share a node may be")
    ] = None,
    capacity: Annotated[
        list[str] | None, typer.Option(metavar="NODE=N", help="new capacity of a node")
    ] = None,
    from_file: Annotated[
        str | None, typer.Option(metavar="FILE", help="install the assignment in this file as is")
    ] = None,
    output: OutputOption = None,
    as_: AsOption = None,
) -> None:
    """Balance the shards across the nodes again, with the fewest possible moves.

    Without --weights every node gets its share to within one shard, and no plan with fewer moves
    does. With --weights no node is more than --max-imbalance (5%) above its share afterwards; the
    plan also shows the lower bound of moves. --max-moves gives the best balance for that many
    moves. --from-file installs an assignment that was made elsewhere.
    """
    session = Session.of(ctx)
    found = session.target(target, as_).shards()
    if from_file is not None:
        _install(session, found, from_file, output)
        return
    from sluicegate.shards.membership import resize
    from sluicegate.shards.planner import DEFAULT_IMBALANCE, plan

    nodes = resize(found.assignment, parse_capacities(capacity))
    column, measure = shard_weights(found, weights)
    bound = parse_part(max_imbalance, "--max-imbalance")
    made = plan(found.assignment, nodes, column, max_moves=max_moves, max_imbalance=bound)
    asked = DEFAULT_IMBALANCE if bound is None and column is not None else bound
    note = _note(weights, max_moves, max_imbalance)
    change = found.change(made, "rebalance", note, output=output, bound=asked, measure=measure)
    session.carry_out(change)


def _install(session: Session, found: OwnedShards, place: str, output: str | None) -> None:
    from sluicegate.shards.describe import INSTALL
    from sluicegate.shards.files import parse
    from sluicegate.shards.membership import install

    made = parse(read_text(place), place)
    plan = install(found.assignment, made.assignment, made.version)
    session.carry_out(found.change(plan, INSTALL, f"install {place}", output=output))


def _note(weights: str | None, max_moves: int | None, max_imbalance: str | None) -> str:
    words = [
        f"weights {weights}" if weights else "",
        f"at most {counted(max_moves, 'move')}" if max_moves is not None else "",
        f"at most {max_imbalance} above the share" if max_imbalance else "",
    ]
    return ", ".join(word for word in words if word)
