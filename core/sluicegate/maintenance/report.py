"""What a run of the maintenance did: every step of every target, and what was found."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum

from sluicegate.findings import Finding, Severity, has_errors
from sluicegate.plan import Plan


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
class Report:
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
