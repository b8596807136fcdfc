"""`sluicegate checkpoint repair`."""

from __future__ import annotations

from typing import Annotated
from uuid import UUID

import typer

from sluicegate.errors import EXIT_DONE, ProblemsFound, UsageError
from sluicegate.target import Repair
from sluicegate_cli.inputs import read_positions
from sluicegate_cli.options import (
    AsOption,
    ForceOption,
    SinkOption,
    TargetArgument,
    WriterGoneOption,
    refuse_options,
)
from sluicegate_cli.session import Session

CHANGES = True
SAVES_PLAN = True
EXAMPLES = (
    ("checkpoint repair orders --dry-run", "what can be mended, and how?"),
    ("checkpoint repair /data/orders/checkpoint --sink /data/orders/out", "with its file sink"),
    ("checkpoint repair clicks --read-data --dry-run", "a gated stream, every blob read"),
    ("checkpoint repair orders --query-id 34fae261-94bb-4005-833c-cd8c1866089c", "lost metadata"),
)
FINDINGS = ("SG-",)


def run(
    ctx: typer.Context,
    target: TargetArgument = None,
    sink: SinkOption = None,
    read_data: Annotated[
        bool, typer.Option("--read-data", help="decode all state first; takes longer")
    ] = False,
    offsets: Annotated[
        str | None, typer.Option(metavar="FILE", help="end offsets of the damaged batch, if known")
    ] = None,
    query_id: Annotated[
        str | None, typer.Option(metavar="UUID", help="the query's id, if metadata is lost")
    ] = None,
    force: ForceOption = False,
    writer_gone: WriterGoneOption = False,
    as_: AsOption = None,
) -> int:
    """Mend what verify finds, where that loses nothing; for the rest, show the choices.

    The job must be stopped and its JVM gone. An operation that was interrupted is finished first.
    What is changed is kept, so that `sluicegate undo` restores it byte for byte.

    A gated stream goes on from its newest snapshot that is whole; the plan says what is given up.
    """
    session = Session.of(ctx)
    found = session.target(target, as_, sink=sink, writer_gone=writer_gone)
    refuse_options(found, sink=sink, offsets=offsets, query_id=query_id)
    known = read_positions(offsets) if offsets else None
    change = Repair(read_data, known, _uuid(query_id), force).of(found)
    session.carry_out(change)
    return ProblemsFound.exit_code if change.plan.choices else EXIT_DONE


def _uuid(text: str | None) -> str | None:
    try:
        return None if text is None else str(UUID(text))
    except ValueError as e:
        raise UsageError(
            f"--query-id {text!r} is not a UUID",
            hint="the driver's log shows it where the query starts: `id = …`, not runId",
        ) from e
