"""`sluicegate checkpoint inspect`."""

from __future__ import annotations

import typer

from sluicegate.spark.inspect import inspect
from sluicegate_cli.options import AsOption, TargetArgument
from sluicegate_cli.session import Session
from sluicegate_cli.views.checkpoint import inspect_view

EXAMPLES = (
    ("checkpoint inspect /data/orders/checkpoint", "by path; Spark need not be installed"),
    ("checkpoint inspect orders --json", "by name, complete"),
)


def run(ctx: typer.Context, target: TargetArgument = None, as_: AsOption = None) -> None:
    """Show where a checkpoint stands.

    Query id, last batch and commit, what the next start will do, watermark, offsets of every
    source, settings that override the session's, operators with the versions and size of their
    state, and how far back a rollback can go. Safe while the job runs.
    """
    session = Session.of(ctx)
    session.sink.show(inspect_view(inspect(session.spark_checkpoint(target, as_))))
