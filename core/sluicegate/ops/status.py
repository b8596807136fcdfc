"""The status of every named target: kind, position and findings."""

from __future__ import annotations

from dataclasses import dataclass, replace

from sluicegate.config import Config
from sluicegate.errors import SluicegateError
from sluicegate.findings import Finding, Severity, has_errors, worst_first
from sluicegate.resolve import UNREADABLE, TargetEntry, list_targets
from sluicegate.target import Status


@dataclass(frozen=True, slots=True)
class TargetStatus:
    """One named target and its status."""

    entry: TargetEntry
    status: Status

    @property
    def findings(self) -> tuple[Finding, ...]:
        """The findings, worst first."""
        return self.status.findings

    @property
    def worst(self) -> Severity | None:
        """The highest severity of its findings."""
        return self.findings[0].severity if self.findings else None


def overview(config: Config, home: str) -> list[TargetStatus]:
    """All named targets, those with errors first."""
    found = [status_of(entry) for entry in list_targets(config, home)]
    order = [*Severity, None]
    return sorted(found, key=lambda each: (order.index(each.worst), each.entry.name))


def status_of(entry: TargetEntry) -> TargetStatus:
    """The status of one target; an unreadable target is a finding."""
    try:
        status = entry.target.status() if entry.target else Status()
    except SluicegateError as e:
        # One target that cannot be read must not hide the others.
        status = Status(findings=(UNREADABLE.at(entry.uri, e.message),))
        return TargetStatus(entry, replace(status, findings=(*entry.findings, *status.findings)))
    findings = tuple(worst_first([*entry.findings, *status.findings]))
    return TargetStatus(entry, replace(status, findings=findings))


def needs_a_person(found: list[TargetStatus]) -> bool:
    """Whether any target has a finding of severity error."""
    return any(has_errors(each.findings) for each in found)
