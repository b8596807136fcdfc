"""`sluicegate offsets import`."""

from __future__ import annotations

from typing import Annotated

import typer

from sluicegate.errors import UsageError
from sluicegate.offsets import legacy
from sluicegate.offsets.operations import Import
from sluicegate.offsets.target import OffsetStoreTarget
from sluicegate.positions import Positions, PositionsForm
from sluicegate.storage import local_root, open_storage
from sluicegate_cli.inputs import read_positions
from sluicegate_cli.options import AsOption, ForceOption
from sluicegate_cli.session import Session

CHANGES = True
SAVES_PLAN = True
EXAMPLES = (
    ("offsets import /data/offsets orders.csv --consumer billing", "from Kafka's CSV"),
    ("offsets import /data/offsets - --consumer billing", "from standard input"),
    (
        "offsets import /data/offsets /var/lib/old/my-service --consumer my-service",
        "a directory of topic-<t>-consumer-<c>.offset files",
    ),
)
DOCUMENTS = ("sluicegate.plan",)


def run(
    ctx: typer.Context,
    target: Annotated[str, typer.Argument(metavar="STORE", help="an offset store")],
    source: Annotated[str, typer.Argument(metavar="FILE|DIRECTORY|-", help="the positions")],
    consumer: Annotated[str, typer.Option(metavar="NAME", help="consumer that gets the positions")],
    form: Annotated[
        PositionsForm | None,
        typer.Option("--format", help="format of the file; detected by default"),
    ] = None,
    replace: Annotated[
        bool, typer.Option("--replace", help="delete positions that are not in the file")
    ] = False,
    force: ForceOption = False,
    as_: AsOption = None,
) -> None:
    """Set positions of a consumer from a file: Spark's JSON, Kafka's CSV or rpk's text.

    A directory is read as legacy offset files: topic-<t>-consumer-<c>.offset becomes partition <c>
    of topic <t>. Positions that are not in the file are kept, unless --replace is set. To create
    a store, use `sluicegate init --store`.
    """
    session = Session.of(ctx)
    found = session.open(OffsetStoreTarget, target, as_)
    store = found.store()
    positions = _read(source, form)
    operation = Import.of(store, consumer, positions, replace=replace, force=force)
    session.carry_out(found.change(store, operation))


def _read(source: str, form: PositionsForm | None) -> Positions:
    if source == "-" or not local_root(source).is_dir():
        return read_positions(source, form)
    if form is not None:
        raise UsageError("--format applies to files only; a directory holds legacy offset files")
    return legacy.read(open_storage(source, read_only=True))
