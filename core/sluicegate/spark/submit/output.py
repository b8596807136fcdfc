"""What an application prints: passed on as it comes, and its end kept.

Spark merges a Python application's standard error into its standard output, so a traceback is
there and not in Spark's log.
"""

from __future__ import annotations

import os
from threading import Thread
from typing import IO

_CHUNK = 1 << 16
_KEPT = 256 * 1024
_PATIENCE = 5.0
_HEADING = b"\n--- the end of what the application printed ---\n"


class Output:
    """A pipe whose content goes to the descriptor `to`; `writer` is the end to write to."""

    def __init__(self, to: int) -> None:
        self._to = to
        self._reader, self.writer = os.pipe()
        self._end = b""
        # A thread, because whoever reads what we write may keep us waiting, and signals must not.
        self._thread = Thread(target=self._pump, daemon=True)

    def start(self) -> None:
        """Begin, once the process that writes has been started."""
        os.close(self.writer)
        self._thread.start()

    def finish(self) -> None:
        """Wait for the rest; a reader who does not read is not waited for."""
        if self._thread.is_alive():
            self._thread.join(_PATIENCE)

    def append_to(self, log: IO[bytes]) -> None:
        """Add the end of it to a log."""
        if self._end:
            log.write(_HEADING + self._end)
            log.flush()

    def _pump(self) -> None:
        try:
            while data := os.read(self._reader, _CHUNK):
                self._end = (self._end + data)[-_KEPT:]
                rest = memoryview(data)
                while rest:
                    rest = rest[os.write(self._to, rest) :]
        except OSError:
            # Nobody reads it any more. The application finds that out by itself, as ever.
            pass
        finally:
            os.close(self._reader)
