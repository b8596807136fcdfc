"""`sluicegate maintain`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, TypedDict

import typer

from sluicegate import units
from sluicegate.errors import EXIT_DONE, ProblemsFound
from sluicegate.findings import Severity
from sluicegate.journal import Approval
from sluicegate.maintenance import (
    REASON,
    Budget,
    Outcome,
    RunOptions,
    RunReport,
    Step,
    TargetReport,
)
from sluicegate.ops import metrics
from sluicegate.ops.maintain import choose, maintain
from sluicegate.process import myself
from sluicegate.report import FindingDocument, Report, Table, document
from sluicegate_cli.output import Mode
from sluicegate_cli.output.console import finding_fields
from sluicegate_cli.output.plan import PlanFields, plan_document
from sluicegate_cli.session import Session

_COLUMNS = ("step", "outcome", "took", "detail")
_ACTIONS = ("target", "step", "action", "place", "detail")


class StepDocument(TypedDict):
    """One step."""

    name: str
    outcome: str
    detail: str
    seconds: float
    plan: PlanFields | None  # in a dry run only, if the step would change something


class MaintainedDocument(TypedDict):
    """One target."""

    target: str
    uri: str
    kind: str | None  # null: it could not be detected
    seconds: float
    steps: list[StepDocument]
    findings: list[FindingDocument]


class MaintainFields(TypedDict):
    """A run without the findings of all targets, which the console adds."""

    started: str
    seconds: float
    dry_run: bool
    needs_a_person: bool  # as exit code 3
    targets: list[MaintainedDocument]


@document("sluicegate.maintain", version=1)
class MaintainDocument(MaintainFields):
    """A run of the maintenance: every target with its steps."""

    findings: list[FindingDocument]


def maintain_view(report: RunReport, mode: Mode, *, dry_run: bool) -> Report:
    """Everything in JSON; on a terminal a table per target; in a pipe only problems."""
    findings = report.findings
    if mode is not Mode.JSON:
        findings = [each for each in findings if each.severity is not Severity.NOTE]
    tables: list[Table] = []
    if dry_run:
        tables = [_planned(report)]
    elif mode is Mode.TABLE:
        tables = [_table(target) for target in report.targets]
    document: MaintainFields = {
        "started": units.utc(report.started),
        "seconds": round(report.seconds, 3),
        "dry_run": dry_run,
        "needs_a_person": report.needs_a_person,
        "targets": [_document(target) for target in report.targets],
    }
    return Report(
        schema="sluicegate.maintain",
        document=document,
        tables=tables,
        findings=findings,
        lines=[_closing(report, dry_run=dry_run)],
    )


def _closing(report: RunReport, *, dry_run: bool) -> str:
    count = len(report.targets)
    what = f"{units.counted(count, 'target')}, {units.duration(report.seconds)}"
    if dry_run:
        return f"{what}; nothing was changed."
    return f"{what}; " + ("operator action is needed." if report.needs_a_person else "all is well.")


def _table(target: TargetReport) -> Table:
    rows = [(s.name, s.outcome.value, units.duration(s.seconds), s.detail) for s in target.steps]
    return Table(_COLUMNS, rows, title=f"{target.name} ({target.kind or 'unknown'}), {target.uri}")


def _planned(report: RunReport) -> Table:
    rows = [
        (target.name, step.name, action.verb, action.place, action.detail)
        for target in report.targets
        for step in target.steps
        for action in (step.plan.actions if step.plan else ())
    ]
    return Table(_ACTIONS, rows)


def _document(target: TargetReport) -> MaintainedDocument:
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


def _plan(step: Step) -> PlanFields | None:
    """The plan of a dry run; applied plans are in the history."""
    return plan_document(step.plan) if step.plan and step.outcome is Outcome.PLANNED else None


CHANGES = True
EXAMPLES = (
    ("maintain --all", "every target in sluicegate.toml, as from cron"),
    ("maintain clicks orders", "these targets"),
    ("maintain --all --dry-run", "what would be done"),
    (
        "maintain --all --metrics-file /var/lib/node_exporter/sluicegate.prom",
        "for Prometheus, through the textfile collector",
    ),
)
DOCUMENTS = ("sluicegate.maintain",)
FINDINGS = ("SG-MAINTAIN-",)


def run(
    ctx: typer.Context,
    targets: Annotated[
        list[str] | None, typer.Argument(metavar="TARGET", help="names or paths")
    ] = None,
    all_: Annotated[bool, typer.Option("--all", help="every known target")] = False,
    metrics_file: Annotated[
        str | None,
        typer.Option(metavar="FILE", help="write metrics to this file, for Prometheus"),
    ] = None,
) -> int:
    """Verify, compact, prune and collect: the regular maintenance of targets, unattended.

    Made for cron: it never asks, prints nothing when all is well, and ends with exit code 3 when
    operator action is needed. A running job is never disturbed: locked data is left for the next
    run, and of two runs at once the second skips the targets of the first. Contents are read for
    as long as `verify_seconds` allows, oldest verification first; the next run continues from
    there. Every change is a separate plan, with the reason `maintain`; damaged data is not
    changed. With `read_only = true` it changes nothing.

    For gated streams, dedup log and state are compacted where that saves space, snapshots are
    pruned by `keep` and `keep_snapshots`, and unreferenced files are removed, also from the sink's
    trash. For Spark checkpoints, only backups of old operations are removed, which ends their
    undo; for offset stores, old records.
    """
    session = Session.of(ctx)
    chosen = choose(session.config, session.home, targets or [], everything=all_)
    report = maintain(chosen, _options(session), measure=metrics_file is not None)
    if metrics_file is not None:
        report = metrics.write(report, Path(metrics_file))
    session.sink.show(maintain_view(report, session.sink.mode, dry_run=session.dry_run))
    return ProblemsFound.exit_code if report.needs_a_person else EXIT_DONE


def _options(session: Session) -> RunOptions:
    config = session.config
    reason = f"{REASON}: {session.reason}" if session.reason else REASON
    return RunOptions(
        config.maintain,
        Approval(myself(), reason),
        Budget(config.maintain.verify_seconds),
        dry_run=session.dry_run,
        read_only=config.read_only,
        audit_log=session.audit_log,
    )
