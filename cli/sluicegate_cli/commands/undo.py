"""`sluicegate undo`."""

from __future__ import annotations

from typing import Annotated

import typer

from sluicegate.target import Change
from sluicegate_cli.options import (
    AsOption,
    ConsumerOption,
    ForceOption,
    TargetArgument,
    WriterGoneOption,
)
from sluicegate_cli.session import Session

CHANGES = True
SAVES_PLAN = True
EXAMPLES = (
    ("undo billing --dry-run", "what would reverting the newest change do?"),
    ("undo /data/offsets --op billing@42", "one operation, by its id in `history`"),
)
DOCUMENTS = ("sluicegate.plan",)


def run(
    ctx: typer.Context,
    target: TargetArgument = None,
    op: Annotated[
        str | None,
        typer.Option("--op", metavar="ID", help="id of the operation; default: the newest change"),
    ] = None,
    consumer: ConsumerOption = None,
    force: ForceOption = False,
    writer_gone: WriterGoneOption = False,
    as_: AsOption = None,
) -> None:
    """Revert a change, as a new change on top of the current state.

    Without --op, the newest change by an operator that is not undone yet is reverted; commits of
    the consumer itself are undone only by id. If a consumer's file is damaged, undo restores its
    newest readable record.
    """
    session = Session.of(ctx)
    found = session.target(target, as_, consumer=consumer, writer_gone=writer_gone)
    journal = found.journal()
    session.carry_out(Change.of(journal, journal.plan_undo(op, force=force)))
