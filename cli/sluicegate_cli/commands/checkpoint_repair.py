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
)
from sluicegate_cli.session import Session, refuse_options

CHANGES = True
SAVES_PLAN = True
EXAMPLES = (
    ("checkpoint repair orders --dry-run", "what can be repaired, and how?"),
    ("checkpoint repair /data/orders/checkpoint --sink /data/orders/out", "with its file sink"),
    ("checkpoint repair clicks --read-data --dry-run", "a gated stream, every blob read"),
    ("checkpoint repair clicks --adopt --dry-run", "an old backup was restored"),
    ("checkpoint repair orders --query-id 34fae261-94bb-4005-833c-cd8c1866089c", "lost metadata"),
)
DOCUMENTS = ("sluicegate.plan",)
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
        str | None, typer.Option(metavar="UUID", help="id of the query, if metadata is lost")
    ] = None,
    withdraw: Annotated[
        bool,
        typer.Option("--withdraw", help="take back output that a restored chain does not know"),
    ] = False,
    adopt: Annotated[
        bool,
        typer.Option("--adopt", help="keep that output; apply its events without publishing them"),
    ] = False,
    force: ForceOption = False,
    writer_gone: WriterGoneOption = False,
    as_: AsOption = None,
) -> int:
    """Repair what verify finds, where no data is lost; for the rest, show the options.

    The job must be stopped and its JVM must have ended. An interrupted operation is finished
    first. Changed files are kept, so that `sluicegate undo` restores them byte for byte.

    A gated stream continues from its newest intact snapshot; the plan lists what is discarded. If
    its sink has output that the chain does not know, because an old backup was restored, choose
    with --withdraw or --adopt what happens to that output.
    """
    session = Session.of(ctx)
    found = session.target(target, as_, sink=sink, writer_gone=writer_gone)
    refuse_options(found, sink=sink, offsets=offsets, query_id=query_id)
    refuse_options(found, withdraw=withdraw or None, adopt=adopt or None)
    if withdraw and adopt:
        raise UsageError(
            "choose one of --withdraw and --adopt", hint="--dry-run shows what each does"
        )
    known = read_positions(offsets) if offsets else None
    choice = "withdraw" if withdraw else "adopt" if adopt else None
    change = Repair(read_data, known, _uuid(query_id), force, choice).of(found)
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
