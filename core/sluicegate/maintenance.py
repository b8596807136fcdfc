"""Maintenance of a target: each step checks, or changes by a plan; a failed step stops no other.

Every kind of target has its steps beside its adapter; here is their common part, and the report of
a run.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import Any

from sluicegate.config import Maintain
from sluicegate.errors import Corrupt, Drifted, Locked, SluicegateError
from sluicegate.findings import Finding, Severity, has_errors, rule
from sluicegate.journal import Approval, Entry, Journal, recorded
from sluicegate.plan import Action, Plan, Subject
from sluicegate.positions import Positions
from sluicegate.storage import Storage, base
from sluicegate.units import counted

FAILED = rule(
    "SG-MAINTAIN-FAILED",
    Severity.ERROR,
    "a step of the maintenance failed",
    "The step changed nothing, or the next run finishes it; the other steps were done. The detail "
    "states the cause.",
)
IDLE = rule(
    "SG-MAINTAIN-IDLE",
    Severity.WARNING,
    "no events were read for a long time, and no job runs",
    "No job runs on the target, and its newest batch or epoch is older than the key `idle` of "
    "`[maintain]` allows. The job may have died unnoticed. If it runs rarely on purpose, set "
    "`idle` to more than the time between two runs.",
)
GROWTH = rule(
    "SG-MAINTAIN-LOG-GROWTH",
    Severity.WARNING,
    "the logs of a checkpoint are not cleaned up",
    "Spark keeps the last 100 batches (spark.sql.streaming.minBatchesToRetain) in `offsets/` and "
    "`commits/` and removes older ones after each batch. There are far more, or their number grew "
    "since the last check. The job may not be allowed to delete, or the setting is very high; "
    "every start and every batch lists these directories.",
)
METRICS = rule(
    "SG-MAINTAIN-METRICS",
    Severity.ERROR,
    "the metrics file cannot be written",
    "Everything else was done. Until it can be written, monitoring sees old metrics, or none: set "
    "an alert on the age of `sluicegate_last_run_timestamp_seconds`.",
)


REASON = "maintain"
_GRACE = 24 * 3600.0


@dataclass(frozen=True, slots=True)
class PlannedStep:
    """A plan, and the function that applies it."""

    plan: Plan
    apply: Callable[[Approval], Entry | None]

    @classmethod
    def through(cls, journal: Journal[Any], plan: Plan) -> PlannedStep:
        """By the journal of the target, so that its history records it."""
        return cls(plan, lambda approval: journal.apply(plan, approval))

    @classmethod
    def by(cls, plan: Plan, work: Callable[[], object]) -> PlannedStep:
        """By work that needs no journal, because it removes only files that nothing refers to."""

        def apply(_: Approval) -> None:
            work()

        return cls(plan, apply)


def collecting(storage: Storage, key: str, subject: Subject) -> PlannedStep | None:
    """The removal of unfinished files in a directory, of writers that died a day ago."""
    limit_ns = (time.time() - _GRACE) * 1e9
    found = list(base.old_temporaries(storage, [key], limit_ns))
    if not found:
        return None

    def remove() -> None:
        for path in found:
            path.unlink(missing_ok=True)

    action = Action("remove", "temporary files", counted(len(found), "unfinished file"))
    return PlannedStep.by(Plan("Remove temporary files", (action,), subject=subject), remove)


class Budget:
    """The time for reading contents, which all targets of a run share."""

    def __init__(self, seconds: float) -> None:
        self.left = seconds

    @contextmanager
    def spending(self) -> Iterator[float]:
        """Measure the time in a `with` block; yields the seconds that are left."""
        began = time.monotonic()
        try:
            yield self.left
        finally:
            self.left = max(0.0, self.left - (time.monotonic() - began))


@dataclass(frozen=True, slots=True)
class RunOptions:
    """The permissions, the approval and the time of a run."""

    policy: Maintain
    approval: Approval
    budget: Budget
    dry_run: bool = False
    read_only: bool = False
    audit_log: Path | None = None

    @property
    def only_looks(self) -> bool:
        """Whether nothing may be changed."""
        return self.dry_run or self.read_only


class Steps:
    """The steps of one target so far, and their findings."""

    def __init__(self, uri: str, options: RunOptions) -> None:
        self.done: list[Step] = []
        self.findings: list[Finding] = []
        self._uri = uri
        self._options = options
        self._met_damage = False

    def look(self, name: str, work: Callable[[], str]) -> None:
        """A step that changes nothing; `work` returns its result as a short text."""
        if not self._is_damaged(name):
            self._run(name, lambda: (Outcome.DONE, work(), None))

    def change(self, name: str, prepare: Callable[[], PlannedStep | None]) -> None:
        """A step that changes the target by a plan, if there is anything to do.

        Skipped on a damaged target: files that it would remove may be needed for the repair.
        """
        if self._is_damaged(name):
            return
        if self._options.read_only:
            self.done.append(Step(name, Outcome.SKIPPED, "read_only = true"))
        else:
            self._run(name, lambda: self._carry_out(prepare()))

    def _is_damaged(self, name: str) -> bool:
        """Whether to skip a step: the check failed, or something is damaged."""
        found = [each for each in self.findings if each.rule is not FAILED]
        unseen = bool(self.done) and self.done[0].outcome is Outcome.FAILED
        if damaged := unseen or self._met_damage or has_errors(found):
            self.done.append(Step(name, Outcome.SKIPPED, "repair the target first"))
        return damaged

    def _carry_out(self, change: PlannedStep | None) -> tuple[Outcome, str, Plan | None]:
        if change is None or not change.plan.actions:
            return Outcome.NOTHING, "", None
        text = "; ".join(f"{a.verb} {a.place}: {a.detail}" for a in change.plan.actions)
        if self._options.dry_run:
            return Outcome.PLANNED, text, change.plan
        recorded(self._options.audit_log, change.plan, self._options.approval, change.apply)
        return Outcome.DONE, text, change.plan

    def _run(self, name: str, work: Callable[[], tuple[Outcome, str, Plan | None]]) -> None:
        began = time.monotonic()
        plan = None
        try:
            outcome, detail, plan = work()
        except (Locked, Drifted) as e:
            # Another process is active and must not be kept waiting; the next run does it.
            outcome, detail = Outcome.SKIPPED, e.message
        except (SluicegateError, OSError) as e:
            outcome, detail = Outcome.FAILED, str(e)
            self._met_damage |= isinstance(e, Corrupt)
            place = getattr(e, "place", None) or self._uri
            self.findings.append(FAILED.at(place, f"{name}: {detail}"))
        self.done.append(Step(name, outcome, detail, time.monotonic() - began, plan))


class Outcome(Enum):
    """How a step ended; `planned` is for a run that only shows what it would do."""

    DONE = "done"
    NOTHING = "nothing"
    SKIPPED = "skipped"
    FAILED = "failed"
    PLANNED = "planned"


@dataclass(frozen=True, slots=True)
class Step:
    """One step: its name, its outcome, and the reason or result."""

    name: str
    outcome: Outcome
    detail: str = ""
    seconds: float = 0.0
    plan: Plan | None = None


@dataclass(frozen=True, slots=True)
class Sample:
    """One measured value; the metric is described in `metrics`."""

    metric: str
    value: float
    labels: Mapping[str, str]


def age_sample(metric: str, since: float, labels: Mapping[str, str]) -> Sample:
    """The age of a time, as a sample."""
    return Sample(metric, max(0.0, time.time() - since), labels)


def position_samples(group: str, positions: Positions) -> Iterator[Sample]:
    """The next offset of every partition, as Kafka's consumer groups are measured."""
    for each in positions:
        labels = partition_labels(group, each.topic, each.partition)
        yield Sample("kafka_consumergroup_current_offset", each.offset, labels)


def partition_labels(group: str, topic: str, partition: int) -> dict[str, str]:
    """The labels of one partition of a consumer group."""
    return {"consumergroup": group, "topic": topic, "partition": str(partition)}


@dataclass(frozen=True, slots=True)
class TargetReport:
    """One target; `kind` is None if it could not be detected."""

    name: str
    uri: str
    kind: str | None
    steps: tuple[Step, ...] = ()
    findings: tuple[Finding, ...] = ()
    samples: tuple[Sample, ...] = ()
    seconds: float = 0.0

    def count(self, severity: Severity) -> int:
        """How many findings of a severity there are."""
        return sum(each.severity is severity for each in self.findings)


@dataclass(frozen=True, slots=True)
class RunReport:
    """A complete run."""

    targets: tuple[TargetReport, ...]
    started: float
    seconds: float

    @property
    def findings(self) -> list[Finding]:
        """The findings of all targets."""
        return [finding for target in self.targets for finding in target.findings]

    @property
    def needs_a_person(self) -> bool:
        """Whether operator action is needed; a failed step is a finding, too."""
        return has_errors(self.findings)
