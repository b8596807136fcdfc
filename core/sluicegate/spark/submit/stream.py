"""All checks before a stream's job is started."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from zipfile import ZIP_DEFLATED, ZipFile

from sluicegate import lag, units
from sluicegate.config import NamedStream
from sluicegate.errors import NotFound, ProblemsFound
from sluicegate.findings import Severity
from sluicegate.sources.base import Source, is_query, open_source, refuse_outside
from sluicegate.spark.submit import command
from sluicegate.spark.submit.command import Request, Setting, settings_in
from sluicegate.spark.submit.launcher import find_spark_submit
from sluicegate.spark.submit.preflight import Ready, prepare
from sluicegate.storage import canonical_uri, joined_uri
from sluicegate.stream.output import Publisher, look_at_sink
from sluicegate.stream.snapshot import Snapshot
from sluicegate.stream.spec import INCARNATION, describe, pins_now, refuse_changed
from sluicegate.stream.stream import Stream, open_stream
from sluicegate.stream.verify import verify
from sluicegate.stream.writer import StreamWriter, check_pins

PACKAGE = Path(__file__).parents[2]
_APP = PACKAGE / "job" / "app.py"
_PYTHONS = ("PYSPARK_DRIVER_PYTHON", "PYSPARK_PYTHON")
_PYTHON_SETTINGS = ("spark.pyspark.driver.python", "spark.pyspark.python")
_SHOWN = 3


class StreamDamaged(ProblemsFound):
    """The chain of a stream has findings of severity error."""


@dataclass(frozen=True, slots=True)
class Job:
    """How a stream's job is to be run."""

    available_now: bool = False
    interval: float = 1.0
    force: bool = False
    skip_verify: bool = False


@dataclass(frozen=True, slots=True)
class StreamReady:
    """A stream that can be started: its position, and the number of waiting events, if known."""

    ready: Ready
    head: Snapshot
    waiting: int | None

    def describe(self) -> str:
        """One sentence on what the start will do."""
        waiting = "" if self.waiting is None else f", {self.waiting:,} waiting"
        return (
            f"resumes after epoch {self.head.epoch}, snapshot {self.head.number}: "
            f"{units.events(self.head.sequence)} applied{waiting}"
        )


def prepare_stream(
    named: NamedStream, home: str, config: Path, job: Job, request: Request
) -> StreamReady:
    """Run all checks, the cheapest first; the first problem is raised."""
    describe(named)
    stream = open_stream(joined_uri(canonical_uri(home), named.name), read_only=True)
    head = _head(stream, named)
    pinned = head.pins
    # What the application's own query reads, only Spark knows.
    source = None if is_query(named.source) else open_source(named.source, pinned.get(INCARNATION))
    check_pins(head, pins_now(named, pinned))
    refuse_outside(
        named.source,
        head.positions,
        f"show the available range with: {units.command('offsets', 'lag', named.name)}; "
        f"move the stream with: {units.command('offsets', 'reset', named.name)}",
    )
    if not job.force:
        StreamWriter(stream).refuse_living(head)
    if not job.skip_verify:
        _refuse_damaged(stream)
    if source:
        refuse_changed(source, head)
    if sink := look_at_sink(stream, named.sink):
        Publisher(stream, sink).check()
    own = (*_job_settings(named, home, config, job), *_python(request))
    ready = prepare(replace(request, app=named.app or str(_APP)), own)
    return StreamReady(ready, head, _waiting(source, head) if source else None)


def _waiting(source: Source, head: Snapshot) -> int:
    return lag.total(lag.lags(head.positions, source.latest(), source.earliest()))


def is_elsewhere(request: Request) -> bool:
    """Whether tasks run on other machines, as far as the request and spark-defaults.conf show."""
    master = request.master or _settings(request).get("spark.master", "local")
    return not master.startswith("local")


def write_package(path: Path) -> None:
    """This package as a zip, for machines that do not have it."""
    with ZipFile(path, "w", ZIP_DEFLATED) as archive:
        for file in sorted(PACKAGE.rglob("*.py")):
            archive.write(file, Path(PACKAGE.name) / file.relative_to(PACKAGE))


def _head(stream: Stream, named: NamedStream) -> Snapshot:
    try:
        return stream.chain.head()
    except NotFound as e:
        raise NotFound(
            f"the stream {named.name} has not begun: {e.message}",
            hint=f"begin it with: {units.command('init', '--stream', named.name)}",
        ) from e


def _refuse_damaged(stream: Stream) -> None:
    errors = [f for f in verify(stream).findings if f.severity is Severity.ERROR]
    if not errors:
        return
    listed = "; ".join(f"{f.code} {f.place}: {f.detail}" for f in errors[:_SHOWN])
    more = f"; and {len(errors) - _SHOWN} more" if len(errors) > _SHOWN else ""
    repair = next((f.repair for f in errors if f.repair), None)
    see = units.command("checkpoint", "verify", stream.uri)
    raise StreamDamaged(
        f"{stream.name} is damaged, so its job was not started: {listed}{more}",
        hint=f"{repair or see}; or start it as it is with --skip-verify",
        place=stream.uri,
    )


def _job_settings(named: NamedStream, home: str, config: Path, job: Job) -> Iterator[Setting]:
    yield command.STREAM, named.name
    yield command.HOME, canonical_uri(home)
    yield command.CONFIG, str(config.absolute())
    yield command.INTERVAL, str(job.interval)
    if job.available_now:
        yield command.AVAILABLE_NOW, "true"
    if job.force:
        yield command.FORCE, "true"


def _settings(request: Request) -> dict[str, str]:
    """The settings of Spark; those of the request override spark-defaults.conf."""
    return settings_in(find_spark_submit(request.spark_submit).defaults) | dict(request.conf)


def _python(request: Request) -> Iterator[Setting]:
    """The Python that has this package, unless another one is asked for."""
    settings = _settings(request)
    chosen = any(os.environ.get(name) for name in _PYTHONS)
    if not chosen and not any(name in settings for name in _PYTHON_SETTINGS):
        yield "spark.pyspark.python", sys.executable
