"""`sluicegate checkpoint diff`."""

from __future__ import annotations

from typing import Annotated

import typer

from sluicegate.spark.diff import Difference, Point, compare, read_point
from sluicegate_cli.output import Table, View
from sluicegate_cli.session import Session

EXAMPLES = (
    ("checkpoint diff orders@41 orders@42", "what batch 42 changed"),
    ("checkpoint diff /data/orders/checkpoint /backup/orders", "two checkpoints, newest batches"),
)


def run(
    ctx: typer.Context,
    left: Annotated[str, typer.Argument(metavar="TARGET[@BATCH]", help="one side")],
    right: Annotated[str, typer.Argument(metavar="TARGET[@BATCH]", help="the other side")],
) -> None:
    """Compare two batches of a checkpoint, or two checkpoints.

    Shows the offsets, the watermark, the pinned settings, the operators and their partitions
    that differ. Without @BATCH the newest batch counts.
    """
    session = Session.of(ctx)
    ours, theirs = _point(session, left), _point(session, right)
    session.sink.show(_view(ours, theirs, list(compare(ours, theirs))))


def _point(session: Session, word: str) -> Point:
    target, at, batch = word.rpartition("@")
    if at and batch.isascii() and batch.isdigit():
        return read_point(session.spark_checkpoint(target), int(batch))
    return read_point(session.spark_checkpoint(word), None)


def _view(left: Point, right: Point, found: list[Difference]) -> View:
    sides = [f"{point.uri}@{point.entry.batch}" for point in (left, right)]
    rows = [(each.what, each.left, each.right) for each in found]
    columns = ("what", "left", "right")
    return View(
        schema="sluicegate.diff",
        document={
            "left": sides[0],
            "right": sides[1],
            "differences": [dict(zip(columns, row, strict=True)) for row in rows],
        },
        tables=[Table(columns, rows, title=f"{sides[0]} against {sides[1]}")],
        lines=[] if rows else [f"{sides[0]} and {sides[1]} do not differ."],
    )
