"""The journal of a plain assignment file: the text before each change is kept beside it.

`NAME.sluicegate/` holds one file per change, `00000001.json` and so on, with the text from before.
It is written first, then the file itself is replaced in one step. Only the newest change can be
undone, and only while the file still has the text that the change wrote.
"""

from __future__ import annotations

import json
import time
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from functools import partial
from typing import Any, ClassVar

from sluicegate.codec import digest_of
from sluicegate.errors import Corrupt, Drifted, NotFound, SluicegateError, UnsupportedFormat
from sluicegate.journal import Approval, Entry, Journal, NothingToUndo, check_drift
from sluicegate.plan import Action, Plan, Precondition, Subject
from sluicegate.shards import describe
from sluicegate.shards.describe import INSTALL, Proposal
from sluicegate.shards.files import AssignmentFile, parse
from sluicegate.shards.owned import OwnedShards
from sluicegate.shards.planner import RebalancePlan
from sluicegate.storage import local_root, open_beside
from sluicegate.target import Change
from sluicegate.units import command

KIND = "assignment-file"
_MAX_BYTES = 64 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class _Parts:
    """The actions and consequences of a change, the new text of the file, and a summary."""

    actions: list[Action]
    consequences: list[str]
    after: str
    summary: str


@dataclass(frozen=True, kw_only=True)
class FileOperation(ABC):
    """A change of an assignment file; with `output` it writes a new file instead."""

    name: ClassVar[str]
    title: ClassVar[str]

    data: str = ""
    note: str = ""
    undoes: str | None = None
    output: str | None = None

    @abstractmethod
    def plan(self, journal: FileJournal, text: str) -> _Parts:
        """The change of a file with this text."""

    def to_work(self) -> dict[str, Any]:
        """As plain values, for a plan."""
        return {"operation": self.name, **asdict(self)}


class Rebalance(FileOperation):
    """Assign the shards by a proposal; `data` is its text."""

    name: ClassVar = "rebalance"
    title: ClassVar = "Rebalance"

    def plan(self, journal: FileJournal, text: str) -> _Parts:
        before, proposal = parse(text, journal.uri), Proposal.from_text(self.data)
        if proposal.after.n_shards != before.assignment.n_shards:
            raise Corrupt(f"the plan assigns {proposal.after.n_shards} shards, not this file's")
        made = proposal.plan_from(before.assignment)
        if made.is_nothing:
            return _Parts([], [], text, "")
        cost = partial(before.cost, made.after)
        actions = describe.actions_of(made, proposal.measure, before.label, cost)
        consequences = [*describe.consequences_of(made, proposal), *before.consequences(made)]
        summary = describe.summary_of(made, self.note)
        return _Parts(actions, consequences, before.with_assignment(made.after), summary)


class Restore(FileOperation):
    """Restore the text that an operation replaced."""

    name: ClassVar = "restore"
    title: ClassVar = "Restore"

    def plan(self, journal: FileJournal, text: str) -> _Parts:
        del text
        consequences = ["The file gets the text from before that change."]
        actions = [Action("restore", journal.file)]
        return _Parts(actions, consequences, journal.before(self.undoes), self.note)


_OPERATIONS: dict[str, type[FileOperation]] = {each.name: each for each in (Rebalance, Restore)}


