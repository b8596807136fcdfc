"""`sluicegate locks list`."""

from __future__ import annotations

from typing import Annotated

import typer

from sluicegate.errors import NotFound
from sluicegate.locks import FileLock, find_locks
from sluicegate.storage import local_root
from sluicegate_cli.output import Table, View
from sluicegate_cli.session import Session

EXAMPLES = (
    ("locks list", "the locks of the home"),
    ("locks list /data/orders/offsets", "the locks of an offset store"),
)


def run(
    ctx: typer.Context,
    directory: Annotated[
        str | None, typer.Argument(metavar="DIRECTORY", help="where to look; the home if omitted")
    ] = None,
) -> None:
    """List lock files and who holds them.

    Whether a lock is held is found out by trying to take it. User, process and time are what
    the holder wrote down about itself: evidence, not proof.
    """
    session = Session.of(ctx)
    root = local_root(directory or session.home)
    if not root.is_dir():
        raise NotFound(f"{root} is not a directory", place=str(root))
    session.sink.show(_view(find_locks(root)))


def _view(locks: list[FileLock]) -> View:
    documents = []
    rows = []
    for lock in locks:
        held = lock.is_held()
        holders = [holder.describe() for holder in lock.holders()] if held else []
        documents.append({"lock": str(lock.path), "held": held, "holders": holders})
        rows.append((str(lock.path), "held" if held else "free", "; ".join(holders)))
    return View(
        schema="sluicegate.locks",
        document={"locks": documents},
        tables=[Table(("lock", "state", "holder"), rows)],
        lines=[] if locks else ["No lock files."],
    )
