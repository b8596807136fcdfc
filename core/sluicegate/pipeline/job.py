"""The gated job: claims its stream, runs a Spark query, and seals each of its micro-batches.

An application of your own gets at it like this:

    import sluicegate

    def process(events, epoch):
        return events.where("price > 0").select("user", "price")

    sluicegate.Gate.from_conf(SparkSession.builder.getOrCreate()).run(process)

and is started with `sluicegate submit STREAM`, with `app = "job.py"` in the stream's table.
`process` gets the events of an epoch without duplicates and gives what is to be written, or None.
What it does besides is done at least once: an epoch that is interrupted is computed again.
"""

from __future__ import annotations

import json
import logging
import shutil
import signal
import threading
import time
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sluicegate import lag, units
from sluicegate.config import NamedStream, load_config
from sluicegate.errors import NotFound, SluicegateError
from sluicegate.gate.description import describe
from sluicegate.gate.gate import Gate as Links
from sluicegate.gate.gate import Run
from sluicegate.gate.output import open_sink
from sluicegate.gate.source import INCARNATION, pins_now
from sluicegate.gate.stream import open_stream
from sluicegate.log.log import Log
from sluicegate.log.source import open_source
from sluicegate.offsets import Fence, LockFileOffsetStore
from sluicegate.pipeline import source
from sluicegate.pipeline.epochs import Done, Epochs, Gated, Process, Step
from sluicegate.pipeline.reports import Reports
from sluicegate.positions import Positions, to_spark
from sluicegate.spark.offset_log import read_offsets
from sluicegate.spark.submit import keys
from sluicegate.spark.submit.progress import Progress
from sluicegate.storage import LocalStorage, local_root

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

_log = logging.getLogger("sluicegate.pipeline")
_GLANCE = 0.2
_MAX_EVENTS = 5_000_000


class _Stopping(Exception):
    """The job was asked to end: no further epoch is begun."""


@dataclass(frozen=True, slots=True)
class Settings:
    """How a stream's job is to run."""

    stream: NamedStream
    home: str
    available_now: bool = False
    interval: float = 1.0
    force: bool = False
    progress: str | None = None


class Gate:
    """A gated stream as an application runs it."""

    def __init__(self, spark: SparkSession, settings: Settings) -> None:
        self._spark = spark
        self._settings = settings
        self._stop = threading.Event()
        self._busy = threading.Lock()
        self._error: BaseException | None = None

    @classmethod
    def from_conf(cls, spark: SparkSession) -> Gate:
        """The stream that `sluicegate submit` started this application for."""
        name = spark.conf.get(keys.STREAM, None)
        home = spark.conf.get(keys.HOME, None)
        path = spark.conf.get(keys.CONFIG, None)
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
            available_now=spark.conf.get(keys.AVAILABLE_NOW, None) == "true",
            interval=float(spark.conf.get(keys.INTERVAL, None) or 1.0),
            force=spark.conf.get(keys.FORCE, None) == "true",
            progress=spark.conf.get(keys.PROGRESS, None),
        )
        return cls(spark, settings)

    def run(self, process: Process | None = None, *, step: Step = lambda _: None) -> None:
        """Run until all is read, or until it is asked to end; SIGTERM ends it between epochs."""
        named = self._settings.stream
        description = describe(named)
        stream = open_stream(str(local_root(self._settings.home) / named.name), read_only=False)
        links = Links(stream)
        pinned = stream.chain.head().pins
        log = open_source(named.source, pinned.get(INCARNATION))
        pins = pins_now(named, pinned)
        app = self._spark.sparkContext.applicationId
        with links.claim(app=app, pins=pins, force=self._settings.force) as run:
            sink = open_sink(stream, named.sink)
            sink.settle()
            sink.clear()
            step("claimed")
            gated = Gated(run, log, sink, description)
            epochs = Epochs(self._spark, gated, process, step)
            scratch = Path(stream.uri) / "runs" / run.id
            try:
                self._run_query(run, log, epochs, scratch, step)
            finally:
                shutil.rmtree(scratch, ignore_errors=True)
            sink.settle()

    def stop(self) -> None:
        """Ask the job to end after the epoch it is in."""
        self._stop.set()

    def _run_query(self, run: Run, log: Log, epochs: Epochs, scratch: Path, step: Step) -> None:
        told = _Told(self._settings, run, log, step)
        checkpoint = scratch / "checkpoint"

        def batch(_frame: DataFrame, number: int) -> None:
            with self._busy:
                try:
                    self._refuse_stopped()
                    if done := epochs.seal(_end_of(checkpoint, number)):
                        told.of(done)
                except BaseException as e:
                    # Spark would tell of it in its own words only.
                    self._error = e
                    raise

        self._spark.dataSource.register(source.LogSource)
        with _Signals(self.stop):
            query = self._start(run, log, checkpoint, batch)
            self._wait(query)

    def _start(self, run: Run, log: Log, checkpoint: Path, batch: Any) -> StreamingQuery:
        settings = self._settings
        starting = json.dumps(to_spark(run.link.positions))
        reader = self._spark.readStream.format(source.NAME).option(source.PATH, log.uri)
        reader = reader.option(source.STARTING, starting)
        # A backlog of days must not become one epoch that never ends.
        most = settings.stream.max_events or _MAX_EVENTS
        reader = reader.option(source.MAX_EVENTS, str(most))
        writer = reader.load().writeStream.queryName(settings.stream.name).foreachBatch(batch)
        writer = writer.option("checkpointLocation", str(checkpoint))
        if settings.available_now:
            writer = writer.trigger(availableNow=True)
        else:
            writer = writer.trigger(processingTime=f"{settings.interval} seconds")
        return writer.start()

    def _wait(self, query: StreamingQuery) -> None:
        """Until the query ends; between epochs if it is asked to."""
        try:
            while not query.awaitTermination(_GLANCE):  # type: ignore[arg-type]
                if self._stop.is_set() and self._busy.acquire(blocking=False):
                    try:
                        query.stop()
                    finally:
                        self._busy.release()
        except Exception:
            if isinstance(self._error, _Stopping):
                return
            if isinstance(self._error, SluicegateError):
                raise self._error from None
            raise

    def _refuse_stopped(self) -> None:
        if self._stop.is_set():
            raise _Stopping


