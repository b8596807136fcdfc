"""The output sink: results on stdout in one of three modes, everything else on stderr."""

from __future__ import annotations

import os
import shutil
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from enum import Enum
from pathlib import Path
from typing import TextIO

from sluicegate.errors import SluicegateError, StorageFailed, UsageError
from sluicegate.report import Report
from sluicegate_cli.output import printers

ERROR_SCHEMA = "sluicegate.error"
_OWN_SCREEN, _BACK = "\x1b[?1049h", "\x1b[?1049l"
_TOP, _REST, _BELOW = "\x1b[H", "\x1b[K", "\x1b[J"


class Mode(Enum):
    """How results are printed: for eyes, for pipes, for programs."""

    TABLE = "table"
    TSV = "tsv"
    JSON = "json"


class Sink:
    """The destination of all output. Chooses mode and colour; survives a closed pipe."""

    def __init__(self, program: str, *, json: bool = False, no_color: bool = False) -> None:
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
                text = printers.as_json(view)
            case Mode.TABLE if view.text is not None:
                text = "".join(f"{printers.visible(line)}\n" for line in view.text.splitlines())
            case _ if view.text is not None:
                text = view.text
            case Mode.TSV:
                text = printers.as_tsv(view)
            case Mode.TABLE:
                text = printers.as_tables(view, color=not self._no_color)
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
                text = printers.as_tables(look(), color=not self._no_color)
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
        write_error(printers.visible(text) + "\n")

    def error(self, error: SluicegateError) -> None:
        """Report an error: what happened, where, and the next command to type."""
        if self.mode is Mode.JSON:
            document = {
                "error": type(error).__name__,
                "exit_code": error.exit_code,
                "message": error.message,
                "hint": error.hint,
                "place": error.place,
            }
            write_error(printers.as_json(Report(ERROR_SCHEMA, document)))
            return
        label = "\x1b[1;31merror\x1b[0m" if self._colored(sys.stderr) else "error"
        message, hint = printers.visible(error.message), printers.visible(error.hint)
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
