"""Journals of targets: history, undo, and applying approved plans.

Each kind of target stores its journal in its own way (an offset store in its versions, a chain in
its snapshots); commands use only this interface.
"""

from __future__ import annotations

import json
import os
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Generic, Protocol, TypedDict, TypeVar

from sluicegate import __version__, units
from sluicegate.errors import Corrupt, Drifted, NotFound, StorageFailed
from sluicegate.plan import Plan, Worth
from sluicegate.process import Who
from sluicegate.saved_plan import SavedPlan
from sluicegate.storage.local import Calls


class NothingToUndo(NotFound):
    """The operation does not exist, is no longer kept, or was already undone."""

    default_hint = "list the operations that can be undone with: sluicegate history TARGET"


@dataclass(frozen=True, slots=True)
class Approval:
    """Who approves a plan and why; for a saved plan also its digest and its author."""

    by: Who
    reason: str | None = None
    plan_digest: str | None = None
    planned_by: str | None = None


DONE, NOT_BEGUN = "done", "not begun"


class EntryFields(TypedDict):
    """One change of a target as plain values."""

    id: str
    at: str | None  # null: the time is not known
    kind: str
    by: str
    summary: str
    reason: str | None
    undoes: str | None  # the id of the change that this one reverts
    undo: str  # `yes`, or why it cannot be undone
    plan_digest: str | None  # of the saved plan, if it was applied from one
    planned_by: str | None  # who saved that plan
    progress: str  # `done`, `not begun`, or how far a change got that was interrupted


@dataclass(frozen=True, slots=True)
class Entry:
    """One change of a target; `undo` is `yes`, or the reason why it cannot be undone.

    `progress` is the state of a change that can be interrupted.
    """

    id: str
    at: float
    kind: str
    by: str
    summary: str
    reason: str | None = None
    undoes: str | None = None
    undo: str = "yes"
    plan_digest: str | None = None
    planned_by: str | None = None
    progress: str = DONE

    def fields(self) -> EntryFields:
        """As plain values, for documents."""
        return {
            "id": self.id,
            "at": units.utc(self.at) if self.at else None,
            "kind": self.kind,
            "by": self.by,
            "summary": self.summary,
            "reason": self.reason,
            "undoes": self.undoes,
            "undo": self.undo,
            "plan_digest": self.plan_digest,
            "planned_by": self.planned_by,
            "progress": self.progress,
        }


class Operation(Protocol):
    """One change of a target, as a frozen value of its parameters; each kind has its own.

    Each operation of a kind is one class, with its plan, its execution and its inverse.
    """

    @property
    def name(self) -> str:
        """Its name in plans and in the history."""

    def to_work(self) -> dict[str, Any]:
        """As plain values, for a plan."""


Op = TypeVar("Op", bound=Operation)


class Journal(ABC, Generic[Op]):
    """The changes of one target. The common part of all kinds is here."""

    uri: str

    @abstractmethod
    def history(self) -> list[Entry]:
        """The recorded changes, newest first."""

    @abstractmethod
    def operation(self, work: Mapping[str, Any]) -> Op:
        """The operation that a plan's work describes, or `Corrupt`."""

    @abstractmethod
    def propose(self, operation: Op) -> Plan:
        """The plan of an operation for the current state of the target."""

    @abstractmethod
    def inverse(self, entry: Entry, *, force: bool) -> Op:
        """The operation that reverts a change, on top of the current state."""

    @abstractmethod
    def settle(self, entry: Entry) -> None:
        """Make an applied operation durable: its writer may have died."""

    @abstractmethod
    def apply(self, plan: Plan, approval: Approval) -> Entry:
        """Apply it, under the target's lock; `Drifted` if the preconditions no longer hold."""

    def preflight(self, plan: Plan) -> str | None:
        """`Locked` if a running writer prevents a plan; a warning if that is unknown."""
        del plan
        return None

    def is_change(self, entry: Entry) -> bool:
        """Whether an entry is a change that undo without an id reverts."""
        return entry.undo == "yes" and entry.undoes is None

    def plan(self, work: Mapping[str, Any]) -> Plan:
        """The plan of the same work for the current state of the target."""
        return self.propose(self.operation(work))

    def plan_undo(self, operation: str | None, *, force: bool = False) -> Plan:
        """The inverse of an operation, on top of the current state; None: of the newest change."""
        return self.propose(self.inverse(self.undoable(operation), force=force))

    def undoable(self, operation: str | None) -> Entry:
        """The entry of an operation that can be undone; None: of the newest change."""
        entries = self.history()
        if operation is None:
            for entry in entries:
                if self.is_change(entry):
                    return entry
            raise self.nothing_to_undo(f"{self.uri} has no changes, or all of them are undone")
        for entry in entries:
            if entry.id == operation:
                if entry.undo != "yes":
                    raise self.nothing_to_undo(f"{operation} cannot be undone: {entry.undo}")
                return entry
        raise self.nothing_to_undo(f"there is no operation {operation!r} in {self.uri}")

    def nothing_to_undo(self, message: str) -> NothingToUndo:
        """The error for it, with the command that lists what can be undone."""
        history = units.command("history", self.uri)
        return NothingToUndo(
            message, hint=f"list the operations that can be undone with: {history}"
        )


