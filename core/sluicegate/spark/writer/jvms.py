"""Which JVMs of this host write to a checkpoint, or may.

A Spark driver keeps no file of its checkpoint open between batches, and a job that waits for data
may not write for hours. What shows all the time: the checkpoint's path on a command line or in an
environment, the query's id in the driver's web UI, and the names of Spark's streaming threads,
which say that a JVM runs some query but not which one.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from sluicegate.spark.writer import web
from sluicegate.spark.writer.evidence import Sign, Verdict
from sluicegate.spark.writer.mentions import Mention, mention
from sluicegate.spark.writer.proc import OpenFile, Proc, Process

# As the kernel cuts them: "stream execution thread for …", "state-store-maintenance-…".
_STREAMING = frozenset(("stream executio", "state-store-mai"))
_UNTOLD = ("PWD", "OLDPWD", "_")
_GLANCE = 0.01


@dataclass(frozen=True, slots=True)
class Seen:
    """Signs that processes give, the JVMs that may yet show more, and what stayed hidden."""

    signs: tuple[Sign, ...]
    suspects: tuple[Process, ...]
    unseen: tuple[str, ...]


def look_at_processes(root: Path, query: str | None, now: float, proc: Proc) -> Seen:
    """Every process of this host, with regard to the checkpoint in the directory `root`."""
    if not proc.is_there:
        return Seen((), (), ("this system has no /proc, so its processes were not looked at",))
    return _Looker(root, query, now, proc).look()


def watch(
    suspects: tuple[Process, ...], root: Path, now: float, proc: Proc, patience: float
) -> Sign | None:
    """Wait for one of some JVMs to open a file of the checkpoint; None if none does."""
    real = os.path.realpath(root) + "/"
    deadline = time.monotonic() + patience
    while time.monotonic() < deadline:
        for process in suspects:
            opened = proc.open_files(process.pid) or []
            if path := _below(process, opened, real, proc):
                return _opened_sign(process, path, now)
        time.sleep(_GLANCE)
    return None


class _Looker:
    def __init__(self, root: Path, query: str | None, now: float, proc: Proc) -> None:
        self._root, self._query, self._now, self._proc = root, query, now, proc
        self._real = os.path.realpath(root) + "/"
        everybody = proc.processes()
        self._others = [process for process in everybody if process.pid != os.getpid()]
        self._by_pid = {process.pid: process for process in self._others}
        self._hidden: list[Process] = []
        self._suspects: list[Process] = []

    def look(self) -> Seen:
        signs = [sign for process in self._others if (sign := self._sign(process))]
        return Seen(tuple(signs), tuple(self._suspects), tuple(self._unseen()))

    def _sign(self, process: Process) -> Sign | None:
        opened = self._proc.open_files(process.pid)
        if opened is None:
            self._hidden.append(process)
        elif path := _below(process, opened, self._real, self._proc):
            return _opened_sign(process, path, self._now)
        return self._jvm_sign(process) if process.is_java else None

    def _jvm_sign(self, process: Process) -> Sign | None:
        named = self._named_by(process)
        who = process.describe(self._now)
        if named is Mention.ITSELF:
            return Sign(f"{who}: its command line or environment names it", Verdict.ALIVE)
        if not _STREAMING & self._proc.threads(process.pid):
            return None
        listing = web.ask(process, self._proc)
        if listing and self._query in listing.ids:
            return Sign(f"{who}: its web UI, port {listing.port}, lists the query", Verdict.ALIVE)
        if listing and listing.is_whole and self._query:
            return None
        self._suspects.append(process)
        above = ", and its command line names the directory above" * (named is Mention.ABOVE)
        text = f"{who}: it runs a streaming query, which one cannot be seen{above}"
        return Sign(text, Verdict.POSSIBLY_ALIVE)

    def _named_by(self, process: Process) -> Mention:
        """How a JVM, or the Python that belongs to it, names the checkpoint."""
        best = Mention.NOT
        for each in self._family(process):
            variables = self._proc.environment(each.pid)
            told = [value for name, value in variables.items() if name not in _UNTOLD]
            words = (*each.words[1:], *told)
            found = mention(words, self._root, self._proc.directory(each.pid))
            if found is Mention.ITSELF:
                return found
            best = found if found is Mention.ABOVE else best
        return best

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
            jvms = [process for process in self._hidden if process.is_java]
            shown = "".join(f"; {process.describe(self._now)}" for process in jvms[:3])
            yield (
                f"open files of {len(self._hidden)} processes of other users may not be seen, "
                f"{len(jvms)} of them JVMs{shown}"
            )


def _below(process: Process, opened: list[OpenFile], real: str, proc: Proc) -> str | None:
    """A file below the checkpoint that a JVM has open, or that any process has open to write."""
    for file in opened:
        if file.path.startswith(real) and (process.is_java or proc.writes(process.pid, file)):
            return file.path
    return None


def _opened_sign(process: Process, path: str, now: float) -> Sign:
    return Sign(f"{process.describe(now)}: it has {path} open", Verdict.ALIVE)
