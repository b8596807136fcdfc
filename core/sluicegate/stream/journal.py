"""The journal of a gated stream: its chain. Every change is a snapshot; an undo is one more."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from importlib import import_module
from typing import Any

from sluicegate import units
from sluicegate.errors import Corrupt, Drifted, SluicegateError
from sluicegate.journal import Approval, Entry, Journal, check_drift, undone_by
from sluicegate.plan import Plan, Subject
from sluicegate.stream.append import Signature
from sluicegate.stream.history import changes
from sluicegate.stream.operations.base import StreamOperation, Workplace, summary
from sluicegate.stream.snapshot import Kind, Snapshot
from sluicegate.stream.stream import Stream
from sluicegate.stream.writer import StreamWriter
from sluicegate.target import Progress, no_progress

KIND = "stream"
# By the name that plans keep; imported when one is met, since some need large libraries.
_OPERATIONS = {
    "rollback": "rollback.Rollback",
    "reset": "reset.Reset",
    "repair": "repair.Repair",
    "prune": "prune.Prune",
    "fence": "fence.Fence",
    "import": "import_v1.ImportV1",
    "compact": "compact.CompactState",
    "compact-dedup": "compact_dedup.CompactDedup",
    "restore-dedup": "compact_dedup.RestoreDedup",
    "rebalance": "rebalance.Rebalance",
}
# The inverse of these kinds of snapshots is another operation; of all others, a rollback.
_INVERSES = {Kind.COMPACT.value: "compact-dedup", Kind.REBALANCE.value: "rebalance"}
_FORCED = (
    "Forced: takes over from a running job. The job cannot commit any more, and stops at its next "
    "epoch."
)
_NO_UNDO = {
    Kind.GENESIS: "no: the stream begins with it",
    Kind.CLAIM: "no: start the job again instead",
    Kind.COMPACT: "no: the contents are the same before and after",
    Kind.PRUNE: "no: the pruned snapshots are removed",
    Kind.REPAIR: "no: the replaced snapshots were damaged",
}


def operation_class(name: str) -> type[Any]:
    """The class of an operation, by the name that plans keep."""
    if name not in _OPERATIONS:
        raise Corrupt("the plan's work is not that of a gated stream")
    module, _, found = _OPERATIONS[name].rpartition(".")
    return getattr(import_module(f"sluicegate.stream.operations.{module}"), found)  # type: ignore[no-any-return]


class StreamJournal(Journal[StreamOperation]):
    """`Journal` of a gated stream."""

    def __init__(
        self, stream: Stream, *, name: str | None = None, progress: Progress = no_progress
    ) -> None:
        self.uri = stream.uri
        self._stream = stream
        self._writer = StreamWriter(stream)
        self._name = name
        self._progress = progress
        self._workplace = Workplace(stream, self._writer)

    def history(self) -> list[Entry]:
        head = self._stream.chain.head()
        snapshots = list(changes(self._stream, head))
        undone = undone_by(
            [(_id(each), each.details.get("undoes")) for each in reversed(snapshots)]
        )
        return [_entry(snapshot, undone, head.floor) for snapshot in snapshots]

    def operation(self, work: Mapping[str, Any]) -> StreamOperation:
        """The operation that a plan's work describes, or `Corrupt`."""
        found: StreamOperation = operation_class(str(work.get("operation"))).from_work(work)
        return found

    def propose(self, asked: StreamOperation) -> Plan:
        """The plan of an operation for the stream as it is now."""
        while True:
            operation = asked.resolved(self._stream)
            try:
                with self._showing_progress(operation):
                    parts = operation.plan(self._workplace)
                break
            except Drifted:
                if operation is asked:
                    raise
                # The blobs to merge were replaced; those that are there now can be merged.
        consequences = parts.consequences
        if parts.actions:
            note = [f"Asked for: {operation.note}."] if operation.note else []
            consequences = [*note, *consequences, *([_FORCED] if operation.force else [])]
        return Plan(
            title=parts.title,
            actions=tuple(parts.actions),
            consequences=tuple(consequences),
            preconditions=parts.needs,
            subject=Subject(KIND, self._stream.uri, self._name, self._identity()),
            work=operation.to_work() if parts.actions else {},
        )

    def _identity(self) -> str | None:
        try:
            return self._stream.chain.head().stream_id
        except SluicegateError:
            return None

    @contextmanager
    def _showing_progress(self, operation: StreamOperation) -> Iterator[None]:
        """Show the progress while an operation that can take long is planned or applied."""
        if operation.progress_title is None:
            yield
            return
        with self._progress(operation.progress_title) as self._workplace.on_progress:
            yield

    def inverse(self, entry: Entry, *, force: bool) -> StreamOperation:
        number = int(entry.id.rpartition("@")[2])
        kind = operation_class(_INVERSES.get(entry.kind, "rollback"))
        found: StreamOperation = kind.inverse(self._stream, number, entry.id, force=force)
        return found

    def preflight(self, plan: Plan) -> str | None:
        operation = self.operation(plan.work)
        if operation.online or operation.force:
            return None
        try:
            self._writer.refuse_living(self._stream.chain.head())
        except Corrupt:
            # No writer can commit on a chain that cannot be read.
            return None
        return None

    def settle(self, _entry: Entry) -> None:
        if not self._stream.storage.read_only:
            self._writer.head()

    def apply(self, plan: Plan, approval: Approval) -> Entry:
        operation, at = self.operation(plan.work), self._workplace
        # The head of a damaged chain need not be readable.
        at.base = None if operation.on_damage else self._writer.head()
        fresh = self.propose(operation)
        check_drift(plan, fresh)
        if at.base and not operation.force and not operation.online:
            self._writer.refuse_living(at.base)
        details = {
            "summary": summary(list(fresh.actions), operation.note) or operation.aim,
            "undoes": operation.undoes,
            "plan_digest": approval.plan_digest,
            "planned_by": approval.planned_by,
        }
        signature = Signature(by=approval.by, reason=approval.reason)
        with self._showing_progress(operation):
            snapshot = operation.append(at, signature, details)
        if snapshot is None:
            raise Drifted("another process did the same, or changed the inputs of this operation")
        return _entry(snapshot, {})


def _id(snapshot: Snapshot) -> str:
    return f"{snapshot.stream}@{snapshot.number}"


def _entry(snapshot: Snapshot, undone: Mapping[str, str], floor: int = 0) -> Entry:
    name = _id(snapshot)
    undo = f"undone by {undone[name]}" if name in undone else _undo_of(snapshot)
    if undo == "yes" and snapshot.number <= floor:
        undo = "no: the snapshot before it is pruned"
    return Entry(
        id=name,
        at=snapshot.created_at,
        kind=snapshot.kind.value,
        by=str(snapshot.by),
        summary=snapshot.details.get("summary") or _described(snapshot),
        reason=snapshot.reason,
        undoes=snapshot.details.get("undoes"),
        undo=undo,
        plan_digest=snapshot.details.get("plan_digest"),
        planned_by=snapshot.details.get("planned_by"),
    )


def _undo_of(snapshot: Snapshot) -> str:
    if snapshot.kind is Kind.COMPACT and snapshot.details.get("dropped"):
        return "yes"
    if snapshot.kind is Kind.COMPACT and snapshot.details.get("undoes"):
        return "no: compact again with --retain instead"
    return _NO_UNDO.get(snapshot.kind, "yes")


def _described(snapshot: Snapshot) -> str:
    if snapshot.kind is Kind.CLAIM:
        return f"run {snapshot.writer}" + (f" of {snapshot.app}" if snapshot.app else "")
    return units.counted(len(snapshot.positions), "position")
