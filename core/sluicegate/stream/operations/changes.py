"""An operator's change of a stream: its work in plain values, and what it means.

Each kind of change is one function from the head to a plan; `apply` in the journal makes the same
plan again, compares what it depends on, and appends the link.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from sluicegate import units
from sluicegate.errors import Corrupt, UsageError
from sluicegate.plan import Action, Precondition
from sluicegate.positions import Positions, from_spark, to_spark
from sluicegate.reset import SKIP, Partition, moves_told, moving
from sluicegate.storage.blobs import Ref
from sluicegate.stream.snapshot import Kind, Link

ROLLBACK, RESET, COMPACT, DEDUP, RESTORE, PRUNE, REPAIR, IMPORT, DEPOSE, REBALANCE = OPERATIONS = (
    "rollback",
    "reset",
    "compact",
    "compact-dedup",
    "restore-dedup",
    "prune",
    "repair",
    "import",
    "depose",
    "rebalance",
)
MOVE_ON = "move on"


class NeedsDedup(UsageError):
    """A reset would count events twice, because there is no dedup log to recognise them."""

    default_hint = "add --reprocess, which also takes back what was counted since then"


@dataclass(frozen=True, slots=True)
class StreamChange:
    """What to do to a stream; which fields count depends on the operation.

    `inputs` is what a compaction merges; None: all there is, as soon as it is planned.
    """

    operation: str
    to: int | None = None
    positions: Positions | None = None
    data: str | None = None
    before: float | None = None
    read_data: bool = False
    force: bool = False
    note: str = ""
    undoes: str | None = None
    inputs: tuple[Ref, ...] | None = None

    def to_work(self) -> dict[str, Any]:
        """As plain values, for a plan."""
        return {
            "operation": self.operation,
            "to": self.to,
            "positions": to_spark(self.positions) if self.positions else None,
            "data": self.data,
            "before": self.before,
            "read_data": self.read_data,
            "force": self.force,
            "note": self.note,
            "undoes": self.undoes,
            "inputs": None if self.inputs is None else [[r.digest, r.size] for r in self.inputs],
        }

    @classmethod
    def from_work(cls, work: Mapping[str, Any]) -> StreamChange:
        """From the plain values of a plan, or `Corrupt`."""
        match dict(work):
            case {
                "operation": str(operation),
                "to": None | int() as to,
                "positions": None | dict() as positions,
                "data": None | str() as data,
                "before": None | float() as before,
                "read_data": bool(read_data),
                "force": bool(force),
                "note": str(note),
                "undoes": None | str() as undoes,
                "inputs": None | list() as inputs,
                **unknown,
            } if operation in OPERATIONS and not unknown:
                try:
                    where = None if positions is None else from_spark(positions)
                    merged = None if inputs is None else _refs(inputs)
                except UsageError as e:
                    raise Corrupt(f"the plan's work is not valid: {e}") from e
                return cls(
                    operation, to, where, data, before, read_data, force, note, undoes, merged
                )
        raise Corrupt("the plan's work is not that of a gated stream")


def _refs(fields: list[Any]) -> tuple[Ref, ...]:
    found = []
    for each in fields:
        match each:
            case [str(digest), int(size)]:
                found.append(Ref(digest, size))
            case _:
                raise UsageError(f"{each!a:.80} does not refer to a blob")
    return tuple(found)


def moves(old: Positions, new: Positions, *, counted: bool = False) -> list[Action]:
    """One action per position that differs; `counted`: what lies between moves with them."""
    found = [moving(*each, old.get(*each), new.get(*each)) for each in _differing(old, new)]
    if not counted:
        return found
    return [
        replace(a, verb=MOVE_ON, detail="counts again as read") if a.verb == SKIP else a
        for a in found
    ]


def _differing(old: Positions, new: Positions) -> list[Partition]:
    both = {(p.topic, p.partition) for p in (*old, *new)}
    return sorted(each for each in both if old.get(*each) != new.get(*each))


def summary(actions: list[Action], note: str) -> str:
    """The moves of positions in a line of the history."""
    told = moves_told([a for a in actions if a.verb in ("rewind", SKIP, MOVE_ON, "set", "forget")])
    return f"{note}: {told}" if note and told else note or told


def standing(link: Link, *, force: bool) -> tuple[Precondition, ...]:
    """What going back depends on: nobody went back before, and, unless forced, no job went on."""
    found = [Precondition("the stream", link.stream_id)]
    found.append(Precondition("the generation", link.generation))
    if not force:
        found.append(Precondition("the number of epochs", link.epoch))
        found.append(Precondition("the run that may seal", link.writer))
    return tuple(found)


def link_text(link: Link) -> str:
    """A link as plans name it."""
    kind = f"epoch {link.epoch}" if link.kind is Kind.EPOCH else link.kind.value
    return f"link {link.number} ({kind}, {units.utc(link.created_at)})"
