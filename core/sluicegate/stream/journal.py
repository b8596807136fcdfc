"""The journal of a gated stream, and what its operations have in common.

Each operation is one frozen dataclass in a file of its own, with `plan`, `append` and, where the
undo is not a rollback, `inverse`. The journal plans it, plans it again when it is applied, compares
the preconditions, and lets it append its snapshot.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import MISSING, dataclass, field, fields, replace
from importlib import import_module
from typing import Any, ClassVar, Self

from sluicegate import units
from sluicegate.errors import Corrupt, Drifted, SluicegateError, UsageError
from sluicegate.journal import Approval, Entry, Journal, check_drift, undone_by
from sluicegate.plan import Action, Choice, Plan, Precondition, Subject
from sluicegate.positions import Positions, from_spark, to_spark
from sluicegate.reset import SKIP, Partition, moves_text, moving
from sluicegate.sinks.base import Sink
from sluicegate.storage.blobs import Ref
from sluicegate.stream.append import Signature
from sluicegate.stream.history import changes
from sluicegate.stream.snapshot import Kind, Snapshot
from sluicegate.stream.stream import Stream
from sluicegate.stream.writer import StreamWriter
from sluicegate.target import Progress, no_progress

MOVE_ON = "move on"
Inputs = tuple[Ref, ...]
# All fields that the work of a saved plan has; an operation uses some of them.
_EMPTY: dict[str, Any] = {
    "to": None,
    "positions": None,
    "data": None,
    "before": None,
    "read_data": False,
    "force": False,
    "note": "",
    "undoes": None,
    "inputs": None,
    "choice": None,
    "unchecked": False,
}


def silent(_done: int, _of: int) -> None:
    """Progress that is not shown."""


@dataclass(slots=True)
class Workplace:
    """The stream that operations are planned and applied on, and what they share.

    `base` is the snapshot that an operation is applied on; None as long as it is only planned.
    `merged` keeps what was merged for a plan, so that applying it does not merge again.
    """

    stream: Stream
    writer: StreamWriter
    sink: Sink | None = None
    on_progress: Callable[[int, int], None] = silent
    base: Snapshot | None = None
    merged: dict[object, Any] = field(default_factory=dict)

    @property
    def applied_on(self) -> Snapshot:
        """The base, while an operation is applied."""
        assert self.base
        return self.base


@dataclass(frozen=True, slots=True)
class Parts:
    """The plan of an operation. No actions: nothing to do."""

    title: str
    needs: tuple[Precondition, ...]
    actions: list[Action] = field(default_factory=list)
    consequences: list[str] = field(default_factory=list)
    choices: tuple[Choice, ...] = ()


@dataclass(frozen=True, kw_only=True)
class StreamOperation(ABC):
    """A change of a stream by an operator; `note` is the option as typed (`to-offset 12`)."""

    name: ClassVar[str]
    online: ClassVar[bool] = False
    """Whether it can be applied while a job runs."""
    progress_title: ClassVar[str | None] = None
    """What is shown while it works, if that can take long."""
    on_damage: ClassVar[bool] = False
    """Whether it works on a chain whose head cannot be read."""

    note: str = ""
    force: bool = False
    undoes: str | None = None

    @abstractmethod
    def plan(self, at: Workplace) -> Parts:
        """Its plan for the stream as it is now."""

    @abstractmethod
    def append(
        self, at: Workplace, signature: Signature, details: Mapping[str, Any]
    ) -> Snapshot | None:
        """Append its snapshot; None if another process did the same, or changed its inputs."""

    def resolved(self, _stream: Stream) -> Self:
        """The same operation with all its inputs named."""
        return self

    @property
    def aim(self) -> str:
        """A summary for the history, if no position moves."""
        return self.name

    def to_work(self) -> dict[str, Any]:
        """As plain values, for a plan."""
        own = {each.name: getattr(self, each.name) for each in fields(self)}
        if own.get("positions") is not None:
            own["positions"] = to_spark(own["positions"])
        if own.get("inputs") is not None:
            own["inputs"] = [[ref.digest, ref.size] for ref in own["inputs"]]
        return {"operation": self.name, **_EMPTY, **own}

    @classmethod
    def from_work(cls, work: Mapping[str, Any]) -> Self:
        """From the plain values of a plan, or `Corrupt`."""
        values = _checked(work)
        own = {each.name: values[each.name] for each in fields(cls)}
        missing = [name for name in cls.needed() if own[name] is None]
        if missing:
            raise Corrupt(f"the plan's work lacks {missing[0]!r}")
        return cls(**own)

    @classmethod
    def needed(cls) -> list[str]:
        """The fields that must be set."""
        return [each.name for each in fields(cls) if each.default is MISSING]


def _checked(work: Mapping[str, Any]) -> dict[str, Any]:
    match dict(work):
        case {
            "operation": str(),
            "to": None | int(),
            "positions": None | dict() as positions,
            "data": None | str(),
            "before": None | float(),
            "read_data": bool(),
            "force": bool(),
            "note": str(),
            "undoes": None | str(),
            "inputs": None | list() as inputs,
            "choice": None | str(),
            "unchecked": bool(),
            **unknown,
        } if not unknown:
            try:
                where = None if positions is None else from_spark(positions)
                merged = None if inputs is None else _refs(inputs)
            except UsageError as e:
                raise Corrupt(f"the plan's work is not valid: {e}") from e
            return {**work, "positions": where, "inputs": merged}
    raise Corrupt("the plan's work is not that of a gated stream")


def _refs(found: list[Any]) -> Inputs:
    refs = []
    for each in found:
        match each:
            case [str(digest), int(size)]:
                refs.append(Ref(digest, size))
            case _:
                raise UsageError(f"{each!a:.80} does not refer to a blob")
    return tuple(refs)


def moves(old: Positions, new: Positions, *, with_state: bool = False) -> list[Action]:
    """One action per position that differs; `with_state`: the state moves with them."""
    found = [moving(*each, old.get(*each), new.get(*each)) for each in _differing(old, new)]
    if not with_state:
        return found
    return [replace(a, verb=MOVE_ON, detail="already read") if a.verb == SKIP else a for a in found]


def _differing(old: Positions, new: Positions) -> list[Partition]:
    both = {(p.topic, p.partition) for p in (*old, *new)}
    return sorted(each for each in both if old.get(*each) != new.get(*each))


def summary(actions: list[Action], note: str) -> str:
    """The moves of positions in a line of the history."""
    text = moves_text([a for a in actions if a.verb in ("rewind", SKIP, MOVE_ON, "set", "forget")])
    return f"{note}: {text}" if note and text else note or text


def preconditions(snapshot: Snapshot, *, force: bool) -> tuple[Precondition, ...]:
    """Preconditions of a new generation: the same one before and, unless forced, no new epoch."""
    found = [Precondition("the stream", snapshot.stream_id)]
    found.append(Precondition("the generation", snapshot.generation))
    if not force:
        found.append(Precondition("the number of epochs", snapshot.epoch))
        found.append(Precondition("the current writer", snapshot.writer))
    return tuple(found)


def snapshot_text(snapshot: Snapshot) -> str:
    """A snapshot as plans name it."""
    kind = f"epoch {snapshot.epoch}" if snapshot.kind is Kind.EPOCH else snapshot.kind.value
    return f"snapshot {snapshot.number} ({kind}, {units.utc(snapshot.created_at)})"


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
        self,
        stream: Stream,
        *,
        name: str | None = None,
        progress: Progress = no_progress,
        sink: Sink | None = None,
    ) -> None:
        self.uri = stream.uri
        self._stream = stream
        self._writer = StreamWriter(stream)
        self._name = name
        self._progress = progress
        self._workplace = Workplace(stream, self._writer, sink)

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
            choices=parts.choices,
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
