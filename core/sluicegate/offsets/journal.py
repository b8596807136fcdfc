"""The journal of an offset store: its kept records are its history, and undo restores them."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from shlex import quote
from typing import Any

from sluicegate import units
from sluicegate.errors import Locked, NotFound
from sluicegate.journal import Approval, Entry, Journal, NothingToUndo, check_drift, undone_by
from sluicegate.offsets.operations import (
    Parts,
    Restore,
    StoreOperation,
    Undo,
    from_work,
    is_damaged,
)
from sluicegate.offsets.record import COMMIT, Kept, Record
from sluicegate.offsets.store import LockFileOffsetStore, Partition, StoreDamaged
from sluicegate.plan import Plan, Subject
from sluicegate.positions import Position, Positions
from sluicegate.process import myself
from sluicegate.storage import canonical_uri

KIND = "offset-store"
_NUMBER = re.compile(r"[0-9]{1,20}")


class StoreJournal(Journal[StoreOperation]):
    """`Journal` of an offset store; of one of its consumers if named."""

    def __init__(
        self, store: LockFileOffsetStore, *, name: str | None = None, consumer: str | None = None
    ) -> None:
        self._store = store
        self.uri = canonical_uri(store.uri)
        self._consumer = consumer
        self._subject = Subject(KIND, self.uri, name, store.mark.id)

    def history(self) -> list[Entry]:
        kept = self._store.kept_records()
        entries = [e for name in self._consumers() for e in self._entries(name, kept.get(name, []))]
        # Stable: with equal times each consumer's newest stays first. Damage comes before all.
        return sorted(entries, key=lambda entry: entry.at or math.inf, reverse=True)

    def operation(self, work: Mapping[str, Any]) -> StoreOperation:
        return from_work(work)

    def propose(self, operation: StoreOperation) -> Plan:
        return self._as_plan(operation, operation.plan(self._store))

    def _as_plan(self, operation: StoreOperation, parts: Parts) -> Plan:
        return Plan(
            title=f"{operation.title} consumer {operation.consumer}",
            actions=parts.actions,
            consequences=parts.consequences,
            preconditions=parts.needs,
            subject=self._subject,
            work=operation.to_work(),
        )

    def plan_undo(self, operation: str | None, *, force: bool = False) -> Plan:
        if operation is None and (damaged := self._damaged()):
            return self.propose(Restore.newest(self._store, damaged))
        return super().plan_undo(operation, force=force)

    def undoable(self, operation: str | None) -> Entry:
        """Checked by its record alone: the history of all consumers may be long."""
        if operation is None:
            return self._newest_change()
        consumer, _, number = operation.rpartition("@")
        if consumer not in self._consumers() or not _NUMBER.fullmatch(number):
            raise self.nothing_to_undo(f"there is no operation {operation!r} in {self.uri}")
        return Entry(operation, 0.0, "", "", "")

    def inverse(self, entry: Entry, *, force: bool) -> StoreOperation:
        consumer, _, number = entry.id.rpartition("@")
        before = self._before(consumer, int(number))
        return Undo(
            consumer=consumer,
            put=Positions.of(Position(*k, old) for k, old in before.items() if old is not None),
            remove=frozenset(key for key, old in before.items() if old is None),
            note=f"undo {entry.id}",
            undoes=entry.id,
            force=force,
        )

    def preflight(self, plan: Plan) -> str | None:
        operation = self.operation(plan.work)
        if isinstance(operation, Restore) or operation.force:
            return None
        last = self._refuse_living(operation.consumer)
        if last is None or last.by.host == myself().host:
            return None
        return (
            f"consumer {operation.consumer} was last used by {last.by}, at {units.utc(last.at)}; "
            "it is unknown whether that process still runs"
        )

    def settle(self, entry: Entry) -> None:
        # A read-only store cannot make anything durable.
        if not self._store.storage.read_only:
            self._store.update(entry.id.rpartition("@")[0], lambda _: None)

    def apply(self, plan: Plan, approval: Approval) -> Entry:
        operation = self.operation(plan.work)

        def check(parts: Parts) -> None:
            check_drift(plan, self._as_plan(operation, parts))
            if not isinstance(operation, Restore) and not operation.force:
                self._refuse_living(operation.consumer)

        commit = operation.apply(self._store, approval, check)
        assert commit.record
        return _entry(commit.record, _undo_state(commit.record, {}, {}))

    def _refuse_living(self, consumer: str) -> Record | None:
        """Refuse if the last commit is by a running process on this host; returns that commit."""
        records = (r for r in self._store.records(consumer) if isinstance(r, Record))
        last = next((record for record in records if record.kind == COMMIT), None)
        if last and last.by.is_another_living_process():
            raise Locked(
                f"consumer {consumer} is in use: its last commit, {last.id} at "
                f"{units.utc(last.at)}, was made by {last.by}, and {last.by.process_state()}",
                hint="stop that process first; or, if it no longer uses this consumer, plan the "
                "change with --force",
            )
        return last

    def _newest_change(self) -> Entry:
        for entry in self.history():
            if entry.kind in (COMMIT, "undo", "damaged") or entry.undo.startswith("undone"):
                continue
            if entry.undo != "yes":
                raise NothingToUndo(
                    f"the newest change, {entry.id}, cannot be undone: {entry.undo}"
                )
            return entry
        raise NothingToUndo(
            f"{self.uri} has no changes by operators, or all of them are undone",
            hint=f"undo a commit with --op; see: {units.command('history', self.uri)}",
        )

    def _before(self, consumer: str, number: int) -> dict[Partition, int | None]:
        """The positions that an operation touched, as they were before it."""
        records = self._store.records(consumer)
        readable = {r.sequence: r for r in records if isinstance(r, Record)}
        record = readable.get(number)
        if record is None:
            raise self.nothing_to_undo(f"{consumer}@{number} is not kept, or cannot be read")
        undo = _undo_state(record, readable, _undone(readable))
        if undo != "yes":
            raise self.nothing_to_undo(f"{record.id} cannot be undone: {undo}")
        if record.change and record.change.before is not None:
            return {(topic, partition): old for topic, partition, old in record.change.before}
        older = readable[number - 1].positions if number > 1 else Positions({})
        touched = {(p.topic, p.partition) for p in (*older, *record.positions)}
        return {
            each: older.get(*each)
            for each in sorted(touched)
            if older.get(*each) != record.positions.get(*each)
        }

    def _entries(self, consumer: str, kept: list[Kept]) -> list[Entry]:
        """Newest first; a record that cannot be read is an entry, too."""
        records = self._store.records(consumer, kept)
        readable = {r.sequence: r for r in records if isinstance(r, Record)}
        undone = _undone(readable)
        return [
            _entry(each, _undo_state(each, readable, undone))
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
                f"there is no consumer {self._consumer!r} in {self.uri}; "
                f"known: {', '.join(known) or 'none'}"
            )
        return [self._consumer]

    def _damaged(self) -> str | None:
        """The consumer to restore, if its file is damaged; among several it must be named."""
        consumers = self._consumers()
        damaged = [name for name in consumers if is_damaged(self._store, name)]
        if not damaged and len(consumers) == 1:
            # A file that cannot be read for another reason must not look like "nothing to undo".
            self._store.newest(consumers[0])
        if damaged and len(consumers) > 1:
            raise StoreDamaged(
                f"the file of consumer {damaged[0]} is damaged",
                hint=f"restore it with --consumer {quote(damaged[0])}, or name an operation with "
                "--op",
                place=self.uri,
            )
        return damaged[0] if damaged else None


def _undone(readable: Mapping[int, Record]) -> dict[str, str]:
    records = [readable[number] for number in sorted(readable)]
    return undone_by([(r.id, r.change.undoes if r.change else None) for r in records])


def _undo_state(record: Record, readable: Mapping[int, Record], undone: Mapping[str, str]) -> str:
    if record.id in undone:
        return f"undone by {undone[record.id]}"
    if record.change:
        known = record.change.before is not None
        return "yes" if known else "no: the record before it could not be read"
    if record.sequence > 1 and record.sequence - 1 not in readable:
        return "no: the record before it is no longer kept"
    return "yes"


def _entry(record: Record, undo: str) -> Entry:
    change = record.change
    return Entry(
        id=record.id,
        at=record.at,
        kind=record.kind,
        by=str(record.by),
        summary=change.summary if change else units.counted(len(record.positions), "position"),
        reason=change.reason if change else None,
        undoes=change.undoes if change else None,
        undo=undo,
        plan_digest=change.plan_digest if change else None,
        planned_by=change.planned_by if change else None,
    )
