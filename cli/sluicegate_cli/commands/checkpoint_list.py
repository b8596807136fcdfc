"""`sluicegate checkpoint list`."""

from __future__ import annotations

from typing import Annotated

import typer

from sluicegate.checkpoint.inspect import Batch, read_batches
from sluicegate.checkpoint.view import look_at
from sluicegate.detection import TargetKind
from sluicegate.target import Target
from sluicegate_cli.options import AsOption, TargetArgument
from sluicegate_cli.output import Table, View
from sluicegate_cli.output.checkpoint import moment, offset_document, offset_text
from sluicegate_cli.session import Session

EXAMPLES = (
    ("checkpoint list orders", "the newest 20 batches"),
    ("checkpoint list orders --last 500", "more of them"),
    ("checkpoint list clicks", "the links of a gated stream"),
)


def run(
    ctx: typer.Context,
    target: TargetArgument = None,
    last: Annotated[int, typer.Option(metavar="N", min=1, help="how many, newest last")] = 20,
    as_: AsOption = None,
) -> None:
    """List the batches of a checkpoint: when planned, whether committed, what was read.

    The number of events is known where offsets count events, as Kafka's do. Of a gated stream, the
    links are listed: what each did, when, by whom, and where the stream was afterwards.
    """
    session = Session.of(ctx)
    found = session.target(target, as_)
    if found.kind is TargetKind.STREAM:
        session.sink.show(_links(found, last))
        return
    look = look_at(session.spark_checkpoint(target, as_))
    batches = list(read_batches(look, last))
    session.sink.show(_view(batches, of=len(look.offsets.batches)))


def _links(target: Target, last: int) -> View:
    from sluicegate.stream.inspect import recent
    from sluicegate_cli.output.stream import links_view
    from sluicegate_cli.streams import stream_of

    stream = stream_of(target)
    head = stream.chain.head()
    return links_view(recent(stream, last), head.number - head.floor + 1)


def _view(batches: list[Batch], of: int) -> View:
    rows = [
        (
            batch.number,
            moment(batch.planned_ms),
            "yes" if batch.committed else "no",
            batch.events,
            batch.problem or "; ".join(offset_text(offset) for offset in batch.offsets),
        )
        for batch in batches
    ]
    hidden = of - len(batches)
    return View(
        schema="sluicegate.batches",
        document={"kept": of, "batches": [_document(batch) for batch in batches]},
        tables=[Table(("batch", "planned", "committed", "events", "offsets at its end"), rows)],
        lines=[f"{hidden} older batches; show them with --last {of}"] if hidden else [],
    )


def _document(batch: Batch) -> dict[str, object]:
    return {
        "batch": batch.number,
        "planned_at_ms": batch.planned_ms,
        "committed": batch.committed,
        "events": batch.events,
        "sources": [offset_document(offset) for offset in batch.offsets],
        "problem": batch.problem,
    }
