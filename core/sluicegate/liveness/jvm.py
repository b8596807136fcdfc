"""Finds the JVMs of this host that write to a checkpoint: by command line, files and web UI.

Only the web UI shows the id of a query outside the JVM; the file `metadata` of the checkpoint has
the same id. The UI also lists stopped queries, as long as the JVM lives.

A Spark driver keeps no file of its checkpoint open between batches, and a job that waits for data
may not write for hours. Always visible are the checkpoint's path on a command line or in an
environment, the query's id in the driver's web UI or its log, and the names of Spark's streaming
threads, which show that a JVM runs some query but not which one.
"""

from __future__ import annotations

import os
import re
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from enum import Enum
from pathlib import Path, PurePath

from sluicegate.errors import SluicegateError
from sluicegate.liveness import Sign, Verdict
from sluicegate.liveness.proc import OpenFile, Proc, Process
from sluicegate.storage import local_root
from sluicegate.units import counted

_PARTS = re.compile(r"[=,;]")
_MOST_WORDS = 5000
# Nearer to the root there are directories that many unrelated commands name.
_LEAST_DEPTH = 3


class Mention(Enum):
    """How closely words name a directory, the closest first."""

    ITSELF = "it, or something in it"
    ABOVE = "the directory that holds it"
    NOT = "not at all"


def mention(words: Iterable[str], root: Path, directory: Path | None) -> Mention:
    """How words name the directory `root`; relative paths that exist are those in `directory`.

    Links are followed, on both sides: one directory may have many names.
    """
    real = os.path.realpath(root)
    best = Mention.NOT
    for count, path in enumerate(_paths(words, directory)):
        found = os.path.realpath(path)
        if found == real or found.startswith(real.rstrip("/") + "/"):
            return Mention.ITSELF
        if real.startswith(found + "/") and len(PurePath(found).parts) >= _LEAST_DEPTH:
            best = Mention.ABOVE
        if count >= _MOST_WORDS:
            break
    return best


def _paths(words: Iterable[str], directory: Path | None) -> Iterator[Path]:
    for word in words:
        for text in {word, *_PARTS.split(word)}:
            path = _path(text.strip("\"' "))
            if path and path.is_absolute():
                yield path
            # Not `Path.exists`, which fails on what is too long for a name, such as a program.
            elif path and directory and os.path.exists(directory / path):  # noqa: PTH110
                yield directory / path


def _path(text: str) -> Path | None:
    try:
        return local_root(text) if text else None
    except SluicegateError:
        # Another scheme, or not a path at all.
        return None


_PATH = "/StreamingQuery/"
_TIMEOUT = 3.0
_LISTENS = "0A"
_FIRST_PORT, _TRIES = 4040, 16
_PORT = re.compile(r"spark\.ui\.port=(\d{1,5})")
_ID = re.compile(r"\b[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}\b")
_RUN = re.compile(r"/StreamingQuery/statistics/?\?id=([0-9a-f-]{36})")
_COUNTS = re.compile(r"(?:Active|Completed) Streaming Queries \((\d{1,6})\)")
_MOST_BYTES = 4 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class Listing:
    """The queries that a UI lists: their ids and run ids; `is_complete` if none is left out."""

    port: int
    ids: frozenset[str]
    is_complete: bool


def ask(process: Process, proc: Proc) -> Listing | None:
    """The queries that the UI of a JVM lists; None if no UI answers."""
    # A container's ports are not ours, and another program may have the same one here.
    if proc.link(process.pid, "ns/net") != proc.link(os.getpid(), "ns/net"):
        return None
    for address, port in _ports(process, proc):
        page = _get(address, port)
        if page is not None and _COUNTS.search(page):
            count = sum(map(int, _COUNTS.findall(page)))
            # One link per run; with very many runs there are further pages.
            is_complete = len(set(_RUN.findall(page))) == count
            return Listing(port, frozenset(_ID.findall(page)), is_complete)
    return None