class FileJournal(Journal[FileOperation]):
    """`Journal` of an assignment file."""

    def __init__(self, uri: str, *, read_only: bool) -> None:
        self._path = local_root(uri).resolve()
        self.uri = str(self._path)
        self._storage, self.file = open_beside(self.uri, read_only=read_only)
        self._kept = f"{self.file}.sluicegate"

    def read(self) -> AssignmentFile:
        """The current content of the file."""
        return parse(self._text(), self.uri)

    def history(self) -> list[Entry]:
        digest, entries, newest = _digest(self._text()), [], True
        for fields in reversed(self._operations()):
            before = _digest(fields["before"])
            if fields["after"] == digest:
                undo = "yes" if newest else "no: undo the later changes first"
                newest, digest = False, before
            elif before == digest:
                undo = "no: it was never finished"
            else:
                undo, newest = "no: the file was changed since", False
            entries.append(_entry(fields, undo))
        return entries

    def operation(self, work: Mapping[str, Any]) -> FileOperation:
        match dict(work):
            case {
                "operation": "rebalance" | "restore" as name,
                "data": str(data),
                "note": str(note),
                "undoes": None | str() as undoes,
                "output": None | str() as output,
                **unknown,
            } if not unknown:
                return _OPERATIONS[name](data=data, note=note, undoes=undoes, output=output)
        raise Corrupt("the plan's work is not that of an assignment file")

    def propose(self, operation: FileOperation) -> Plan:
        text = self._text()
        parts = operation.plan(self, text)
        actions, consequences = parts.actions, parts.consequences
        if parts.after == text:
            actions, consequences = [], []
        elif operation.output:
            actions.append(Action("write", operation.output, "a new file"))
            consequences.append(f"{self.file} is not changed; keep it to revert this.")
        else:
            kept = f"the current text is kept in {self._kept}"
            actions.append(Action("write", self.file, kept))
        asked = [f"Asked for: {operation.note}."] if operation.note and actions else []
        return Plan(
            title=f"{operation.title} {self.file}",
            actions=tuple(actions),
            consequences=(*asked, *consequences),
            preconditions=(Precondition("the file", _digest(text)),),
            subject=Subject(KIND, self.uri),
            work=operation.to_work(),
        )

    def undoable(self, operation: str | None) -> Entry:
        wanted = [each for each in self.history() if operation in (None, each.id)]
        for entry in wanted:
            if entry.undo == "yes":
                return entry
        why = f": {wanted[0].undo}" if wanted else ""
        raise NothingToUndo(
            f"there is nothing to undo in {self.uri}{why}",
            hint=f"list its changes with: {command('history', self.uri)}",
        )

    def inverse(self, entry: Entry, *, force: bool) -> FileOperation:
        del force  # a plain file has no running writer
        return Restore(note=f"undo {entry.id}", undoes=entry.id)

    def settle(self, _entry: Entry) -> None:
        if not self._storage.read_only:
            self._storage.sync(self.file)

    def apply(self, plan: Plan, approval: Approval) -> Entry:
        operation = self.operation(plan.work)
        if operation.output:
            return self._apply_elsewhere(plan, operation, operation.output, approval)
        with self._storage.lock(f"{self._kept}/change.lock").hold():
            check_drift(plan, self.propose(operation))
            text = self._text()
            parts = operation.plan(self, text)
            number = max(self._numbers(), default=0) + 1
            fields = _record(operation, parts, approval) | {
                "id": f"{self.file}@{number}",
                "before": text,
                "after": _digest(parts.after),
            }
            self._keep(number, fields)
            self._storage.replace(self.file, parts.after.encode())
        return _entry(fields, "yes")

    def _apply_elsewhere(
        self, plan: Plan, operation: FileOperation, output: str, approval: Approval
    ) -> Entry:
        check_drift(plan, self.propose(operation))
        parts = operation.plan(self, self._text())
        beside, name = open_beside(output)
        if not beside.put_if_absent(name, parts.after.encode()):
            raise SluicegateError(
                f"{output} already exists; an output never overwrites a file",
                hint="name another file, or remove that one",
                place=output,
            )
        fields = _record(operation, parts, approval) | {"id": name}
        return _entry(fields, "no: remove the new file")

    def before(self, operation: str | None) -> str:
        """The text of the file before an operation."""
        found = next((each for each in self._operations() if each["id"] == operation), None)
        if found is None:
            raise NothingToUndo(f"there is no operation {operation!r} of {self._path}")
        return str(found["before"])

    def _text(self) -> str:
        try:
            return self._storage.get(self.file, limit=_MAX_BYTES).decode()
        except UnicodeDecodeError as e:
            raise Corrupt(f"{self._path}, byte {e.start}: not UTF-8", place=self.uri) from e

    def _operations(self) -> list[dict[str, Any]]:
        """The kept changes, oldest first."""
        return [self._operation(f"{self._kept}/{name}.json") for name in sorted(self._names())]

    def _numbers(self) -> Iterator[int]:
        return (int(name) for name in self._names() if name.isdecimal())

    def _names(self) -> list[str]:
        try:
            entries = [entry.name for entry in self._storage.list(self._kept)]
        except NotFound:
            return []
        return [name.removesuffix(".json") for name in entries if name.endswith(".json")]

    def _operation(self, key: str) -> dict[str, Any]:
        place = str(self._path.parent / key)
        try:
            found = json.loads(self._storage.get(key, limit=4 * _MAX_BYTES))
        except (ValueError, RecursionError) as e:
            raise Corrupt(f"{place} is not a change: {e}", place=place) from e
        match found:
            case {"id": str(), "at": float(), "kind": str(), "by": str(), "summary": str()} if all(
                isinstance(found.get(name), str) for name in ("before", "after")
            ):
                return dict(found)
        raise Corrupt(f"{place} is not a change: its fields are invalid", place=place)

    def _keep(self, number: int, fields: Mapping[str, Any]) -> None:
        key = f"{self._kept}/{number:08d}.json"
        if not self._storage.put_if_absent(key, json.dumps(fields, indent=1).encode()):
            raise Drifted(f"another process changed {self._path} at the same time")


class FileShards(OwnedShards):
    """The shards of an assignment file."""

    def __init__(self, uri: str, journal: FileJournal) -> None:
        self._file = journal.read()
        self._journal = journal
        super().__init__(uri, self._file.assignment)

    def label(self, shard: int) -> str:
        return self._file.label(shard)

    def check_keys(self) -> None:
        if self._file.form == "kafka":
            raise UnsupportedFormat(
                f"{self.uri} is for Kafka, whose producers choose the partition of a key",
                hint="list the leaders with: sluicegate shards show",
            )

    def change(
        self, plan: RebalancePlan, how: str, note: str, *, output: str | None, **asked: Any
    ) -> Change:
        plan = plan if how == INSTALL else self._file.refined(plan)
        data = Proposal.of(plan, how, sizes=None, **asked).to_text()
        operation = Rebalance(data=data, note=note, output=output)
        return Change.of(self._journal, self._journal.propose(operation))


def _record(operation: FileOperation, parts: _Parts, approval: Approval) -> dict[str, Any]:
    return {
        "at": time.time(),
        "kind": operation.name,
        "by": str(approval.by),
        "summary": parts.summary,
        "reason": approval.reason,
        "undoes": operation.undoes,
        "plan_digest": approval.plan_digest,
        "planned_by": approval.planned_by,
    }


def _entry(fields: Mapping[str, Any], undo: str) -> Entry:
    return Entry(
        id=fields["id"],
        at=fields["at"],
        kind=fields["kind"],
        by=fields["by"],
        summary=fields["summary"],
        reason=fields.get("reason"),
        undoes=fields.get("undoes"),
        undo=undo,
        plan_digest=fields.get("plan_digest"),
        planned_by=fields.get("planned_by"),
    )


def _digest(text: str) -> str:
    return digest_of(text.encode())
