"""The changes an operator asks for, from what the store holds now."""

from __future__ import annotations

from sluicegate.errors import NotFound
from sluicegate.offsets.changes import StoreChange
from sluicegate.offsets.lockfile import LockFileOffsetStore
from sluicegate.offsets.record import Record
from sluicegate.positions import Position, Positions
from sluicegate.reset import Known, Point, ResetSpec, Scope, check_scope, plan_reset


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


def _points(store: LockFileOffsetStore, consumer: str) -> list[Point]:
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