def _ports(process: Process, proc: Proc) -> list[tuple[str, int]]:
    """The addresses where a UI of this JVM may listen; other ports are not contacted."""
    opened = proc.open_files(process.pid) or []
    sockets = {f.path for f in opened if f.path.startswith("socket:[")}
    wanted = {_FIRST_PORT} | {int(n) for word in process.words for n in _PORT.findall(word)}
    found = []
    for name in ("net/tcp", "net/tcp6"):
        for row in proc.table(process.pid, name):
            if len(row) > 9 and row[3] == _LISTENS and f"socket:[{row[9]}]" in sockets:
                host, _, port = row[1].rpartition(":")
                number = int(port, 16)
                if any(0 <= number - first <= _TRIES for first in wanted):
                    found.append((_address(host), number))
    return found


def _address(text: str) -> str:
    """The IPv4 address behind the kernel's notation; this host if it listens on all."""
    last = bytes.fromhex(text[-8:])[::-1]
    return ".".join(map(str, last)) if any(last) else "127.0.0.1"


def _get(address: str, port: int) -> str | None:
    from http.client import HTTPConnection, HTTPException  # rarely needed, and slow to import

    connection = HTTPConnection(address, port, timeout=_TIMEOUT)
    try:
        connection.request("GET", _PATH)
        answer = connection.getresponse()
        text = answer.read(_MOST_BYTES).decode(errors="replace")
    except (OSError, HTTPException):
        return None
    finally:
        connection.close()
    return text if answer.status == 200 else None


# As the kernel cuts them: "stream execution thread for …", "state-store-maintenance-…".
_STREAMING = frozenset(("stream executio", "state-store-mai"))
_IGNORED = ("PWD", "OLDPWD", "_")
_OUTPUTS = ("1", "2")
_PART = 1 << 20
_GLANCE = 0.01


@dataclass(frozen=True, slots=True)
class Suspect:
    """A JVM that may be the writer, and the sign for it."""

    process: Process
    who: str
    sign: Sign


@dataclass(frozen=True, slots=True)
class Seen:
    """The result for all processes: certain signs, possible writers, and unreadable processes."""

    signs: tuple[Sign, ...] = ()
    suspects: tuple[Suspect, ...] = ()
    unseen: tuple[str, ...] = ()


def look_at_processes(root: Path, query: str | None, now: float, proc: Proc) -> Seen:
    """Check every process of this host for the checkpoint in the directory `root`."""
    if not proc.is_there:
        return Seen(unseen=("this system has no /proc, so its processes were not checked",))
    return _Looker(root, query, now, proc).look()


def watch(seen: Seen, root: Path, proc: Proc, timeout: float) -> Seen:
    """Wait for a suspect to open a file of the checkpoint, and report that instead of the doubt."""
    real = os.path.realpath(root) + "/"
    deadline = time.monotonic() + timeout
    while seen.suspects and time.monotonic() < deadline:
        for suspect in seen.suspects:
            process = suspect.process
            if path := _below(process, proc.open_files(process.pid) or [], real, proc):
                others = tuple(each for each in seen.suspects if each is not suspect)
                return Seen((*seen.signs, _opened(suspect.who, path)), others, seen.unseen)
        time.sleep(_GLANCE)
    return seen


