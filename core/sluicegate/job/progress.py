"""Reporting committed epochs: to an offset store, and to the `submit` that started the job."""

from __future__ import annotations

import logging
import time
from contextlib import suppress

from sluicegate import lag, units
from sluicegate.config import NamedStream
from sluicegate.errors import SluicegateError
from sluicegate.job.epoch import Done
from sluicegate.offsets import Fence, LockFileOffsetStore
from sluicegate.positions import to_spark
from sluicegate.sources.base import Source
from sluicegate.spark.submit.progress import Progress, Reports
from sluicegate.stream.snapshot import Snapshot
from sluicegate.stream.writer import Run

_log = logging.getLogger("sluicegate.job")


class EpochReporter:
    """Reports epochs; errors of a store or of `submit` are logged, not raised.

    A store that does not exist is refused at once.
    """

    def __init__(self, stream: NamedStream, source: Source, progress: str | None) -> None:
        self._stream = stream
        self._run = ""
        self._source = source
        self._reports = Reports(progress)
        self._store = LockFileOffsetStore.open(stream.offsets) if stream.offsets else None

    def start(self, run: Run) -> None:
        """Publish where a run begins: the last one may have died after a commit."""
        self._run = run.id
        self._publish(run.snapshot)

    def report(self, done: Done) -> None:
        """Report an epoch that is committed and published."""
        self._reports.send(self._progress(done, self._publish(done.snapshot)))

    def _publish(self, snapshot: Snapshot) -> str | None:
        """Where the positions of a snapshot were published, if they were."""
        if not self._store:
            return None
        name = self._stream.name
        try:
            self._store.save_many(
                name, snapshot.positions, fence=Fence(snapshot.stream_id, snapshot.number)
            )
        except SluicegateError as e:
            # The epoch is committed; readers of the store are behind until the next one.
            _log.error(
                "the positions of snapshot %d were not published: %s", snapshot.number, e.message
            )
            return None
        return name

    def _progress(self, done: Done, committed: str | None) -> Progress:
        rows = done.counts["read"]
        behind = 0
        with suppress(SluicegateError):
            behind = lag.total(lag.lags(done.snapshot.positions, self._source.latest()))
        return Progress(
            query=self._stream.name,
            id=self._run,
            batch=done.snapshot.epoch,
            rows=rows,
            rows_per_second=round(rows / done.seconds, 1) if done.seconds else 0.0,
            seconds=round(done.seconds, 3),
            at=units.utc(time.time()),
            ends=(to_spark(done.snapshot.positions),),
            committed=committed,
            counts={**done.counts, "lag": behind, "snapshot": done.snapshot.number},
        )
