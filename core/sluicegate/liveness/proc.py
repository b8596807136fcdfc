"""The processes of this host, as Linux shows them in /proc.

Anything unreadable is None or missing, never an error: processes start and end at any time, and the
files and environment of other users' processes are not readable.
"""

from __future__ import annotations

import os
import pwd
import socket
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path, PurePath

from sluicegate import units

PROC = Path("/proc")
_DELETED = " (deleted)"
_WRITES = os.O_WRONLY | os.O_RDWR
_SPARK = "org.apache.spark"
_APPS = (".py", ".jar", ".R", ".r", "pyspark-shell")
# The options of spark-submit that name further files, none of which is the application.
_FILES = ("--jars", "--py-files", "--files", "--archives", "--properties-file", "--conf", "-c")


@dataclass(frozen=True, slots=True)
class Process:
    """One process; `started` is in seconds since 1970, if the system shows it."""

    pid: int
    parent: int
    session: int
    user: str
    started: float | None
    words: tuple[str, ...]

    @property
    def program(self) -> str:
        return PurePath(self.words[0]).name if self.words else ""

    @property
    def is_java(self) -> bool:
        return self.program == "java"

    @property
    def is_python(self) -> bool:
        return self.program.startswith(("python", "pypy"))

    @property
    def command(self) -> str:
        """Program and application; no options and no arguments, which may carry secrets."""
        shown = [self.program or "?"]
        main = [i for i, word in enumerate(self.words) if i and word.startswith(_SPARK)]
        if self.is_java and main:
            shown.append(self.words[main[0]].rpartition(".")[2])
        first = main[0] if main else 0
        for before, word in zip(self.words[first:], self.words[first + 1 :], strict=False):
            if word.endswith(_APPS) and not word.startswith("-") and before not in _FILES:
                return " ".join([*shown, PurePath(word).name])
        return " ".join(shown)

    def describe(self, now: float) -> str:
        """One line of evidence: who, where, what, since when."""
        since = (
            f", since {units.utc(self.started)} ({units.ago(self.started, now)})"
            if self.started
            else ""
        )
        return f"{self.user}@{socket.gethostname()} pid {self.pid} ({self.command}){since}"


@dataclass(frozen=True, slots=True)
class OpenFile:
    """A file that a process has open, and under which number."""

    path: str
    number: str


class Proc:
    """Access to /proc; `root` is another directory in tests only."""

    def __init__(self, root: Path = PROC) -> None:
        self._root = root

    @property
    def is_there(self) -> bool:
        return (self._root / "self").exists()

    @property
    def hides_others(self) -> bool:
        """Whether it is mounted so that only the user's own processes show (hidepid)."""
        return not (self._root / "1").exists()

    def processes(self) -> list[Process]:
        """Every visible process, by pid."""
        boot = self._boot_time()
        found = (self._process(int(name), boot) for name in self._names("") if name.isdigit())
        return sorted((p for p in found if p), key=lambda process: process.pid)

    def threads(self, pid: int) -> frozenset[str]:
        """The names of a process's threads, as the kernel has them: 15 bytes at most."""
        return frozenset(
            self._read(f"{pid}/task/{thread}/comm").decode(errors="replace").strip()
            for thread in self._names(f"{pid}/task")
        )

    def open_files(self, pid: int) -> list[OpenFile] | None:
        """The open files of a process; None if they are not readable."""
        try:
            numbers = _list(self._root / f"{pid}/fd")
        except PermissionError:
            return None
        except OSError:
            return []
        links = ((number, self.link(pid, f"fd/{number}")) for number in numbers)
        return [OpenFile(path.removesuffix(_DELETED), number) for number, path in links if path]

    def writes(self, pid: int, file: OpenFile) -> bool:
        """Whether a process has a file open to write to it."""
        for line in self._read(f"{pid}/fdinfo/{file.number}").splitlines():
            if line.startswith(b"flags:"):
                with suppress(ValueError):
                    return bool(int(line.split()[1], 8) & _WRITES)
        return False

    def environment(self, pid: int) -> Mapping[str, str]:
        """The environment a process was started with; empty if it is not readable."""
        pairs = (text.partition("=") for text in self._texts(f"{pid}/environ"))
        return {name: value for name, equals, value in pairs if equals}

    def directory(self, pid: int) -> Path | None:
        """The working directory of a process."""
        found = self.link(pid, "cwd")
        return Path(found) if found else None

    def link(self, pid: int, name: str) -> str | None:
        """Where one of a process's links leads."""
        with suppress(OSError):
            return str((self._root / f"{pid}/{name}").readlink())
        return None

    def table(self, pid: int, name: str) -> list[list[str]]:
        """The rows of one of a process's tables, such as `net/tcp`, without the heading."""
        lines = self._read(f"{pid}/{name}").decode(errors="replace").splitlines()
        return [line.split() for line in lines[1:]]

    def _process(self, pid: int, boot: float | None) -> Process | None:
        # The command name in field 2 may contain anything, so count from its closing bracket.
        fields = self._read(f"{pid}/stat").rpartition(b")")[2].split()
        if len(fields) < 20 or fields[0] in (b"Z", b"X"):
            return None
        started = boot + int(fields[19]) / os.sysconf("SC_CLK_TCK") if boot is not None else None
        words = tuple(self._texts(f"{pid}/cmdline"))
        return Process(pid, int(fields[1]), int(fields[3]), self._user(pid), started, words)

    def _user(self, pid: int) -> str:
        try:
            number = (self._root / str(pid)).stat().st_uid
        except OSError:
            return "?"
        try:
            return pwd.getpwuid(number).pw_name
        except KeyError:
            return str(number)

    def _boot_time(self) -> float | None:
        for line in self._read("stat").splitlines():
            if line.startswith(b"btime "):
                return float(line.split()[1])
        return None

    def _texts(self, name: str) -> list[str]:
        return [os.fsdecode(text) for text in self._read(name).split(b"\0") if text]

    def _names(self, name: str) -> list[str]:
        with suppress(OSError):
            return _list(self._root / name)
        return []

    def _read(self, name: str) -> bytes:
        with suppress(OSError):
            return (self._root / name).read_bytes()
        return b""


def _list(directory: Path) -> list[str]:
    with os.scandir(directory) as entries:
        return [entry.name for entry in entries]
