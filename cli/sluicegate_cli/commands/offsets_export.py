"""`sluicegate offsets export`."""

from __future__ import annotations

from typing import Annotated

import typer

from sluicegate.offsets import legacy
from sluicegate.positions import PositionsForm, render, to_spark
from sluicegate.report import Report, document
from sluicegate.target import Origin
from sluicegate_cli.options import AsOption, ConsumerOption, TargetArgument
from sluicegate_cli.session import Session, refuse_options

CHANGES = True
EXAMPLES = (
    ("offsets export orders", "Spark's JSON, for startingOffsets"),
    ("offsets export orders --format csv", "for kafka-consumer-groups --reset-offsets --from-file"),
    ("offsets export orders --format rpk", "for rpk group seek --to-file"),
    ("offsets export /data/offsets --consumer billing --into old", "as legacy offset files"),
)
DOCUMENTS = ("sluicegate.positions", "sluicegate.plan")


@document("sluicegate.positions", version=1)
class PositionsDocument(Origin):
    """The positions of a target, and where they come from."""

    positions: dict[str, dict[str, int]]  # topic, partition, next offset


def run(
    ctx: typer.Context,
    target: TargetArgument = None,
    form: Annotated[
        PositionsForm, typer.Option("--format", help="output format")
    ] = PositionsForm.SPARK,
    batch: Annotated[
        int | None, typer.Option(metavar="N", help="positions of batch or snapshot N")
    ] = None,
    consumer: ConsumerOption = None,
    into: Annotated[
        str | None,
        typer.Option(metavar="DIR", help="write legacy offset files to this directory"),
    ] = None,
    as_: AsOption = None,
) -> None:
    """Write the positions of a target to standard output, in a format that other tools read.

    Only offsets with topic, partition and number can be exported, as Kafka's. With --into they
    are written as legacy offset files (topic-<t>-consumer-<c>.offset) instead, for topics whose
    names are numbers.
    """
    session = Session.of(ctx)
    found = session.target(target, as_, consumer=consumer)
    refuse_options(found, batch=batch, consumer=consumer)
    origin, positions = found.positions(batch)
    if into is not None:
        plan = legacy.plan_write(into, positions)
        session.change(plan, lambda _: legacy.write(into, positions))
        return
    document: PositionsDocument = {**origin, "positions": to_spark(positions)}
    text = render(positions, form)
    session.sink.show(Report(schema="sluicegate.positions", document=document, text=text))
