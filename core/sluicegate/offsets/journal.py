"""The journal of an offset store: its kept records are its history, and what undo goes back to."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from shlex import quote
from typing import Any

from sluicegate import units
from sluicegate.errors import Drifted, Locked, NotFound, SluicegateError
from sluicegate.journal import Approval, Entry, NothingToUndo, check_drift, undone_by
from sluicegate.offsets.operations import RESTORE, TITLES, StoreChange, consequences
from sluicegate.offsets.record import COMMIT, Kept, Record
from sluicegate.offsets.store import LockFileOffsetStore, Partition, StoreDamaged, Update
from sluicegate.plan import Action, Plan, Precondition, Subject
from sluicegate.positions import Position, Positions
from sluicegate.process import myself
from sluicegate.storage import canonical_uri

KIND = "offset-store"
_NUMBER = re.compile(r"[0-9]{1,20}")


class StoreJournal:
    """`Journal` of an offset store; of one of its consumers if named."""

    def __init__(
        self, store: LockFileOffsetStore, *, name: str | None = None, consumer: str | None = None
    ) -> None:
        self._store = store
        self._uri = canonical_uri(store.uri)
        self._consumer = consumer
        self._subject = Subject(KIND, self._uri, name, store.mark.id)

    def history(self) -> list[Entry]:
        kept = self._store.kept_records()
        entries = [e for name in self._consumers() for e in self._entries(name, kept.get(name, []))]
        # Stable: of equal times each consumer's newest stays first. Damage comes before all.
        return sorted(entries, key=lambda entry: entry.at or math.inf, reverse=True)

    def plan(self, work: Mapping[str, Any]) -> Plan:
        change = StoreChange.from_work(work)
        if change.operation == RESTORE:
            return self._plan_restore(change)
        return self._plan(change, self._store.newest(change.consumer))

    def plan_undo(self, operation: str | None, *, force: bool = False) -> Plan:
        if operation is None:
            if damaged := self._damaged():
                return self._plan_restore(self._newest_restore(damaged))
            operation = self._newest_change()
        consumer, _, number = operation.rpartition("@")
        if consumer not in self._consumers() or not _NUMBER.fullmatch(number):
            raise self._nothing(f"there is no operation {operation!r} in {self._uri}")
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

    def preflight(self, plan: Plan) -> str | None:
        change = StoreChange.from_work(plan.work)
        if change.operation == RESTORE or change.force:
            return None
        last = self._refuse_living(change.consumer)
        if last is None or last.by.host == myself().host:
            return None
        return (
            f"consumer {change.consumer} was last used by {last.by}, at {units.utc(last.at)}; "
            "whether that still runs cannot be seen from here"
        )

    def settle(self, entry: Entry) -> None:
        # Who only looks promises nothing.
        if not self._store.storage.read_only:
            self._store.update(entry.id.rpartition("@")[0], lambda _: None)

    def apply(self, plan: Plan, approval: Approval) -> Entry:
        change = StoreChange.from_work(plan.work)

        def decide(record: Record | None) -> Update:
            check_drift(plan, self._plan(change, record))
            if not change.force:
                self._refuse_living(change.consumer)
            return change.update(record, approval)

        def decide_restore() -> Update:
            check_drift(plan, self._plan_restore(change))
            return change.restoring(approval)

        if change.operation == RESTORE:
            commit = self._store.restore(change.consumer, self._kept(change), decide_restore)
        else:
            commit = self._store.update(change.consumer, decide)
        assert commit.record
        return _entry(commit.record, _undo_state(commit.record, {}, {}))

    def _refuse_living(self, consumer: str) -> Record | None:
        """Refuse to change what a living process on this host committed last; gives that commit."""
        records = (r for r in self._store.records(consumer) if isinstance(r, Record))
        last = next((record for record in records if record.kind == COMMIT), None)
        if last and last.by.is_another_living_process():
            raise Locked(
                f"consumer {consumer} is in use: its last commit, {last.id} at "
                f"{units.utc(last.at)}, was made by {last.by}, and {last.by.process_state()}",
                hint="stop it first; or, if that process no longer uses this consumer, plan the "
                "change with --force",
            )
        return last

    def _plan(self, change: StoreChange, record: Record | None) -> Plan:
        actions = change.actions(record)
        told = [f"Asked for: {change.note}."] if change.note else []
        told += consequences(actions)
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
        store, consumer = self._store, change.consumer
        if not self._is_damaged(consumer) or change != self._newest_restore(consumer):
            raise Drifted(f"the file of consumer {consumer} is not damaged, or no longer as it was")
        found = store.storage.stat(f"{consumer}.offsets")
        state = f"{found.size} bytes of {found.modified_ns}" if found else None
        record = store.read_kept(consumer, self._kept(change))
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
        return Plan(
            title=f"{TITLES[RESTORE]} consumer {consumer}",
            actions=tuple(actions),
            consequences=(told,),
            preconditions=(Precondition(f"the file of consumer {consumer}", state),),
            subject=self._subject,
            work=change.to_work(),
        )

    def _newest_restore(self, consumer: str) -> StoreChange:
        """The restore of the newest record that can be read."""
        store = self._store
        for kept in reversed(store.kept(consumer)):
            try:
                store.read_kept(consumer, kept)
            except SluicegateError:
                continue
            return StoreChange(RESTORE, consumer, version=kept.name)
        raise StoreDamaged(
            f"the file of consumer {consumer} is damaged, and no older record of it can be read",
            hint=f"move all files {quote(f'{self._uri}/{consumer}.')}* away, then set the "
            f"positions: sluicegate offsets import {quote(self._uri)} FILE --consumer {consumer}",
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

    def _nothing(self, message: str) -> NothingToUndo:
        return NothingToUndo(
            message, hint=f"see what can be undone with: sluicegate history {quote(self._uri)}"
        )

    def _before(self, consumer: str, number: int) -> dict[Partition, int | None]:
        """The positions that an operation touched, as they were before it."""
        records = self._store.records(consumer)
        sound = {r.sequence: r for r in records if isinstance(r, Record)}
        record = sound.get(number)
        if record is None:
            raise self._nothing(f"{consumer}@{number} is not kept, or cannot be read")
        undo = _undo_state(record, sound, _undone(sound))
        if undo != "yes":
            raise self._nothing(f"{record.id} cannot be undone: {undo}")
        if record.change and record.change.before is not None:
            return {(topic, partition): old for topic, partition, old in record.change.before}
        older = sound[number - 1].positions if number > 1 else Positions({})
        touched = {(p.topic, p.partition) for p in (*older, *record.positions)}
        return {
            each: older.get(*each)
            for each in sorted(touched)
            if older.get(*each) != record.positions.get(*each)
        }

    def _entries(self, consumer: str, kept: list[Kept]) -> list[Entry]:
        """Newest first; what cannot be read is an entry, too."""
        records = self._store.records(consumer, kept)
        sound = {r.sequence: r for r in records if isinstance(r, Record)}
        undone = _undone(sound)
        return [
            _entry(each, _undo_state(each, sound, undone))
            if isinstance(each, Record)
            else Entry(consumer, 0.0, "damaged", "-", each.message, undo="no: it cannot be read")
            for each in records
        ]

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

    def _damaged(self) -> str | None:
        """The consumer to restore, if its file is damaged; among several it must be named."""
        consumers = self._consumers()
        damaged = [name for name in consumers if self._is_damaged(name)]
        if not damaged and len(consumers) == 1:
            # What cannot be read for another reason must not pass for "nothing to undo".
            self._store.newest(consumers[0])
        if damaged and len(consumers) > 1:
            raise StoreDamaged(
                f"the file of consumer {damaged[0]} is damaged",
                hint=f"restore it with --consumer {quote(damaged[0])}, or name what to undo with "
                "--op",
                place=self._uri,
            )
        return damaged[0] if damaged else None

    def _is_damaged(self, consumer: str) -> bool:
        try:
            self._store.newest(consumer)
        except StoreDamaged:
            return True
        except SluicegateError:
            # Not readable for another reason (permission, a newer format) is not damage.
            return False
        return False


def _undone(sound: Mapping[int, Record]) -> dict[str, str]:
    records = [sound[number] for number in sorted(sound)]
    return undone_by([(r.id, r.change.undoes if r.change else None) for r in records])


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
