"""`sluicegate checkpoint export`."""

from __future__ import annotations

from typing import Annotated

import typer

from sluicegate.stream.operations.import_v1 import plan_write_v1, to_v1, write_v1
from sluicegate.stream.target import GatedStream
from sluicegate_cli.options import AsOption
from sluicegate_cli.session import Session

CHANGES = True
EXAMPLES = (("checkpoint export clicks checkpoint-42.bin", "for a system that reads such files"),)
DOCUMENTS = ("sluicegate.plan",)


def run(
    ctx: typer.Context,
    target: Annotated[str, typer.Argument(metavar="STREAM", help="a gated stream")],
    file: Annotated[str, typer.Argument(metavar="FILE", help="the new file; never overwritten")],
    snapshot: Annotated[
        int | None, typer.Option(metavar="N", help="write snapshot N; default: the newest")
    ] = None,
    as_: AsOption = None,
) -> None:
    """Write a snapshot of a gated stream as a legacy checkpoint file (format v1).

    Refused if data would be lost: such a file holds operator states and one offset per source,
    but no state per shard and no partitions.
    """
    session = Session.of(ctx)
    stream, at = session.open(GatedStream, target, as_).snapshot(snapshot)
    checkpoint = to_v1(stream, at)
    plan = plan_write_v1(file, checkpoint, at.number)
    session.change(plan, lambda _: write_v1(file, checkpoint))
