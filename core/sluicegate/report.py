"""What a look at something gives: one document for programs, tables and lines for people."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from sluicegate.findings import Finding, Severity

Cell = str | int | float | None


@dataclass(frozen=True, slots=True)
class Table:
    """Rows under column names; without `header` it is a list of fields and values."""

    columns: tuple[str, ...]
    rows: Sequence[Sequence[Cell]]
    title: str = ""
    header: bool = True


@dataclass(frozen=True, slots=True)
class Report:
    """A result. `document` is complete; `tables` say the same to people and to pipes.

    Whoever can have findings passes them, even if there are none: every mode of output shows
    them in its own way. `lines` close the screen on a terminal. `text`, for results that are a
    file's content, is printed as it is instead of tables. `version` grows when a field of the
    document changes its meaning or goes away.
    """

    schema: str
    document: Mapping[str, Any]
    tables: Sequence[Table] = ()
    findings: Sequence[Finding] | None = None
    lines: Sequence[str] = ()
    text: str | None = None
    version: int = 1


def count_findings(found: Sequence[Finding]) -> str:
    """How many findings there are of each severity, as text; empty if there are none."""
    counts = {severity: sum(f.severity is severity for f in found) for severity in Severity}
    return ", ".join(f"{n} {s.value}{'s' * (n != 1)}" for s, n in counts.items() if n)


@dataclass(frozen=True, slots=True)
class Difference:
    """One thing that is not the same; None where it is not there at all."""

    what: str
    left: str | None
    right: str | None


def differences_report(left: str, right: str, found: Sequence[Difference]) -> Report:
    """Two sides, and what is not the same."""
    rows = [(each.what, each.left, each.right) for each in found]
    columns = ("what", "left", "right")
    return Report(
        schema="sluicegate.diff",
        document={
            "left": left,
            "right": right,
            "differences": [dict(zip(columns, row, strict=True)) for row in rows],
        },
        tables=[Table(columns, rows, title=f"{left} against {right}")],
        lines=[] if rows else [f"{left} and {right} do not differ."],
    )
