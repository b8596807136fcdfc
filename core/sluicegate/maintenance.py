"""Maintenance of a target: each step looks, or changes by a plan; none stops the next.

Every kind of target has its steps beside its adapter; here is what they have in common, and what a
run reports of them.
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

FAILED = rule(
    "SG-MAINTAIN-FAILED",
    Severity.ERROR,
    "a step of the maintenance failed",
    "The step changed nothing, or left what the next run finishes; the other steps were done all "
    "the same. The detail says what stood against it.",
)
IDLE = rule(
    "SG-MAINTAIN-IDLE",
    Severity.WARNING,
    "nothing was read for long, and nothing runs",
    "No job works on the target, and its newest batch or epoch is older than the key `idle` of "
    "`[maintain]` allows. The job may have died without anybody noticing. If it runs rarely on "
    "purpose, set `idle` to more than the time between two runs.",
)
GROWTH = rule(
    "SG-MAINTAIN-LOG-GROWTH",
    Severity.WARNING,
    "the logs of a checkpoint are not cleared away",
    "Spark keeps the last 100 batches (spark.sql.streaming.minBatchesToRetain) in `offsets/` and "
    "`commits/` and removes older ones after each batch. There are far more, or they became more "
    "since the last look. The job may not be allowed to delete, or the setting is very high; every "
    "start and every batch lists these directories.",
)
METRICS = rule(
    "SG-MAINTAIN-METRICS",
    Severity.ERROR,
    "the metrics file cannot be written",
    "Everything else was done. Until it can be written, whatever watches these metrics sees old "
    "ones, or none: let an alert ask for the age of `sluicegate_last_run_timestamp_seconds`.",
)


REASON = "maintain"
_GRACE = 24 * 3600.0


@dataclass(frozen=True, slots=True)
class PlannedStep:
    """A plan, and what applies it."""

    plan: Plan
    apply: Callable[[Approval], Entry | None]

    @classmethod
    def through(cls, journal: Journal[Any], plan: Plan) -> PlannedStep:
        """By the journal of the target, so that its history tells of it."""
        return cls(plan, lambda approval: journal.apply(plan, approval))

    @classmethod
    def by(cls, plan: Plan, work: Callable[[], object]) -> PlannedStep:
        """By work that needs no journal, since it takes away what nobody can see."""

        def apply(_: Approval) -> None:
            work()

        return cls(plan, apply)


def collecting(storage: Storage, key: str, subject: Subject) -> PlannedStep | None:
    """The removal of what writers that died a day ago left unfinished in a directory."""
    limit_ns = (time.time() - _GRACE) * 1e9
    found = list(base.old_temporaries(storage, [key], limit_ns))
    if not found:
        return None

    def remove() -> None:
        for path in found:
            path.unlink(missing_ok=True)

    action = Action("remove", "leftovers", f"{len(found):,} unfinished files")
    return PlannedStep.by(Plan("Collect what nobody needs", (action,), subject=subject), remove)


class Budget:
    """The time for reading contents, which all targets of a run share."""

    def __init__(self, seconds: float) -> None:
        self.left = seconds

    @contextmanager
    def spending(self) -> Iterator[float]:
        """While contents are read: for how many seconds that may be."""
        began = time.monotonic()
        try:
            yield self.left
        finally:
            self.left = max(0.0, self.left - (time.monotonic() - began))


@dataclass(frozen=True, slots=True)
class RunOptions:
    """What a run may do, in whose name, and how much time it has."""

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
    """The steps of one target so far, and what they found."""

    def __init__(self, uri: str, options: RunOptions) -> None:
        self.done: list[Step] = []
        self.findings: list[Finding] = []
        self._uri = uri
        self._options = options
        self._met_damage = False

    def look(self, name: str, work: Callable[[], str]) -> None:
        """A step that changes nothing; it gives its result in a few words."""
        if not self._is_damaged(name):
            self._run(name, lambda: (Outcome.DONE, work(), None))

    def change(self, name: str, prepare: Callable[[], PlannedStep | None]) -> None:
        """A step that changes the target by a plan, if there is anything to do.

        Not on a target that is damaged: what would be removed may be needed to mend it.
        """
        if self._is_damaged(name):
            return
        if self._options.read_only:
            self.done.append(Step(name, Outcome.SKIPPED, "read_only = true"))
        else:
            self._run(name, lambda: self._carry_out(prepare()))

    def _is_damaged(self, name: str) -> bool:
        """Whether a step is to be left out: looking failed, or something is damaged."""
        found = [each for each in self.findings if each.rule is not FAILED]
        unseen = bool(self.done) and self.done[0].outcome is Outcome.FAILED
        if damaged := unseen or self._met_damage or has_errors(found):
            self.done.append(Step(name, Outcome.SKIPPED, "not as long as something is wrong"))
        return damaged

    def _carry_out(self, change: PlannedStep | None) -> tuple[Outcome, str, Plan | None]:
        if change is None or not change.plan.actions:
            return Outcome.NOTHING, "", None
        told = "; ".join(f"{a.verb} {a.place}: {a.detail}" for a in change.plan.actions)
        if self._options.dry_run:
            return Outcome.PLANNED, told, change.plan
        recorded(self._options.audit_log, change.plan, self._options.approval, change.apply)
        return Outcome.DONE, told, change.plan

    def _run(self, name: str, work: Callable[[], tuple[Outcome, str, Plan | None]]) -> None:
        began = time.monotonic()
        plan = None
        try:
            outcome, detail, plan = work()
        except (Locked, Drifted) as e:
            # Somebody else is at work, who must not be kept waiting; the next run does it.
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
    """One step: what it was about, how it ended, and why or with what result."""

    name: str
    outcome: Outcome
    detail: str = ""
    seconds: float = 0.0
    plan: Plan | None = None


@dataclass(frozen=True, slots=True)
class Sample:
    """One value to be measured over time; the metric's meaning is in `metrics`."""

    metric: str
    value: float
    labels: Mapping[str, str]


def age_sample(metric: str, since: float, labels: Mapping[str, str]) -> Sample:
    """How long ago a time is."""
    return Sample(metric, max(0.0, time.time() - since), labels)


def position_samples(group: str, positions: Positions) -> Iterator[Sample]:
    """The next offset of every partition, as Kafka's consumer groups are measured."""
    for each in positions:
        labels = partition_labels(group, each.topic, each.partition)
        yield Sample("kafka_consumergroup_current_offset", each.offset, labels)


def partition_labels(group: str, topic: str, partition: int) -> dict[str, str]:
    """What tells the partitions of a consumer group apart."""
    return {"consumergroup": group, "topic": topic, "partition": str(partition)}


@dataclass(frozen=True, slots=True)
class TargetReport:
    """One target; `kind` is None if what is there could not be told."""

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
    """A whole run."""

    targets: tuple[TargetReport, ...]
    started: float
    seconds: float

    @property
    def findings(self) -> list[Finding]:
        """Of all targets."""
        return [finding for target in self.targets for finding in target.findings]

    @property
    def needs_a_person(self) -> bool:
        """Whether something is wrong; a step that failed is a finding, too."""
        return has_errors(self.findings)
