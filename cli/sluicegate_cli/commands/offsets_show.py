"""`sluicegate offsets show`."""

from __future__ import annotations

from typing import Annotated

import typer

from sluicegate.checkpoint.format.offset_log import OffsetEntry, SourceOffset
from sluicegate.checkpoint.inspect import read_point
from sluicegate.detection import TargetKind
from sluicegate.errors import EXIT_DONE, ProblemsFound
from sluicegate.findings import has_errors
from sluicegate.offsets.verify import look_at
from sluicegate.target import Target
from sluicegate_cli.options import AsOption, ConsumerOption, TargetArgument, refuse_option
from sluicegate_cli.output import Table, View
from sluicegate_cli.output.checkpoint import moment, offset_document, offset_text
from sluicegate_cli.output.store import reference_view, store_view
from sluicegate_cli.output.stream import positions_view
from sluicegate_cli.session import Session
from sluicegate_cli.stores import is_reference, open_store, read_reference
from sluicegate_cli.streams import stream_of

EXAMPLES = (
    ("offsets show orders", "where the next batch begins to read"),
    ("offsets show /data/orders/checkpoint --batch 41", "where batch 41 ended"),
    ("offsets show /data/offsets --consumer billing", "of an offset store, with ages"),
)
FINDINGS = ("SG-STORE-",)

Row = tuple[str, str, str | None, int | None, str | int]


def run(
    ctx: typer.Context,
    target: TargetArgument = None,
    batch: Annotated[int | None, typer.Option(metavar="N", help="of batch or link N")] = None,
    consumer: ConsumerOption = None,
    as_: AsOption = None,
) -> int:
    """Show the positions of a target: the next offset to read, per topic and partition.

    Of an offset store, all consumers or one, with when each position was committed.
    """
    session = Session.of(ctx)
    found = session.target(target, as_)
    if found.kind is TargetKind.OFFSET_STORE:
        refuse_option("--batch", batch, "Spark checkpoints")
        return _show_store(session, found, consumer)
    refuse_option("--consumer", consumer, "offset stores")
    if found.kind is TargetKind.STREAM:
        session.sink.show(_stream_view(found, batch))
        return EXIT_DONE
    point = read_point(session.spark_checkpoint(target, as_), batch)
    session.sink.show(_view(point.uri, point.entry))
    return EXIT_DONE


def _stream_view(target: Target, number: int | None) -> View:
    stream = stream_of(target)
    link = stream.chain.head() if number is None else stream.chain.read(number)
    return positions_view(stream.uri, link)


def _show_store(session: Session, target: Target, consumer: str | None) -> int:
    if is_reference(target):
        session.sink.show(reference_view(target.uri, read_reference(target)))
        return EXIT_DONE
    store = open_store(session, target)
    look = look_at(store, store.choose(consumer) if consumer is not None else None)
    session.sink.show(store_view(store.uri, look))
    return ProblemsFound.exit_code if has_errors(look.findings) else EXIT_DONE


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
