"""Maintenance of a Spark checkpoint: mostly checks, because it belongs to another application."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass, replace

from sluicegate import codec, maintenance, units
from sluicegate.checkpoint.edit import HOME
from sluicegate.checkpoint.edit_log import old_backups, prune_backups
from sluicegate.checkpoint.format.log import read_commit, read_offsets
from sluicegate.checkpoint.journal import KIND
from sluicegate.checkpoint.rules.state_data import Portion, check_state_data
from sluicegate.checkpoint.verify import verify
from sluicegate.checkpoint.view import NextStart, look_at, read_query_id
from sluicegate.checkpoint.writers import signs_of_life
from sluicegate.errors import SluicegateError, StorageFailed
from sluicegate.findings import Finding, Severity, has_errors
from sluicegate.liveness import Verdict
from sluicegate.maintenance import (
    PlannedStep,
    RunOptions,
    Sample,
    Steps,
    age_sample,
    collecting,
    position_samples,
)
from sluicegate.plan import Action, Plan, Subject
from sluicegate.positions import Positions
from sluicegate.storage import Storage
from sluicegate.target import Status

MEMORY = "_sluicegate/maintain"
_FORMAT = codec.Format("maintain", 1, 256 * 1024)
_MOST_BAD = 256


@dataclass(frozen=True, slots=True)
class Memory:
    """Number of log files, how far contents were read, and the files that were bad."""

    offsets: int = 0
    commits: int = 0
    after: str = ""
    bad: tuple[str, ...] = ()
    complete: float | None = None


def recall(storage: Storage) -> Memory:
    """The last memory; it only saves work, so an unreadable one counts as none."""
    try:
        fields = codec.decode(_FORMAT, storage.get(MEMORY, limit=_FORMAT.max_frame), MEMORY)
        bad = tuple(map(str, fields.pop("bad")))
        return Memory(**fields, bad=bad)
    except (SluicegateError, KeyError, TypeError):
        return Memory()


def remember(storage: Storage, memory: Memory) -> None:
    """Remember it."""
    fields = asdict(memory) | {"bad": list(memory.bad[:_MOST_BAD])}
    storage.replace(MEMORY, codec.encode(_FORMAT, fields))


_RETAINED = 100
_MANY = 10 * _RETAINED
_SOME = 2 * _RETAINED


class CheckpointMaintenance:
    """The steps of one checkpoint, with its file sink if it is known."""

    def __init__(
        self, storage: Storage, sink: Storage | None, options: RunOptions, name: str | None = None
    ) -> None:
        self._storage = storage
        self._sink = sink
        self._options = options
        self._name = name
        self._known = recall(storage)
        self.steps = Steps(storage.uri, options)

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
        if self._options.only_looks:
            return
        try:
            remember(self._storage, self._known)
        except StorageFailed as e:
            place = e.place or self._storage.uri
            self.steps.findings.append(maintenance.FAILED.at(place, f"remember: {e.message}"))

    def _verify(self) -> str:
        with self._options.budget.spending() as seconds:
            found = verify(self._storage, self._sink)
            read = "names and logs"
            if not self._options.dry_run and not has_errors(found):
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
        complete = not portion.was_cut
        self._known = replace(
            self._known,
            after="" if complete else portion.after,
            bad=tuple(sorted(bad)),
            complete=time.time() if complete else self._known.complete,
        )
        return found, f"{units.counted(portion.read, 'state file')} read" + (
            "" if complete else "; more next time"
        )

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
        return f"{units.counted(offsets, 'offset')}, {units.counted(commits, 'commit')}"

    def _age(self) -> str:
        batch = look_at(self._storage).last_batch
        if batch is None:
            return "nothing has run yet"
        age = time.time() - read_offsets(self._storage, batch).timestamp_ms / 1000
        text = f"batch {batch} was planned {units.duration(max(0.0, age))} ago"
        if age > self._options.policy.idle and not is_alive(self._storage):
            self.steps.findings.append(maintenance.IDLE.at(self._storage.uri, text))
        return text

    def _prune_backups(self) -> PlannedStep | None:
        before = time.time() - self._options.policy.keep
        found = old_backups(self._storage, before)
        if not found:
            return None
        actions = tuple(
            Action(
                "remove",
                f"the backups of {each.operation.record.id}",
                f"{each.operation.record.kind} of {units.utc(each.operation.record.at)}; "
                f"{units.counted(each.files, 'file')}, {units.size(each.bytes)}",
            )
            for each in found
        )
        consequences = ("These operations can no longer be undone; the history still lists them.",)
        title = "Remove the backups of old operations"
        plan = Plan(title, actions, consequences, subject=self._subject())
        by = self._options.approval.by
        return PlannedStep.by(plan, lambda: prune_backups(self._storage, before, by))

    def _subject(self) -> Subject:
        return Subject(KIND, self._storage.uri, self._name, _identity(self._storage))


def is_alive(storage: Storage) -> bool:
    """Whether a job writes to a checkpoint, or may."""
    return signs_of_life(storage, timeout=0.0).verdict is not Verdict.QUIET


def _identity(storage: Storage) -> str | None:
    try:
        return read_query_id(storage)
    except SluicegateError:
        return None


def status(storage: Storage, sink: Storage | None) -> Status:
    """The last batch, what the next start does, and the findings of verify."""
    look = look_at(storage)
    planned, next_start = None, look.next_start
    try:
        if look.last_batch is not None:
            planned = read_offsets(storage, look.last_batch).timestamp_ms
        if look.last_commit is not None:
            read_commit(storage, look.last_commit)
    except SluicegateError:
        # Names alone may look clean, but the next start will fail on this.
        next_start = NextStart.BROKEN
    return Status(look.last_batch, planned, next_start.value, tuple(verify(storage, sink)))


def metrics(name: str, storage: Storage) -> Iterator[Sample]:
    """The metrics of a checkpoint."""
    labels = {"target": name}
    yield Sample("sluicegate_job_alive", float(is_alive(storage)), labels)
    look = look_at(storage)
    logs = {"offsets": look.offsets, "commits": look.commits}
    for log, listing in logs.items():
        yield Sample("sluicegate_log_files", len(listing.batches), labels | {"log": log})
    if (complete := recall(storage).complete) is not None:
        yield age_sample("sluicegate_verify_age_seconds", complete, labels)
    if look.last_batch is None:
        return
    entry = read_offsets(storage, look.last_batch)
    yield Sample("sluicegate_batch", look.last_batch, labels)
    yield age_sample("sluicegate_head_age_seconds", entry.timestamp_ms / 1000, labels)
    for source in entry.offsets:
        group = name if len(entry.offsets) == 1 else f"{name}/{source.source}"
        yield from position_samples(group, source.positions or Positions({}))
