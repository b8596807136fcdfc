"""Maintenance of a Spark checkpoint, which belongs to somebody else's job: mostly looking."""

from __future__ import annotations

import time
from dataclasses import replace

from sluicegate import units
from sluicegate.checkpoint.edit import HOME
from sluicegate.checkpoint.edit_log import old_backups, prune_backups
from sluicegate.checkpoint.format.offset_log import read_offsets
from sluicegate.checkpoint.journal import KIND
from sluicegate.checkpoint.rules.state_data import Portion, check_state_data
from sluicegate.checkpoint.verify import verify
from sluicegate.checkpoint.view import look_at, read_query_id
from sluicegate.checkpoint.writers import signs_of_life
from sluicegate.errors import SluicegateError, StorageFailed
from sluicegate.findings import Finding, Severity, has_errors
from sluicegate.liveness import Verdict
from sluicegate.ops import maintenance
from sluicegate.ops.maintenance import Change, Steps, Terms, collecting
from sluicegate.plan import Action, Plan, Subject
from sluicegate.storage import Storage

_RETAINED = 100
_MANY = 10 * _RETAINED
_SOME = 2 * _RETAINED


class CheckpointCare:
    """The steps of one checkpoint, with its file sink if it is known."""

    def __init__(
        self, storage: Storage, sink: Storage | None, terms: Terms, name: str | None = None
    ) -> None:
        self._storage = storage
        self._sink = sink
        self._terms = terms
        self._name = name
        self._known = maintenance.load(storage)
        self.steps = Steps(storage.uri, terms)

    def run(self) -> Steps:
        """All of them."""
        steps = self.steps
        steps.look("verify", self._verify)
        steps.look("logs", self._logs)
        steps.look("age", self._age)
        steps.change("prune backups", self._prune_backups)
        steps.change("collect", lambda: collecting(self._storage, HOME, self._subject()))
        self._remember()
        return steps

    def _remember(self) -> None:
        if self._terms.only_looks:
            return
        try:
            maintenance.save(self._storage, self._known)
        except StorageFailed as e:
            place = e.place or self._storage.uri
            self.steps.findings.append(maintenance.FAILED.at(place, f"remember: {e.message}"))

    def _verify(self) -> str:
        with self._terms.budget.spending() as seconds:
            found = verify(self._storage, self._sink)
            read = "names and logs"
            if not self._terms.dry_run and not has_errors(found):
                data, read = self._read_state(seconds)
                known = {(f.code, f.place) for f in found}
                found += [f for f in data if (f.code, f.place) not in known]
        self.steps.findings += found
        return read

    def _read_state(self, seconds: float) -> tuple[list[Finding], str]:
        """Decode state files from where the last run ended, first those that were damaged."""
        deadline = time.monotonic() + seconds
        again = frozenset(self._known.bad)
        portion = Portion(lambda: time.monotonic() >= deadline, self._known.after, again)
        found = list(check_state_data(look_at(self._storage), lambda _done, _of: None, portion))
        prefix = f"{self._storage.uri}/"
        bad = {f.place.removeprefix(prefix) for f in found if f.severity is not Severity.NOTE}
        whole = not portion.was_cut
        self._known = replace(
            self._known,
            after="" if whole else portion.after,
            bad=tuple(sorted(bad)),
            complete=time.time() if whole else self._known.complete,
        )
        return found, f"{portion.read:,} state files read" + ("" if whole else "; more next time")

    def _logs(self) -> str:
        look, known = look_at(self._storage), self._known
        offsets, commits = len(look.offsets.batches), len(look.commits.batches)
        for name, count, before in (
            ("offsets", offsets, known.offsets),
            ("commits", commits, known.commits),
        ):
            grew = f", {before:,} at the last look" if before else ""
            if count > _MANY or (count > _SOME and before and count > before):
                place = f"{self._storage.uri}/{name}"
                self.steps.findings.append(maintenance.GROWTH.at(place, f"{count:,} entries{grew}"))
        self._known = replace(known, offsets=offsets, commits=commits)
        return f"{offsets:,} offsets, {commits:,} commits"

    def _age(self) -> str:
        batch = look_at(self._storage).last_batch
        if batch is None:
            return "nothing has run yet"
        age = time.time() - read_offsets(self._storage, batch).timestamp_ms / 1000
        told = f"batch {batch} was planned {units.duration(max(0.0, age))} ago"
        if age > self._terms.policy.idle and not is_alive(self._storage):
            self.steps.findings.append(maintenance.IDLE.at(self._storage.uri, told))
        return told

    def _prune_backups(self) -> Change | None:
        before = time.time() - self._terms.policy.keep
        found = old_backups(self._storage, before)
        if not found:
            return None
        actions = tuple(
            Action(
                "give up",
                f"the backups of {each.operation.record.id}",
                f"{each.operation.record.kind} of {units.utc(each.operation.record.at)}; "
                f"{each.files:,} files, {units.size(each.bytes)}",
            )
            for each in found
        )
        told = ("These operations can no longer be undone; the history still tells of them.",)
        title = "Give up the backups of old operations"
        plan = Plan(title, actions, told, subject=self._subject())
        by = self._terms.approval.by
        return Change.by(plan, lambda: prune_backups(self._storage, before, by))

    def _subject(self) -> Subject:
        return Subject(KIND, self._storage.uri, self._name, _identity(self._storage))


def is_alive(storage: Storage) -> bool:
    """Whether a job writes to a checkpoint, or may."""
    return signs_of_life(storage, patience=0.0).verdict is not Verdict.QUIET


def _identity(storage: Storage) -> str | None:
    try:
        return read_query_id(storage)
    except SluicegateError:
        return None
