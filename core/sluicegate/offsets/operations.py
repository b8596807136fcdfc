"""The operations on the consumers of an offset store.

Reset, import, delete and undo all set and remove positions; they differ in the origin of the
offsets. A plan depends only on the positions it touches, so that it stays valid while other
partitions move on; its texts therefore contain nothing that changes by itself.

A store keeps ten records of commits and a hundred of changes, whatever their age. Pruning removes
those that are older than a time, but keeps the newest two records of every consumer, so that a
damaged file can be restored and the last commit undone.
"""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from shlex import quote
from typing import Any, ClassVar

from sluicegate import units
from sluicegate.errors import Corrupt, Drifted, NotFound, SluicegateError
from sluicegate.journal import Approval
from sluicegate.offsets.record import Change, Kept, Record
from sluicegate.offsets.store import Commit, LockFileOffsetStore, Partition, StoreDamaged, Update
from sluicegate.plan import Action, Precondition
from sluicegate.positions import Position, Positions, PositionsInvalid, from_spark, to_spark
from sluicegate.reset import (
    Known,
    Point,
    ResetSpec,
    Scope,
    check_scope,
    moves_text,
    moving,
    plan_reset,
)
from sluicegate.storage import canonical_uri

RESTORE = "restore"
_SHOWN = 3


@dataclass(frozen=True, slots=True)
class Parts:
    """The actions, consequences and preconditions of an operation. No actions: nothing to do."""

    actions: tuple[Action, ...]
    consequences: tuple[str, ...]
    needs: tuple[Precondition, ...]


@dataclass(frozen=True, kw_only=True)
class StoreOperation(ABC):
    """A change of one consumer; `note` is what the operator asked for (`to-offset 12`).

    Which of these fields are used depends on the operation; a plan holds all of them.
    """

    name: ClassVar[str]
    title: ClassVar[str]

    consumer: str
    put: Positions = Positions({})  # noqa: RUF009 - a frozen value
    remove: frozenset[Partition] = frozenset()
    note: str = ""
    undoes: str | None = None
    version: str | None = None
    force: bool = False

    @abstractmethod
    def plan(self, store: LockFileOffsetStore) -> Parts:
        """The plan for the current state of the consumer."""

    @abstractmethod
    def apply(
        self, store: LockFileOffsetStore, approval: Approval, check: Callable[[Parts], None]
    ) -> Commit:
        """Apply it, under the consumer's lock, if `check` accepts the plan made then."""

    def to_work(self) -> dict[str, Any]:
        """As plain values, for a plan."""
        return {
            "operation": self.name,
            "consumer": self.consumer,
            "put": to_spark(self.put),
            "remove": [list(each) for each in sorted(self.remove)],
            "note": self.note,
            "undoes": self.undoes,
            "version": self.version,
            "force": self.force,
        }


class Moving(StoreOperation):
    """Sets and removes positions; subclasses differ in the origin of the offsets."""

    def plan(self, store: LockFileOffsetStore) -> Parts:
        return self._parts(store.newest(self.consumer))

    def apply(
        self, store: LockFileOffsetStore, approval: Approval, check: Callable[[Parts], None]
    ) -> Commit:
        def decide(record: Record | None) -> Update:
            check(self._parts(record))
            return self._update(record, approval)

        return store.update(self.consumer, decide)

    def _parts(self, record: Record | None) -> Parts:
        actions, lines = self._actions(record), []
        if actions:
            lines = [f"Asked for: {self.note}."] if self.note else []
            lines += consequences(actions)
        if actions and self.undoes:
            lines.append(
                f"Commits to these partitions since {self.undoes} are overwritten; they stay in "
                "the history."
            )
        if actions and self.force:
            lines.append(
                "Forced: a consumer that still runs overwrites this with its next commit, unless "
                "it loads its position first."
            )
        needs = tuple(
            Precondition(f"{topic}[{partition}] of consumer {self.consumer}", offset)
            for topic, partition, offset in self._before(record)
        )
        return Parts(actions, tuple(lines), needs)

    def _before(self, record: Record | None) -> tuple[tuple[str, int, int | None], ...]:
        """The positions it touches, as they are now."""
        touched = {(p.topic, p.partition) for p in self.put} | self.remove
        return tuple(
            (*each, record.positions.get(*each) if record else None) for each in sorted(touched)
        )

    def _actions(self, record: Record | None) -> tuple[Action, ...]:
        return tuple(
            moving(topic, partition, old, self.put.get(topic, partition))
            for topic, partition, old in self._before(record)
            if old != self.put.get(topic, partition)
        )

    def _update(self, record: Record | None, approval: Approval) -> Update:
        change = Change(
            summary=_summary(self._actions(record), self.note),
            before=self._before(record),
            reason=approval.reason,
            undoes=self.undoes,
            plan_digest=approval.plan_digest,
            planned_by=approval.planned_by,
        )
        return Update(self.put, self.remove, kind=self.name, change=change)