class _Signals:
    """SIGTERM and SIGINT ask the job to end, as long as the block lasts."""

    def __init__(self, stop: Any) -> None:
        self._stop = stop
        self._before: dict[int, Any] = {}

    def __enter__(self) -> None:
        if threading.current_thread() is threading.main_thread():
            for number in (signal.SIGTERM, signal.SIGINT):
                self._before[number] = signal.signal(number, lambda *_: self._stop())

    def __exit__(self, *_: object) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)


class _Told:
    """Those who hear of a sealed epoch: an offset store, and the `submit` that started the job."""

    def __init__(self, settings: Settings, run: Run, log: Log, step: Step) -> None:
        self._settings = settings
        self._run = run
        self._source = log
        self._step = step
        self._reports = Reports(settings.progress)
        place = settings.stream.offsets
        self._store = LockFileOffsetStore.open(place) if place else None

    def of(self, done: Done) -> None:
        link = done.link
        committed = None
        if self._store:
            fence = Fence(link.stream_id, link.number)
            try:
                self._store.save_many(self._settings.stream.name, link.positions, fence=fence)
                committed = self._settings.stream.name
            except SluicegateError as e:
                # The epoch is sealed; whoever follows the store is behind until the next one.
                _log.error(
                    "the positions of epoch %d were not published: %s", link.epoch, e.message
                )
        self._reports.send(self._progress(done, committed))
        self._step("told")

    def _progress(self, done: Done, committed: str | None) -> Progress:
        rows = done.counts["read"]
        behind = 0
        with suppress(SluicegateError):
            behind = lag.total(lag.lags(done.link.positions, self._source.latest()))
        return Progress(
            query=self._settings.stream.name,
            id=self._run.id,
            batch=done.link.epoch,
            rows=rows,
            rows_per_second=round(rows / done.seconds, 1) if done.seconds else 0.0,
            seconds=round(done.seconds, 3),
            at=units.utc(time.time()),
            ends=(to_spark(done.link.positions),),
            committed=committed,
            counts={**done.counts, "lag": behind, "link": done.link.number},
        )


def _end_of(checkpoint: Path, batch: int) -> Positions:
    """Where a micro-batch ends, as Spark wrote it down before it began."""
    entry = read_offsets(LocalStorage(checkpoint), batch)
    positions = entry.offsets[0].positions
    if positions is None:
        raise NotFound(f"batch {batch} of {checkpoint} has no positions")
    return positions
