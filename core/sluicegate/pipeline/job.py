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
import shutil
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sluicegate.config import NamedStream, load_config
from sluicegate.errors import NotFound
from sluicegate.gate.description import describe
from sluicegate.gate.gate import Gate as Links
from sluicegate.gate.gate import Run
from sluicegate.gate.sink import open_sink
from sluicegate.gate.source import INCARNATION, pins_now
from sluicegate.gate.stream import open_stream
from sluicegate.log.log import Log
from sluicegate.log.source import open_source
from sluicegate.pipeline import source
from sluicegate.pipeline.epochs import Epochs, Gated, Process, Step
from sluicegate.pipeline.running import Running, ending_by_signal
from sluicegate.pipeline.telling import Telling
from sluicegate.positions import Positions, to_spark
from sluicegate.spark.submit import keys
from sluicegate.storage import local_root

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

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


class Gate:
    """A gated stream as an application runs it."""

    def __init__(self, spark: SparkSession, settings: Settings) -> None:
        self._spark = spark
        self._settings = settings
        self._stop = threading.Event()

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
        pinned = stream.chain.head().pins
        log = open_source(named.source, pinned.get(INCARNATION))
        pins = pins_now(named, pinned)
        # What is not there must not cost a link at every try.
        sink = open_sink(stream, named.sink)
        telling = Telling(named, log, self._settings.progress)
        app = self._spark.sparkContext.applicationId
        with Links(stream).claim(app=app, pins=pins, force=self._settings.force) as run:
            sink.settle()
            sink.clear(run)
            step("claimed")
            gated = Gated(run, log, sink, description)
            with _scratch(run) as scratch:
                self._run_query(gated, telling, process, scratch / "checkpoint", step)
            sink.settle()

    def stop(self) -> None:
        """Ask the job to end after the epoch it is in."""
        self._stop.set()

    def _run_query(
        self,
        gated: Gated,
        telling: Telling,
        process: Process | None,
        checkpoint: Path,
        step: Step,
    ) -> None:
        run = gated.run
        epochs = Epochs(self._spark, gated, process, step)
        telling.start(run)

        def seal(end: Positions) -> None:
            if done := epochs.seal(end):
                telling.of(done)
                step("told")

        self._spark.dataSource.register(source.LogSource)
        running = Running(run, seal, self._stop)
        with ending_by_signal(self.stop):
            batch = running.batch(checkpoint)
            running.until_its_end(lambda: self._start(run, gated.source, checkpoint, batch))

    def _start(self, run: Run, log: Log, checkpoint: Path, batch: Any) -> StreamingQuery:
        settings = self._settings
        starting = json.dumps(to_spark(run.link.positions))
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
    """The directory that Spark may use during a run; what runs before left behind goes away."""
    everything = run.stream.storage.local_path("runs")
    assert everything
    run.refresh()
    # Also that of a run that was deposed and does not know it yet: it can seal no more.
    shutil.rmtree(everything, ignore_errors=True)
    try:
        yield everything / run.id
    finally:
        shutil.rmtree(everything / run.id, ignore_errors=True)
