"""`sluicegate dedup check`."""

from __future__ import annotations

from typing import Annotated, TypedDict

import typer

from sluicegate.dedup.stamp import Stamp
from sluicegate.report import Report, Table, document
from sluicegate.stream.dedup_log import Answer, ask
from sluicegate.stream.target import GatedStream
from sluicegate_cli.options import AsOption
from sluicegate_cli.session import Session

EXAMPLES = (
    ("dedup check clicks checkout/0/42", "was message 42 of partition 0 of checkout applied?"),
)
DOCUMENTS = ("sluicegate.dedup-check",)


class StampDocument(TypedDict):
    """One stamp."""

    stamp: str
    verdict: str  # `fresh`, `seen` or `expired`
    snapshot: int | None  # of the epoch that saw it; null: not seen, or no longer kept


@document("sluicegate.dedup-check", version=1)
class DedupCheckDocument(TypedDict):
    """Whether a gated stream has seen stamps."""

    stamps: list[StampDocument]


def run(
    ctx: typer.Context,
    target: Annotated[str, typer.Argument(metavar="STREAM", help="a gated stream")],
    stamps: Annotated[
        list[str],
        typer.Argument(metavar="STAMP...", help="event ids, as PRODUCER/PARTITION/SEQUENCE"),
    ],
    as_: AsOption = None,
) -> None:
    """Check whether the stream has seen stamps (event ids), and in which snapshot if still kept.

    `expired` is below the retention floor: it is no longer known whether it was seen.
    """
    session = Session.of(ctx)
    stream = session.open(GatedStream, target, as_).stream
    session.sink.show(_view(ask(stream, [Stamp.parse(each) for each in stamps])))


def _view(answers: list[Answer]) -> Report:
    rows = [(str(each.stamp), each.verdict, each.snapshot) for each in answers]
    document: DedupCheckDocument = {
        "stamps": [{"stamp": s, "verdict": v, "snapshot": snapshot} for s, v, snapshot in rows],
    }
    return Report(
        schema="sluicegate.dedup-check",
        document=document,
        tables=[Table(("stamp", "verdict", "snapshot"), rows)],
    )
