"""Runs a Spark application: its output, its end, and the cause of a failure by its log.

`prepare` runs all checks before the start; `submit` runs the application to its end. The settings
that the application gets are in `keys`; `sluicegate.job` reads them.
"""

from __future__ import annotations

import os
import re
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from shlex import quote
from typing import IO

from sluicegate.checkpoint.writers import LOCK, settle
from sluicegate.errors import (
    NEXT,
    Interrupted,
    NotFound,
    SluicegateError,
    SparkFailed,
    StorageFailed,
    Terminated,
    error_classes,
    error_in,
)
from sluicegate.spark.submit import command as keys
from sluicegate.spark.submit.command import Secrets, private_file
from sluicegate.spark.submit.preflight import CheckpointState, Ready, is_checkpoint
from sluicegate.spark.submit.process import Ended, Launch, Output, Watch, run
from sluicegate.spark.submit.progress import Progress, ProgressPipe
from sluicegate.storage import open_storage

OWN_ERROR, OWN_HINT = "sluicegate: error: ", NEXT
_TAIL = 10
_WIDEST = 300
_TAIL_BYTES = 64 * 1024
_THROWN = re.compile(
    r"Exception in thread |Caused by: |[\w.$]+(?:Error|Exception)\b|sluicegate\.[\w.]+: "
)


@dataclass(frozen=True, slots=True)
class Tally:
    """The reports of a job: number of batches and rows, and the last batch."""

    batches: int = 0
    rows: int = 0
    last: Progress | None = None

    def plus(self, progress: Progress) -> Tally:
        """With one more batch."""
        return Tally(self.batches + 1, self.rows + progress.rows, progress)


@dataclass(frozen=True, slots=True)
class Cause:
    """Why a job failed, by its log: `explain` has more."""

    code: str
    title: str
    evidence: str
    advice: str
    command: str


@dataclass(frozen=True, slots=True)
class Outcome:
    """A job that has ended: how, where its log is, what it did, and why it failed."""

    ended: Ended
    log: Path
    tally: Tally
    tail: tuple[str, ...] = ()
    causes: tuple[Cause, ...] = ()

    def error(self, step: Callable[[str, str], str] | None = None) -> SluicegateError | None:
        """The error of the command; None if the job succeeded.

        `step` builds the next command from a cause's command and code.
        """
        if self.ended.signal is not None:
            kind = Interrupted if self.ended.signal == signal.SIGINT else Terminated
            return kind(
                f"the job was asked to stop and {_how(self.ended.code)}; its log: {self.log}",
                hint="the next start resumes where it stopped",
            )
        if self.ended.code == 0:
            return None
        if own := self._own_error():
            return own
        hint = f"see the end of its log: tail -n 50 {quote(str(self.log))}"
        if self.causes:
            cause = self.causes[0]
            hint = step(cause.command, cause.code) if step else cause.command
        return SparkFailed(
            f"the job {_how(self.ended.code)}; its log: {self.log}",
            hint=hint,
            place=str(self.log),
        )

    def _own_error(self) -> SluicegateError | None:
        """The error that a gated job itself reported, with its own exit code."""
        words = (line.removeprefix(OWN_ERROR) for line in self.tail if line.startswith(OWN_ERROR))
        message = next(words, None)
        kinds = [kind for kind in error_classes() if kind.exit_code == self.ended.code]
        if message is None and (escaped := error_in("\n".join(self.tail))):
            # From an application that does not turn errors into exit codes.
            message, kinds = escaped.message, [type(escaped)]
        if message is None or not kinds:
            return None
        hints = (line.removeprefix(OWN_HINT) for line in self.tail if line.startswith(OWN_HINT))
        text = f"the job ended: {message}; its log: {self.log}"
        return kinds[0](text, hint=next(hints, None), place=str(self.log))


def new_log(directory: Path) -> tuple[Path, IO[bytes]]:
    """A log file of its own for a job."""
    stamp = time.strftime("%Y%m%dT%H%M%SZ", time.gmtime())
    for number in range(1, 1000):
        path = directory / f"sluicegate-submit-{stamp}{f'-{number}' if number > 1 else ''}.log"
        try:
            return path, os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o640), "wb")
        except FileExistsError:
            continue
        except OSError as e:
            reason = (e.strerror or str(e)).lower()
            raise StorageFailed(
                f"the job's log {path} cannot be written: {reason}",
                hint="choose another directory with --log-dir",
                place=str(path),
            ) from e
    raise StorageFailed(f"{directory} has too many logs of the same second", place=str(directory))


