"""What the operations on a stream have in common: their work as plain values, and their parts.

Each operation is one frozen dataclass in a file of its own, with `plan`, `append` and, where the
undo is not a rollback, `inverse`. The journal plans it, plans it again when it is applied, compares
the preconditions, and lets it append its snapshot.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import MISSING, dataclass, field, fields, replace
from typing import Any, ClassVar, Self

from sluicegate import units
from sluicegate.errors import Corrupt, UsageError
from sluicegate.plan import Action, Precondition
from sluicegate.positions import Positions, from_spark, to_spark
from sluicegate.reset import SKIP, Partition, moves_text, moving
from sluicegate.storage.blobs import Ref
from sluicegate.stream.append import Signature
from sluicegate.stream.snapshot import Kind, Snapshot
from sluicegate.stream.stream import Stream
from sluicegate.stream.writer import StreamWriter

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
