"""What a command hands to the sink: one document for machines, tables and lines for people."""

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
class View:
    """A result. `document` is complete; `tables` say the same to people and to pipes.

    A command that can report findings passes them, even if there are none: every mode shows
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
