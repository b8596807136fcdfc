"""What an operator can do to the consumers of an offset store.

Reset, import, delete and undo all set and remove positions; they differ in where the numbers come
from. A plan depends on the positions it touches and on nothing else, so that it still applies while
other partitions move on; its texts therefore say nothing that changes by itself.

Commits keep ten records, and changes a hundred, however old they are. Here those go that are older
than a time; of every consumer the newest two records stay, so that a damaged file can be restored
and the last commit undone.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from sluicegate import units
from sluicegate.errors import Corrupt, NotFound, SluicegateError
from sluicegate.journal import Approval
from sluicegate.offsets.record import Change, Kept, Record
from sluicegate.offsets.store import LockFileOffsetStore, Partition, Update
from sluicegate.plan import Action, Precondition
from sluicegate.positions import Position, Positions, PositionsInvalid, from_spark, to_spark
from sluicegate.reset import (
    Known,
    Point,
    ResetSpec,
    Scope,
    check_scope,
    moves_told,
    moving,
    plan_reset,
)

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


def reset(
    store: LockFileOffsetStore, consumer: str, spec: ResetSpec, *, force: bool = False
) -> StoreChange:
    """Move positions that are there; where they were at a time is known from kept commits."""
    positions = _positions(store, consumer)
    known = Known(past=_points(store, consumer), past_from="commit kept")
    moves = plan_reset(positions, known, spec)
    put = Positions.of(Position(m.topic, m.partition, m.new) for m in moves if m.delta)
    clamped = [f"{m.topic}[{m.partition}]" for m in moves if m.clamped]
    note = str(spec) + (f", which is out of range for {', '.join(clamped)}" if clamped else "")
    return StoreChange("reset", consumer, put, note=note, force=force)


def take_over(
    store: LockFileOffsetStore,
    consumer: str,
    positions: Positions,
    *,
    replace: bool = False,
    force: bool = False,
) -> StoreChange:
    """Set positions from elsewhere; with `replace`, what is not among them goes away."""
    record = store.load(consumer)
    there = {(p.topic, p.partition) for p in record.positions} if record else set()
    surplus = there - {(p.topic, p.partition) for p in positions} if replace else set()
    return StoreChange("import", consumer, positions, frozenset(surplus), force=force)


def delete(
    store: LockFileOffsetStore, consumer: str, scope: Scope, *, force: bool = False
) -> StoreChange:
    """Forget the positions in scope; of a consumer that has none there is nothing to forget."""
    record = store.load(consumer)
    positions = record.positions if record else Positions({})
    if record:
        check_scope(positions, scope)
    gone = {(p.topic, p.partition) for p in positions if scope.has(p.topic, p.partition)}
    return StoreChange("delete", consumer, remove=frozenset(gone), force=force)


def topics(store: LockFileOffsetStore, consumer: str) -> list[str]:
    """The topics that a consumer has positions of."""
    record = store.load(consumer)
    return sorted(record.positions.by_topic) if record else []


def _positions(store: LockFileOffsetStore, consumer: str) -> Positions:
    record = store.load(consumer)
    if record is None:
        raise NotFound(
            f"consumer {consumer} has no positions",
            hint="set some with: sluicegate offsets import",
        )
    return record.positions


def _points(store: LockFileOffsetStore, consumer: str) -> list[Point[Positions]]:
    """Where the consumer was, as far as its commits are kept."""
    found = {r.sequence: r for r in store.records(consumer) if isinstance(r, Record)}
    return [
        Point(
            round(record.at * 1000),
            record.positions,
            f"commit {record.id}",
            gap_after=sequence != max(found) and sequence + 1 not in found,
        )
        for sequence, record in sorted(found.items())
    ]


_NEWEST = 2
_DAMAGED = re.compile(r"(?P<consumer>.+)\.(?P<at>[0-9]{1,16})\.damaged", re.ASCII)


@dataclass(frozen=True, slots=True)
class OldRecords:
    """Files of one consumer that may go."""

    consumer: str
    names: tuple[str, ...]


def old_records(store: LockFileOffsetStore, before: float) -> list[OldRecords]:
    """What is older than a time, by consumer; nothing of one whose newest record is damaged."""
    kept = store.kept_records()
    aside: dict[str, list[str]] = {}
    for entry in store.storage.list():
        match = _DAMAGED.fullmatch(entry.name)
        if match and int(match["at"]) / 1000 < before:
            aside.setdefault(match["consumer"], []).append(entry.name)
    found = []
    for consumer in sorted(kept):
        names = (*_old(store, consumer, kept[consumer], before), *aside.get(consumer, ()))
        found += [OldRecords(consumer, names)] if names else []
    return found


def prune_records(store: LockFileOffsetStore, before: float) -> list[OldRecords]:
    """Remove it, one consumer after the other; `Locked` if one of them is being written."""
    found = old_records(store, before)
    for each in found:
        with store.lock(each.consumer).hold(timeout=0):
            # Numbers and times only grow, so what was old is; but it may be needed by now.
            store.newest(each.consumer)
            for name in each.names:
                store.storage.delete(name)
    return found


def _old(
    store: LockFileOffsetStore, consumer: str, kept: list[Kept], before: float
) -> Iterator[str]:
    try:
        newest = store.newest(consumer)
    except SluicegateError:
        # Whatever is kept may be needed to restore it.
        return
    limit = newest.sequence - _NEWEST + 1 if newest else 0
    for each in kept:
        if each.sequence >= limit:
            return
        try:
            record = store.read_kept(consumer, each)
        except SluicegateError:
            continue
        if record.at >= before:
            return
        yield each.name
