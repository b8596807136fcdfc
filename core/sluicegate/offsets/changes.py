"""An operator's change of one consumer: its work in plain values, and what it means.

Reset, import, delete and undo all set and remove positions; they differ in where the numbers come
from. A plan depends on the positions it touches and on nothing else, so that it still applies while
other partitions move on; its texts therefore say nothing that changes by itself.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from sluicegate import units
from sluicegate.errors import Corrupt
from sluicegate.journal import Approval
from sluicegate.offsets.base import Partition, Update
from sluicegate.offsets.record import Change, Record
from sluicegate.plan import Action, Precondition
from sluicegate.positions import Position, Positions, PositionsInvalid, from_spark, to_spark
from sluicegate.reset import moves_told, moving

RESTORE = "restore"
TITLES = {
    "reset": "Reset",
    "import": "Import positions of",
    "delete": "Delete positions of",
    "undo": "Undo a change of",
    RESTORE: "Restore the damaged file of",
}
_SHOWN = 3


@dataclass(frozen=True, slots=True)
class StoreChange:
    """What to do to one consumer; `note` is in the operator's words (`to-offset 12`)."""

    operation: str
    consumer: str
    put: Positions = Positions({})  # noqa: RUF009 - a frozen value
    remove: frozenset[Partition] = frozenset()
    note: str = ""
    undoes: str | None = None
    version: str | None = None
    force: bool = False

    def to_work(self) -> dict[str, Any]:
        """As plain values, for a plan."""
        return {
            "operation": self.operation,
            "consumer": self.consumer,
            "put": to_spark(self.put),
            "remove": [list(each) for each in sorted(self.remove)],
            "note": self.note,
            "undoes": self.undoes,
            "version": self.version,
            "force": self.force,
        }

    @classmethod
    def from_work(cls, work: Mapping[str, Any]) -> StoreChange:
        """From the plain values of a plan, or `Corrupt`."""
        match dict(work):
            case {
                "operation": str(operation),
                "consumer": str(consumer),
                "put": dict(put),
                "remove": list(remove),
                "note": str(note),
                "undoes": None | str() as undoes,
                "version": None | str() as version,
                "force": bool(force),
                **unknown,
            } if operation in TITLES and not unknown:
                try:
                    # As positions, so that topics and partitions are checked like all others.
                    gone = Positions.of(Position(topic, number, 0) for topic, number in remove)
                    positions = from_spark(put)
                except (PositionsInvalid, TypeError, ValueError) as e:
                    raise Corrupt(f"the plan's work is not valid: {e}") from e
                keys = frozenset((each.topic, each.partition) for each in gone)
                return cls(operation, consumer, positions, keys, note, undoes, version, force)
        raise Corrupt("the plan's work is not that of an offset store")

    def before(self, record: Record | None) -> tuple[tuple[str, int, int | None], ...]:
        """The positions it touches, as they are now."""
        touched = {(p.topic, p.partition) for p in self.put} | self.remove
        return tuple(
            (*each, record.positions.get(*each) if record else None) for each in sorted(touched)
        )

    def preconditions(self, record: Record | None) -> tuple[Precondition, ...]:
        """The positions it touches must still be where they are now."""
        return tuple(
            Precondition(f"{topic}[{partition}] of consumer {self.consumer}", offset)
            for topic, partition, offset in self.before(record)
        )

    def actions(self, record: Record | None) -> tuple[Action, ...]:
        """One per position that moves."""
        return tuple(
            moving(topic, partition, old, self.put.get(topic, partition))
            for topic, partition, old in self.before(record)
            if old != self.put.get(topic, partition)
        )

    def update(self, record: Record | None, approval: Approval) -> Update:
        """The commit that does it."""
        actions = self.actions(record)
        change = Change(
            summary=_summary(actions, self.note),
            before=self.before(record),
            reason=approval.reason,
            undoes=self.undoes,
            plan_digest=approval.plan_digest,
            planned_by=approval.planned_by,
        )
        return Update(self.put, self.remove, kind=self.operation, change=change)

    def restoring(self, approval: Approval) -> Update:
        """The commit that puts a kept record in the place of a damaged file."""
        change = Change(
            summary=f"from {self.version}",
            before=None,
            reason=approval.reason,
            plan_digest=approval.plan_digest,
            planned_by=approval.planned_by,
        )
        return Update(kind=RESTORE, change=change)


def consequences(actions: tuple[Action, ...]) -> list[str]:
    """What moving positions means to whoever reads the consumer's output."""
    back = [a for a in actions if a.delta is not None and a.delta < 0]
    on = [a for a in actions if a.delta is not None and a.delta > 0]
    forgotten = [a for a in actions if a.new is None]
    fresh = [a for a in actions if a.old is None]
    told = []
    if back:
        count = -sum(a.delta or 0 for a in back)
        told.append(
            f"Re-reads {units.events(count)} of {_places(back)}. Their effects happen again "
            "unless the consumer recognises what it has seen."
        )
    if on:
        count = sum(a.delta or 0 for a in on)
        told.append(
            f"Skips {units.events(count)} of {_places(on)}: what it has not read by now it never "
            "reads."
        )
    if fresh:
        told.append(f"{_places(fresh)} had no position; the consumer starts where this says.")
    if forgotten:
        told.append(
            f"{_places(forgotten)} will have no position; where the consumer then starts is "
            "decided by the consumer."
        )
    if back or on or fresh:
        told.append(
            "The new positions are not compared with what the broker or log still holds: that is "
            "not known here."
        )
    return told


def _summary(actions: tuple[Action, ...], note: str) -> str:
    return (f"{note}: " if note else "") + (moves_told(actions) or "no position moved")


def _places(actions: list[Action]) -> str:
    names = ", ".join(action.place for action in actions[:_SHOWN])
    return names + (f" and {len(actions) - _SHOWN} more" if len(actions) > _SHOWN else "")
