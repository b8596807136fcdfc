"""`sluicegate offsets export`."""

from __future__ import annotations

from typing import Annotated

import typer

from sluicegate.positions import PositionsForm, render, to_spark
from sluicegate.spark.diff import read_point
from sluicegate.spark.export import exported_positions
from sluicegate_cli.options import AsOption, TargetArgument
from sluicegate_cli.output import View
from sluicegate_cli.session import Session

EXAMPLES = (
    ("offsets export orders", "Spark's JSON, for startingOffsets"),
    ("offsets export orders --format csv", "for kafka-consumer-groups --reset-offsets --from-file"),
    ("offsets export orders --format rpk", "for rpk group seek --to-file"),
)


def run(
    ctx: typer.Context,
    target: TargetArgument = None,
    form: Annotated[
        PositionsForm, typer.Option("--format", help="how to write them")
    ] = PositionsForm.SPARK,
    batch: Annotated[int | None, typer.Option(metavar="N", help="of batch N; the newest")] = None,
    as_: AsOption = None,
) -> None:
    """Write the positions of a target to standard output, in a form that other tools read.

    Only offsets that are positions can be exported: topic, partition and number, as Kafka's.
    """
    session = Session.of(ctx)
    point = read_point(session.spark_checkpoint(target, as_), batch)
    positions = exported_positions(point)
    session.sink.show(
        View(
            schema="sluicegate.positions",
            document={"batch": point.entry.batch, "positions": to_spark(positions)},
            text=render(positions, form),
        )
    )
