"""Starting any Spark application with its user's own spark-submit, from the right place.

`prepare` finds every reason not to start it and says where it will go on; `submit` runs it to its
end. What the application is told is in `keys`; its side of it is `sluicegate.pipeline`.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO

from sluicegate.errors import SluicegateError
from sluicegate.locks import FileLock
from sluicegate.spark.submit import keys
from sluicegate.spark.submit.checkpoint import CheckpointState, CheckpointUnsound, is_checkpoint
from sluicegate.spark.submit.outcome import Cause, Outcome, Tally, new_log, read_failure
from sluicegate.spark.submit.output import Output
from sluicegate.spark.submit.preflight import Ready, prepare
from sluicegate.spark.submit.process import Ended, Launch, Watch, run
from sluicegate.spark.submit.progress import Progress, ProgressPipe
from sluicegate.spark.submit.properties import private_file
from sluicegate.spark.submit.request import Request, parse_conf, parse_list
from sluicegate.spark.submit.secrets import shown_setting
from sluicegate.spark.submit.starting import Starting
from sluicegate.spark.writer import LOCK, settle
from sluicegate.storage import LocalStorage

__all__ = [
    "Cause",
    "CheckpointState",
    "CheckpointUnsound",
    "Outcome",
    "Progress",
    "Ready",
    "Request",
    "Starting",
    "Tally",
    "Watch",
    "parse_conf",
    "parse_list",
    "prepare",
    "shown_setting",
    "submit",
]


def submit(ready: Ready, watch: Watch, *, log_directory: Path, output: int | None) -> Outcome:
    """Run a job to its end. What it prints goes to the descriptor `output`, or into its log."""
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
        told = () if ready.request.is_elsewhere else ((keys.PROGRESS, str(pipe.path)),)
        launch = Launch(
            words=command.words(file.path if file else None, told),
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
    """Tells somebody else, and counts."""

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
        # Spark makes a new one; until then there is nothing to protect.
        yield
        return
    path = checkpoint.path / LOCK
    LocalStorage.create(path.parent)
    with FileLock(path).hold(timeout=0):
        yield


def _settle(checkpoint: CheckpointState) -> None:
    """Remember that the job has ended, unless it never made its checkpoint."""
    storage = LocalStorage(checkpoint.path)
    with suppress(SluicegateError):
        if is_checkpoint(storage):
            settle(storage)
