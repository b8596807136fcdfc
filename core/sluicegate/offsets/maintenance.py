"""Maintenance of an offset store."""

from __future__ import annotations

import time
from collections.abc import Iterator

from sluicegate import units
from sluicegate.maintenance import (
    PlannedStep,
    RunOptions,
    Sample,
    Steps,
    age_sample,
    collecting,
    position_samples,
)
from sluicegate.offsets import LockFileOffsetStore, legacy, verify
from sluicegate.offsets.journal import KIND
from sluicegate.offsets.operations import old_records, prune_records
from sluicegate.plan import Action, Plan, Subject
from sluicegate.storage import Storage
from sluicegate.target import Status


class StoreMaintenance:
    """The steps of one store; legacy offset files are only read."""

    def __init__(self, storage: Storage, options: RunOptions, name: str | None = None) -> None:
        self._storage = storage
        self._options = options
        self._name = name
        self.steps = Steps(storage.uri, options)

    def run(self) -> Steps:
        """Run all steps."""
        steps = self.steps
        if legacy.is_legacy(self._storage):
            read = legacy.read
            steps.look("verify", lambda: units.counted(len(read(self._storage)), "position"))
            return steps
        steps.look("verify", self._verify)
        steps.change("prune versions", self._prune)
        steps.change("collect", lambda: collecting(self._storage, "", self._subject()))
        return steps

    def _verify(self) -> str:
        found = verify.look_at(LockFileOffsetStore(self._storage))
        self.steps.findings += found.findings
        count = sum(len(record.positions) for record in found.records)
        consumers = units.counted(len(found.records), "consumer")
        return f"{consumers}, {units.counted(count, 'position')}"

    def _prune(self) -> PlannedStep | None:
        store = LockFileOffsetStore(self._storage)
        keep = self._options.policy.keep
        before = time.time() - keep
        found = old_records(store, before)
        if not found:
            return None
        old = f"older than {units.duration(keep)}"
        actions = tuple(
            Action("remove", f"records of {each.consumer}", f"{len(each.names):,}, {old}")
            for each in found
        )
        consequences = ("These records can no longer be restored.",)
        plan = Plan("Remove old records", actions, consequences, subject=self._subject())
        return PlannedStep.by(plan, lambda: prune_records(store, before))

    def _subject(self) -> Subject:
        mark = LockFileOffsetStore(self._storage).mark
        return Subject(KIND, self._storage.uri, self._name, mark.id)


def status(storage: Storage) -> Status:
    """The number of consumers and positions, and the damaged files."""
    if legacy.is_legacy(storage):
        return Status(summary=f"legacy offset files, positions: {len(legacy.read(storage))}")
    look = verify.look_at(LockFileOffsetStore(storage))
    count = sum(len(record.positions) for record in look.records)
    summary = f"consumers: {len(look.records)}, positions: {count}"
    newest = round(look.newest_at * 1000) if look.newest_at else None
    return Status(None, newest, summary, tuple(look.findings))


def metrics(name: str, storage: Storage) -> Iterator[Sample]:
    """The metrics of a store."""
    if legacy.is_legacy(storage):
        return
    found = verify.look_at(LockFileOffsetStore(storage))
    if found.newest_at is not None:
        yield age_sample("sluicegate_head_age_seconds", found.newest_at, {"target": name})
    for record in found.records:
        yield from position_samples(f"{name}/{record.consumer}", record.positions)
