"""`sluicegate checkpoint seed`."""

from __future__ import annotations

import uuid
from typing import Annotated

import typer

from sluicegate.positions import PositionsForm
from sluicegate.spark.change.fresh import plan_seed, seed
from sluicegate_cli.session import Session
from sluicegate_cli.stores import read_positions

CHANGES = True
EXAMPLES = (
    ("checkpoint seed /data/orders/new --offsets orders.csv", "from exported positions"),
    ("checkpoint seed /data/orders/new --offsets -", "from standard input"),
)


def run(
    ctx: typer.Context,
    directory: Annotated[str, typer.Argument(metavar="NEW_DIR", help="where to make it")],
    offsets: Annotated[str, typer.Option(metavar="FILE", help="where it starts: JSON, CSV, rpk")],
    form: Annotated[
        PositionsForm | None, typer.Option("--format", help="of the file; else as it looks")
    ] = None,
) -> None:
    """Make a fresh checkpoint of a query with one Kafka source, which starts at given offsets.

    An existing checkpoint always wins over startingOffsets; this is the way to have both. The
    next offsets to read come from a file, such as `sluicegate offsets export` writes.
    """
    session = Session.of(ctx)
    positions = read_positions(offsets, form)
    query_id = str(uuid.uuid4())
    plan = plan_seed(directory, positions, query_id)
    session.change(plan, lambda _: seed(directory, positions, query_id))
