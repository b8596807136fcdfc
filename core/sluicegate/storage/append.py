"""Logs of JSON lines that several processes append to."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from sluicegate.storage.local import Calls


def append_line(path: Path, fields: Mapping[str, Any]) -> None:
    """Add a line of JSON to a file that several processes append to, and fsync it."""
    line = json.dumps(fields) + "\n"
    flags = os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC
    fd = os.open(path, flags, 0o666)
    try:
        size = os.fstat(fd).st_size
        # A writer that was killed left an incomplete line; ours must not be joined to it.
        torn = size > 0 and os.pread(fd, 1, size - 1) != b"\n"
        rest = memoryview(("\n" + line if torn else line).encode())
        while rest:
            rest = rest[os.write(fd, rest) :]
        os.fsync(fd)
        if size == 0:
            # It may be new, and then its name must be durable, too.
            Calls().sync_path(path.absolute().parent)
    finally:
        os.close(fd)
