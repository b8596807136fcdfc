"""`sluicegate locks list`."""

from __future__ import annotations

from typing import Annotated, TypedDict

import typer

from sluicegate.errors import StorageFailed
from sluicegate.locks import FileLock, HolderFields, find_locks
from sluicegate.report import Report, Table, document
from sluicegate.resolve import place_of
from sluicegate.storage import local_root
from sluicegate_cli.session import Session

EXAMPLES = (
    ("locks list", "the locks of the home"),
    ("locks list billing", "the locks of a target in sluicegate.toml"),
    ("locks list /data/orders/offsets", "the locks in a directory"),
)
DOCUMENTS = ("sluicegate.locks",)


class HolderDocument(HolderFields):
    """A process that claims to hold a lock."""

    process: str  # whether it still runs, as seen from here


class LockDocument(TypedDict):
    """One lock file."""

    lock: str
    held: bool | None  # null: not known, see `problem`
    problem: str | None
    holders: list[HolderDocument]


@document("sluicegate.locks", version=1)
class LocksDocument(TypedDict):
    """The lock files below a directory."""

    locks: list[LockDocument]


def run(
    ctx: typer.Context,
    target: Annotated[
        str | None,
        typer.Argument(metavar="TARGET", help="a name or directory; default: the home"),
    ] = None,
) -> None:
    """List lock files and their holders.

    Sluicegate tests whether a lock is held by trying to take it. User, process and time are the
    holder's own record: evidence, not proof.
    """
    session = Session.of(ctx)
    where = place_of(target, session.config, session.home) if target else session.home
    session.sink.show(_view(find_locks(local_root(where))))


def _look(lock: FileLock) -> tuple[bool | None, str | None]:
    """Whether a lock is held; None and the reason if that is unknown."""
    try:
        return lock.is_held(), None
    except StorageFailed as e:
        return None, e.message


def _view(locks: list[FileLock]) -> Report:
    documents: list[LockDocument] = []
    rows = []
    for lock in locks:
        held, problem = _look(lock)
        holders = lock.holders() if held else []
        described = problem or "; ".join(holder.describe() for holder in holders)
        documents.append(
            {
                "lock": str(lock.path),
                "held": held,
                "problem": problem,
                "holders": [{**h.fields(), "process": h.who.process_state()} for h in holders],
            }
        )
        state = "unknown" if held is None else "held" if held else "free"
        rows.append((str(lock.path), state, described))
    document: LocksDocument = {"locks": documents}
    return Report(
        schema="sluicegate.locks",
        document=document,
        tables=[Table(("lock", "state", "holder"), rows)],
        lines=[] if locks else ["No lock files."],
    )
