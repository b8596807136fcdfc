"""`sluicegate doctor`."""

from __future__ import annotations

import typer

from sluicegate.errors import EXIT_DONE, ProblemsFound
from sluicegate.findings import has_errors
from sluicegate.ops import doctor
from sluicegate.report import Report, Table
from sluicegate_cli.session import Session

EXAMPLES = (
    ("doctor", "before the first stream, or when something is odd"),
    ("doctor --home /mnt/streams", "is that file system fit for a home?"),
)
FINDINGS = ("SG-ENV-", "SG-HOME-")


def run(ctx: typer.Context) -> int:
    """Check whether this machine is fit: Java, Spark, file system, clock, PATH.

    Locks, exclusive creation and fsync are tried for real, in a scratch directory in the home, or
    where it would be, that is removed again. Commands that only read need neither Java nor Spark,
    so their absence is a warning.
    """
    session = Session.of(ctx)
    checks = doctor.examine(session.home, read_only=session.config.read_only)
    session.sink.show(_view(checks))
    problems = has_errors(check.finding for check in checks if check.finding)
    return ProblemsFound.exit_code if problems else EXIT_DONE


def _view(checks: list[doctor.Check]) -> Report:
    states = [check.finding.severity.value if check.finding else "ok" for check in checks]
    rows = [(check.name, state, check.seen) for check, state in zip(checks, states, strict=True)]
    columns = ("check", "state", "seen")
    return Report(
        schema="sluicegate.doctor",
        document={"checks": [dict(zip(columns, row, strict=True)) for row in rows]},
        tables=[Table(columns, rows)],
        findings=[check.finding for check in checks if check.finding],
    )