class Reset(Moving):
    """Move existing positions."""

    name: ClassVar = "reset"
    title: ClassVar = "Reset"

    @classmethod
    def to(
        cls, store: LockFileOffsetStore, consumer: str, spec: ResetSpec, *, force: bool = False
    ) -> Reset:
        """To the positions of a scenario; positions at past times come from kept commits."""
        positions = _positions(store, consumer)
        known = Known(past=_points(store, consumer), past_from="commit kept")
        moves = plan_reset(positions, known, spec)
        put = Positions.of(Position(m.topic, m.partition, m.new) for m in moves if m.delta)
        clamped = [f"{m.topic}[{m.partition}]" for m in moves if m.clamped]
        note = str(spec) + (f", which is out of range for {', '.join(clamped)}" if clamped else "")
        return cls(consumer=consumer, put=put, note=note, force=force)


class Import(Moving):
    """Set positions from another place."""

    name: ClassVar = "import"
    title: ClassVar = "Import positions of"

    @classmethod
    def of(
        cls,
        store: LockFileOffsetStore,
        consumer: str,
        positions: Positions,
        *,
        replace: bool = False,
        force: bool = False,
    ) -> Import:
        """With `replace`, all other positions are removed."""
        record = store.load(consumer)
        present = {(p.topic, p.partition) for p in record.positions} if record else set()
        surplus = present - {(p.topic, p.partition) for p in positions} if replace else set()
        return cls(consumer=consumer, put=positions, remove=frozenset(surplus), force=force)


class Delete(Moving):
    """Delete positions."""

    name: ClassVar = "delete"
    title: ClassVar = "Delete positions of"

    @classmethod
    def of(
        cls, store: LockFileOffsetStore, consumer: str, scope: Scope, *, force: bool = False
    ) -> Delete:
        """The positions in scope; nothing to do for a consumer without positions."""
        record = store.load(consumer)
        positions = record.positions if record else Positions({})
        if record:
            check_scope(positions, scope)
        gone = {(p.topic, p.partition) for p in positions if scope.has(p.topic, p.partition)}
        return cls(consumer=consumer, remove=frozenset(gone), force=force)


class Undo(Moving):
    """Restore the positions from before an operation."""

    name: ClassVar = "undo"
    title: ClassVar = "Undo a change of"


class Restore(StoreOperation):
    """Replace a damaged file by a kept record, `version`."""

    name: ClassVar = RESTORE
    title: ClassVar = "Restore the damaged file of"

    @classmethod
    def newest(cls, store: LockFileOffsetStore, consumer: str) -> Restore:
        """From the newest record that can be read."""
        for kept in reversed(store.kept(consumer)):
            try:
                store.read_kept(consumer, kept)
            except SluicegateError:
                continue
            return cls(consumer=consumer, version=kept.name)
        uri = canonical_uri(store.uri)
        raise StoreDamaged(
            f"the file of consumer {consumer} is damaged, and no older record of it can be read",
            hint=f"move all files {quote(f'{uri}/{consumer}.')}* away, then set the "
            f"positions: {units.command('offsets', 'import', uri, 'FILE', '--consumer', consumer)}",
            place=f"{uri}/{consumer}.offsets",
        )

    def plan(self, store: LockFileOffsetStore) -> Parts:
        consumer = self.consumer
        if not is_damaged(store, consumer) or self != Restore.newest(store, consumer):
            raise Drifted(f"the file of consumer {consumer} is not damaged, or has changed")
        found = store.storage.stat(f"{consumer}.offsets")
        state = f"{found.size} bytes of {found.modified_ns}" if found else None
        record = store.read_kept(consumer, self._kept(store))
        what = f"record {record.sequence} of {units.utc(record.at)}"
        count = units.counted(len(record.positions), "position")
        actions = [Action("restore", f"{consumer}.offsets", f"{what}, {count}")]
        if found:
            aside = f"{consumer}.TIME.damaged"
            actions.insert(0, Action("keep", aside, "the damaged file, under a second name"))
        consequence = (
            f"Record {record.sequence} is the newest that can be read. If the consumer committed "
            "after it, it reads those events again. "
            "This cannot be undone: the damaged file cannot be read."
        )
        needs = (Precondition(f"the file of consumer {consumer}", state),)
        return Parts(tuple(actions), (consequence,), needs)

    def apply(
        self, store: LockFileOffsetStore, approval: Approval, check: Callable[[Parts], None]
    ) -> Commit:
        def decide() -> Update:
            check(self.plan(store))
            return self._update(approval)

        return store.restore(self.consumer, self._kept(store), decide)

    def _kept(self, store: LockFileOffsetStore) -> Kept:
        for kept in store.kept(self.consumer):
            if kept.name == self.version:
                return kept
        raise NotFound(f"{canonical_uri(store.uri)}/{self.version} is no longer kept")

    def _update(self, approval: Approval) -> Update:
        change = Change(
            summary=f"from {self.version}",
            before=None,
            reason=approval.reason,
            plan_digest=approval.plan_digest,
            planned_by=approval.planned_by,
        )
        return Update(kind=RESTORE, change=change)


