"""`sluicegate checkpoint list`."""

from __future__ import annotations

from typing import Annotated

import typer

from sluicegate_cli.options import AsOption, TargetArgument
from sluicegate_cli.session import Session

EXAMPLES = (
    ("checkpoint list orders", "the newest 20 batches"),
    ("checkpoint list orders --last 500", "more of them"),
    ("checkpoint list clicks", "the snapshots of a gated stream"),
)
DOCUMENTS = ("sluicegate.batches", "sluicegate.snapshots")


def run(
    ctx: typer.Context,
    target: TargetArgument = None,
    last: Annotated[int, typer.Option(metavar="N", min=1, help="how many, newest last")] = 20,
    as_: AsOption = None,
) -> None:
    """List the batches of a checkpoint: when planned, whether committed, how many events.

    The number of events is known where offsets count events, as in Kafka. For gated streams, the
    snapshots are listed: kind, time, author, and the position of the stream afterwards.
    """
    session = Session.of(ctx)
    session.sink.show(session.target(target, as_).batches(last))
