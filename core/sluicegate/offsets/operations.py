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
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from shlex import quote
from typing import Any, ClassVar

from sluicegate import units
from sluicegate.errors import Corrupt, Drifted, NotFound, SluicegateError
from sluicegate.journal import Approval
from sluicegate.offsets.record import Change, Kept, Record
from sluicegate.offsets.store import (
    Commit,
    LockFileOffsetStore,
    Partition,
    StoreDamaged,
    Update,
)
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
from sluicegate.storage import canonical_uri

RESTORE = "restore"
_SHOWN = 3


@dataclass(frozen=True, slots=True)
class Parts:
    """What an operation does, means, and depends on. No actions: nothing to do."""

    actions: tuple[Action, ...]
    consequences: tuple[str, ...]
    needs: tuple[Precondition, ...]


@dataclass(frozen=True, kw_only=True)
class StoreOperation(ABC):
    """A change of one consumer; `note` is in the operator's words (`to-offset 12`).

    Which of these fields mean something depends on the operation; a plan holds all of them.
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
        """What it means for the consumer as it is now."""

    @abstractmethod
    def apply(
        self, store: LockFileOffsetStore, approval: Approval, check: Callable[[Parts], None]
    ) -> Commit:
        """Do it, under the consumer's lock, if `check` accepts what it means then."""

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
    """Sets and removes positions; how the numbers were found differs."""

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
        actions, told = self._actions(record), []
        if actions:
            told = [f"Asked for: {self.note}."] if self.note else []
            told += consequences(actions)
        if actions and self.undoes:
            told.append(
                f"What was committed to these partitions since {self.undoes} is overwritten; it "
                "stays in the history."
            )
        if actions and self.force:
            told.append(
                "Forced: a consumer that still runs overwrites this with its next commit, unless "
                "it loads its position before."
            )
        needs = tuple(
            Precondition(f"{topic}[{partition}] of consumer {self.consumer}", offset)
            for topic, partition, offset in self._before(record)
        )
        return Parts(actions, tuple(told), needs)

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
    """Move positions that are there."""

    name: ClassVar = "reset"
    title: ClassVar = "Reset"

    @classmethod
    def to(
        cls, store: LockFileOffsetStore, consumer: str, spec: ResetSpec, *, force: bool = False
    ) -> Reset:
        """As a scenario says; where they were at a time is known from kept commits."""
        positions = _positions(store, consumer)
        known = Known(past=_points(store, consumer), past_from="commit kept")
        moves = plan_reset(positions, known, spec)
        put = Positions.of(Position(m.topic, m.partition, m.new) for m in moves if m.delta)
        clamped = [f"{m.topic}[{m.partition}]" for m in moves if m.clamped]
        note = str(spec) + (f", which is out of range for {', '.join(clamped)}" if clamped else "")
        return cls(consumer=consumer, put=put, note=note, force=force)


class Import(Moving):
    """Set positions from elsewhere."""

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
        """With `replace`, what is not among them goes away."""
        record = store.load(consumer)
        there = {(p.topic, p.partition) for p in record.positions} if record else set()
        surplus = there - {(p.topic, p.partition) for p in positions} if replace else set()
        return cls(consumer=consumer, put=positions, remove=frozenset(surplus), force=force)


class Delete(Moving):
    """Forget positions."""

    name: ClassVar = "delete"
    title: ClassVar = "Delete positions of"

    @classmethod
    def of(
        cls, store: LockFileOffsetStore, consumer: str, scope: Scope, *, force: bool = False
    ) -> Delete:
        """Those in scope; of a consumer that has none there is nothing to forget."""
        record = store.load(consumer)
        positions = record.positions if record else Positions({})
        if record:
            check_scope(positions, scope)
        gone = {(p.topic, p.partition) for p in positions if scope.has(p.topic, p.partition)}
        return cls(consumer=consumer, remove=frozenset(gone), force=force)


class Undo(Moving):
    """Bring back positions as they were before an operation."""

    name: ClassVar = "undo"
    title: ClassVar = "Undo a change of"


class Restore(StoreOperation):
    """Put a kept record, `version`, in the place of a damaged file."""

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
            raise Drifted(f"the file of consumer {consumer} is not damaged, or no longer as it was")
        found = store.storage.stat(f"{consumer}.offsets")
        state = f"{found.size} bytes of {found.modified_ns}" if found else None
        record = store.read_kept(consumer, self._kept(store))
        what = f"record {record.sequence} of {units.utc(record.at)}"
        actions = [
            Action("restore", f"{consumer}.offsets", f"{what}, {len(record.positions)} positions")
        ]
        if found:
            aside = f"{consumer}.TIME.damaged"
            actions.insert(0, Action("keep", aside, "what is there now, under a second name"))
        told = (
            f"Record {record.sequence} is the newest that can be read. What the consumer committed "
            "after it, if anything, it reads again. "
            "This cannot be undone: what was there cannot be read."
        )
        needs = (Precondition(f"the file of consumer {consumer}", state),)
        return Parts(tuple(actions), (told,), needs)

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
        # Not readable for another reason (permission, a newer format) is not damage.
        return False
    return False


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
