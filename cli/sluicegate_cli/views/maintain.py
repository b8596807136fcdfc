"""A run of the maintenance on the screen: nothing, unless somebody has to read it."""

from __future__ import annotations

from sluicegate import units
from sluicegate.findings import Severity
from sluicegate.maintenance.report import Outcome, Report, Step, TargetReport
from sluicegate_cli.output import Mode, Table, View
from sluicegate_cli.output.printers import finding_fields
from sluicegate_cli.views.plan import plan_document

_COLUMNS = ("step", "outcome", "took", "detail")
_ACTIONS = ("target", "step", "action", "place", "detail")


def maintain_view(report: Report, mode: Mode, *, dry_run: bool) -> View:
    """Everything for programs; for eyes a table per target; in a pipe only what is wrong."""
    findings = report.findings
    if mode is not Mode.JSON:
        findings = [each for each in findings if each.severity is not Severity.NOTE]
    tables: list[Table] = []
    if dry_run:
        tables = [_planned(report)]
    elif mode is Mode.TABLE:
        tables = [_table(target) for target in report.targets]
    return View(
        schema="sluicegate.maintain",
        document={
            "started": units.utc(report.started),
            "seconds": round(report.seconds, 3),
            "dry_run": dry_run,
            "needs_a_person": report.needs_a_person,
            "targets": [_document(target) for target in report.targets],
        },
        tables=tables,
        findings=findings,
        lines=[_closing(report, dry_run=dry_run)],
    )


def _closing(report: Report, *, dry_run: bool) -> str:
    count = len(report.targets)
    what = f"{count} target{'' if count == 1 else 's'}, {units.duration(report.seconds)}"
    if dry_run:
        return f"{what}; nothing was changed."
    return f"{what}; " + ("a person is needed." if report.needs_a_person else "all is well.")


def _table(target: TargetReport) -> Table:
    rows = [(s.name, s.outcome.value, units.duration(s.seconds), s.detail) for s in target.steps]
    return Table(_COLUMNS, rows, title=f"{target.name} ({target.kind or 'unknown'}), {target.uri}")


def _planned(report: Report) -> Table:
    rows = [
        (target.name, step.name, action.verb, action.place, action.detail)
        for target in report.targets
        for step in target.steps
        for action in (step.plan.actions if step.plan else ())
    ]
    return Table(_ACTIONS, rows)


def _document(target: TargetReport) -> dict[str, object]:
    return {
        "target": target.name,
        "uri": target.uri,
        "kind": target.kind,
        "seconds": round(target.seconds, 3),
        "steps": [
            {
                "name": step.name,
                "outcome": step.outcome.value,
                "detail": step.detail,
                "seconds": round(step.seconds, 3),
                "plan": _plan(step),
            }
            for step in target.steps
        ],
        "findings": [finding_fields(each) for each in target.findings],
    }


def _plan(step: Step) -> dict[str, object] | None:
    """What would be done; what was done is in the history."""
    return plan_document(step.plan) if step.plan and step.outcome is Outcome.PLANNED else None
