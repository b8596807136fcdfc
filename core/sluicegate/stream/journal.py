"""The journal of a gated stream: its chain. Every change is a link, and undo is another one."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from shlex import quote
from typing import Any

from sluicegate.errors import Corrupt, Drifted
from sluicegate.journal import Approval, Entry, NothingToUndo, check_drift, undone_by
from sluicegate.plan import Plan
from sluicegate.stream import gc
from sluicegate.stream.append import OvertakingDraft, Signature
from sluicegate.stream.history import changes, content_of, restorable
from sluicegate.stream.operations import repair
from sluicegate.stream.operations.changes import (
    COMPACT,
    DEDUP,
    DEPOSE,
    IMPORT,
    PRUNE,
    REBALANCE,
    REPAIR,
    RESET,
    RESTORE,
    ROLLBACK,
    StreamChange,
    summary,
)
from sluicegate.stream.operations.compact import compact
from sluicegate.stream.operations.import_v1 import content_from_v1
from sluicegate.stream.operations.plans import Planner, v1_of
from sluicegate.stream.snapshot import Kind, Link
from sluicegate.stream.stream import Stream
from sluicegate.stream.writer import Gate
from sluicegate.target import Progress, no_progress

KIND = "stream"
_BESIDE_A_JOB = (COMPACT, DEDUP, RESTORE, PRUNE, DEPOSE, REBALANCE)
_TITLES = {
    COMPACT: "merging the state",
    DEDUP: "merging the dedup log",
    RESTORE: "restoring the dedup log",
}
_NO_UNDO = {
    Kind.GENESIS: "no: the stream begins with it",
    Kind.CLAIM: "no: start the job again instead",
    Kind.COMPACT: "no: what is known is the same before and after",
    Kind.PRUNE: "no: what it gave up is gone",
    Kind.REPAIR: "no: what it replaced was damaged",
}


class StreamJournal:
    """`Journal` of a gated stream."""

    def __init__(
        self, stream: Stream, *, name: str | None = None, progress: Progress = no_progress
    ) -> None:
        self._stream = stream
        self._gate = Gate(stream)
        self._planner = Planner(stream, name)
        self._progress = progress

    def history(self) -> list[Entry]:
        head = self._stream.chain.head()
        links = list(changes(self._stream, head))
        undone = undone_by([(_id(each), each.details.get("undoes")) for each in reversed(links)])
        return [_entry(link, undone, head.floor) for link in links]

    def plan(self, work: Mapping[str, Any]) -> Plan:
        change = StreamChange.from_work(work)
        with self._showing_progress(change):
            return self._planner.plan(change)

    @contextmanager
    def _showing_progress(self, change: StreamChange) -> Iterator[None]:
        """While a change that can take long is planned or applied: how far it is."""
        if (title := _TITLES.get(change.operation)) is None:
            yield
            return
        with self._progress(title) as self._planner.compactions.on_progress:
            yield

    def plan_undo(self, operation: str | None, *, force: bool = False) -> Plan:
        entry = self._undoable(operation)
        number = int(entry.id.rpartition("@")[2])
        note = f"undo {entry.id}"
        if entry.kind == Kind.COMPACT.value:
            change = StreamChange(RESTORE, to=number, note=note, undoes=entry.id)
        elif entry.kind == Kind.REBALANCE.value:
            from sluicegate.stream.operations.rebalance import undoing

            change = undoing(self._stream, number, entry.id)
        else:
            change = StreamChange(ROLLBACK, to=number - 1, force=force, note=note, undoes=entry.id)
        return self.plan(change.to_work())

    def preflight(self, plan: Plan) -> str | None:
        change = StreamChange.from_work(plan.work)
        if change.operation in _BESIDE_A_JOB or change.force:
            return None
        try:
            self._gate.refuse_living(self._stream.chain.head())
        except Corrupt:
            # Nobody can seal on a chain that cannot be read.
            return None
        return None

    def settle(self, _entry: Entry) -> None:
        if not self._stream.storage.read_only:
            self._gate.head()

    def apply(self, plan: Plan, approval: Approval) -> Entry:
        change = StreamChange.from_work(plan.work)
        base = None if change.operation == REPAIR else self._gate.head()
        fresh = self.plan(plan.work)
        check_drift(plan, fresh)
        if base and not change.force and change.operation in (ROLLBACK, RESET, IMPORT):
            self._gate.refuse_living(base)
        with self._showing_progress(change):
            link = self._append(change, fresh, base, approval)
        return _entry(link, {})

    def _append(
        self, change: StreamChange, plan: Plan, base: Link | None, approval: Approval
    ) -> Link:
        signature = Signature(by=approval.by, reason=approval.reason)
        details = {
            "summary": summary(list(plan.actions), change.note) or _aim(change),
            "undoes": change.undoes,
            "plan_digest": approval.plan_digest,
            "planned_by": approval.planned_by,
        }
        if change.operation == REPAIR:
            diagnosis = repair.diagnose(self._stream, read_data=change.read_data)
            details["summary"] = _repair_summary(diagnosis)
            if not diagnosis.needs_link:
                gc.sweep(self._stream)
                return self._stream.chain.head()
            return repair.repair(self._gate, diagnosis, signature, details)
        assert base
        # Imported here: only the dedup log needs its libraries.
        from sluicegate.stream.operations import compact_dedup

        tell = self._planner.compactions.on_progress
        match change.operation:
            case "compact":
                link = compact(self._gate, signature, details, change.inputs, tell)
            case "compact-dedup":
                done = self._planner.compactions.merged(change)
                link = compact_dedup.compact_dedup(self._gate, done, signature, details)
            case "restore-dedup":
                assert change.to is not None
                link = compact_dedup.restore_dedup(self._gate, change.to, signature, details, tell)
            case "prune":
                assert change.to is not None
                link = gc.prune(self._gate, change.to, signature, details)
                # If there were leftovers only, those are gone.
                link = link or (base if change.to <= base.floor else None)
            case "depose":
                link = self._gate.depose(signature, details)
            case "rebalance":
                # Imported here, as above.
                from sluicegate.stream.operations import rebalance

                link = rebalance.apply(self._gate, change, base, signature, details)
            case _:
                content = {**self._content(change, base), "details": details}
                kind = Kind(change.operation)
                draft = OvertakingDraft(
                    kind, content, change.force, signature, base, change.positions
                )
                link = self._gate.append(draft, base)
        if link is None:
            raise Drifted("somebody else did the same, or changed what it was to be done to")
        return link

    def _content(self, change: StreamChange, base: Link) -> dict[str, Any]:
        if change.operation == ROLLBACK:
            assert change.to is not None
            return content_of(restorable(self._stream, base, change.to))
        if change.operation == IMPORT:
            return content_from_v1(self._stream, v1_of(change))
        return {}

    def _undoable(self, operation: str | None) -> Entry:
        entries = self.history()
        if operation is not None:
            entry = next((each for each in entries if each.id == operation), None)
            if entry is None:
                raise self._nothing(f"there is no operation {operation!r} in {self._stream.uri}")
            if entry.undo != "yes":
                raise self._nothing(f"{operation} cannot be undone: {entry.undo}")
            return entry
        for entry in entries:
            if entry.undo == "yes" and entry.undoes is None:
                return entry
        raise self._nothing(f"nobody has changed {self._stream.uri}, or all changes are undone")

    def _nothing(self, message: str) -> NothingToUndo:
        return NothingToUndo(
            message,
            hint=f"see what can be undone with: sluicegate history {quote(self._stream.uri)}",
        )


def _aim(change: StreamChange) -> str:
    """What a change was about, if no position tells."""
    return f"to link {change.to}" if change.to is not None else change.operation


def _repair_summary(diagnosis: repair.Diagnosis) -> str:
    assert diagnosis.base
    told = [d.shown for d in diagnosis.damaged] + [f"links {a}-{b}" for a, b in diagnosis.unusable]
    return f"from link {diagnosis.base.number}; gave up " + (", ".join(told[:3]) or "nothing")


def _id(link: Link) -> str:
    return f"{link.stream}@{link.number}"


def _entry(link: Link, undone: Mapping[str, str], floor: int = 0) -> Entry:
    name = _id(link)
    undo = f"undone by {undone[name]}" if name in undone else _undo_of(link)
    if undo == "yes" and link.number <= floor:
        undo = "no: what was before it is not kept any more"
    return Entry(
        id=name,
        at=link.created_at,
        kind=link.kind.value,
        by=str(link.by),
        summary=link.details.get("summary") or _told(link),
        reason=link.reason,
        undoes=link.details.get("undoes"),
        undo=undo,
        plan_digest=link.details.get("plan_digest"),
        planned_by=link.details.get("planned_by"),
    )


def _undo_of(link: Link) -> str:
    if link.kind is Kind.COMPACT and link.details.get("given_up"):
        return "yes"
    if link.kind is Kind.COMPACT and link.details.get("undoes"):
        return "no: compact again with --retain instead"
    return _NO_UNDO.get(link.kind, "yes")


def _told(link: Link) -> str:
    if link.kind is Kind.CLAIM:
        return f"run {link.writer}" + (f" of {link.app}" if link.app else "")
    return f"{len(link.positions)} positions"
