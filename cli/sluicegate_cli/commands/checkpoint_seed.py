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


def run(
    ctx: typer.Context,
    directory: Annotated[str, typer.Argument(metavar="NEW_DIR", help="where to make it")],
    offsets: Annotated[
        str | None, typer.Option(metavar="FILE", help="where it starts: JSON, CSV, rpk")
    ] = None,
    form: Annotated[
        PositionsForm | None, typer.Option("--format", help="of the file; else as it looks")
    ] = None,
    source_offset: Annotated[
        str | None, typer.Option(metavar="JSON", help="where it starts, as its source writes it")
    ] = None,
) -> None:
    """Make a fresh checkpoint of a query with one source, which starts at given offsets.

    An existing checkpoint always wins over startingOffsets; this is the way to have both. Of
    Kafka, the next offsets to read come from a file, such as `sluicegate offsets export` writes.
    Of a Python data source, the offset is given as it stands in an offset log.
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
