"""`sluicegate doctor`."""

from __future__ import annotations

from typing import TypedDict

import typer

from sluicegate.errors import EXIT_DONE, ProblemsFound
from sluicegate.findings import has_errors
from sluicegate.ops import doctor
from sluicegate.report import FindingDocument, Report, Table, document
from sluicegate_cli.session import Session

EXAMPLES = (
    ("doctor", "before the first stream, or to find a fault"),
    ("doctor --home /mnt/streams", "is that file system suitable for a home?"),
)
DOCUMENTS = ("sluicegate.doctor",)
FINDINGS = ("SG-ENV-", "SG-HOME-")


class CheckDocument(TypedDict):
    """One check."""

    check: str
    state: str  # `ok`, or the severity of its finding
    seen: str


class DoctorFields(TypedDict):
    """All checks without their findings, which the console adds."""

    checks: list[CheckDocument]


@document("sluicegate.doctor", version=1)
class DoctorDocument(DoctorFields):
    """The checks of this machine."""

    findings: list[FindingDocument]


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
    document: DoctorFields = {
        "checks": [{"check": check, "state": state, "seen": seen} for check, state, seen in rows]
    }
    return Report(
        schema="sluicegate.doctor",
        document=document,
        tables=[Table(("check", "state", "seen"), rows)],
        findings=[check.finding for check in checks if check.finding],
    )
