"""While a query runs: it is stopped between epochs, and no order of events hides who took over.

The query is a stand-in for Spark's, so that what happens when is not left to chance.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from sluicegate.errors import SplitBrainCommit, StorageFailed
from sluicegate.job import job as running
from sluicegate.job.job import Running
from sluicegate.positions import Positions
from sluicegate.stream.stream import Stream
from sluicegate.stream.writer import Run, StreamWriter
from tests.stream.streams import as_run, made, work

OFFSETS = 'v1\n{"batchWatermarkMs":0,"batchTimestampMs":1,"conf":{}}\n{"log":{"0":7}}'


class QueryFailed(Exception):
    """What Spark makes of an error in a batch."""


class Query:
    """As much of a query as is asked: who stops it waits for its thread."""

    def __init__(self, body: Callable[[], None]) -> None:
        self.error: QueryFailed | None = None
        self.stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, args=(body,))
        self._thread.start()

    def _run(self, body: Callable[[], None]) -> None:
        try:
            body()
        except BaseException as e:  # noqa: BLE001 - as Spark does
            self.error = QueryFailed(str(e))

    def awaitTermination(self, seconds: float) -> bool:  # noqa: N802 - Spark's name
        self._thread.join(seconds)
        if not self._thread.is_alive() and self.error:
            raise self.error
        return not self._thread.is_alive()

    def stop(self) -> None:
        self.stopping.set()
        self._thread.join(10)
        assert not self._thread.is_alive(), "it waits for who waits for it"
        # What a query fails with while it is stopped does not matter.
        self.error = None


def starting(body: Callable[[], None], query: list[Query] | None = None) -> Callable[[], Any]:
    """What starts a query; it is put into a list before its thread looks there."""
    started = threading.Event()

    def begin() -> Query:
        made = Query(lambda: (started.wait(10), body())[1])  # type: ignore[func-returns-value]
        if query is not None:
            query.append(made)
        started.set()
        return made

    return begin


@pytest.fixture
def stream(tmp_path: Path) -> Stream:
    return made(tmp_path / "home")


@pytest.fixture
def checkpoint(tmp_path: Path) -> Path:
    (tmp_path / "checkpoint" / "offsets").mkdir(parents=True)
    (tmp_path / "checkpoint" / "offsets" / "0").write_text(OFFSETS)
    return tmp_path / "checkpoint"


@pytest.fixture
def run(stream: Stream, monkeypatch: pytest.MonkeyPatch) -> Iterator[Run]:
    monkeypatch.setattr(running, "_LOOK", 0.0)
    with StreamWriter(stream).claim(app="job") as claimed:
        yield claimed


class Sealing:
    """What was committed, and what to do meanwhile."""

    def __init__(self, meanwhile: Callable[[], None] = lambda: None) -> None:
        self.ends: list[Positions] = []
        self._meanwhile = meanwhile

    def __call__(self, end: Positions) -> None:
        self._meanwhile()
        self.ends.append(end)


def test_a_batch_is_committed_up_to_where_spark_ends_it(run: Run, checkpoint: Path) -> None:
    committing = Sealing()
    job = Running(run, committing, threading.Event())
    batch: Any = job.batch(checkpoint)
    job.until_its_end(starting(lambda: batch(None, 0)))
    assert committing.ends == [Positions({"log": {0: 7}})]


def test_an_epoch_is_finished_before_the_query_is_stopped(run: Run, checkpoint: Path) -> None:
    stop = threading.Event()

    def meanwhile() -> None:
        stop.set()
        time.sleep(0.5)
        assert not query[0].stopping.is_set()

    committing = Sealing(meanwhile)
    job = Running(run, committing, stop)
    batch: Any = job.batch(checkpoint)
    query: list[Query] = []

    def body() -> None:
        batch(None, 0)
        query[0].stopping.wait(10)

    job.until_its_end(starting(body, query))
    assert len(committing.ends) == 1


def test_a_batch_that_comes_while_the_query_is_stopped(run: Run, checkpoint: Path) -> None:
    """Who stops a query waits for its thread, so that must not wait for who stops it."""
    stop = threading.Event()
    committing = Sealing()
    job = Running(run, committing, stop)
    batch: Any = job.batch(checkpoint)
    query: list[Query] = []

    def body() -> None:
        query[0].stopping.wait(10)
        batch(None, 0)

    stop.set()
    job.until_its_end(starting(body, query))
    assert committing.ends == []


@pytest.mark.parametrize("late", ["nothing", "a batch"])
def test_a_run_that_waits_notices_who_took_over(
    run: Run, stream: Stream, checkpoint: Path, late: str
) -> None:
    """Also if a last batch is refused because it is about to end."""
    committing = Sealing()
    job = Running(run, committing, threading.Event())
    batch: Any = job.batch(checkpoint)
    query: list[Query] = []

    def body() -> None:
        query[0].stopping.wait(10)
        if late == "a batch":
            batch(None, 0)

    work(stream, 1, force=True)
    with pytest.raises(SplitBrainCommit):
        job.until_its_end(starting(body, query))
    assert committing.ends == []


def test_a_batch_that_is_refused_before_it_is_known_who_took_over(
    run: Run, stream: Stream, checkpoint: Path
) -> None:
    """What the query then fails with comes from there, whatever it is."""

    def meanwhile() -> None:
        work(stream, 1, force=True)
        raise StorageFailed("a file is not there any more")

    job = Running(run, Sealing(meanwhile), threading.Event())
    batch: Any = job.batch(checkpoint)
    with pytest.raises(SplitBrainCommit):
        job.until_its_end(starting(lambda: batch(None, 0)))


def test_what_it_fails_with_is_reported_in_its_own_words(run: Run, checkpoint: Path) -> None:
    def meanwhile() -> None:
        raise StorageFailed("the disk is full")

    job = Running(run, Sealing(meanwhile), threading.Event())
    batch: Any = job.batch(checkpoint)
    with pytest.raises(StorageFailed, match="the disk is full"):
        job.until_its_end(starting(lambda: batch(None, 0)))


def test_a_look_that_fails_leaves_no_query_behind(
    run: Run, checkpoint: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is no longer waited for; the epoch it is in is finished first."""
    query: list[Query] = []
    committing = Sealing(lambda: time.sleep(0.5))
    job = Running(run, committing, threading.Event())
    batch: Any = job.batch(checkpoint)

    def look() -> bool:
        raise StorageFailed("the disk went away")

    def body() -> None:
        monkeypatch.setattr(job, "_is_superseded", look)
        batch(None, 0)
        query[0].stopping.wait(10)

    with pytest.raises(StorageFailed, match="the disk went away"):
        job.until_its_end(starting(body, query))
    assert query[0].stopping.is_set()
    assert len(committing.ends) == 1


def test_what_is_wrong_with_spark_is_reported_unchanged(run: Run, stream: Stream) -> None:
    job = Running(run, Sealing(), threading.Event())

    def start() -> Any:
        raise QueryFailed("no such source")

    with pytest.raises(QueryFailed, match="no such source"):
        job.until_its_end(start)
    # Unless another run took over before it began.
    work(stream, 1, force=True)
    with pytest.raises(SplitBrainCommit):
        Running(as_run(stream, run.id, run.snapshot), Sealing(), threading.Event()).until_its_end(
            start
        )
