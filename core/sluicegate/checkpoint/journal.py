"""The journal of a Spark checkpoint: `_sluicegate/` inside it."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from sluicegate.checkpoint import edit
from sluicegate.checkpoint.edit import ChangeRecord, Operation, Progress
from sluicegate.checkpoint.edit_log import entry_of, undone_operations
from sluicegate.checkpoint.file_edits import CheckpointOperation, Draft, Place, fingerprint
from sluicegate.checkpoint.operations import relocate
from sluicegate.checkpoint.operations.repair import Repair
from sluicegate.checkpoint.operations.reset import Reset
from sluicegate.checkpoint.operations.rollback import Rollback
from sluicegate.checkpoint.operations.undo import Finish, Revert, Undo, find
from sluicegate.checkpoint.view import look_at, read_query_id
from sluicegate.checkpoint.writers import LOCK, refuse_living, settle
from sluicegate.errors import Corrupt, SluicegateError
from sluicegate.journal import Approval, Entry, Journal, NothingToUndo, check_drift
from sluicegate.liveness import Evidence
from sluicegate.locks import Lock
from sluicegate.plan import Action, Plan, Precondition, Subject
from sluicegate.storage import Storage, canonical_uri, open_storage

KIND = "spark-checkpoint"
_README = (
    "What Sluicegate did to this checkpoint, and what undo needs. Spark ignores this directory.\n"
)
_OTHER_OUTPUT = (
    "The output is not touched. Give the query of the copy an output of its own: a sink that "
    "already has batches with the same ids skips them, and their rows are lost."
)
_OPERATIONS: dict[str, type[CheckpointOperation]] = {
    each.name: each for each in (Rollback, Reset, Repair, Undo, Finish, Revert)
}
_RESUMING = (Finish, Revert)


class CheckpointJournal(Journal[CheckpointOperation]):
    """`Journal` of a Spark checkpoint, with its file sink if that is to be changed, too.

    `writer_gone` is the operator's confirmation that the job has ended, where files are too young
    to show it; it does not override certain evidence.
    """

    def __init__(
        self,
        storage: Storage,
        *,
        sink: Storage | None = None,
        name: str | None = None,
        writer_gone: bool = False,
    ) -> None:
        self._writer_gone = writer_gone
        self._roots: dict[Place, Storage] = {Place.CHECKPOINT: storage}
        if sink is not None:
            self._roots[Place.SINK] = sink
        self._storage = storage
        self.uri = canonical_uri(storage.uri)
        self._subject = Subject(KIND, self.uri, name, _identity(storage))

    def history(self) -> list[Entry]:
        operations = edit.list_operations(self._roots)
        undone = undone_operations(operations)
        return [entry_of(each, undone) for each in reversed(operations)]

    def operation(self, work: Mapping[str, Any]) -> CheckpointOperation:
        kind = _OPERATIONS.get(str(work.get("operation")))
        if kind is None:
            raise Corrupt(f"{work.get('operation')!r} is not an operation on a Spark checkpoint")
        return kind.from_work(work)

    def propose(self, operation: CheckpointOperation) -> Plan:
        return self._as_plan(self._draft(operation), operation)

    def _draft(self, operation: CheckpointOperation) -> Draft:
        if isinstance(operation, (Undo, *_RESUMING)):
            self._operation(operation.undoes)
        if not isinstance(operation, _RESUMING):
            # Before it is planned: a checkpoint in the middle of a change cannot be planned on.
            self.refuse_interrupted()
        return operation.plan(self._roots)

    def plan_undo(self, operation: str | None, *, force: bool = False) -> Plan:
        stuck = edit.interrupted(self._roots)
        if stuck is not None and operation in (None, stuck.record.id):
            return self.propose(Revert(undoes=stuck.record.id))
        return super().plan_undo(operation, force=force)

    def undoable(self, operation: str | None) -> Entry:
        """The newest change, or a named one; whether that can be undone is decided by its plan."""
        if operation is not None:
            return entry_of(self._operation(operation), {})
        for entry in self.history():
            if entry.kind != Undo.name and entry.undo == "yes":
                return entry
        raise NothingToUndo(f"{self._storage.uri} has no change that can be undone")

    def inverse(self, entry: Entry, *, force: bool) -> CheckpointOperation:
        del force  # a foreign checkpoint has no fence that would make it safe
        return Undo(undoes=entry.id)

    def plan_finish(self) -> Plan | None:
        """The rest of an operation that was interrupted, if there is one."""
        stuck = edit.interrupted(self._roots)
        if stuck is None:
            return None
        kind = Finish if stuck.progress is Progress.HALF_DONE else Revert
        return self.propose(kind(undoes=stuck.record.id))

    def preflight(self, plan: Plan) -> str | None:
        del plan
        doubts = self._refuse_living().doubts
        return "; ".join(doubts) if doubts else None

    def settle(self, entry: Entry) -> None:
        if not self._storage.read_only:
            edit.make_durable(self._storage, self._operation(entry.id).record)

    def _refuse_living(self) -> Evidence:
        return refuse_living(
            self._storage, accept_possible=self._writer_gone, option="--writer-gone"
        )

    def apply(self, plan: Plan, approval: Approval) -> Entry:
        with self._lock().hold():
            self._refuse_living()
            operation = self.operation(plan.work)
            draft = self._draft(operation)
            check_drift(plan, self._as_plan(draft, operation))
            if isinstance(operation, _RESUMING):
                return self._resume(operation)
            return self._perform(draft, operation, approval)

    def plan_into(self, operation: CheckpointOperation, destination: str) -> Plan:
        """The same on a copy of the checkpoint; the original and its sink are only read."""
        self.refuse_interrupted()
        plan = self._plan_copy(operation)
        copy = relocate.plan_relocate(self._storage, destination, {})
        root = canonical_uri(destination)
        return replace(
            plan,
            title=f"{plan.title}, in a copy of the checkpoint at {destination}",
            actions=(*copy.actions, Action("then", root, "the following"), *plan.actions),
            consequences=(*copy.consequences, *plan.consequences),
            subject=replace(self._subject, uri=root, name=None),
            work={**operation.to_work(), "into": root},
        )

    def apply_into(self, plan: Plan, approval: Approval) -> Entry:
        """Make the copy that `plan_into` describes; Spark refuses it until the change is done."""
        self._refuse_living()
        assert plan.subject
        operation = self.operation(plan.work)
        check_drift(plan, self._plan_copy(operation))
        return self.write_into(relocate.new_directory(plan.subject.uri), operation, approval)

    def write_into(
        self, copy: Storage, operation: CheckpointOperation, approval: Approval
    ) -> Entry:
        """The same, in an empty directory."""
        draft = self._draft_copy(operation)
        record = self._record(draft, operation, approval)
        edit.raise_barrier(copy, record.barrier, "the command that made it")
        relocate.copy_files(self._storage, copy, {})
        done = edit.perform({Place.CHECKPOINT: copy}, record, draft.edits)
        return entry_of(Operation(done, Progress.DONE), {})

    def _plan_copy(self, operation: CheckpointOperation) -> Plan:
        return self._as_plan(self._draft_copy(operation), operation)

    def _draft_copy(self, operation: CheckpointOperation) -> Draft:
        """A draft that leaves the sink alone: it belongs to the original."""
        draft = operation.plan({Place.CHECKPOINT: self._storage})
        # Advice about --sink is for a change in place.
        others = tuple(text for text in draft.consequences if "--sink" not in text)
        return replace(draft, consequences=(*others, _OTHER_OUTPUT))

    def _perform(self, draft: Draft, operation: CheckpointOperation, approval: Approval) -> Entry:
        sink = self._roots.get(Place.SINK)
        record = replace(
            self._record(draft, operation, approval),
            number=edit.next_number(self._storage),
            sink=canonical_uri(sink.uri) if sink is not None else None,
        )
        done = edit.perform(self._roots, record, draft.edits)
        return entry_of(Operation(done, Progress.DONE), {})

    def _record(
        self, draft: Draft, operation: CheckpointOperation, approval: Approval
    ) -> ChangeRecord:
        """The record of the first operation on a checkpoint."""
        newest = look_at(self._storage).last_batch
        above = max(draft.newest, -1 if newest is None else newest)
        return ChangeRecord(
            number=1,
            at=time.time(),
            kind=operation.name,
            by=approval.by,
            summary=draft.summary,
            barrier=edit.barrier_key(above),
            newest=draft.newest,
            files=(),
            reason=approval.reason,
            undoes=draft.undoes,
            plan_digest=approval.plan_digest,
            planned_by=approval.planned_by,
        )

    def _resume(self, operation: Finish | Revert) -> Entry:
        found = self._operation(operation.undoes)
        if isinstance(operation, Finish):
            edit.finish(self._roots, found.record)
            return entry_of(Operation(found.record, Progress.DONE), {})
        edit.revert(self._roots, found.record)
        settle(self._storage)
        return entry_of(Operation(found.record, Progress.REVERTED), {})

    def _as_plan(self, draft: Draft, operation: CheckpointOperation) -> Plan:
        files = Precondition("the files it changes", fingerprint(self._roots, draft.edits))
        return Plan(
            title=draft.title,
            actions=draft.actions,
            consequences=draft.consequences,
            preconditions=(*draft.preconditions, files),
            choices=draft.choices,
            subject=self._subject,
            work=operation.to_work(),
        )

    def _operation(self, name: str) -> Operation:
        found = find(self._roots, name)
        self._take_sink_of(found.record)
        return found

    def _take_sink_of(self, record: ChangeRecord) -> None:
        """Use the sink that an operation has changed, as its record names it."""
        if record.sink and Place.SINK not in self._roots:
            read_only = self._storage.read_only
            self._roots[Place.SINK] = open_storage(record.sink, read_only=read_only)

    def refuse_interrupted(self) -> None:
        """Refuse a checkpoint whose change or creation was interrupted: it is inconsistent."""
        edit.refuse_unfinished(self._storage)
        edit.refuse_interrupted(self._roots)

    def _lock(self) -> Lock:
        self._storage.put_if_absent(f"{edit.HOME}/README", _README.encode())
        return self._storage.lock(LOCK)


def _identity(storage: Storage) -> str | None:
    try:
        return read_query_id(storage)
    except SluicegateError:
        return None
