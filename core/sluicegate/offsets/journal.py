"""The journal of an offset store: its kept records are its history, and what undo goes back to."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from hashlib import blake2b
from shlex import quote
from typing import Any

from sluicegate import units
from sluicegate.errors import Corrupt, Locked, NotFound
from sluicegate.journal import Approval, Entry, NothingToUndo, check_drift
from sluicegate.offsets.base import Partition, Update
from sluicegate.offsets.changes import RESTORE, TITLES, StoreChange, consequences
from sluicegate.offsets.lockfile import Kept, LockFileOffsetStore, StoreDamaged
from sluicegate.offsets.record import COMMIT, Record
from sluicegate.plan import Action, Plan, Precondition, Subject
from sluicegate.positions import Position, Positions
from sluicegate.storage import local_root

KIND = "offset-store"


class StoreJournal:
    """`Journal` of an offset store; of one of its consumers if named."""

    def __init__(
        self, store: LockFileOffsetStore, *, name: str | None = None, consumer: str | None = None
    ) -> None:
        self._store = store
        self._uri = str(local_root(store.uri).absolute())
        self._consumer = consumer
        self._subject = Subject(KIND, self._uri, name, store.mark.id)

    def history(self) -> list[Entry]:
        entries = [entry for name in self._consumers() for entry in self._entries(name)]
        return sorted(entries, key=lambda entry: (entry.at, entry.id), reverse=True)

    def plan(self, work: Mapping[str, Any]) -> Plan:
        change = StoreChange.from_work(work)
        if change.operation == RESTORE:
            return self._plan_restore(change)
        return self._plan(change, self._store.newest(change.consumer))

    def plan_undo(self, operation: str | None, *, force: bool = False) -> Plan:
        if operation is None:
            for consumer in self._consumers():
                if self._is_damaged(consumer):
                    return self._plan_restore(self._newest_restore(consumer))
            operation = self._newest_change()
        consumer, _, number = operation.rpartition("@")
        if consumer not in self._consumers() or not (number.isascii() and number.isdigit()):
            raise NothingToUndo(f"there is no operation {operation!r} in {self._uri}")
        before = self._before(consumer, int(number))
        change = StoreChange(
            "undo",
            consumer,
            put=Positions.of(Position(*k, old) for k, old in before.items() if old is not None),
            remove=frozenset(key for key, old in before.items() if old is None),
            note=f"undo {operation}",
            undoes=operation,
            force=force,
        )
        return self.plan(change.to_work())

    def check_writer(self, change: StoreChange) -> None:
        """`Locked` with the evidence if a living process uses the consumer."""
        if change.operation != RESTORE and not change.force:
            _refuse_living(self._store.newest(change.consumer))

    def apply(self, plan: Plan, approval: Approval) -> Entry:
        change = StoreChange.from_work(plan.work)

        def decide(record: Record | None) -> Update:
            check_drift(plan, self._plan(change, record))
            if not change.force:
                _refuse_living(record)
            return change.update(record, approval)

        def decide_restore() -> Update:
            check_drift(plan, self._plan_restore(change))
            return change.restoring(approval)

        if change.operation == RESTORE:
            commit = self._store.restore(change.consumer, self._kept(change), decide_restore)
        else:
            commit = self._store.update(change.consumer, decide)
        assert commit.record
        return _entry(commit.record, "yes" if commit.update.change else "")

    def _plan(self, change: StoreChange, record: Record | None) -> Plan:
        actions = change.actions(record)
        told = consequences(actions)
        if change.undoes:
            told.append(
                f"What was committed to these partitions since {change.undoes} is overwritten; it "
                "stays in the history."
            )
        if change.force:
            told.append(
                "Forced: a consumer that still runs overwrites this with its next commit, unless "
                "it loads its position before."
            )
        return Plan(
            title=f"{TITLES[change.operation]} consumer {change.consumer}",
            actions=actions,
            consequences=tuple(told) if actions else (),
            preconditions=change.preconditions(record),
            subject=self._subject,
            work=change.to_work(),
        )

    def _plan_restore(self, change: StoreChange) -> Plan:
        store = self._store
        damaged = store.raw(change.consumer)
        digest = None if damaged is None else blake2b(damaged, digest_size=16).hexdigest()
        record = store.read_kept(change.consumer, self._kept(change))
        place = f"{self._uri}/{change.consumer}.offsets"
        kept = (
            f"record {record.sequence} of {units.utc(record.at)}, {len(record.positions)} positions"
        )
        actions = [Action("restore", place, kept)]
        if damaged is not None:
            aside = f"{change.consumer}.TIME.damaged"
            actions.insert(0, Action("keep", aside, "a copy of what is there now"))
        told = (
            f"Record {record.sequence} is the newest that can be read. What the consumer committed "
            "after it, if anything, it reads again. "
            "This cannot be undone: what was there cannot be read."
        )
        return Plan(
            title=f"{TITLES[RESTORE]} consumer {change.consumer}",
            actions=tuple(actions),
            consequences=(told,),
            preconditions=(Precondition(f"the file of consumer {change.consumer}", digest),),
            subject=self._subject,
            work=change.to_work(),
        )

    def _newest_restore(self, consumer: str) -> StoreChange:
        """The restore of the newest record that can be read."""
        store = self._store
        for kept in reversed(store.kept(consumer)):
            try:
                store.read_kept(consumer, kept)
            except Corrupt:
                continue
            return StoreChange(RESTORE, consumer, version=kept.name)
        raise StoreDamaged(
            f"the file of consumer {consumer} is damaged, and no older record of it can be read",
            hint=f"move {quote(f'{self._uri}/{consumer}.offsets')} away, then set the positions "
            f"anew with: sluicegate offsets import {quote(self._uri)} FILE --consumer {consumer}",
            place=f"{self._uri}/{consumer}.offsets",
        )

    def _kept(self, change: StoreChange) -> Kept:
        for kept in self._store.kept(change.consumer):
            if kept.name == change.version:
                return kept
        raise NotFound(f"{self._uri}/{change.version} is no longer kept")

    def _newest_change(self) -> str:
        for entry in self.history():
            if entry.kind in (COMMIT, "undo", "damaged") or entry.undo.startswith("undone"):
                continue
            if entry.undo != "yes":
                raise NothingToUndo(
                    f"the newest change, {entry.id}, cannot be undone: {entry.undo}"
                )
            return entry.id
        raise NothingToUndo(
            f"no operator has changed {self._uri}, or all changes are undone",
            hint=f"undo a commit with --op; see: sluicegate history {quote(self._uri)}",
        )

    def _before(self, consumer: str, number: int) -> dict[Partition, int | None]:
        """The positions that an operation touched, as they were before it."""
        records = {r.sequence: r for r in self._records(consumer) if isinstance(r, Record)}
        record = records.get(number)
        entries = {entry.id: entry for entry in self._entries(consumer)}
        wanted = f"{consumer}@{number}"
        if record is None:
            raise NothingToUndo(f"{wanted} is not kept, or cannot be read")
        if entries[wanted].undo != "yes":
            raise NothingToUndo(f"{wanted} cannot be undone: {entries[wanted].undo}")
        if record.change and record.change.before is not None:
            return {(topic, partition): old for topic, partition, old in record.change.before}
        older = records[number - 1].positions if number > 1 else Positions({})
        touched = {(p.topic, p.partition) for p in (*older, *record.positions)}
        return {
            each: older.get(*each)
            for each in sorted(touched)
            if older.get(*each) != record.positions.get(*each)
        }

    def _entries(self, consumer: str) -> list[Entry]:
        records = self._records(consumer)
        sound = {r.sequence: r for r in records if isinstance(r, Record)}
        undone = _undone([sound[number] for number in sorted(sound)])
        entries = []
        for each in records:
            if isinstance(each, Record):
                entries.append(_entry(each, _undo_state(each, sound, undone)))
            else:
                lost = each.place or self._uri
                entries.append(Entry(lost, 0.0, "damaged", "-", each.message, undo="no: damaged"))
        return entries

    def _records(self, consumer: str) -> list[Record | Corrupt]:
        """The newest record and those kept below it; errors stand for what cannot be read."""
        store = self._store
        found: list[Record | Corrupt] = []
        limit: float = float("inf")
        try:
            newest = store.newest(consumer)
        except Corrupt as e:
            found.append(e)
        else:
            limit = newest.sequence if newest else 0
            found += [newest] if newest else []
        for kept in reversed(store.kept(consumer)):
            # One with a higher number was never committed: its writer died in between.
            if kept.sequence < limit:
                found += self._read(consumer, kept)
        return found

    def _read(self, consumer: str, kept: Kept) -> Iterator[Record | Corrupt]:
        try:
            yield self._store.read_kept(consumer, kept)
        except NotFound:
            # A commit dropped it while we were looking.
            return
        except Corrupt as e:
            yield e

    def _consumers(self) -> list[str]:
        known = self._store.consumers()
        if self._consumer is None:
            return known
        if self._consumer not in known:
            raise NotFound(
                f"there is no consumer {self._consumer!r} in {self._uri}; "
                f"known: {', '.join(known) or 'none'}"
            )
        return [self._consumer]

    def _is_damaged(self, consumer: str) -> bool:
        try:
            self._store.newest(consumer)
        except StoreDamaged:
            return True
        return False


def _refuse_living(record: Record | None) -> None:
    """Refuse to change what a living process on this host committed last."""
    if record and record.kind == COMMIT and record.by.is_another_living_process():
        raise Locked(
            f"consumer {record.consumer} is in use: its last commit, {record.id} at "
            f"{units.utc(record.at)}, was made by {record.by}, and {record.by.process_state()}",
            hint="stop it first, or add --force if that process no longer uses this consumer",
        )


def _undone(records: list[Record]) -> dict[str, str]:
    """Operation → the one that undid it; undoing an undo brings the first back."""
    undone: dict[str, str] = {}
    undoes = {r.id: r.change.undoes for r in records if r.change and r.change.undoes}
    for record in records:
        target = undoes.get(record.id)
        if target:
            undone[target] = record.id
            undone.pop(undoes.get(target) or "", None)
    return undone


def _undo_state(record: Record, sound: Mapping[int, Record], undone: Mapping[str, str]) -> str:
    if record.id in undone:
        return f"undone by {undone[record.id]}"
    if record.change:
        known = record.change.before is not None
        return "yes" if known else "no: what was there before could not be read"
    if record.sequence > 1 and record.sequence - 1 not in sound:
        return "no: the record before it is no longer kept"
    return "yes"


def _entry(record: Record, undo: str) -> Entry:
    change = record.change
    return Entry(
        id=record.id,
        at=record.at,
        kind=record.kind,
        by=str(record.by),
        summary=change.summary if change else f"{len(record.positions)} positions",
        reason=change.reason if change else None,
        undoes=change.undoes if change else None,
        undo=undo,
        plan_digest=change.plan_digest if change else None,
        planned_by=change.planned_by if change else None,
    )