class _Looker:
    def __init__(self, root: Path, query: str | None, now: float, proc: Proc) -> None:
        self._root, self._query, self._now, self._proc = root, query, now, proc
        self._real = os.path.realpath(root) + "/"
        self._others = [each for each in proc.processes() if each.pid != os.getpid()]
        self._by_pid = {process.pid: process for process in self._others}
        self._hidden: list[Process] = []
        self._suspects: list[Suspect] = []

    def look(self) -> Seen:
        signs = [sign for process in self._others if (sign := self._sign(process))]
        return Seen(tuple(signs), tuple(self._suspects), tuple(self._unseen()))

    def _sign(self, process: Process) -> Sign | None:
        opened = self._proc.open_files(process.pid)
        if opened is None:
            self._hidden.append(process)
        elif path := _below(process, opened, self._real, self._proc):
            return _opened(self._who(process), path)
        return self._jvm_sign(process, opened or []) if process.is_java else None

    def _jvm_sign(self, process: Process, opened: list[OpenFile]) -> Sign | None:
        who = self._who(process)
        named = self._named_by(process)
        if named is Mention.ITSELF:
            return Sign(f"{who}: its command line or environment names it", Verdict.ALIVE)
        if not _STREAMING & self._proc.threads(process.pid):
            return None
        listing = ask(process, self._proc)
        if listing and self._query in listing.ids:
            return Sign(f"{who}: its web UI, port {listing.port}, lists the query", Verdict.ALIVE)
        if not (listing and listing.is_complete and self._query):
            self._suspects.append(Suspect(process, who, self._doubt(who, named, opened)))
        return None

    def _doubt(self, who: str, named: Mention, opened: list[OpenFile]) -> Sign:
        """The sign of a JVM with some streaming query: how it relates to this checkpoint."""
        if named is Mention.ABOVE:
            text = f"{who}: it runs a streaming query and names the directory above"
            return Sign(text, Verdict.POSSIBLY_ALIVE)
        if log := self._log_naming_it(opened):
            text = f"{who}: it runs a streaming query, and its log {log} names this one"
            return Sign(text, Verdict.POSSIBLY_ALIVE)
        # A busy host has many of them, so one by itself proves nothing.
        text = f"{who}: it runs an unidentified streaming query; check that it is another one"
        return Sign(text, Verdict.QUIET, is_doubt=True)

    def _log_naming_it(self, opened: list[OpenFile]) -> str | None:
        paths = {file.path for file in opened if file.number in _OUTPUTS}
        for path in sorted(paths):
            text = _ends(Path(path))
            if self._real.rstrip("/").encode() in text or (self._query or "\0").encode() in text:
                return path
        return None

    def _named_by(self, process: Process) -> Mention:
        """How a JVM, or the Python that belongs to it, names the checkpoint."""
        best = Mention.NOT
        for each in self._family(process):
            variables = self._proc.environment(each.pid)
            values = [value for name, value in variables.items() if name not in _IGNORED]
            words = (*each.words[1:], *values)
            found = mention(words, self._root, self._proc.directory(each.pid))
            if found is Mention.ITSELF:
                return found
            best = found if found is Mention.ABOVE else best
        return best

    def _who(self, process: Process) -> str:
        """The description of a process; for a JVM that Python started, with the script."""
        text = process.describe(self._now)
        parent = self._by_pid.get(process.parent)
        if process.is_java and parent and parent.is_python:
            text += f", started by pid {parent.pid} ({parent.command})"
        return text

    def _family(self, process: Process) -> Iterator[Process]:
        yield process
        parent = self._by_pid.get(process.parent)
        if parent and parent.is_python:
            yield parent
        yield from (p for p in self._others if p.parent == process.pid and p.is_python)

    def _unseen(self) -> Iterator[str]:
        if self._proc.hides_others:
            yield "processes of other users are hidden on this host (hidepid)"
        if self._hidden:
            processes = counted(len(self._hidden), "process", "processes")
            jvms = [process for process in self._hidden if process.is_java]
            shown = "".join(f"; {self._who(process)}" for process in jvms[:3])
            yield (
                f"open files of {processes} of other users "
                f"cannot be read, {counted(len(jvms), 'JVM')} among them{shown}"
            )


def _below(process: Process, opened: list[OpenFile], real: str, proc: Proc) -> str | None:
    """A file below the checkpoint that a JVM has open, or that any process has open to write."""
    for file in opened:
        if file.path.startswith(real) and (process.is_java or proc.writes(process.pid, file)):
            return file.path
    return None


def _opened(who: str, path: str) -> Sign:
    return Sign(f"{who}: it has {path} open", Verdict.ALIVE)


def _ends(path: Path) -> bytes:
    """The beginning and the end of a regular file, where a log names its queries."""
    try:
        if not path.is_file():
            return b""
        with path.open("rb") as stream:
            head = stream.read(_PART)
            stream.seek(max(len(head), path.stat().st_size - _PART))
            return head + b"\n" + stream.read(_PART)
    except OSError:
        return b""
