"""`sluicegate checkpoint relocate`."""

from __future__ import annotations

from typing import Annotated

import typer

from sluicegate.checkpoint.operations.relocate import cut_over, plan_relocate, relocate
from sluicegate.checkpoint.paths import parse_moves
from sluicegate.checkpoint.target import SparkCheckpoint
from sluicegate.checkpoint.verify import verify
from sluicegate.checkpoint.writers import WriterAlive, refuse_living
from sluicegate.errors import EXIT_DONE, ProblemsFound
from sluicegate.findings import has_errors
from sluicegate.liveness import Verdict
from sluicegate.storage import Storage, canonical_uri, open_storage
from sluicegate_cli.options import AsOption
from sluicegate_cli.session import Session

CHANGES = True
EXAMPLES = (
    ("checkpoint relocate /old/orders /new/orders", "copy it so that a query can start there"),
    ("checkpoint relocate orders /new/orders --map /in=/mnt/in", "the input has moved as well"),
)
DOCUMENTS = ("sluicegate.plan",)
FINDINGS = ("SG-",)


def run(
    ctx: typer.Context,
    source: Annotated[str, typer.Argument(metavar="TARGET", help="the checkpoint to copy")],
    directory: Annotated[str, typer.Argument(metavar="NEW_DIR", help="directory for the copy")],
    moves: Annotated[
        list[str] | None,
        typer.Option("--map", metavar="/OLD=/NEW", help="an input path that has moved as well"),
    ] = None,
    as_: AsOption = None,
) -> int:
    """Copy a checkpoint to another place and rewrite the absolute paths in it.

    The original is only read. The copy is verified; then the remaining manual steps are shown. The
    job must be stopped: a copy of a running job may be inconsistent, so the command refuses if it
    finds one.
    """
    session = Session.of(ctx)
    here = canonical_uri(session.open(SparkCheckpoint, source, as_).uri)
    storage = open_storage(here, read_only=True)
    mapped = parse_moves(moves or ())
    plan = plan_relocate(storage, directory, mapped)
    _look_for_writers(session, storage)

    def apply(_approval: object) -> None:
        relocate(storage, directory, mapped)

    session.change(plan, apply)
    if session.only_plans:
        return EXIT_DONE
    found = verify(open_storage(directory, read_only=True))
    if has_errors(found):
        for each in found:
            session.sink.note(f"{each.severity.value} {each.code} {each.place}: {each.detail}")
        return ProblemsFound.exit_code
    for line in cut_over(here, directory):
        session.sink.note(line)
    return EXIT_DONE


def _look_for_writers(session: Session, storage: Storage) -> None:
    """Refuse if a job certainly runs; note one that only may run."""
    try:
        evidence = refuse_living(storage, accept_possible=True)
    except WriterAlive as e:
        if not session.only_plans:
            raise
        session.sink.note(f"note: {e.message}")
        return
    is_quiet = evidence.verdict is Verdict.QUIET
    for line in evidence.doubts if is_quiet else evidence.lines:
        session.sink.note(f"note: {line}")
