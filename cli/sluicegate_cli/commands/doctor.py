"""`sluicegate doctor`."""

from __future__ import annotations

import typer

from sluicegate.errors import EXIT_DONE, ProblemsFound
from sluicegate.findings import has_errors
from sluicegate.ops import doctor
from sluicegate.report import Report, Table
from sluicegate_cli.session import Session

EXAMPLES = (
    ("doctor", "before the first stream, or to find a fault"),
    ("doctor --home /mnt/streams", "is that file system suitable for a home?"),
)
FINDINGS = ("SG-ENV-", "SG-HOME-")


def run(ctx: typer.Context) -> int:
    """Check this machine: Java, Spark, file system, clock, PATH.

    Locks, exclusive creation and fsync are tested in a scratch directory in the home, or where the
    home would be; the directory is removed afterwards. Commands that only read need neither Java
    nor Spark, so their absence is a warning.
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