def log_intent(path: Path, plan: Plan, approval: Approval) -> None:
    """Record in the audit log what is about to be done; refuse if it cannot be written."""
    try:
        append_line(path, _line("applying", plan, approval))
    except OSError as e:
        reason = (e.strerror or str(e)).lower()
        raise StorageFailed(
            f"the audit log {path} cannot be written: {reason}; nothing was changed",
            hint="make it writable, or set audit_log to another file in sluicegate.toml",
            place=str(path),
        ) from e


def log_change(path: Path, plan: Plan, approval: Approval, entry: Entry | None) -> None:
    """Add to the installation's audit log that a change was made."""
    try:
        append_line(path, {**_line("applied", plan, approval), **(entry.fields() if entry else {})})
    except OSError as e:
        made = entry.id if entry else plan.title
        raise StorageFailed(
            f"{made} was applied, but the audit log {path} could not be written: {e.strerror}",
            hint="add the line by hand; `sluicegate history` shows the change",
            place=str(path),
        ) from e


def recorded(
    log: Path | None, plan: Plan, approval: Approval, apply: Callable[[Approval], Entry | None]
) -> Entry | None:
    """Apply a plan, with a line in the audit log before it and one after it."""
    if log:
        # Before the change: a change that cannot be recorded must not happen.
        log_intent(log, plan, approval)
    entry = apply(approval)
    if log:
        log_change(log, plan, approval, entry)
    return entry


def _line(event: str, plan: Plan, approval: Approval) -> dict[str, Any]:
    return {
        "event": event,
        "time": units.utc(time.time()),
        "target": asdict(plan.subject) if plan.subject else None,
        "title": plan.title,
        "actions": len(plan.actions),
        "by": str(approval.by),
        "reason": approval.reason,
    }


def review(journal: Journal[Any], saved: SavedPlan) -> Plan | Entry:
    """A saved plan that is still valid; or its entry, if it was already applied."""
    if applied := _applied(journal, saved):
        return applied
    saved.check_expiry()
    fresh = journal.plan(saved.plan.work)
    try:
        check_drift(saved.plan, fresh)
    except Drifted:
        # Another process may have applied this same plan since the history was read.
        if applied := _applied(journal, saved):
            return applied
        raise
    # The path of the target may differ between hosts; its identity was checked.
    if replace(fresh, subject=saved.plan.subject) != saved.plan:
        hint = "create a new plan with this release and review it"
        if saved.release != __version__:
            raise Drifted(
                f"{saved.place} was made by release {saved.release}; release {__version__} would "
                "do or describe it differently",
                hint=hint,
                place=saved.place,
            )
        raise Corrupt(
            f"the plan does not match what this release would do: {saved.place} was edited",
            hint=hint,
            place=saved.place,
        )
    return fresh


def _applied(journal: Journal[Any], saved: SavedPlan) -> Entry | None:
    """The entry of a saved plan that was applied, made durable; None if it was not."""
    for entry in journal.history():
        if entry.plan_digest == saved.digest:
            if entry.progress == NOT_BEGUN:
                continue
            if entry.undo.startswith("undone"):
                raise Drifted(f"this plan was applied as {entry.id}, and {entry.undo} since")
            if entry.progress != DONE:
                raise Drifted(
                    f"this plan was applied as {entry.id}, which is {entry.progress}",
                    hint="see it with: sluicegate history TARGET",
                )
            journal.settle(entry)
            return entry
    return None


def undone_by(operations: Sequence[tuple[str, str | None]]) -> dict[str, str]:
    """Operation → the one that undid it, from ids with what each undoes, oldest first.

    An undo that was itself undone is ignored.
    """
    undone: dict[str, str] = {}
    for name, undoes in reversed(operations):
        if undoes and name not in undone:
            undone.setdefault(undoes, name)
    return undone


def check_drift(plan: Plan, fresh: Plan) -> None:
    """Refuse a plan whose preconditions differ from those of the same plan made now."""
    expected, found = _expectations(plan), _expectations(fresh)
    moved = [
        f"{what} was {_shown(expected.get(what))}, is {_shown(found.get(what))}"
        for what in expected | found
        if expected.get(what) != found.get(what)
    ]
    if moved:
        more = f", and {len(moved) - 3} more" if len(moved) > 3 else ""
        raise Drifted("the target changed since the plan was made: " + "; ".join(moved[:3]) + more)


def _expectations(plan: Plan) -> dict[str, Worth]:
    identity = plan.subject.identity if plan.subject else None
    return {each.what: each.expected for each in plan.preconditions} | {"identity": identity}


def _shown(value: Worth) -> str:
    return "absent" if value is None else str(value)


def append_line(path: Path, fields: Mapping[str, Any]) -> None:
    """Add a line of JSON to a file that several processes append to, and fsync it."""
    line = json.dumps(fields) + "\n"
    flags = os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC
    fd = os.open(path, flags, 0o666)
    try:
        size = os.fstat(fd).st_size
        # A writer that was killed left an incomplete line; ours must not be joined to it.
        torn = size > 0 and os.pread(fd, 1, size - 1) != b"\n"
        rest = memoryview(("\n" + line if torn else line).encode())
        while rest:
            rest = rest[os.write(fd, rest) :]
        os.fsync(fd)
        if size == 0:
            # It may be new, and then its name must be durable, too.
            Calls().sync_path(path.absolute().parent)
    finally:
        os.close(fd)
