"""Runs a Spark application as a process, stops it on request, and forwards its output.

Spark merges a Python application's standard error into its standard output, so a traceback is
there and not in Spark's log.

spark-submit executes the JVM in its own place, and the JVM starts a Python application as its
child. They run in a session of their own, so that Ctrl-C reaches this process only, which then
asks the *application* to end: a Python driver can finish its batch, a JVM that is terminated
cannot. A second signal kills the entire session. If this process itself is killed, the kernel
terminates the JVM (Linux); a Python driver then ends with its next call to Spark.
"""

from __future__ import annotations

import ctypes
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from threading import Thread
from typing import IO, Any, Protocol

from sluicegate.errors import SparkFailed
from sluicegate.liveness.proc import Proc, Process
from sluicegate.spark.submit.progress import Progress, ProgressPipe

_CHUNK = 1 << 16
_KEPT = 256 * 1024
_TIMEOUT = 5.0
_HEADING = b"\n--- the end of what the application printed ---\n"


class Output:
    """A pipe whose content goes to the descriptor `to`; `writer` is the end to write to."""

    def __init__(self, to: int) -> None:
        self._to = to
        self._reader, self.writer = os.pipe()
        self._end = b""
        # A thread, because a slow reader may block our writes, and signals must not wait.
        self._thread = Thread(target=self._pump, daemon=True)

    def start(self) -> None:
        """Begin, once the process that writes has been started."""
        os.close(self.writer)
        self._thread.start()

    def finish(self) -> None:
        """Wait for the rest, for a limited time: the reader may not read."""
        if self._thread.is_alive():
            self._thread.join(_TIMEOUT)

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
            # There is no reader any more. The application notices that by itself.
            pass
        finally:
            os.close(self._reader)


_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
_GLANCE = 0.2
_GRACE = 5.0
_SET_PARENT_DEATH_SIGNAL = 1
_WORKERS = "pyspark."


class Watch(Protocol):
    """Receives the progress of a job."""

    def started(self, pid: int, log: Path) -> None:
        """The job runs and writes its log."""

    def progressed(self, progress: Progress) -> None:
        """A batch is finished."""

    def waited(self) -> None:
        """A moment has passed."""

    def stopping(self, *, kills: bool) -> None:
        """A signal came: the job is asked to end, or killed."""


@dataclass(frozen=True, slots=True)
class Ended:
    """How a job ended: its exit code, or minus the signal that killed it.

    `signal` is the first one that this process got.
    """

    code: int
    seconds: float
    signal: int | None


@dataclass(frozen=True, slots=True)
class Launch:
    """The command to execute; without an `output` it also prints to the log."""

    words: list[str]
    environment: Mapping[str, str]
    output: Output | None
    log: IO[bytes]
    log_path: Path
    descriptors: tuple[int, ...] = ()

    def start(self) -> subprocess.Popen[bytes]:
        """The process, leader of a session of its own."""
        try:
            return start(
                self.words,
                env=os.environ | dict(self.environment),
                stdin=subprocess.DEVNULL,
                stdout=self.output.writer if self.output else self.log,
                stderr=self.log,
                pass_fds=self.descriptors,
            )
        except OSError as e:
            raise SparkFailed(f"{self.words[0]} could not be started: {e.strerror}") from e


def run(launch: Launch, pipe: ProgressPipe, watch: Watch) -> Ended:
    """Run a job to its end, whatever signals come."""
    began = time.monotonic()
    with _caught_signals() as caught:
        process = launch.start()
        if launch.output:
            launch.output.start()
        try:
            watch.started(process.pid, launch.log_path)
            code = _wait(process, caught, pipe, watch)
        finally:
            _clear(process)
    return Ended(code, time.monotonic() - began, caught[0] if caught else None)


def _wait(
    process: subprocess.Popen[bytes], caught: list[int], pipe: ProgressPipe, watch: Watch
) -> int:
    handled = 0
    while True:
        code = process.poll()
        for progress in pipe.read(0 if code is not None else _GLANCE):
            watch.progressed(progress)
        if code is not None:
            return code
        watch.waited()
        if len(caught) > handled:
            kills = handled > 0
            handled = len(caught)
            watch.stopping(kills=kills)
            _kill(process) if kills else _ask_to_end(process)


@contextmanager
def _caught_signals() -> Iterator[list[int]]:
    """Record signals instead of acting on them; ignored ones stay ignored."""
    caught: list[int] = []
    before = {number: signal.getsignal(number) for number in _SIGNALS}
    chosen = [number for number, handler in before.items() if handler is not signal.SIG_IGN]
    for number in chosen:
        signal.signal(number, lambda got, _frame: caught.append(got))
    try:
        yield caught
    finally:
        for number in chosen:
            signal.signal(number, before[number])


def start(words: Sequence[str], **options: Any) -> subprocess.Popen[bytes]:
    """A process that leads a session of its own and ends with this one.

    The kernel sends it SIGTERM when this one dies; that lasts through spark-submit's execs.
    """
    prctl = ctypes.CDLL(None).prctl if sys.platform == "linux" else None
    # Signals wait meanwhile: an exception of a handler inside a fork would be lost.
    before = signal.pthread_sigmask(signal.SIG_BLOCK, _SIGNALS)

    def prepare() -> None:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
        if prctl:
            prctl(_SET_PARENT_DEATH_SIGNAL, signal.SIGTERM)

    try:
        return subprocess.Popen(
            words,
            start_new_session=True,
            # Safe: there are no other threads, and it makes system calls only.
            preexec_fn=prepare,  # noqa: PLW1509
            text=False,
            **options,
        )
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _ask_to_end(process: subprocess.Popen[bytes]) -> None:
    """SIGTERM for the Python application; where there is none (yet), for the JVM."""
    members = _session(process.pid)
    jvms = [each for each in members if each.is_java]
    parents = {process.pid, *(jvm.pid for jvm in jvms)}
    drivers = [p for p in members if p.is_python and p.parent in parents and not _is_worker(p)]
    wanted = [each.pid for each in (drivers or jvms)] or [process.pid]
    for pid in wanted:
        _send(pid, signal.SIGTERM)


def _is_worker(process: Process) -> bool:
    """Whether it is one of the Pythons that Spark starts by itself: `python -m pyspark.…`."""
    return "-m" in process.words[:3] and any(w.startswith(_WORKERS) for w in process.words[:4])


def _kill(process: subprocess.Popen[bytes]) -> None:
    # Python workers have a process group of their own, so the group alone would miss them.
    for member in _session(process.pid):
        _send(member.pid, signal.SIGKILL)
    with suppress(OSError):
        os.killpg(process.pid, signal.SIGKILL)


def _clear(process: subprocess.Popen[bytes]) -> None:
    """End all processes of the session; workers take a moment to notice."""
    for number in (None, signal.SIGTERM, signal.SIGKILL):
        deadline = time.monotonic() + _GRACE
        if number is not None:
            for member in _session(process.pid):
                _send(member.pid, number)
        while _session(process.pid) and time.monotonic() < deadline:
            process.poll()
            time.sleep(_GLANCE / 4)
    process.wait()


def _session(leader: int) -> list[Process]:
    return [each for each in Proc().processes() if each.session == leader]


def _send(pid: int, number: int) -> None:
    with suppress(OSError):
        os.kill(pid, number)
