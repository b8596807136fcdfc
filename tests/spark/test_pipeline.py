"""The application's side, without Spark: where to start, what is committed, what is reported."""

from __future__ import annotations

import json
import logging
import os
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from uuid import UUID

import pytest

import sluicegate
from sluicegate.errors import NotFound
from sluicegate.job.listener import OffsetsListener, end_positions
from sluicegate.offsets import Fence, LockFileOffsetStore
from sluicegate.positions import to_spark
from sluicegate.spark.submit import command
from sluicegate.spark.submit.progress import Progress, ProgressPipe, Reports

ONE, TWO = UUID(int=1), UUID(int=2)


def session(**conf: str) -> Any:
    """As much of a Spark session as is asked."""
    added: list[Any] = []
    values = {command.PREFIX + name: value for name, value in conf.items()}
    streams = SimpleNamespace(addListener=added.append)
    return SimpleNamespace(conf=values, streams=streams, added=added)


def finished(batch: int, *ends: str | None, name: str | None = "orders", id: UUID = ONE) -> Any:
    """The event that Spark sends after a batch."""
    progress = SimpleNamespace(
        name=name,
        id=id,
        batchId=batch,
        numInputRows=3,
        processedRowsPerSecond=float("nan"),
        batchDuration=250,
        durationMs={"addBatch": 200},
        timestamp="2026-11-16T08:00:00Z",
        sources=[SimpleNamespace(endOffset=end) for end in ends],
    )
    return SimpleNamespace(progress=progress)


def at(offset: int, partition: int = 0) -> str:
    return json.dumps({"events": {str(partition): offset}})


class TestStartingOffsets:
    def test_are_what_submit_was_given(self) -> None:
        text = '{"orders":{"0":41}}'
        assert sluicegate.starting_offsets(session(startingOffsets=text)) == text

    def test_of_a_new_consumer(self) -> None:
        spark = session(consumer="fresh")
        assert sluicegate.starting_offsets(spark) == "earliest"
        assert sluicegate.starting_offsets(spark, new_consumer="latest") == "latest"

    def test_for_the_partitions_there_are_now(self) -> None:
        spark = session(startingOffsets='{"gone":{"0":1},"orders":{"0":41,"2":7}}')
        text = sluicegate.starting_offsets(spark, partitions={"orders": 2, "new": 1})
        assert json.loads(text) == {"orders": {"0": 41, "1": -2}, "new": {"0": -2}}

    def test_without_submit(self) -> None:
        with pytest.raises(NotFound, match="starting offsets are missing") as e:
            sluicegate.starting_offsets(session())
        assert "sluicegate submit" in e.value.hint


