"""The output: results on stdout in one of three modes, everything else on stderr."""

from __future__ import annotations

import io
import json
import os
import shutil
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from enum import Enum
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING, Any, NotRequired, TextIO, TypedDict

from sluicegate.errors import SluicegateError, StorageFailed, UsageError
from sluicegate.findings import Finding, worst_first
from sluicegate.report import Cell, FindingDocument, Report, Table, document
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
    tables = [*view.tables, *([_findings_table(view.findings)] if view.findings else [])]
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


def finding_fields(finding: Finding) -> FindingDocument:
    """A finding as plain values."""
    return {
        "code": finding.code,
        "severity": finding.severity.value,
        "place": finding.place,
        "detail": finding.detail,
        "repair": next_command(finding.repair, finding.code),
    }


def _findings_table(found: Sequence[Finding]) -> Table:
    rows = [
        (f.code, f.severity.value, f.place, f.detail, next_command(f.repair, f.code))
        for f in worst_first(found)
    ]
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


ERROR_SCHEMA = "sluicegate.error"
_OWN_SCREEN, _BACK = "\x1b[?1049h", "\x1b[?1049l"
_TOP, _REST, _BELOW = "\x1b[H", "\x1b[K", "\x1b[J"


@document("sluicegate.error", version=1)
class ErrorDocument(TypedDict):
    """Why a command failed; on standard error."""

    error: str  # its class, see [exit codes](exit-codes.md)
    exit_code: int
    message: str
    hint: str  # the next command to type
    place: str | None  # the file that it is about, if it is about one
    notes: NotRequired[list[str]]  # what the command reported before it failed


class Mode(Enum):
    """How results are printed: for eyes, for pipes, for programs."""

    TABLE = "table"
    TSV = "tsv"
    JSON = "json"


class Sink:
    """The destination of all output. Chooses mode and colour; survives a closed pipe."""

    def __init__(
        self,
        program: str,
        *,
        json: bool = False,
        no_color: bool = False,
        notes: list[str] | None = None,
    ) -> None:
        # For programs they wait for the end: an error must be one document on standard error.
        self.notes: list[str] = [] if notes is None else notes
        # Names from the file system need not be encodable in the terminal's character set.
        for stream in (sys.stdout, sys.stderr):
            if hasattr(stream, "reconfigure"):
                stream.reconfigure(errors="backslashreplace")
        self.program = program
        plain = os.environ.get("NO_COLOR") or os.environ.get("TERM") == "dumb"
        self._no_color = no_color or bool(plain)
        terminal = _is_terminal(sys.stdout)
        self.mode = Mode.JSON if json else Mode.TABLE if terminal else Mode.TSV

    def show(self, view: Report) -> None:
        """Print a result."""
        match self.mode:
            case Mode.JSON:
                text = as_json(view)
            case Mode.TABLE if view.text is not None:
                text = "".join(f"{visible(line)}\n" for line in view.text.splitlines())
            case _ if view.text is not None:
                text = view.text
            case Mode.TSV:
                text = as_tsv(view)
            case Mode.TABLE:
                text = as_tables(view, color=not self._no_color)
        self._write(text)

    def watch(self, look: Callable[[], Report], every: float) -> None:
        """Refresh a result on a separate screen until Ctrl-C."""
        if self.mode is not Mode.TABLE:
            raise UsageError(
                "--watch needs a terminal", hint="without --watch, poll with --json instead"
            )
        self._write(_OWN_SCREEN)
        try:
            while True:
                text = as_tables(look(), color=not self._no_color)
                # Line by line over what was there: clearing first would flicker.
                lines = text.splitlines()[: shutil.get_terminal_size().lines - 1]
                self._write(_TOP + "".join(f"{line}{_REST}\n" for line in lines) + _BELOW)
                time.sleep(every)
        except KeyboardInterrupt:
            # Ctrl-C is the normal way to stop.
            return
        finally:
            self._write(_BACK)

    def note(self, text: str) -> None:
        """Show the operator a message that is not a result."""
        if self.mode is Mode.JSON:
            self.notes.append(text)
        else:
            write_error(visible(text) + "\n")

    def error(self, error: SluicegateError) -> None:
        """Report an error: what happened, where, and the next command to type."""
        if self.mode is Mode.JSON:
            document: ErrorDocument = {
                "error": type(error).__name__,
                "exit_code": error.exit_code,
                "message": error.message,
                "hint": error.hint,
                "place": error.place,
            }
            if self.notes:
                document["notes"] = self.notes
            write_error(as_json(Report(ERROR_SCHEMA, document)))
            return
        label = "\x1b[1;31merror\x1b[0m" if self._colored(sys.stderr) else "error"
        message, hint = visible(error.message), visible(error.hint)
        write_error(f"{self.program}: {label}: {message}\n  next: {hint}\n")

    @property
    def can_ask(self) -> bool:
        """Whether the operator can be asked."""
        return self.mode is not Mode.JSON and _is_terminal(sys.stdin) and _is_terminal(sys.stderr)

    def ask(self, question: str) -> bool:
        """A yes-or-no answer from the terminal; anything but yes is no."""
        write_error(f"{question} [y/N] ")
        return sys.stdin.readline().strip().lower() in ("y", "yes")

    @contextmanager
    def progress(self, title: str) -> Iterator[Callable[[int, int], None]]:
        """A function that reports work done and its total; shown on a terminal only."""
        if not _is_terminal(sys.stderr):
            yield lambda _done, _of: None
            return
        # Imported late: only a terminal needs it.
        from rich.console import Console
        from rich.progress import Progress

        bar = Progress(console=Console(stderr=True, no_color=self._no_color), transient=True)
        task = bar.add_task(title, total=None)

        def update(done: int, of: int) -> None:
            bar.start()
            bar.update(task, completed=done, total=of)

        try:
            yield update
        finally:
            bar.stop()

    def close(self) -> None:
        """Flush; a full disk behind stdout is an error, a closed pipe is not."""
        self._write("")
        write_error("".join(f"{visible(text)}\n" for text in self.notes))

    def _write(self, text: str) -> None:
        try:
            _write_all(sys.stdout, text)
        except BrokenPipeError:
            # `| head` has seen enough. The command continues and returns its own exit code.
            _discard(sys.stdout)
        except OSError as e:
            _discard(sys.stdout)
            raise StorageFailed(f"cannot write the result: {e.strerror}") from e

    def _colored(self, stream: TextIO) -> bool:
        return not self._no_color and _is_terminal(stream)


def ensure_streams() -> None:
    """Open the standard streams that the caller closed."""
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            setattr(sys, name, Path(os.devnull).open(mode))  # noqa: SIM115 - open until the end


def _write_all(stream: TextIO, text: str) -> None:
    """Write every byte: unbuffered streams drop the rest of a short write."""
    stream.flush()
    try:
        fd = stream.fileno()
    except OSError:
        stream.write(text)
        return
    rest = memoryview(text.encode(stream.encoding or "utf-8", "backslashreplace"))
    while rest:
        rest = rest[os.write(fd, rest) :]


def _is_terminal(stream: TextIO | None) -> bool:
    return stream is not None and not stream.closed and stream.isatty()


def write_error(text: str) -> None:
    """Write to standard error; a failure to do so cannot be reported."""
    try:
        sys.stderr.write(text)
        sys.stderr.flush()
    except (OSError, ValueError):
        # Otherwise Python tries again at exit, and changes the exit code.
        _discard(sys.stderr)


def _discard(stream: TextIO) -> None:
    """Discard everything that is written to a broken stream from now on."""
    with suppress(OSError, ValueError):
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, stream.fileno())
        os.close(nowhere)
