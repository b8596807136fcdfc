"""`sluicegate checkpoint diff`."""

from __future__ import annotations

from typing import Annotated

import typer

from sluicegate_cli.session import Session

EXAMPLES = (
    ("checkpoint diff orders@41 orders@42", "what batch 42 changed"),
    ("checkpoint diff clicks@40 clicks@41", "what snapshot 41 changed in a gated stream"),
    ("checkpoint diff /data/orders/checkpoint /backup/orders", "two checkpoints, newest batches"),
)
DOCUMENTS = ("sluicegate.diff",)


def run(
    ctx: typer.Context,
    left: Annotated[str, typer.Argument(metavar="TARGET[@N]", help="one side")],
    right: Annotated[str, typer.Argument(metavar="TARGET[@N]", help="the other side")],
) -> None:
    """Compare two batches of a checkpoint, two snapshots of a gated stream, or two checkpoints.

    Shows the offsets, the watermark, the fixed settings, the operators and their partitions
    that differ. Without @N, the newest batch or snapshot is used.
    """
    session = Session.of(ctx)
    (ours, at), (theirs, other_at) = _split(left), _split(right)
    session.sink.show(session.target(ours).compare(at, session.target(theirs), other_at))


def _split(word: str) -> tuple[str, int | None]:
    target, at, number = word.rpartition("@")
    return (target, int(number)) if at and number.isascii() and number.isdigit() else (word, None)
