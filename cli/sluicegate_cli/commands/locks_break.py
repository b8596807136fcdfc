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
    ("locks break clicks", "a job that cannot be reached: it can never commit again"),
)
DOCUMENTS = ("sluicegate.plan",)


def run(
    ctx: typer.Context,
    lock: Annotated[
        str,
        typer.Argument(
            metavar="LOCK|STREAM", help="a lock file, as `locks list` shows it, or a stream"
        ),
    ],
) -> None:
    """Clear the lock of a dead holder; refuse, with the evidence, if the lock is held.

    The kernel frees a lock when its holder ends, even by a kill. To free a lock that is held, end
    the process that holds it. For gated streams, the job is fenced off: even if it still runs, it
    can never commit again.
    """
    session = Session.of(ctx)
    if not lock.endswith(SUFFIX):
        session.carry_out(session.open(GatedStream, lock).change(Fence()))
        return
    found = FileLock(local_root(lock))
    actions = [Action("clear", lock, f"the note of {holder.who}") for holder in found.stale()]
    plan = Plan(f"Clear {lock}, which no process holds", tuple(actions))
    session.change(plan, lambda _: found.clear())
