"""One small printer per output mode; each returns the complete text of a view."""

from __future__ import annotations

import io
import json
import shutil
from collections.abc import Sequence
from itertools import groupby
from typing import TYPE_CHECKING, Any

from sluicegate.findings import Finding, worst_first
from sluicegate.report import Cell, Report, Table
from sluicegate_cli.table import is_known

if TYPE_CHECKING:
    from rich.console import Console

_STYLES = {"error": "bold red", "warning": "yellow", "note": "cyan", "ok": "green"}
_ALIKE = 10
_GUTTER = 2
_ESCAPES = {"\t": "\\t", "\n": "\\n", "\r": "\\r", "\\": "\\\\"}


def as_json(view: Report) -> str:
    """One JSON document, ASCII only so that every reader can decode it."""
    document: dict[str, Any] = {"schema": view.schema, "version": view.version, **view.document}
    if view.findings is not None:
        document["findings"] = [finding_fields(f) for f in worst_first(view.findings)]
    return json.dumps(document, indent=2) + "\n"


def as_tsv(view: Report) -> str:
    """A header line and one line a row, tab-separated; an empty line between tables."""
    tables = [*view.tables, _findings_table(view.findings or ())]
    return "\n".join(_tsv_table(table) for table in tables if table.rows)


def as_tables(view: Report, *, color: bool) -> str:
    """Tables as wide as the terminal; long cells are folded, never cut."""
    # Imported late: only a terminal needs it, and it costs more than most commands.
    from rich.console import Console

    console = Console(
        file=io.StringIO(),
        width=shutil.get_terminal_size().columns,
        force_terminal=color,
        no_color=not color,
        highlight=False,
        emoji=False,
    )
    with console.capture() as captured:
        for table in view.tables:
            if table.rows:
                _print_table(console, table)
        _print_findings(console, worst_first(view.findings or ()))
        for line in view.lines:
            console.print(visible(line), markup=False, soft_wrap=True)
    return captured.get()


def visible(text: str) -> str:
    """The text with every control and invisible character escaped."""
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else ascii(c)[1:-1] for c in text)


def next_command(line: str, code: str) -> str:
    """The command to type; where this release lacks it, the page that describes the repair."""
    if not line or is_known(line):
        return line
    return f"man sluicegate-checkpoint-verify  # {code}: how to repair it by hand"


def finding_fields(finding: Finding) -> dict[str, str]:
    """A finding as plain values."""
    return {
        "code": finding.code,
        "severity": finding.severity.value,
        "place": finding.place,
        "detail": finding.detail,
        "repair": next_command(finding.repair, finding.code),
    }


def _findings_table(found: Sequence[Finding]) -> Table:
    rows = [tuple(finding_fields(finding).values()) for finding in worst_first(found)]
    return Table(("code", "severity", "place", "detail", "repair"), rows)


def _tsv_table(table: Table) -> str:
    lines = [table.columns, *table.rows] if table.header else table.rows
    return "".join("\t".join(_tsv_cell(cell) for cell in line) + "\n" for line in lines)


def _tsv_cell(cell: Cell) -> str:
    return visible("".join(_ESCAPES.get(c, c) for c in _text(cell)))


def _text(cell: Cell) -> str:
    return "-" if cell is None or cell == "" else str(cell)


def _print_table(console: Console, table: Table) -> None:
    from rich.table import Table as RichTable
    from rich.text import Text

    if table.title:
        console.print(Text(visible(table.title), style="bold"))
    grid = RichTable(box=None, show_header=table.header, pad_edge=False, header_style="bold")
    texts = [[visible(_text(cell)) for cell in row] for row in table.rows]
    widths = column_widths([[*table.columns], *texts], console.width)
    for index, name in enumerate(table.columns):
        numbers = all(isinstance(row[index], int | float) for row in table.rows)
        grid.add_column(
            name.upper(),
            overflow="fold",
            justify="right" if numbers else "left",
            width=widths[index] if widths else None,
        )
    for cells in texts:
        grid.add_row(*(Text(cell, style=_STYLES.get(cell, "")) for cell in cells))
    console.print(grid)
    console.print()


def column_widths(lines: Sequence[Sequence[str]], room: int) -> list[int] | None:
    """Column widths for a table that does not fit, chosen so that no word is broken.

    Spare room goes to the columns that need least. None: the complete table fits, or not even its
    longest words do, so that rich has to break them.
    """
    from rich.cells import cell_len

    columns = list(zip(*lines, strict=True))
    full = [max(cell_len(cell) for cell in column) for column in columns]
    widths = [max(map(cell_len, " ".join(column).split()), default=0) for column in columns]
    spare = room - _GUTTER * (len(columns) - 1) - sum(widths)
    if spare < 0 or sum(full) - sum(widths) <= spare:
        return None
    waiting = sorted(range(len(columns)), key=lambda each: full[each] - widths[each])
    for at, each in enumerate(waiting):
        more = min(full[each] - widths[each], spare // (len(waiting) - at))
        widths[each] += more
        spare -= more
    return widths


def _print_findings(console: Console, found: list[Finding]) -> None:
    """Each finding, but only the first few per code: the rest would bury the other codes."""
    for code, group in groupby(found, key=lambda finding: finding.code):
        alike = list(group)
        for finding in alike[:_ALIKE]:
            _print_finding(console, finding)
        if len(alike) > _ALIKE:
            hidden = len(alike) - _ALIKE
            console.print(f"... and {hidden} more {code}; see them all with --json\n")


def _print_finding(console: Console, finding: Finding) -> None:
    """A finding as a small block: it is read from top to bottom, so columns would not help."""
    from rich.padding import Padding
    from rich.text import Text

    word = finding.severity.value
    head = Text.assemble((word, _STYLES[word]), f" {finding.code} {visible(finding.place)}")
    console.print(head, soft_wrap=True)
    console.print(Padding(Text(visible(finding.detail)), (0, 0, 0, 2)))
    if finding.repair:
        line = visible(next_command(finding.repair, finding.code))
        console.print(Text(f"  next: {line}"), soft_wrap=True)
    console.print()
