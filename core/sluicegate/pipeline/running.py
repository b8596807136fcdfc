"""The Spark query of a run: its batches are sealed one by one, and it ends between two of them."""

from __future__ import annotations

import logging
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sluicegate.errors import Fenced, NotFound, SluicegateError, error_in
from sluicegate.gate.gate import Run
from sluicegate.positions import Positions
from sluicegate.spark.offset_log import read_offsets
from sluicegate.storage import LocalStorage

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.streaming.query import StreamingQuery

_log = logging.getLogger("sluicegate.pipeline")
_GLANCE = 0.2
_LOOK = 2.0


class _Stopping(Exception):
    """The job was asked to end: no further epoch is begun."""


class Running:
    """What happens while the query of a run is running."""

    def __init__(self, run: Run, seal: Callable[[Positions], None], stop: threading.Event) -> None:
        self._run = run
        self._seal = seal
        self._stop = stop
        self._busy = threading.Lock()
        self._error: BaseException | None = None

    def batch(self, checkpoint: Path) -> Callable[[DataFrame, int], None]:
        """What Spark calls for every micro-batch of a query with this checkpoint."""

        def seal(_frame: DataFrame, number: int) -> None:
            try:
                with self._turn():
                    self._seal(_end_of(checkpoint, number))
            except BaseException as e:
                # Spark would tell of it in its own words only. What came first counts.
                self._error = self._error or e
                raise

        return seal

    def until_its_end(self, start: Callable[[], StreamingQuery]) -> None:
        """Start the query and wait; it ends between epochs, if asked to or if it is overtaken."""
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
                if self._stop.is_set() or self._is_overtaken():
                    query.stop()
            finally:
                self._busy.release()
            looked = time.monotonic()

    def _end(self, query: StreamingQuery) -> None:
        """Let a query not go on that nobody waits for any more."""
        self._stop.set()
        with self._busy:
            query.stop()

    @contextmanager
    def _turn(self) -> Iterator[None]:
        """While an epoch is worked on nobody stops the query; who stops it waits for its thread.

        So a batch that comes just then must not wait in turn.
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

    def _is_overtaken(self) -> bool:
        """Whether this run can never seal again: it need not wait for its next epoch to know."""
        if self._run.stream.chain.head().digest == self._run.link.digest:
            return False
        try:
            self._run.refresh()
        except Fenced as e:
            self._error = e
            self._stop.set()
        return self._stop.is_set()

    def _explain(self) -> None:
        """Raise what a failure came from, if that is known.

        What a run fails with that was taken over is of no interest: others clear away its files.
        """
        try:
            self._run.refresh()
        except Fenced:
            raise
        except SluicegateError as e:
            _log.error("whether another run took over is not known: %s", e.message)
        if self._error is not None and (own := own_error(self._error)):
            raise own from None


def own_error(error: BaseException) -> SluicegateError | None:
    """An error that is ours, also if it came from a task and Spark has put it into its words."""
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
    """Where a micro-batch ends, as Spark wrote it down before it began."""
    entry = read_offsets(LocalStorage(checkpoint), batch)
    positions = entry.offsets[0].positions
    if positions is None:
        raise NotFound(f"batch {batch} of {checkpoint} has no positions")
    return positions
