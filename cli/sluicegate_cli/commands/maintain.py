"""`sluicegate maintain`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from sluicegate.errors import EXIT_DONE, ProblemsFound
from sluicegate.journal import Approval
from sluicegate.maintenance import metrics
from sluicegate.maintenance.run import choose, maintain
from sluicegate.maintenance.steps import REASON, Budget, Terms
from sluicegate.who import myself
from sluicegate_cli.session import Session
from sluicegate_cli.views.maintain import maintain_view

CHANGES = True
EXAMPLES = (
    ("maintain --all", "everything that sluicegate.toml names; as cron does it"),
    ("maintain clicks orders", "these targets"),
    ("maintain --all --dry-run", "what would be done"),
    (
        "maintain --all --metrics-file /var/lib/node_exporter/sluicegate.prom",
        "for Prometheus, through the textfile collector",
    ),
)
FINDINGS = ("SG-MAINTAIN-",)


def run(
    ctx: typer.Context,
    targets: Annotated[
        list[str] | None, typer.Argument(metavar="TARGET", help="names or paths")
    ] = None,
    all_: Annotated[bool, typer.Option("--all", help="every target that is known")] = False,
    metrics_file: Annotated[
        str | None,
        typer.Option(metavar="FILE", help="write what was measured there, for Prometheus"),
    ] = None,
) -> int:
    """Verify, compact, prune and collect: what targets need from time to time, without a person.

    Made for cron: it never asks, prints nothing when all is well, and ends with exit code 3 when a
    person is needed. A running job is never disturbed: what somebody else holds is left for the
    next run, and of two runs at once the second leaves a target to the first. Contents are read
    for as long as `verify_seconds` allows, those first that were read longest ago; the next run
    goes on from there. Every change is a plan of its own, with the reason `maintain`; what is
    damaged is not changed. With `read_only = true` it only looks.

    Of a gated stream, dedup log and state are compacted where that pays, links are pruned by `keep`
    and `keep_links`, and what nothing refers to any more is removed, also from its sink's trash. Of
    a Spark checkpoint, only backups of old operations are removed, with their undo; of an offset
    store, old records.
    """
    session = Session.of(ctx)
    chosen = choose(session.config, session.home, targets or [], everything=all_)
    report = maintain(session.config, chosen, _terms(session), measure=metrics_file is not None)
    if metrics_file is not None:
        report = metrics.write(report, Path(metrics_file))
    session.sink.show(maintain_view(report, session.sink.mode, dry_run=session.dry_run))
    return ProblemsFound.exit_code if report.needs_a_person else EXIT_DONE


def _terms(session: Session) -> Terms:
    config = session.config
    reason = f"{REASON}: {session.reason}" if session.reason else REASON
    return Terms(
        config.maintain,
        Approval(myself(), reason),
        Budget(config.maintain.verify_seconds),
        dry_run=session.dry_run,
        read_only=config.read_only,
        audit_log=session.audit_log,
    )
