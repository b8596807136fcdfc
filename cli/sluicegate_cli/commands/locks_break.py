"""`sluicegate locks break`."""

from __future__ import annotations

from typing import Annotated

import typer

from sluicegate.locks import FileLock
from sluicegate.plan import Action, Plan
from sluicegate.storage import local_root
from sluicegate_cli.session import Session

CHANGES = True
EXAMPLES = (("locks break /data/offsets/billing.lock", "after its holder was killed"),)


def run(
    ctx: typer.Context,
    lock: Annotated[str, typer.Argument(metavar="LOCK", help="a lock file, as `locks list` shows")],
) -> None:
    """Clear what a dead holder left of a lock; a lock that is held is refused with the evidence.

    The kernel frees a lock when its holder ends, however it ends. So there is nothing to break
    but the holder itself: if somebody holds it, end that process.
    """
    session = Session.of(ctx)
    found = FileLock(local_root(lock))
    actions = [Action("clear", lock, f"the note of {holder.who}") for holder in found.leftovers()]
    plan = Plan(f"Clear {lock}, which nobody holds", tuple(actions))
    session.change(plan, lambda _: found.clear())