OPERATIONS: dict[str, type[StoreOperation]] = {
    each.name: each for each in (Reset, Import, Delete, Undo, Restore)
}


def from_work(work: Mapping[str, Any]) -> StoreOperation:
    """The operation that the plain values of a plan describe, or `Corrupt`."""
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
        } if operation in OPERATIONS and not unknown:
            try:
                # As positions, so that topics and partitions are checked like all others.
                gone = Positions.of(Position(topic, number, 0) for topic, number in remove)
                positions = from_spark(put)
            except (PositionsInvalid, TypeError, ValueError) as e:
                raise Corrupt(f"the plan's work is not valid: {e}") from e
            return OPERATIONS[operation](
                consumer=consumer,
                put=positions,
                remove=frozenset((each.topic, each.partition) for each in gone),
                note=note,
                undoes=undoes,
                version=version,
                force=force,
            )
    raise Corrupt("the plan's work is not that of an offset store")


def is_damaged(store: LockFileOffsetStore, consumer: str) -> bool:
    """Whether the newest record of a consumer is damaged."""
    try:
        store.newest(consumer)
    except StoreDamaged:
        return True
    except SluicegateError:
        # Unreadable for another reason (permission, a newer format) is not damage.
        return False
    return False


def consequences(actions: tuple[Action, ...]) -> list[str]:
    """The consequences of moving positions for the consumer and its output."""
    back = [a for a in actions if a.delta is not None and a.delta < 0]
    on = [a for a in actions if a.delta is not None and a.delta > 0]
    forgotten = [a for a in actions if a.new is None]
    fresh = [a for a in actions if a.old is None]
    lines = []
    if back:
        count = -sum(a.delta or 0 for a in back)
        lines.append(
            f"Re-reads {units.events(count)} of {_places(back)}. Their effects happen again "
            "unless the consumer recognises events it has seen."
        )
    if on:
        count = sum(a.delta or 0 for a in on)
        lines.append(
            f"Skips {units.events(count)} of {_places(on)}: the consumer never reads those it has "
            "not read yet."
        )
    if fresh:
        lines.append(f"{_places(fresh)} had no position; the consumer starts at the new one.")
    if forgotten:
        lines.append(
            f"{_places(forgotten)} will have no position; the consumer then decides where it "
            "starts."
        )
    if back or on or fresh:
        lines.append(
            "The new positions are not checked against the broker or log: its range is not known "
            "here."
        )
    return lines


def _summary(actions: tuple[Action, ...], note: str) -> str:
    return (f"{note}: " if note else "") + (moves_text(actions) or "no position moved")


def _places(actions: list[Action]) -> str:
    names = ", ".join(action.place for action in actions[:_SHOWN])
    return names + (f" and {len(actions) - _SHOWN} more" if len(actions) > _SHOWN else "")


def topics(store: LockFileOffsetStore, consumer: str) -> list[str]:
    """The topics for which a consumer has positions."""
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
    """The past positions of a consumer, from its kept commits."""
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
    """Files of one consumer that may be removed."""

    consumer: str
    names: tuple[str, ...]


def old_records(store: LockFileOffsetStore, before: float) -> list[OldRecords]:
    """Records older than a time, by consumer; none of a consumer whose newest is damaged."""
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
    """Remove them, one consumer after the other; `Locked` if one of them is being written."""
    found = old_records(store, before)
    for each in found:
        with store.lock(each.consumer).hold(timeout=0):
            # Numbers and times only grow, so old records stay old; but the newest record may be
            # damaged by now, and then they are needed.
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
        # Every kept record may be needed to restore it.
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
