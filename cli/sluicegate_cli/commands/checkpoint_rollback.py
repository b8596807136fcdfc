"""`sluicegate checkpoint rollback`."""

from __future__ import annotations

from typing import Annotated

import typer

from sluicegate.errors import UsageError
from sluicegate.target import Rollback
from sluicegate_cli.options import (
    AsOption,
    ForceOption,
    IntoOption,
    SinkOption,
    TargetArgument,
    UncheckedOption,
    WriterGoneOption,
)
from sluicegate_cli.session import Session, refuse_options

CHANGES = True
SAVES_PLAN = True
EXAMPLES = (
    ("checkpoint rollback orders --to 41 --dry-run", "what would a rollback to batch 41 do?"),
    (
        "checkpoint rollback /data/orders/checkpoint --to 41 --sink /data/orders/out",
        "with its file sink",
    ),
    ("checkpoint rollback clicks --to 41", "a gated stream, to snapshot 41"),
    ("checkpoint rollback orders --to-datetime 2026-11-16T02:00:00Z", "to the batch before then"),
)
DOCUMENTS = ("sluicegate.plan",)


def run(
    ctx: typer.Context,
    target: TargetArgument = None,
    to: Annotated[
        int | None,
        typer.Option("--to", metavar="BATCH|SNAPSHOT", help="to this batch or snapshot"),
    ] = None,
    to_datetime: Annotated[
        str | None,
        typer.Option(metavar="TIME", help="to the last batch or snapshot at or before this time"),
    ] = None,
    force: ForceOption = False,
    sink: SinkOption = None,
    into: IntoOption = None,
    writer_gone: WriterGoneOption = False,
    unchecked: UncheckedOption = False,
    as_: AsOption = None,
) -> None:
    """Roll back to the end of an older batch: offsets, commits, state, source log and file sink.

    The job must be stopped and its JVM must have ended. Removed files are kept in the checkpoint's
    _sluicegate directory, so that `sluicegate undo` restores them, as long as the job has not run
    since. If this is interrupted, Spark refuses to start until it is finished or reverted.

    For gated streams, positions, state, dedup log, watermark, counters and output are restored
    from an older snapshot, as a new snapshot; --force takes over from a running job.
    """
    session = Session.of(ctx)
    if (to is None) is (to_datetime is None):
        raise UsageError("one of --to NUMBER and --to-datetime TIME is needed")
    found = session.target(target, as_, sink=sink, into=into, writer_gone=writer_gone)
    refuse_options(found, sink=sink, into=into, unchecked=unchecked or None)
    session.carry_out(Rollback(to, to_datetime, force, unchecked).of(found))
