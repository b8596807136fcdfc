"""`sluicegate checkpoint inspect`."""

from __future__ import annotations

from typing import Annotated

import typer

from sluicegate_cli.options import AsOption, TargetArgument
from sluicegate_cli.session import Session, refuse_options

EXAMPLES = (
    ("checkpoint inspect /data/orders/checkpoint", "by path; Spark need not be installed"),
    ("checkpoint inspect orders --json", "by name, complete"),
    ("checkpoint inspect clicks --snapshot 41", "a gated stream, as it was at snapshot 41"),
    ("checkpoint inspect old/checkpoint-42.bin", "a legacy checkpoint file"),
)
DOCUMENTS = ("sluicegate.checkpoint", "sluicegate.stream", "sluicegate.v1-checkpoint")


def run(
    ctx: typer.Context,
    target: TargetArgument = None,
    snapshot: Annotated[
        int | None,
        typer.Option(metavar="N", help="gated streams only: show snapshot N; default: the newest"),
    ] = None,
    as_: AsOption = None,
) -> None:
    """Show the position and content of a checkpoint.

    For a Spark checkpoint: query id, last batch and commit, what the next start will do, watermark,
    offsets of every source, settings that override the session's, operators with the versions and
    size of their state, and the oldest batch that a rollback can restore. For a gated stream: the
    newest snapshot, the current writer and whether it is alive, positions, counters and state.
    Safe while the job runs.
    """
    session = Session.of(ctx)
    found = session.target(target, as_)
    refuse_options(found, snapshot=snapshot)
    session.sink.show(found.inspect(snapshot))
