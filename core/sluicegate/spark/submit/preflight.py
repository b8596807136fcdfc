"""Everything that can be known before a job is started, and every reason not to start it."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from sluicegate.errors import NotFound
from sluicegate.java import Java, require_java
from sluicegate.spark.submit import keys
from sluicegate.spark.submit.checkpoint import CheckpointState, examine, refuse_both
from sluicegate.spark.submit.command import Command, build
from sluicegate.spark.submit.keys import Setting
from sluicegate.spark.submit.launcher import find_spark_submit
from sluicegate.spark.submit.request import Request
from sluicegate.spark.submit.secrets import Secrets, shown_arguments
from sluicegate.spark.submit.starting import Starting, read_starting
from sluicegate.spark.writer import Verdict

_URI = re.compile(r"[A-Za-z][A-Za-z0-9+.-]+:/")


@dataclass(frozen=True, slots=True)
class Ready:
    """A job that nothing speaks against; `notes` are what the operator should know."""

    request: Request
    command: Command
    java: Java
    checkpoint: CheckpointState | None
    starting: Starting | None
    secrets: Secrets
    notes: tuple[str, ...]


def prepare(request: Request, also: Iterable[Setting] = ()) -> Ready:
    """Check everything, in the order of what it costs; the first thing that is wrong is raised.

    `also` are settings that the application is told besides.
    """
    request = request.checked()
    spark_submit = find_spark_submit(request.spark_submit)
    _check_app(request.app)
    java = require_java()
    starting = _starting(request)
    checkpoint = _checkpoint(request)
    if checkpoint and starting:
        refuse_both(checkpoint, starting)
    own = starting.settings if starting else ()
    if checkpoint:
        own = ((keys.CHECKPOINT, str(checkpoint.path)), *own)
    command = build(request, spark_submit, (*own, *also))
    return Ready(
        request=request,
        command=command,
        java=java,
        checkpoint=checkpoint,
        starting=starting,
        secrets=Secrets.of(request.conf, request.arguments),
        notes=(*_notes(request, command), *_standing_notes(checkpoint, starting)),
    )


def _check_app(app: str) -> None:
    # What lies elsewhere, Spark fetches itself.
    if not _URI.match(app) and not Path(app).is_file():
        raise NotFound(f"the application {app} does not exist", hint="check --app", place=app)


def _starting(request: Request) -> Starting | None:
    if request.store is None:
        return None
    return read_starting(request.store, request.consumer, allow_new=request.allow_new_consumer)


def _checkpoint(request: Request) -> CheckpointState | None:
    if request.checkpoint is None:
        return None
    return examine(
        request.checkpoint, skip_verify=request.skip_verify, writer_gone=request.writer_gone
    )


def _notes(request: Request, command: Command) -> Iterator[str]:
    if request.is_elsewhere:
        yield (
            "the driver will run on another machine: its progress is not shown, and stopping this "
            "command does not stop the job"
        )
    if command.private and command.spark_submit.conf_directory is None:
        yield (
            f"{command.spark_submit.path} does not show which spark-defaults.conf it reads, and "
            "will not read it: name its directory in SPARK_CONF_DIR"
        )
    if shown_arguments(request.arguments) != list(request.arguments):
        yield (
            "an argument of the application looks like a secret; everybody on this machine can "
            "read it while the job runs: give it with --conf instead"
        )


def _standing_notes(checkpoint: CheckpointState | None, starting: Starting | None) -> Iterator[str]:
    if starting and starting.record is None:
        yield f"consumer {starting.consumer} is new: the application chooses where to start"
    if checkpoint and checkpoint.evidence:
        is_quiet = checkpoint.evidence.verdict is Verdict.QUIET
        shown = checkpoint.evidence.doubts if is_quiet else checkpoint.evidence.lines
        yield from (f"{checkpoint.path}: {line}" for line in shown)
