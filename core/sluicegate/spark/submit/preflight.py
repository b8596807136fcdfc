"""All checks before a job is started."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from shlex import quote

from sluicegate import units
from sluicegate.checkpoint.format.log import OffsetEntry, SourceOffset, read_offsets
from sluicegate.checkpoint.inspect import events_between
from sluicegate.checkpoint.verify import verify
from sluicegate.checkpoint.view import Look, NextStart, look_at, read_query_id
from sluicegate.checkpoint.writers import refuse_living
from sluicegate.errors import (
    NotFound,
    ProblemsFound,
    SluicegateError,
    UnsupportedFormat,
    UsageError,
)
from sluicegate.findings import Finding, Severity
from sluicegate.liveness import Evidence, Verdict
from sluicegate.offsets import LockFileOffsetStore, Record
from sluicegate.offsets.record import COMMIT
from sluicegate.positions import to_spark
from sluicegate.spark.submit import command
from sluicegate.spark.submit import command as keys
from sluicegate.spark.submit.command import (
    Command,
    Request,
    Secrets,
    Setting,
    build,
    shown_arguments,
)
from sluicegate.spark.submit.launcher import Java, find_spark_submit, require_java
from sluicegate.storage import Storage, canonical_uri, local_root, open_storage, validate_name


@dataclass(frozen=True, slots=True)
class Starting:
    """A consumer of a store and its last commit; None if it has no positions yet."""

    store: str
    consumer: str
    record: Record | None

    @property
    def settings(self) -> tuple[Setting, ...]:
        """The settings that the application gets."""
        settings = ((command.OFFSETS_STORE, self.store), (command.CONSUMER, self.consumer))
        if self.record is None:
            return settings
        text = json.dumps(to_spark(self.record.positions), separators=(",", ":"))
        return (*settings, (command.STARTING_OFFSETS, text))


def read_starting(uri: str, consumer: str | None, *, allow_new: bool) -> Starting:
    """The positions of a consumer, or of the only one there is."""
    store = LockFileOffsetStore.open(canonical_uri(uri), read_only=True)
    name = consumer if consumer is not None else store.choose(None)
    record = store.load(validate_name(name, "consumer"))
    if record is None and not allow_new:
        known = ", ".join(store.list()) or "none"
        fill = units.command("offsets", "import", store.uri, "FILE", "--consumer", name)
        raise NotFound(
            f"consumer {name} has no positions in {store.uri}; consumers that have: {known}",
            hint=f"set them with: {fill}; or let the application choose with --allow-new-consumer",
            place=store.uri,
        )
    return Starting(store.uri, name, record)


_MARKS = ("metadata", "offsets", "commits", "sources", "state")
_SHOWN = 3


class CheckpointDamaged(ProblemsFound):
    """The checkpoint of an application has findings of severity error."""


@dataclass(frozen=True, slots=True)
class CheckpointState:
    """A checkpoint before a start. `offsets` are the end of its newest batch."""

    path: Path
    next_start: NextStart
    query_id: str | None = None
    last_batch: int | None = None
    replayed_events: int | None = None
    offsets: tuple[SourceOffset, ...] = ()
    findings: tuple[Finding, ...] = ()
    evidence: Evidence | None = None

    @property
    def is_there(self) -> bool:
        """Whether there was a checkpoint before the start."""
        return self.evidence is not None

    @property
    def next_batch(self) -> int:
        """The number of the batch that the next start begins with."""
        if self.last_batch is None:
            return 0
        return self.last_batch if self.replays else self.last_batch + 1

    @property
    def replays(self) -> bool:
        """Whether the next start runs its first batch again."""
        return self.next_start in (NextStart.REPLAY, NextStart.BEHIND)

    def describe(self) -> str:
        """One sentence on what the start will do."""
        if self.next_start is NextStart.FRESH:
            return "nothing has run yet: the start begins with batch 0"
        if not self.replays:
            return f"clean: the start begins with batch {self.next_batch}"
        count = self.replayed_events
        events = "" if count is None else f", {units.events(count)}"
        more = "; " + self.next_start.value if self.next_start is NextStart.BEHIND else ""
        return f"batch {self.last_batch} was planned but not committed: it runs again{events}{more}"


def examine(uri: str, *, skip_verify: bool, writer_gone: bool) -> CheckpointState:
    """Check a checkpoint; refuse one that is damaged or that a job writes to."""
    path = local_root(uri).absolute()
    storage = open_storage(str(path), read_only=True)
    if not is_checkpoint(storage):
        return CheckpointState(path, NextStart.FRESH)
    evidence = refuse_living(storage, accept_possible=writer_gone, option="--writer-gone")
    findings = tuple(verify(storage))
    if not skip_verify:
        _refuse_damaged(storage, findings)
    look = look_at(storage)
    entry = _read(look, look.last_batch)
    return CheckpointState(
        path=path,
        next_start=look.next_start,
        query_id=_query_id(storage),
        last_batch=look.last_batch,
        replayed_events=_replayed(look, entry),
        offsets=entry.offsets if entry else (),
        findings=findings,
        evidence=evidence,
    )


def is_checkpoint(storage: Storage) -> bool:
    """Whether there is a checkpoint; a directory with something else in it is refused."""
    try:
        names = {entry.name for entry in storage.list()}
    except NotFound:
        return False
    if names and not names & {*_MARKS, "_sluicegate"}:
        raise UnsupportedFormat(
            f"{storage.uri} is not empty and not a Spark checkpoint: it has {min(names)}",
            hint="name the checkpointLocation of the query",
            place=storage.uri,
        )
    return bool(names & set(_MARKS))


def refuse_both(state: CheckpointState, starting: Starting) -> None:
    """Refuse starting offsets for a checkpoint that has offsets of its own: Spark ignores them.

    A store that just follows this same checkpoint is no contradiction: the job resumes from the
    checkpoint and continues to commit.
    """
    if state.next_start is NextStart.FRESH or _follows(starting.record, state.query_id):
        return
    export = units.command("offsets", "export", starting.store, "--consumer", starting.consumer)
    seed = units.command("checkpoint", "seed", "NEW", "--offsets", "positions.json")
    raise UsageError(
        f"{state.path} has offsets of its own, and Spark uses those: the positions of "
        f"{starting.consumer} in {starting.store} would be ignored",
        hint="leave out --offsets-store to resume from the checkpoint, or --checkpoint "
        f"{quote(str(state.path))} to start from the store with a new one, or make one that "
        f"starts there: {export} > positions.json; {seed}",
        place=str(state.path),
    )


def _follows(record: Record | None, query_id: str | None) -> bool:
    """Whether the query of a checkpoint committed these positions, and no operator moved them."""
    newest = record.fences[-1].source if record and record.fences else None
    return (
        record is not None and record.kind == COMMIT and newest is not None and newest == query_id
    )


def _refuse_damaged(storage: Storage, findings: tuple[Finding, ...]) -> None:
    errors = [finding for finding in findings if finding.severity is Severity.ERROR]
    if not errors:
        return
    listed = "; ".join(f"{f.code} {f.place}: {f.detail}" for f in errors[:_SHOWN])
    more = f"; and {len(errors) - _SHOWN} more" if len(errors) > _SHOWN else ""
    repair = next((f.repair for f in errors if f.repair), "")
    see = units.command("checkpoint", "verify", storage.uri)
    raise CheckpointDamaged(
        f"{storage.uri} is damaged, so the job was not started: {listed}{more}",
        hint=f"{repair or see}; or start it as it is with --skip-verify",
        place=storage.uri,
    )


def _replayed(look: Look, entry: OffsetEntry | None) -> int | None:
    """How many events the batch that runs again holds, where the offsets count events."""
    if entry is None or entry.batch == 0:
        return None
    return events_between(_read(look, entry.batch - 1), entry)


def _read(look: Look, batch: int | None) -> OffsetEntry | None:
    if batch is None:
        return None
    try:
        return read_offsets(look.storage, batch)
    except SluicegateError:
        return None


def _query_id(storage: Storage) -> str | None:
    try:
        return read_query_id(storage)
    except SluicegateError:
        return None


_URI = re.compile(r"[A-Za-z][A-Za-z0-9+.-]+:/")


@dataclass(frozen=True, slots=True)
class Ready:
    """A job that can be started; `notes` are for the operator."""

    request: Request
    command: Command
    java: Java
    checkpoint: CheckpointState | None
    starting: Starting | None
    secrets: Secrets
    notes: tuple[str, ...]


def prepare(request: Request, also: Iterable[Setting] = ()) -> Ready:
    """Run all checks, the cheapest first; the first problem is raised.

    `also` are further settings for the application.
    """
    request = request.checked()
    spark_submit = find_spark_submit(request.spark_submit)
    _check_app(request.app)
    java = require_java(spark_submit.spark)
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
        notes=(*_notes(request, command), *_start_notes(checkpoint, starting)),
    )


def _check_app(app: str) -> None:
    # Spark itself fetches remote applications.
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
            f"the spark-defaults.conf of {command.spark_submit.path} is not known, and will not be "
            "read: name its directory in SPARK_CONF_DIR"
        )
    if shown_arguments(request.arguments) != list(request.arguments):
        yield (
            "an argument of the application looks like a secret; every user of this machine can "
            "read it while the job runs: pass it with --conf instead"
        )


def _start_notes(checkpoint: CheckpointState | None, starting: Starting | None) -> Iterator[str]:
    if starting and starting.record is None:
        yield f"consumer {starting.consumer} is new: the application chooses where to start"
    if checkpoint and checkpoint.evidence:
        is_quiet = checkpoint.evidence.verdict is Verdict.QUIET
        shown = checkpoint.evidence.doubts if is_quiet else checkpoint.evidence.lines
        yield from (f"{checkpoint.path}: {line}" for line in shown)
