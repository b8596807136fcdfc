"""Real Spark of a version as a service: jobs go in, results come out, deaths are survived."""

from __future__ import annotations

import ctypes
import json
import os
import shutil
import subprocess
import tempfile
import threading
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from tests.lab.environments import environment
from tests.oracle.kinds import Kind

_HERE = Path(__file__).parent
# A JVM that has run so many queries is replaced: what it remembers of them fills its memory.
_JOBS_PER_JVM = 400
_GRACE_SECONDS = 10.0
_PR_CAPBSET_DROP = 24
_CAP_DAC_OVERRIDE, _CAP_DAC_READ_SEARCH = 1, 2


@dataclass(frozen=True, slots=True)
class Stage:
    """One start of a query, until it has read `files` input files."""

    files: int
    closed: bool = False
    per_batch: int = 1
    no_data_batches: bool = True


@dataclass(frozen=True, slots=True)
class Run:
    """What starting a query led to: the rows in its sink, or what it died of and at which start."""

    error: str | None
    stage: int
    rows: tuple[str, ...]


def obey_permissions() -> None:
    """Let permissions of files count for root as well; called between fork and exec."""
    libc = ctypes.CDLL(None)
    for capability in (_CAP_DAC_OVERRIDE, _CAP_DAC_READ_SEARCH):
        libc.prctl(_PR_CAPBSET_DROP, capability, 0, 0, 0)


class Spark:
    """A process that runs queries; started when the first is asked for, replaced when it dies."""

    def __init__(self, version: str) -> None:
        self.version = version
        self._lock = threading.RLock()
        self._process: subprocess.Popen[str] | None = None
        self._reader: threading.Thread | None = None
        self._scratch: Path | None = None
        self._waiting: dict[int, tuple[str, Future[Run], threading.Timer]] = {}
        self._next = 0
        self._answered = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, _kind: type[BaseException] | None, _e: BaseException | None, _t: TracebackType | None
    ) -> None:
        with self._lock:
            self._stop()
        if self._reader:
            self._reader.join()

    def run(
        self,
        kind: Kind,
        place: Path,
        stages: list[Stage],
        *,
        checkpoint: Path | None = None,
        first: int = 0,
        seconds: int,
    ) -> Run:
        """Start the query of a place once for each stage, and return how that went."""
        with self._lock:
            number = self._next
            self._next += 1
        job: dict[str, Any] = {
            "job": number,
            "kind": asdict(kind),
            "place": str(place),
            "checkpoint": str(checkpoint or place / "checkpoint"),
            "first": first,
            "seconds": seconds,
            "stages": [asdict(stage) for stage in stages],
        }
        future: Future[Run] = Future()
        limit = seconds * len(stages) + _GRACE_SECONDS
        self._ask(number, json.dumps(job), future, limit)
        return future.result()

    def _ask(self, number: int, line: str, future: Future[Run], limit: float) -> None:
        with self._lock:
            if self._process is None or (self._answered >= _JOBS_PER_JVM and not self._waiting):
                self._stop()
                self._start()
            process = self._process
            assert process
            assert process.stdin
            timer = threading.Timer(limit, self._give_up, (number, process))
            timer.daemon = True
            self._waiting[number] = (line, future, timer)
            timer.start()
            try:
                process.stdin.write(line + "\n")
                process.stdin.flush()
            except BrokenPipeError:
                self._died(process)

    def _start(self) -> None:
        python = environment(self.version)
        self._scratch = Path(tempfile.mkdtemp(prefix="oracle-spark-"))
        search = os.pathsep.join([str(_HERE), str(_HERE.parent / "lab")])
        # On two cores the threads of other collectors take the time of the queries; and Hadoop
        # starts chmod and readlink for every file, which costs a third less with vfork(2).
        variables = {
            "PYTHONPATH": search,
            "SPARK_LOCAL_IP": "127.0.0.1",
            "PYSPARK_PYTHON": python,
            "JDK_JAVA_OPTIONS": "-XX:+UseSerialGC -Djdk.lang.Process.launchMechanism=VFORK",
        }
        with (self._scratch / "log").open("w") as log:
            process = subprocess.Popen(
                [str(python), str(_HERE / "runner.py"), str(self._scratch)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
                env=os.environ | {key: str(value) for key, value in variables.items()},
                start_new_session=True,
                preexec_fn=obey_permissions,  # noqa: PLW1509  # before any thread of the child
            )
        assert process.stdout
        if "ready" not in process.stdout.readline():
            text = (self._scratch / "log").read_text(errors="replace")
            raise RuntimeError(f"Spark {self.version} did not start:\n{text[-3000:]}")
        self._process, self._answered = process, 0
        self._reader = threading.Thread(target=self._read, args=(process,), daemon=True)
        self._reader.start()

    def _read(self, process: subprocess.Popen[str]) -> None:
        assert process.stdout
        for line in process.stdout:
            result = json.loads(line)
            with self._lock:
                entry = self._waiting.pop(result["job"], None)
                self._answered += 1
            if entry:
                entry[2].cancel()
                rows = tuple(result["rows"])
                entry[1].set_result(Run(result["error"], result["stage"], rows))
        process.stdout.close()
        self._died(process)

    def _give_up(self, number: int, process: subprocess.Popen[str]) -> None:
        """Answer a job that does not end, and replace the process that it blocks."""
        with self._lock:
            entry = self._waiting.pop(number, None)
            if entry is None or self._process is not process:
                return
        entry[1].set_result(Run("hangs: no answer within the time limit", 0, ()))
        os.killpg(process.pid, 9)

    def _died(self, process: subprocess.Popen[str]) -> None:
        """Ask again, one by one, for what a dead process has not answered.

        Whatever killed it (a crash in native code) kills the next one, too: a job that was alone
        when its process died is answered by that.
        """
        with self._lock:
            if self._process is not process:
                return
            self._process = None
            process.wait()
            unanswered, self._waiting = self._waiting, {}
            self._forget(process)
        for number, (line, future, timer) in unanswered.items():
            timer.cancel()
            if len(unanswered) == 1:
                future.set_result(Run(f"the JVM died with code {process.returncode}", 0, ()))
            else:
                seconds = json.loads(line)["seconds"] * 2 + _GRACE_SECONDS
                self._ask(number, line, future, seconds)

    def _stop(self) -> None:
        process, self._process = self._process, None
        if process is None:
            return
        os.killpg(process.pid, 9)
        process.wait()
        self._forget(process)

    def _forget(self, process: subprocess.Popen[str]) -> None:
        assert process.stdin
        # What could not be written to a dead process is asked of the next one.
        with suppress(BrokenPipeError):
            process.stdin.close()
        if self._scratch:
            shutil.rmtree(self._scratch, ignore_errors=True)
