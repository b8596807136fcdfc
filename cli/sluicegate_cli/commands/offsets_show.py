"""`sluicegate offsets show`."""

from __future__ import annotations

from typing import Annotated

import typer

from sluicegate.spark.diff import read_point
from sluicegate.spark.offset_log import OffsetEntry, SourceOffset
from sluicegate_cli.options import AsOption, TargetArgument
from sluicegate_cli.output import Table, View
from sluicegate_cli.session import Session
from sluicegate_cli.views.checkpoint import moment, offset_document, offset_text

EXAMPLES = (
    ("offsets show orders", "where the next batch begins to read"),
    ("offsets show /data/orders/checkpoint --batch 41", "where batch 41 ended"),
)

Row = tuple[str, str, str | None, int | None, str | int]


def run(
    ctx: typer.Context,
    target: TargetArgument = None,
    batch: Annotated[int | None, typer.Option(metavar="N", help="of batch N; the newest")] = None,
    as_: AsOption = None,
) -> None:
    """Show the positions of a target: the next offset to read, per topic and partition."""
    session = Session.of(ctx)
    point = read_point(session.spark_checkpoint(target, as_), batch)
    session.sink.show(_view(point.uri, point.entry))


def _view(uri: str, entry: OffsetEntry) -> View:
    rows = [row for offset in entry.offsets for row in _rows(offset)]
    return View(
        schema="sluicegate.offsets",
        document={
            "checkpoint": uri,
            "batch": entry.batch,
            "planned_at_ms": entry.timestamp_ms,
            "sources": [offset_document(offset) for offset in entry.offsets],
        },
        tables=[Table(("source", "kind", "topic", "partition", "next offset"), rows)],
        lines=[f"At the end of batch {entry.batch}, planned {moment(entry.timestamp_ms)}."],
    )


def _rows(offset: SourceOffset) -> list[Row]:
    kind = offset.kind.value
    if offset.positions is None:
        return [(offset.source, kind, None, None, offset_text(offset))]
    return [(offset.source, kind, p.topic, p.partition, p.offset) for p in offset.positions]
