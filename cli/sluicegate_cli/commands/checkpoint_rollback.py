"""`sluicegate checkpoint rollback`."""

from __future__ import annotations

from typing import Annotated

import typer

from sluicegate.errors import UsageError
from sluicegate.moments import parse_moment
from sluicegate.spark.change.rollback import batch_at
from sluicegate_cli.checkpoints import change_checkpoint, checkpoint_journal
from sluicegate_cli.options import (
    AsOption,
    IntoOption,
    SinkOption,
    TargetArgument,
    WriterGoneOption,
)
from sluicegate_cli.session import Session

CHANGES = True
SAVES_PLAN = True
EXAMPLES = (
    ("checkpoint rollback orders --to 41 --dry-run", "what would going back to batch 41 mean?"),
    (
        "checkpoint rollback /data/orders/checkpoint --to 41 --sink /data/orders/out",
        "with its file sink",
    ),
    ("checkpoint rollback orders --to-datetime 2026-11-16T02:00:00Z", "to the batch before then"),
)


def run(
    ctx: typer.Context,
    target: TargetArgument = None,
    to: Annotated[int | None, typer.Option("--to", metavar="BATCH", help="this batch")] = None,
    to_datetime: Annotated[
        str | None, typer.Option(metavar="TIME", help="the last batch planned by then")
    ] = None,
    sink: SinkOption = None,
    into: IntoOption = None,
    writer_gone: WriterGoneOption = False,
    as_: AsOption = None,
) -> None:
    """Go back to the end of an older batch: offsets, commits, state, source log and file sink.

    The job must be stopped and its JVM gone. What is removed is kept in the checkpoint's
    _sluicegate directory, so that `sluicegate undo` brings it back, as long as the job has not
    run since. If this is interrupted, Spark refuses to start until it is finished or taken back.
    """
    session = Session.of(ctx)
    if (to is None) is (to_datetime is None):
        raise UsageError("one of --to BATCH and --to-datetime TIME is needed")
    if to_datetime is not None:
        to = batch_at(session.spark_checkpoint(target, as_), parse_moment(to_datetime))
    work = {"operation": "rollback", "to": to}
    found = session.target(target, as_)
    journal = checkpoint_journal(session, found, sink, writer_gone=writer_gone)
    change_checkpoint(session, found, journal, work, into)
