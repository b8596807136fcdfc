"""Results of commands: one document for programs, tables and lines for people."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from sluicegate.findings import Finding

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
    """A result. `document` is complete; `tables` show it to people and pipes.

    A report that can have findings passes them, even if there are none: every mode of output
    shows them in its own way. `lines` follow the tables on a terminal. `text`, for results that
    are a file's content, is printed unchanged instead of tables. `version` grows when a field of
    the document changes its meaning or is removed.
    """

    schema: str
    document: Mapping[str, Any]
    tables: Sequence[Table] = ()
    findings: Sequence[Finding] | None = None
    lines: Sequence[str] = ()
    text: str | None = None
    version: int = 1


@dataclass(frozen=True, slots=True)
class Difference:
    """One difference; None on a side where it is absent."""

    what: str
    left: str | None
    right: str | None


def differences_report(left: str, right: str, found: Sequence[Difference]) -> Report:
    """Two sides, and their differences."""
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
