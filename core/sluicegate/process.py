"""The identity of a process: user, host and pid, and whether it still runs."""

from __future__ import annotations

import os
import pwd
import socket
import sys
from dataclasses import dataclass
from functools import cache
from itertools import takewhile
from pathlib import Path
from typing import Any, TypedDict

GONE = "that process is gone"
ALIVE = "that process is alive"
_PIDS = range(1, 2**31)
_COMMAND = 200


class WhoFields(TypedDict):
    """A process as plain values."""

    user: str
    host: str
    pid: int
    started: str  # opaque; differs for a later process with the same pid
    command: str


@dataclass(frozen=True, slots=True)
class Who:
    """A process; `started` is opaque and differs for a later process with the same pid."""

    user: str
    host: str
    pid: int
    started: str
    command: str

    def __str__(self) -> str:
        return f"{self.user}@{self.host} pid {self.pid} ({self.command})"

    def process_state(self) -> str:
        """The state of the process, as seen from here."""
        if self.host != socket.gethostname():
            return "on another host"
        started = _process_start(self.pid)
        if started:
            return ALIVE if started == self.started else "that pid is another process"
        return "that process cannot be seen from here" if _is_hidden(self.pid) else GONE

    def is_another_living_process(self) -> bool:
        """Whether it certainly runs, on this host, and is not this process."""
        return self.pid != os.getpid() and self.process_state() == ALIVE

    def fields(self) -> WhoFields:
        """As plain values, for files and documents."""
        return {
            "user": self.user,
            "host": self.host,
            "pid": self.pid,
            "started": self.started,
            "command": self.command,
        }

    @classmethod
    def from_fields(cls, fields: Any) -> Who | None:
        """The process that plain values describe; None if they do not."""
        if not isinstance(fields, dict) or any(
            type(fields.get(name)) is not kind for name, kind in _FIELDS.items()
        ):
            return None
        who = cls(**{name: fields[name] for name in _FIELDS})
        return who if who.pid in _PIDS else None


_FIELDS = {"user": str, "host": str, "pid": int, "started": str, "command": str}


def myself() -> Who:
    """This process."""
    return _process(os.getpid())


@cache
def _process(pid: int) -> Who:
    # By pid, because a forked child must not pass for its parent.
    return Who(_user(), socket.gethostname(), pid, _process_start(pid), _command())


def _user() -> str:
    # The account, not $USER: evidence must not come from a variable that anyone can set.
    try:
        return pwd.getpwuid(os.getuid()).pw_name
    except KeyError:
        return str(os.getuid())


def _command() -> str:
    """The program and the words before its first option; options may carry secrets."""
    program, *arguments = sys.argv or ["python"]
    words = takewhile(lambda word: not word.startswith("-"), arguments[:4])
    text = " ".join([Path(program).name or "python", *words])
    # Arguments need not be valid text, nor short; this goes into files.
    return text.encode("utf-8", "backslashreplace").decode()[:_COMMAND]


def _process_start(pid: int) -> str:
    """When a process of this host started, as an opaque text; empty if there is no such process."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text(errors="replace")
        boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    except FileNotFoundError:
        return "" if Path("/proc/self/stat").exists() else _process_start_from_ps(pid)
    except OSError:
        return ""
    # The command name in field 2 may contain anything, so count from its closing bracket.
    fields = stat.rpartition(")")[2].split()
    zombie = fields[0] in ("Z", "X")
    return "" if zombie else f"{boot}/{fields[19]}"


def _is_hidden(pid: int) -> bool:
    """Whether the process exists, although /proc does not show it."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    # A zombie can be signalled, too, but its entry in /proc can be read.
    return not Path(f"/proc/{pid}/stat").exists()


def _process_start_from_ps(pid: int) -> str:
    import subprocess

    command = ["ps", "-o", "lstart=", "-p", str(pid)]
    answer = subprocess.run(command, capture_output=True, text=True, check=False)
    return answer.stdout.strip()
