"""The gated job: claims its stream, runs a Spark query, and commits each of its micro-batches.

Your own application uses it like this:

    import sluicegate

    def process(events, epoch):
        return events.where("price > 0").select("user", "price")

    sluicegate.StreamJob.from_conf(SparkSession.builder.getOrCreate()).run(process)

and is started with `sluicegate submit STREAM`, with `app = "job.py"` in the stream's table.
`process` gets the events of an epoch without duplicates and returns the rows to write, or None.
Its side effects happen at least once: an interrupted epoch is computed again.
"""

from __future__ import annotations

import json
import logging
import shutil
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sluicegate.checkpoint.format.log import read_offsets
from sluicegate.config import NamedStream, load_config
from sluicegate.errors import Fenced, NotFound, SluicegateError, error_in
from sluicegate.job.epoch import EpochContext, Epochs, Process, Step
from sluicegate.job.progress import EpochReporter
from sluicegate.positions import Positions, to_spark
from sluicegate.sources.log import spark as source
from sluicegate.sources.log.log import Log, open_source
from sluicegate.spark.submit import command
from sluicegate.storage import LocalStorage, joined_uri
from sluicegate.stream.output import open_sink
from sluicegate.stream.spec import INCARNATION, describe, pins_now
from sluicegate.stream.stream import open_stream
from sluicegate.stream.writer import Run, StreamWriter

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery


_log = logging.getLogger("sluicegate.job")
_GLANCE = 0.2
_LOOK = 2.0


class _Stopping(Exception):
    """The job was asked to stop: no further epoch is begun."""


class Running:
    """The query of a run while it runs."""

    def __init__(
        self, run: Run, commit: Callable[[Positions], None], stop: threading.Event
    ) -> None:
        self._run = run
        self._commit = commit
        self._stop = stop
        self._busy = threading.Lock()
        self._error: BaseException | None = None

    def batch(self, checkpoint: Path) -> Callable[[DataFrame, int], None]:
        """The function that Spark calls for every micro-batch of a query with this checkpoint."""

        def commit(_frame: DataFrame, number: int) -> None:
            try:
                with self._turn():
                    self._commit(_end_of(checkpoint, number))
            except BaseException as e:
                # Spark would only report it in its own words. The first error counts.
                self._error = self._error or e
                raise

        return commit

    def until_its_end(self, start: Callable[[], StreamingQuery]) -> None:
        """Start the query and wait; it ends between epochs, on request or after a takeover."""
        query = None
        try:
            query = start()
            self._wait(query)
        except Exception:
            if query is not None:
                self._end(query)
            if not isinstance(self._error, _Stopping):
                self._explain()
                raise
        if isinstance(self._error, Fenced):
            raise self._error

    def _wait(self, query: StreamingQuery) -> None:
        looked = time.monotonic()
        while not query.awaitTermination(_GLANCE):  # type: ignore[arg-type]
            looks = time.monotonic() - looked > _LOOK
            if not (self._stop.is_set() or looks) or not self._busy.acquire(blocking=False):
                continue
            try:
                if self._stop.is_set() or self._is_superseded():
                    query.stop()
            finally:
                self._busy.release()
            looked = time.monotonic()

    def _end(self, query: StreamingQuery) -> None:
        """Stop a query that is no longer waited for."""
        self._stop.set()
        with self._busy:
            query.stop()

    @contextmanager
    def _turn(self) -> Iterator[None]:
        """While an epoch is computed the query is not stopped; stopping waits for its thread.

        So a batch that starts just then must not wait in turn.
        """
        while True:
            if self._stop.is_set():
                raise _Stopping
            if self._busy.acquire(timeout=_GLANCE):
                break
        try:
            yield
        finally:
            self._busy.release()

    def _is_superseded(self) -> bool:
        """Whether this run can never commit again; known before its next epoch."""
        if self._run.stream.chain.head().digest == self._run.snapshot.digest:
            return False
        try:
            self._run.refresh()
        except Fenced as e:
            self._error = e
            self._stop.set()
        return self._stop.is_set()

    def _explain(self) -> None:
        """Raise the cause of a failure, if that is known.

        After a takeover other errors do not matter: the new writer clears away the files.
        """
        try:
            self._run.refresh()
        except Fenced:
            raise
        except SluicegateError as e:
            _log.error("cannot check whether another run took over: %s", e.message)
        if self._error is not None and (own := own_error(self._error)):
            raise own from None


def own_error(error: BaseException) -> SluicegateError | None:
    """An error of our own, also if it came from a task and Spark has wrapped it."""
    return error if isinstance(error, SluicegateError) else error_in(str(error))


@contextmanager
def ending_by_signal(stop: Callable[[], object]) -> Iterator[None]:
    """SIGTERM and SIGINT ask the job to end, as long as the block lasts."""
    before: dict[int, Any] = {}
    if threading.current_thread() is threading.main_thread():
        for number in (signal.SIGTERM, signal.SIGINT):
            before[number] = signal.signal(number, lambda *_: stop())
    try:
        yield
    finally:
        for each, handler in before.items():
            signal.signal(each, handler)