class TestCommits:
    @pytest.fixture
    def store(self, tmp_path: Path) -> LockFileOffsetStore:
        return LockFileOffsetStore.create(str(tmp_path / "store"))

    def listen(self, store: LockFileOffsetStore, **conf: str) -> OffsetsListener:
        listener = sluicegate.commit_offsets(session(offsetsStore=store.uri, **conf))
        assert isinstance(listener, OffsetsListener)
        return listener

    def positions(self, store: LockFileOffsetStore, consumer: str) -> Any:
        record = store.load(consumer)
        return to_spark(record.positions) if record else None

    def test_go_to_the_consumer_called_like_the_query(self, store: LockFileOffsetStore) -> None:
        listener = self.listen(store)
        listener.onQueryProgress(finished(0, at(5), at(7, 1)))
        assert self.positions(store, "orders") == {"events": {"0": 5, "1": 7}}
        record = store.load("orders")
        assert record
        assert record.fences == (Fence(str(ONE), 0),)

    def test_go_elsewhere_if_said_so(self, store: LockFileOffsetStore) -> None:
        spark = session(offsetsStore=store.uri)
        listener = sluicegate.commit_offsets(spark, consumers={"orders": "billing"})
        assert spark.added == [listener]
        listener.onQueryProgress(finished(0, at(5)))
        assert store.list() == ["billing"]

    def test_of_a_query_without_a_name(self, store: LockFileOffsetStore) -> None:
        listener = self.listen(store, consumer="billing")
        listener.onQueryProgress(finished(0, at(5), name=None))
        # A second one would overwrite the first one's positions.
        listener.onQueryProgress(finished(0, at(9), name=None, id=TWO))
        assert self.positions(store, "billing") == {"events": {"0": 5}}

    def test_nothing_new_costs_nothing(self, store: LockFileOffsetStore) -> None:
        listener = self.listen(store)
        for batch in range(3):
            listener.onQueryProgress(finished(batch, at(5)))
        record = store.load("orders")
        assert record
        assert record.sequence == 1

    def test_what_comes_late_is_refused(
        self, store: LockFileOffsetStore, caplog: pytest.LogCaptureFixture
    ) -> None:
        listener = self.listen(store)
        listener.onQueryProgress(finished(7, at(50)))
        listener.onQueryProgress(finished(6, at(40)))
        assert self.positions(store, "orders") == {"events": {"0": 50}}
        assert "batch 6 of query orders was not committed" in caplog.text

    def test_other_sources_are_left_out(self, store: LockFileOffsetStore) -> None:
        listener = self.listen(store)
        listener.onQueryProgress(finished(0, '{"logOffset":3}', None, "7", "not json"))
        assert store.list() == []
        assert to_spark(end_positions([at(9), at(4), None])) == {"events": {"0": 4}}

    def test_no_error_reaches_spark(
        self, store: LockFileOffsetStore, tmp_path: Path, caplog: pytest.LogCaptureFixture
    ) -> None:
        listener = self.listen(store)
        (tmp_path / "store" / "sluicegate.store").unlink()
        listener.onQueryProgress(finished(0, at(5)))
        listener.onQueryProgress(SimpleNamespace())  # type: ignore[arg-type]
        assert len(caplog.records) == 2
        assert all(record.levelno == logging.ERROR for record in caplog.records)

    def test_a_query_of_another_name_is_warned_of(
        self, store: LockFileOffsetStore, caplog: pytest.LogCaptureFixture
    ) -> None:
        listener = self.listen(store, consumer="billing")
        event: Any = SimpleNamespace(name="orders", id=ONE)
        listener.onQueryStarted(event)
        assert "was started with the positions of billing" in caplog.text

    def test_nowhere_to_commit_to(self) -> None:
        with pytest.raises(NotFound, match="no offset store"):
            sluicegate.commit_offsets(session())
        with pytest.raises(NotFound):
            sluicegate.commit_offsets(session(offsetsStore="/nowhere"))


class TestReports:
    def test_are_read_by_submit(self, tmp_path: Path) -> None:
        store = LockFileOffsetStore.create(str(tmp_path / "store"))
        with ProgressPipe() as pipe:
            listener = sluicegate.commit_offsets(
                session(offsetsStore=store.uri, progress=str(pipe.path))
            )
            listener.onQueryProgress(finished(4, at(5)))
            [progress] = pipe.read(1)
        assert (progress.query, progress.batch, progress.rows) == ("orders", 4, 3)
        assert (progress.seconds, progress.rows_per_second) == (0.25, 0.0)
        assert progress.ends == ({"events": {"0": 5}},)
        assert progress.committed == "orders"

    def test_no_reader(self, tmp_path: Path) -> None:
        done = Progress("q", "id", 0, 0, 0, 0, "now")
        Reports(str(tmp_path / "none")).send(done)
        os.mkfifo(tmp_path / "pipe")
        Reports(str(tmp_path / "pipe")).send(done)
        with ProgressPipe() as pipe:
            reports = Reports(str(pipe.path))
            # Full after a while; what does not fit is lost, and the next complete line is read.
            for batch in range(24):
                reports.send(Progress("q" * 4000, "id", batch, 0, 0, 0, "now"))
            assert 0 < len(pipe.read(0)) < 24
            reports.send(done)
            assert pipe.read(1)[-1] == done
        reports.send(done)
        assert not reports.is_open


def test_no_such_attribute() -> None:
    with pytest.raises(AttributeError):
        _ = sluicegate.nothing
