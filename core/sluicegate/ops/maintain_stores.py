"""Maintenance of an offset store."""

from __future__ import annotations

import time

from sluicegate import units
from sluicegate.offsets import LockFileOffsetStore, legacy, verify
from sluicegate.offsets.journal import KIND
from sluicegate.offsets.operations import old_records, prune_records
from sluicegate.ops.maintenance import Change, Steps, Terms, collecting
from sluicegate.plan import Action, Plan, Subject
from sluicegate.storage import Storage


class StoreCare:
    """The steps of one store; one in the reference layout is only read."""

    def __init__(self, storage: Storage, terms: Terms, name: str | None = None) -> None:
        self._storage = storage
        self._terms = terms
        self._name = name
        self.steps = Steps(storage.uri, terms)

    def run(self) -> Steps:
        """All of them."""
        steps = self.steps
        if legacy.is_reference(self._storage):
            steps.look("verify", lambda: f"{len(legacy.read(self._storage)):,} positions")
            return steps
        steps.look("verify", self._verify)
        steps.change("prune versions", self._prune)
        steps.change("collect", lambda: collecting(self._storage, "", self._subject()))
        return steps

    def _verify(self) -> str:
        found = verify.look_at(LockFileOffsetStore(self._storage))
        self.steps.findings += found.findings
        count = sum(len(record.positions) for record in found.records)
        return f"{len(found.records):,} consumers, {count:,} positions"

    def _prune(self) -> Change | None:
        store = LockFileOffsetStore(self._storage)
        keep = self._terms.policy.keep
        before = time.time() - keep
        found = old_records(store, before)
        if not found:
            return None
        old = f"older than {units.duration(keep)}"
        actions = tuple(
            Action("give up", f"records of {each.consumer}", f"{len(each.names):,}, {old}")
            for each in found
        )
        told = ("What these records say can no longer be gone back to.",)
        plan = Plan("Give up old records", actions, told, subject=self._subject())
        return Change.by(plan, lambda: prune_records(store, before))

    def _subject(self) -> Subject:
        mark = LockFileOffsetStore(self._storage).mark
        return Subject(KIND, self._storage.uri, self._name, mark.id)
