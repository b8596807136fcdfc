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
    ("undo billing --dry-run", "what would taking back the newest change do?"),
    ("undo /data/offsets --op billing@42", "a certain operation, as `history` names it"),
)


def run(
    ctx: typer.Context,
    target: TargetArgument = None,
    op: Annotated[
        str | None, typer.Option("--op", metavar="ID", help="the operation; the newest change")
    ] = None,
    consumer: ConsumerOption = None,
    force: ForceOption = False,
    writer_gone: WriterGoneOption = False,
    as_: AsOption = None,
) -> None:
    """Take a change back, as a new change on top of what is there now.

    Without --op it is the newest change of an operator that is not undone yet; commits of the
    consumer itself are undone only by name. Where a consumer's file is damaged, undo restores the
    newest record of it that can be read.
    """
    session = Session.of(ctx)
    found = session.target(target, as_, consumer=consumer, writer_gone=writer_gone)
    journal = found.journal()
    session.carry_out(Change.of(journal, journal.plan_undo(op, force=force)))
