"""`sluicegate checkpoint seed`."""

from __future__ import annotations

import uuid
from typing import Annotated

import typer

from sluicegate.checkpoint.operations.relocate import Start, parse_offset, plan_seed, seed
from sluicegate.errors import UsageError
from sluicegate.positions import PositionsForm
from sluicegate_cli.inputs import read_positions
from sluicegate_cli.session import Session

CHANGES = True
EXAMPLES = (
    ("checkpoint seed /data/orders/new --offsets orders.csv", "from exported positions"),
    ("checkpoint seed /data/orders/new --offsets -", "from standard input"),
    (
        """checkpoint seed /data/orders/new --source-offset '{"next": 42}'""",
        "for a source of your own, as the offset log of another checkpoint shows it",
    ),
)
DOCUMENTS = ("sluicegate.plan",)


def run(
    ctx: typer.Context,
    directory: Annotated[
        str, typer.Argument(metavar="NEW_DIR", help="directory of the new checkpoint")
    ],
    offsets: Annotated[
        str | None, typer.Option(metavar="FILE", help="start offsets: JSON, CSV or rpk")
    ] = None,
    form: Annotated[
        PositionsForm | None,
        typer.Option("--format", help="format of the file; detected by default"),
    ] = None,
    source_offset: Annotated[
        str | None, typer.Option(metavar="JSON", help="start offset, as its source writes it")
    ] = None,
) -> None:
    """Create a checkpoint for a query with one source, which starts at chosen offsets.

    Spark ignores startingOffsets once a checkpoint exists; this creates a checkpoint that starts
    at your offsets. For Kafka, the next offsets to read come from a file, such as the output of
    `sluicegate offsets export`. For a Python data source, write the offset as in an offset log.
    """
    session = Session.of(ctx)
    start = _start(offsets, form, source_offset)
    query_id = str(uuid.uuid4())
    plan = plan_seed(directory, start, query_id)
    session.change(plan, lambda _: seed(directory, start, query_id))


def _start(offsets: str | None, form: PositionsForm | None, source_offset: str | None) -> Start:
    if (offsets is None) is (source_offset is None):
        raise UsageError("one of --offsets FILE and --source-offset JSON is needed")
    return (
        read_positions(offsets, form) if offsets is not None else parse_offset(source_offset or "")
    )
