"""`sluicegate locks break`."""

from __future__ import annotations

from typing import Annotated

import typer

from sluicegate.locks import SUFFIX, FileLock
from sluicegate.plan import Action, Plan
from sluicegate.storage import local_root
from sluicegate.stream.operations.fence import Fence
from sluicegate.stream.target import GatedStream
from sluicegate_cli.session import Session

CHANGES = True
EXAMPLES = (
    ("locks break /data/offsets/billing.lock", "after its holder was killed"),
    ("locks break clicks", "a job that cannot be reached: it can commit nothing more"),
)


def run(
    ctx: typer.Context,
    lock: Annotated[
        str,
        typer.Argument(metavar="LOCK|STREAM", help="a lock file, as `locks list` shows; a stream"),
    ],
) -> None:
    """Clear what a dead holder left of a lock; a lock that is held is refused with the evidence.

    The kernel frees a lock when its holder ends, however it ends. So there is nothing to break
    but the holder itself: if somebody holds it, end that process. Of a gated stream, the job is
    fenced off: whatever it still does, it can never commit again.
    """
    session = Session.of(ctx)
    if not lock.endswith(SUFFIX):
        session.carry_out(session.open(GatedStream, lock).change(Fence()))
        return
    found = FileLock(local_root(lock))
    actions = [Action("clear", lock, f"the note of {holder.who}") for holder in found.leftovers()]
    plan = Plan(f"Clear {lock}, which nobody holds", tuple(actions))
    session.change(plan, lambda _: found.clear())
