"""`sluicegate checkpoint inspect`."""

from __future__ import annotations

from typing import Annotated

import typer

from sluicegate.checkpoint.inspect import inspect
from sluicegate.detection import TargetKind
from sluicegate.target import Target
from sluicegate_cli.options import AsOption, TargetArgument, refuse_option
from sluicegate_cli.output import View
from sluicegate_cli.output.checkpoint import inspect_view
from sluicegate_cli.session import Session

EXAMPLES = (
    ("checkpoint inspect /data/orders/checkpoint", "by path; Spark need not be installed"),
    ("checkpoint inspect orders --json", "by name, complete"),
    ("checkpoint inspect clicks --link 41", "a gated stream, as it was at link 41"),
    ("checkpoint inspect old/checkpoint-42.bin", "a v1 checkpoint file"),
)


def run(
    ctx: typer.Context,
    target: TargetArgument = None,
    link: Annotated[
        int | None, typer.Option(metavar="N", help="of a gated stream: at link N; the newest")
    ] = None,
    as_: AsOption = None,
) -> None:
    """Show where a checkpoint stands.

    Of a Spark checkpoint: query id, last batch and commit, what the next start will do, watermark,
    offsets of every source, settings that override the session's, operators with the versions and
    size of their state, and how far back a rollback can go. Of a gated stream: the newest link, who
    may seal and whether it is alive, positions, counters and state. Safe while the job runs.
    """
    session = Session.of(ctx)
    found = session.target(target, as_)
    if found.kind is not TargetKind.STREAM:
        refuse_option("--link", link, "gated streams")
    if found.kind in (TargetKind.STREAM, TargetKind.V1_CHECKPOINT):
        session.sink.show(_view(found, link))
    else:
        session.sink.show(inspect_view(inspect(session.spark_checkpoint(target, as_))))


def _view(target: Target, link: int | None) -> View:
    from sluicegate.stream import inspect as streams
    from sluicegate.stream.operations.import_v1 import read_v1
    from sluicegate_cli.output.stream import stream_view, v1_view
    from sluicegate_cli.streams import stream_of

    if target.kind is TargetKind.V1_CHECKPOINT:
        return v1_view(target.uri, read_v1(target.uri)[0])
    return stream_view(streams.inspect(stream_of(target), link))
