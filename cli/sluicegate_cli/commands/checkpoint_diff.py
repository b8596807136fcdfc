"""`sluicegate checkpoint diff`."""

from __future__ import annotations

from typing import Annotated

import typer

from sluicegate.checkpoint.inspect import Point, compare, read_point
from sluicegate.detection import TargetKind
from sluicegate.stream import inspect as streams
from sluicegate.stream.snapshot import Link
from sluicegate.stream.stream import Stream
from sluicegate.target import Difference
from sluicegate_cli.output import Table, View
from sluicegate_cli.session import Session
from sluicegate_cli.streams import stream_of

EXAMPLES = (
    ("checkpoint diff orders@41 orders@42", "what batch 42 changed"),
    ("checkpoint diff clicks@40 clicks@41", "what link 41 changed in a gated stream"),
    ("checkpoint diff /data/orders/checkpoint /backup/orders", "two checkpoints, newest batches"),
)


def run(
    ctx: typer.Context,
    left: Annotated[str, typer.Argument(metavar="TARGET[@N]", help="one side")],
    right: Annotated[str, typer.Argument(metavar="TARGET[@N]", help="the other side")],
) -> None:
    """Compare two batches of a checkpoint, two links of a gated stream, or two checkpoints.

    Shows the offsets, the watermark, the pinned settings, the operators and their partitions
    that differ. Without @N the newest counts.
    """
    session = Session.of(ctx)
    if _is_stream(session, left) and _is_stream(session, right):
        ours_at, theirs_at = _link(session, left), _link(session, right)
        sides = [f"{stream.uri}@{link.number}" for stream, link in (ours_at, theirs_at)]
        session.sink.show(_view(sides, list(streams.compare(ours_at, theirs_at))))
        return
    ours, theirs = _point(session, left), _point(session, right)
    sides = [f"{point.uri}@{point.entry.batch}" for point in (ours, theirs)]
    session.sink.show(_view(sides, list(compare(ours, theirs))))


def _split(word: str) -> tuple[str, int | None]:
    target, at, number = word.rpartition("@")
    return (target, int(number)) if at and number.isascii() and number.isdigit() else (word, None)


def _is_stream(session: Session, word: str) -> bool:
    return session.target(_split(word)[0]).kind is TargetKind.STREAM


def _link(session: Session, word: str) -> tuple[Stream, Link]:
    target, number = _split(word)
    stream = stream_of(session.target(target))
    return stream, stream.chain.head() if number is None else stream.chain.read(number)


def _point(session: Session, word: str) -> Point:
    target, number = _split(word)
    return read_point(session.spark_checkpoint(target), number)


def _view(sides: list[str], found: list[Difference]) -> View:
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
