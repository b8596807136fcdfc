"""The journal of a Spark checkpoint: `_sluicegate/` inside it."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import replace
from shlex import quote
from typing import Any

from sluicegate import units
from sluicegate.checkpoint import barrier, edit
from sluicegate.checkpoint.edit import Operation, Progress
from sluicegate.checkpoint.edit_log import entry_of, undone_operations
from sluicegate.checkpoint.edit_record import ChangeRecord
from sluicegate.checkpoint.file_edits import (
    Draft,
    Place,
    Planner,
    Roots,
    fingerprint,
    newest_after,
    standing,
)
from sluicegate.checkpoint.operations import relocate, repair, reset, rollback
from sluicegate.checkpoint.view import look_at, read_query_id
from sluicegate.checkpoint.writers import LOCK, refuse_living, settle
from sluicegate.errors import Corrupt, Drifted, SluicegateError
from sluicegate.journal import Approval, Entry, NothingToUndo, check_drift
from sluicegate.liveness import Evidence
from sluicegate.locks import Lock
from sluicegate.plan import Action, Plan, Precondition, Subject
from sluicegate.storage import Storage, canonical_uri, open_storage

KIND = "spark-checkpoint"
_README = (
    "What Sluicegate did to this checkpoint, and what undo needs. Spark ignores this directory.\n"
)
_OTHER_OUTPUT = (
    "The output is not touched. Let the query of the copy write to one of its own: a sink that has "
    "batches of the same numbers already skips them, and their rows are lost."
)
_FINISH, _TAKE_BACK, _UNDO = "finish", "take-back", "undo"


class CheckpointJournal:
    """`Journal` of a Spark checkpoint, with its file sink if that is to be changed, too.

    `writer_gone` is the operator's word that the job has ended, where files are too young to tell;
    against certain evidence it does not help.
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
        uri = canonical_uri(storage.uri)
        self._subject = Subject(KIND, uri, name, _identity(storage))
        self._planners: dict[str, Planner] = {
            "rollback": rollback.draft,
            "repair": repair.draft,
            "reset": reset.draft,
            _UNDO: self._draft_undo,
            _FINISH: self._draft_finish,
            _TAKE_BACK: self._draft_take_back,
        }

    def history(self) -> list[Entry]:
        operations = edit.list_operations(self._roots)
        undone = undone_operations(operations)
        return [entry_of(each, undone) for each in reversed(operations)]

    def plan(self, work: Mapping[str, Any]) -> Plan:
        planner = self._planners.get(str(work.get("operation")))
        if planner is None:
            raise Corrupt(f"{work.get('operation')!r} is not an operation on a Spark checkpoint")
        if work["operation"] not in (_FINISH, _TAKE_BACK):
            self.refuse_interrupted()
        return self._as_plan(planner(self._roots, work), work)

    def plan_undo(self, operation_id: str | None, *, force: bool = False) -> Plan:
        del force  # a foreign checkpoint has no fence that would make it safe
        stuck = edit.interrupted(self._roots)
        if stuck is not None and operation_id in (None, stuck.record.id):
            return self.plan({"operation": _TAKE_BACK, "undoes": stuck.record.id})
        wanted = operation_id or self._newest_change()
        return self.plan({"operation": _UNDO, "undoes": wanted})

    def plan_finish(self) -> Plan | None:
        """The rest of an operation that was interrupted, if there is one."""
        stuck = edit.interrupted(self._roots)
        if stuck is None:
            return None
        kind = _FINISH if stuck.progress is Progress.HALF_WAY else _TAKE_BACK
        return self.plan({"operation": kind, "undoes": stuck.record.id})

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
            work = plan.work
            goes_on = work["operation"] in (_FINISH, _TAKE_BACK)
            if not goes_on:
                # Before it is planned: half of a change tells nothing.
                self.refuse_interrupted()
            draft = self._planners[str(work["operation"])](self._roots, work)
            check_drift(plan, self._as_plan(draft, work))
            return self._go_on(work) if goes_on else self._perform(draft, work, approval)

    def plan_into(self, work: Mapping[str, Any], destination: str) -> Plan:
        """The same work on a copy of the checkpoint; the original and its sink are only read."""
        self.refuse_interrupted()
        plan = self._plan_copy(work)
        copy = relocate.plan_relocate(self._storage, destination, {})
        root = canonical_uri(destination)
        return replace(
            plan,
            title=f"{plan.title}, in a copy at {destination}, of the checkpoint",
            actions=(*copy.actions, Action("then", root, "the following"), *plan.actions),
            consequences=(*copy.consequences, *plan.consequences),
            subject=replace(self._subject, uri=root, name=None),
            work={**work, "into": root},
        )

    def apply_into(self, plan: Plan, approval: Approval) -> Entry:
        """Make the copy that `plan_into` describes; Spark refuses it until it is changed."""
        self._refuse_living()
        assert plan.subject
        check_drift(plan, self._plan_copy(plan.work))
        return self.write_into(relocate.new_directory(plan.subject.uri), plan.work, approval)

    def write_into(self, copy: Storage, work: Mapping[str, Any], approval: Approval) -> Entry:
        """The same, in an empty directory."""
        draft = self._draft_copy(work)
        record = self._record(draft, work, approval)
        barrier.raise_barrier(copy, record.barrier, "the command that made it")
        relocate.copy_files(self._storage, copy, {})
        done = edit.perform({Place.CHECKPOINT: copy}, record, draft.edits)
        return entry_of(Operation(done, Progress.DONE), {})

    def _plan_copy(self, work: Mapping[str, Any]) -> Plan:
        return self._as_plan(self._draft_copy(work), work)

    def _draft_copy(self, work: Mapping[str, Any]) -> Draft:
        """A draft that leaves the sink alone: it belongs to the original."""
        draft = self._planners[str(work["operation"])]({Place.CHECKPOINT: self._storage}, work)
        # What is said about naming the sink is for a change in place.
        others = tuple(text for text in draft.consequences if "--sink" not in text)
        return replace(draft, consequences=(*others, _OTHER_OUTPUT))

    def _perform(self, draft: Draft, work: Mapping[str, Any], approval: Approval) -> Entry:
        sink = self._roots.get(Place.SINK)
        record = replace(
            self._record(draft, work, approval),
            number=edit.next_number(self._storage),
            sink=canonical_uri(sink.uri) if sink is not None else None,
        )
        done = edit.perform(self._roots, record, draft.edits)
        return entry_of(Operation(done, Progress.DONE), {})

    def _record(self, draft: Draft, work: Mapping[str, Any], approval: Approval) -> ChangeRecord:
        """What the first operation on a checkpoint would write down."""
        newest = look_at(self._storage).last_batch
        above = max(draft.newest, -1 if newest is None else newest)
        return ChangeRecord(
            number=1,
            at=time.time(),
            kind=str(work["operation"]),
            by=approval.by,
            summary=draft.summary,
            barrier=barrier.barrier_key(above),
            newest=draft.newest,
            files=(),
            reason=approval.reason,
            undoes=draft.undoes,
            plan_digest=approval.plan_digest,
            planned_by=approval.planned_by,
        )

    def _go_on(self, work: Mapping[str, Any]) -> Entry:
        found = self._operation(str(work["undoes"]))
        if work["operation"] == _FINISH:
            edit.finish(self._roots, found.record)
            return entry_of(Operation(found.record, Progress.DONE), {})
        edit.take_back(self._roots, found.record)
        settle(self._storage)
        return entry_of(Operation(found.record, Progress.TAKEN_BACK), {})

    def _as_plan(self, draft: Draft, work: Mapping[str, Any]) -> Plan:
        files = Precondition("the files it changes", fingerprint(self._roots, draft.edits))
        return Plan(
            title=draft.title,
            actions=draft.actions,
            consequences=draft.consequences,
            preconditions=(*draft.preconditions, files),
            choices=draft.choices,
            subject=self._subject,
            work=dict(work),
        )

    def _draft_undo(self, roots: Roots, work: Mapping[str, Any]) -> Draft:
        found = self._operation(str(work.get("undoes")))
        record = found.record
        undone = undone_operations(edit.list_operations(roots))
        if found.progress is not Progress.DONE:
            raise NothingToUndo(f"{record.id} cannot be undone: {found.progress.value}")
        if record.id in undone:
            raise NothingToUndo(f"{record.id} was undone by {undone[record.id]}")
        if found.pruned:
            raise NothingToUndo(f"{record.id} cannot be undone: its backups were given up")
        look = look_at(self._storage)
        newest = -1 if look.last_batch is None else look.last_batch
        if newest != record.newest:
            raise Drifted(
                f"the job has run since {record.id}: the newest batch is {newest}, not "
                f"{record.newest}; undoing would tear its state apart",
                hint=f"go back with: sluicegate checkpoint rollback {quote(self._storage.uri)} "
                f"--to {record.newest}; then undo",
            )
        if changed := edit.differences(roots, record):
            raise Drifted(f"{changed[0]} was changed since {record.id}, so it cannot be undone")
        edits = tuple(edit.inverse(record))
        return Draft(
            title=f"Undo {record.id} ({record.kind})",
            summary=f"undo {record.id}: {record.summary}",
            actions=(
                Action("put back", "what the operation changed", units.counted(len(edits), "file")),
            ),
            consequences=(
                "Every file that the operation changed is again what it was, byte for byte.",
            ),
            edits=edits,
            newest=newest_after(look.offsets.batches, edits),
            preconditions=standing(look),
            undoes=record.id,
        )

    def _draft_finish(self, _roots: Roots, work: Mapping[str, Any]) -> Draft:
        return self._draft_rest(work, "Finish", "The operation is carried out to its end.")

    def _draft_take_back(self, _roots: Roots, work: Mapping[str, Any]) -> Draft:
        return self._draft_rest(
            work, "Take back", "Everything is again what it was before the operation."
        )

    def _draft_rest(self, work: Mapping[str, Any], verb: str, consequence: str) -> Draft:
        found = self._operation(str(work.get("undoes")))
        if not found.progress.is_interrupted:
            raise Drifted(f"{found.record.id} is no longer interrupted: {found.progress.value}")
        return Draft(
            title=f"{verb} the interrupted {found.record.id} ({found.record.kind})",
            summary=found.record.summary,
            actions=(
                Action(verb.lower(), "the rest", units.counted(len(found.record.files), "file")),
            ),
            consequences=(consequence,),
            edits=(),
            newest=found.record.newest,
            preconditions=(Precondition(f"{found.record.id} is", found.progress.value),),
        )

    def _operation(self, name: str) -> Operation:
        for each in edit.list_operations(self._roots):
            if each.record.id == name:
                self._take_sink_of(each.record)
                return each
        raise NothingToUndo(f"there is no operation {name!r} on {self._storage.uri}")

    def _take_sink_of(self, record: ChangeRecord) -> None:
        """Work on the sink that an operation has changed, wherever it was said to be."""
        if record.sink and Place.SINK not in self._roots:
            read_only = self._storage.read_only
            self._roots[Place.SINK] = open_storage(record.sink, read_only=read_only)

    def _newest_change(self) -> str:
        for entry in self.history():
            if entry.kind != _UNDO and entry.undo == "yes":
                return entry.id
        raise NothingToUndo(f"nothing was changed in {self._storage.uri}, or all is undone")

    def refuse_interrupted(self) -> None:
        """Refuse a checkpoint that is changed or made half way: what it holds tells nothing."""
        barrier.refuse_unfinished(self._storage)
        edit.refuse_interrupted(self._roots)

    def _lock(self) -> Lock:
        self._storage.put_if_absent(f"{edit.HOME}/README", _README.encode())
        return self._storage.lock(LOCK)


def _identity(storage: Storage) -> str | None:
    try:
        return read_query_id(storage)
    except SluicegateError:
        return None