def _end_of(checkpoint: Path, batch: int) -> Positions:
    """Where a micro-batch ends, as Spark recorded before it began."""
    entry = read_offsets(LocalStorage(checkpoint), batch)
    positions = entry.offsets[0].positions
    if positions is None:
        raise NotFound(f"batch {batch} of {checkpoint} has no positions")
    return positions


_MAX_EVENTS = 5_000_000


@dataclass(frozen=True, slots=True)
class Settings:
    """How a stream's job is to run."""

    stream: NamedStream
    home: str
    available_now: bool = False
    interval: float = 1.0
    force: bool = False
    progress: str | None = None


class StreamJob:
    """A gated stream as an application runs it."""

    def __init__(self, spark: SparkSession, settings: Settings) -> None:
        self._spark = spark
        self._settings = settings
        self._stop = threading.Event()

    @classmethod
    def from_conf(cls, spark: SparkSession) -> StreamJob:
        """The stream that `sluicegate submit` started this application for."""
        name = spark.conf.get(command.STREAM, None)
        home = spark.conf.get(command.HOME, None)
        path = spark.conf.get(command.CONFIG, None)
        if not name or not home or not path:
            raise NotFound(
                "this application was not started for a stream",
                hint="start it with: sluicegate submit STREAM",
            )
        config = load_config(Path(path))
        if name not in config.streams:
            raise NotFound(f"{path} has no [streams.{name}]")
        settings = Settings(
            stream=config.streams[name],
            home=home,
            available_now=spark.conf.get(command.AVAILABLE_NOW, None) == "true",
            interval=float(spark.conf.get(command.INTERVAL, None) or 1.0),
            force=spark.conf.get(command.FORCE, None) == "true",
            progress=spark.conf.get(command.PROGRESS, None),
        )
        return cls(spark, settings)

    def run(self, process: Process | None = None, *, step: Step = lambda _: None) -> None:
        """Run until all is read, or until it is asked to stop; SIGTERM ends it between epochs."""
        named = self._settings.stream
        description = describe(named)
        stream = open_stream(joined_uri(self._settings.home, named.name), read_only=False)
        pinned = stream.chain.head().pins
        log = open_source(named.source, pinned.get(INCARNATION))
        pins = pins_now(named, pinned)
        # Before the claim: a missing sink must not cost a snapshot at every attempt.
        sink = open_sink(stream, named.sink)
        reporter = EpochReporter(named, log, self._settings.progress)
        app = self._spark.sparkContext.applicationId
        with StreamWriter(stream).claim(app=app, pins=pins, force=self._settings.force) as run:
            sink.settle()
            sink.clear(run)
            step("claimed")
            context = EpochContext(run, log, sink, description)
            with _scratch(run) as scratch:
                self._run_query(context, reporter, process, scratch / "checkpoint", step)
            sink.settle()

    def stop(self) -> None:
        """Ask the job to end after the epoch it is in."""
        self._stop.set()

    def _run_query(
        self,
        context: EpochContext,
        reporter: EpochReporter,
        process: Process | None,
        checkpoint: Path,
        step: Step,
    ) -> None:
        run = context.run
        epochs = Epochs(self._spark, context, process, step)
        reporter.start(run)

        def commit(end: Positions) -> None:
            if done := epochs.commit(end):
                reporter.report(done)
                step("reported")

        self._spark.dataSource.register(source.LogSource)
        running = Running(run, commit, self._stop)
        with ending_by_signal(self.stop):
            batch = running.batch(checkpoint)
            running.until_its_end(lambda: self._start(run, context.source, checkpoint, batch))

    def _start(self, run: Run, log: Log, checkpoint: Path, batch: Any) -> StreamingQuery:
        settings = self._settings
        starting = json.dumps(to_spark(run.snapshot.positions))
        reader = self._spark.readStream.format(source.NAME).option(source.PATH, log.uri)
        reader = reader.option(source.STARTING, starting)
        # A backlog of days must not become one epoch that never ends.
        most = settings.stream.max_events or _MAX_EVENTS
        reader = reader.option(source.MAX_EVENTS, str(most))
        writer = reader.load().writeStream.queryName(settings.stream.name).foreachBatch(batch)
        # With its scheme: the default file system of the cluster may be another.
        writer = writer.option("checkpointLocation", f"file://{checkpoint}")
        if settings.available_now:
            writer = writer.trigger(availableNow=True)
        else:
            writer = writer.trigger(processingTime=f"{settings.interval} seconds")
        return writer.start()


@contextmanager
def _scratch(run: Run) -> Iterator[Path]:
    """The directory that Spark may use during a run; those of earlier runs are removed."""
    everything = run.stream.storage.local_path("runs")
    assert everything
    run.refresh()
    # Also that of a superseded run that does not know it yet: it cannot commit any more.
    shutil.rmtree(everything, ignore_errors=True)
    try:
        yield everything / run.id
    finally:
        shutil.rmtree(everything / run.id, ignore_errors=True)
