"""The gated job: claims its stream, and computes, commits and publishes one epoch after the other.

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

import logging
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sluicegate.config import NamedStream, load_config
from sluicegate.errors import ConfigInvalid, Fenced, NotFound, SluicegateError, error_in
from sluicegate.job.epoch import EpochContext, Epochs, Process, Step
from sluicegate.job.progress import EpochReporter
from sluicegate.sources.base import (
    admitted,
    adopted,
    checkpoint_of,
    complete,
    is_query,
    open_source,
)
from sluicegate.spark.submit import command
from sluicegate.storage import joined_uri
from sluicegate.stream.output import Publisher, open_sink
from sluicegate.stream.spec import INCARNATION, describe, pins_now, refuse_changed
from sluicegate.stream.stream import Stream, open_stream
from sluicegate.stream.writer import Run, StreamWriter

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from sluicegate.job.batches import BatchGate


_log = logging.getLogger("sluicegate.job")
_LOOK = 2.0


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
        stream = self._stream()
        head = stream.chain.head()
        source = open_source(named.source, head.pins.get(INCARNATION))
        refuse_changed(source, head)
        reporter = EpochReporter(named, source, self._settings.progress)
        with self._claimed(stream, step) as (run, publisher):
            context = EpochContext(run, source, publisher, describe(named))
            with ending_by_signal(self.stop):
                self._loop(context, reporter, process, step)
            publisher.settle()

    @contextmanager
    def batches(
        self, process: Process | None = None, *, step: Step = lambda _: None
    ) -> Iterator[BatchGate]:
        """What to pass to `foreachBatch`, for the length of a `with` block.

        The stream's source is `query:` and the checkpoint of your streaming query.
        """
        from sluicegate.job.batches import BatchGate

        named = self._settings.stream
        if not is_query(named.source) or not named.stamp:
            raise ConfigInvalid(
                f'streams.{named.name} needs source = "query:CHECKPOINT" and stamp columns',
                hint="name the checkpoint of the streaming query, and the columns of its stamps",
            )
        with self._claimed(self._stream(), step) as (run, publisher):
            checkpoint = checkpoint_of(named.source)
            epochs = partial(Epochs, self._spark, process=process, step=step)
            yield BatchGate(run, publisher, describe(named), checkpoint, epochs)
            publisher.settle()

    def _stream(self) -> Stream:
        place = joined_uri(self._settings.home, self._settings.stream.name)
        return open_stream(place, read_only=False)

    @contextmanager
    def _claimed(self, stream: Stream, step: Step) -> Iterator[tuple[Run, Publisher]]:
        """Claim the stream and its sink; what earlier runs committed is published then."""
        named = self._settings.stream
        pins = pins_now(named, stream.chain.head().pins)
        # Before the claim: a start that is refused must not cost a snapshot at every attempt.
        publisher = Publisher(stream, open_sink(stream, named.sink))
        publisher.check()
        app = self._spark.sparkContext.applicationId
        with StreamWriter(stream).claim(app=app, pins=pins, force=self._settings.force) as run:
            publisher.begin(run)
            step("claimed")
            yield run, publisher

    def stop(self) -> None:
        """Ask the job to end after the epoch it is in."""
        self._stop.set()

    def _loop(
        self,
        context: EpochContext,
        reporter: EpochReporter,
        process: Process | None,
        step: Step,
    ) -> None:
        """One epoch after the other, until all is read or the job is asked to stop."""
        run, source, settings = context.run, context.source, self._settings
        epochs = Epochs(self._spark, context, process, step)
        # A backlog of days must not become one epoch that never ends.
        most = settings.stream.max_events or _MAX_EVENTS
        until = source.latest() if settings.available_now else None
        reporter.start(run)
        while not self._stop.is_set():
            began = time.monotonic()
            try:
                head = run.refresh()
                start = complete(source, head.positions)
                latest = adopted(start, until or source.latest(), head.adopting)
                done = epochs.commit(admitted(start, latest, most))
            except Exception as e:
                self._explain(run, e)
                raise
            if done:
                reporter.report(done)
                step("reported")
            elif until is not None:
                return
            if until is None:
                self._pause(run, began + settings.interval - time.monotonic())

    def _pause(self, run: Run, seconds: float) -> None:
        """Wait for the next epoch; a run that was superseded meanwhile ends at once."""
        ends = time.monotonic() + seconds
        while (left := ends - time.monotonic()) > 0 and not self._stop.wait(min(left, _LOOK)):
            if run.stream.chain.head().digest != run.snapshot.digest:
                run.refresh()

    def _explain(self, run: Run, error: Exception) -> None:
        """Raise the cause of a failure, if that is known.

        After a takeover other errors do not matter: the new writer clears away the files.
        """
        try:
            run.refresh()
        except Fenced:
            raise
        except SluicegateError as e:
            _log.error("cannot check whether another run took over: %s", e.message)
        if own := own_error(error):
            raise own from None