def read_failure(log: Path, secrets: Secrets) -> tuple[tuple[str, ...], tuple[Cause, ...]]:
    """The last lines of a log and the causes that it shows, without secrets."""
    return tuple(secrets.hide(line) for line in _tail(log)), tuple(_causes(log, secrets))


def _causes(log: Path, secrets: Secrets) -> list[Cause]:
    # Here, because only a job that failed needs it.
    from sluicegate.spark.explain import explain, opened, read_lines

    try:
        with opened(str(log)) as stream:
            found = explain(read_lines(stream, str(log)), str(log))
    except NotFound:
        return []
    hide = secrets.hide
    return [
        Cause(e.code, e.title, hide(e.evidence), hide(e.advice), hide(e.command)) for e in found
    ]


def _tail(log: Path) -> list[str]:
    with log.open("rb") as stream:
        stream.seek(max(0, log.stat().st_size - _TAIL_BYTES))
        lines = stream.read().decode(errors="replace").splitlines()
    tail = lines[-_TAIL:]
    ours = [at for at, line in enumerate(lines) if line.startswith(OWN_ERROR)]
    thrown = ours or [at for at, line in enumerate(lines) if _THROWN.match(line)]
    if thrown and thrown[-1] < len(lines) - len(tail):
        # A JVM also logs its shutdown; the cause of its end is above that.
        tail = [*lines[thrown[-1] : thrown[-1] + 2], "…", *tail[3:]]
    return [_cut(line) for line in tail]


def _cut(line: str) -> str:
    return line if len(line) <= _WIDEST else line[:_WIDEST] + "…"


def _how(code: int) -> str:
    if code >= 0:
        return f"ended with exit code {code}"
    try:
        name = signal.Signals(-code).name
    except ValueError:
        name = str(-code)
    killer = " (perhaps the system ran out of memory)" if -code == signal.SIGKILL else ""
    return f"was killed by {name}{killer}"


def submit(ready: Ready, watch: Watch, *, log_directory: Path, output: int | None) -> Outcome:
    """Run a job to its end. Its output goes to the descriptor `output`, or into its log."""
    counting = _Counting(watch)
    with _held(ready.checkpoint):
        log, stream = new_log(log_directory)
        with stream:
            ended = _run(
                ready, counting, log, stream, Output(output) if output is not None else None
            )
        if ready.checkpoint and not ready.request.is_elsewhere:
            _settle(ready.checkpoint)
    if ended.code == 0 or ended.signal is not None:
        return Outcome(ended, log, counting.tally)
    return Outcome(ended, log, counting.tally, *read_failure(log, ready.secrets))


def _run(ready: Ready, watch: Watch, path: Path, log: IO[bytes], output: Output | None) -> Ended:
    command = ready.command
    defaults = command.spark_submit.defaults
    with ProgressPipe() as pipe, private_file(command.private, defaults) as file:
        extra = () if ready.request.is_elsewhere else ((keys.PROGRESS, str(pipe.path)),)
        launch = Launch(
            words=command.words(file.path if file else None, extra),
            environment=command.environment,
            output=output,
            log=log,
            log_path=path,
            descriptors=file.descriptors if file else (),
        )
        ended = run(launch, pipe, watch)
    if output:
        output.finish()
        if ended.code != 0:
            output.append_to(log)
    return ended


@dataclass(slots=True)
class _Counting:
    """Forwards reports to another watch, and counts them."""

    inner: Watch
    tally: Tally = field(default_factory=Tally)

    def started(self, pid: int, log: Path) -> None:
        self.inner.started(pid, log)

    def progressed(self, progress: Progress) -> None:
        self.tally = self.tally.plus(progress)
        self.inner.progressed(progress)

    def waited(self) -> None:
        self.inner.waited()

    def stopping(self, *, kills: bool) -> None:
        self.inner.stopping(kills=kills)


@contextmanager
def _held(checkpoint: CheckpointState | None) -> Iterator[None]:
    """Our lock on a checkpoint, so that nothing of ours changes it while the job runs."""
    if checkpoint is None or not checkpoint.is_there:
        # Spark creates a new one; until then there is nothing to protect.
        yield
        return
    with open_storage(str(checkpoint.path)).lock(LOCK).hold(timeout=0):
        yield


def _settle(checkpoint: CheckpointState) -> None:
    """Remember that the job has ended, unless it never made its checkpoint."""
    storage = open_storage(str(checkpoint.path))
    with suppress(SluicegateError):
        if is_checkpoint(storage):
            settle(storage)
