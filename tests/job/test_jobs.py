"""The gated job: what it reads, when it ends, its reports, and takeovers."""

from __future__ import annotations

import json
import threading
from pathlib import Path
from typing import Any

import pytest

from sluicegate.errors import (
    NotFound,
    SluicegateError,
    SplitBrainCommit,
    StorageFailed,
    UsageError,
)
from sluicegate.job.aggregate import SumOverflow
from sluicegate.job.epoch import RecordsRejected
from sluicegate.job.job import StreamJob
from sluicegate.offsets import LockFileOffsetStore
from sluicegate.positions import to_spark
from sluicegate.sources.log.log import Log
from sluicegate.spark.submit import command
from tests.conftest import Sg
from tests.job.jobs import Place
from tests.job.test_epochs import event, traffic
from tests.job.truth import published
from tests.stream.streams import apply


def offsets(store: LockFileOffsetStore) -> Any:
    record = store.load("clicks")
    return to_spark(record.positions)["log"] if record else None


def test_what_is_there_when_it_begins_is_all_it_reads(tmp_path: Path, spark: Any) -> None:
    """In epochs of their size; each is reported when it is published, to the offset store too."""
    place = Place(tmp_path, partitions=1, max_events=100, offsets="offsets").begin()
    store = LockFileOffsetStore.create(str(tmp_path / "offsets"))
    place.append(0, traffic(1, "p", 0, 0, 300))
    count = place.log.end(0)
    ends = [*range(100, count, 100), count]
    seen = []

    def step(name: str) -> None:
        if name in ("committed", "reported"):
            seen.append((name, offsets(store)["0"]))
        if name == "reported":
            place.append(0, [event(1000 + place.head.epoch)])

    place.job(spark).run(step=step)
    assert to_spark(place.head.positions) == {"log": {"0": count}}
    assert place.head.epoch == len(ends)
    starts = [0, *ends[:-1]]
    assert seen == [
        each
        for a, b in zip(starts, ends, strict=True)
        for each in (("committed", a), ("reported", b))
    ]
    # A second one, as an application of one's own begins it, reads what came meanwhile.
    conf = {
        command.STREAM: "clicks",
        command.HOME: str(place.home),
        command.CONFIG: str(place.config),
    }
    for name, value in {**conf, command.AVAILABLE_NOW: "true"}.items():
        spark.conf.set(name, value)
    try:
        StreamJob.from_conf(spark).run(lambda fresh, _epoch: fresh.where("price >= 0"))
    finally:
        for name in (*conf, command.AVAILABLE_NOW):
            spark.conf.unset(name)
    place.check()


def test_it_runs_until_it_is_asked_to_end(tmp_path: Path, spark: Any) -> None:
    """With partitions that are added meanwhile; asked to end, it finishes its epoch."""
    place = Place(tmp_path / "a [b] %20 é", partitions=1, max_events=50).begin()
    place.append(0, [event(n) for n in range(70)])
    job = place.job(spark, available_now=False, interval=0.05)

    def step(name: str) -> None:
        if name == "reported" and place.head.epoch == 2:
            place.log.add_partitions(2)
            place.append(1, [event(n, producer="q") for n in range(500)])
        if name == "computed" and place.head.epoch == 3:
            job.stop()

    job.run(step=step)
    assert place.head.epoch == 4
    assert len(published(place.sink, "data")) == 70 + 2 * 50
    assert to_spark(place.head.positions) == {"log": {"0": 70, "1": 100}}
    assert not (place.home / "clicks" / "runs").exists(), "there is no scratch"
    place.commit_all(spark)
    place.check()


def test_what_it_fails_with_is_reported_in_its_own_words(tmp_path: Path, spark: Any) -> None:
    place = Place(tmp_path, on_reject="fail").begin()
    place.append(1, [event(0), {"user": "x"}])
    with pytest.raises(RecordsRejected, match="1 record cannot be applied: partition 1, offset 1"):
        place.run(spark)


def test_a_sum_that_would_be_infinite_stops_it(tmp_path: Path, spark: Any, sg: Sg) -> None:
    """Until the stream is configured to go on without that sum."""
    aggregates = {"spent": "sum(price)", "mean": "avg(price)"}
    place = Place(tmp_path, columns={"price": "double"}, aggregates=aggregates).begin()
    place.append(0, [{**event(n), "user": "ann", "price": 1.7e308} for n in range(2)])
    place.append(1, [{**event(n), "user": "bob", "price": 1.5, "partition": 1} for n in range(2)])
    with pytest.raises(SumOverflow, match=r"mean of key 'ann' would overflow: price is 1\.7e\+308"):
        place.run(spark)
    assert place.head.epoch == 0
    place.write_config(shards=4, sink="out", on_overflow="null")
    place.run(spark)
    assert place.state() == {
        "ann": {"events": 2, "spent": None, "mean": None},
        "bob": {"events": 2, "spent": 3.0, "mean": 1.5},
    }
    shown = sg("state", "query", "clicks", "ann", "bob", "--json", cwd=tmp_path).stdout
    keys = json.loads(shown, parse_constant=pytest.fail)["keys"]
    assert [each["values"]["spent"] for each in keys] == [None, 3.0]


def test_what_a_killed_job_did_not_tell_the_next_one_does(tmp_path: Path, spark: Any) -> None:
    place = Place(tmp_path, offsets="offsets").begin()
    store = LockFileOffsetStore.create(str(tmp_path / "offsets"))
    place.append(0, [event(n) for n in range(25)])
    place.commit_all(spark)
    assert store.load("clicks") is None
    # There is nothing new to read.
    place.run(spark)
    assert offsets(store) == {"0": 25, "1": 0}
    # Nor was it reported that a rollback has reverted it.
    apply(place.stream, "rollback", to=0)
    starts = []
    place.job(spark).run(step=lambda _: starts.append(offsets(store)))
    assert starts[1] == {"0": 0, "1": 0}
    assert starts[-1] == {"0": 25, "1": 0}
    place.check()


def test_what_is_not_there_costs_no_snapshot(tmp_path: Path, spark: Any) -> None:
    """A job that is started again and again before its disks are mounted."""
    place = Place(tmp_path, offsets="offsets").begin()
    before = place.head.number
    with pytest.raises(NotFound, match="offsets"):
        place.run(spark)
    LockFileOffsetStore.create(str(tmp_path / "offsets"))
    place.append(0, [event(1)])
    place.run(spark)
    after = place.head.number
    assert after > before
    place.sink.rename(tmp_path / "away")
    with pytest.raises(NotFound, match="which has written output"):
        place.run(spark)
    assert place.head.number == after


def test_a_store_that_fails_stops_nothing(
    tmp_path: Path, spark: Any, caplog: pytest.LogCaptureFixture
) -> None:
    place = Place(tmp_path, offsets="offsets").begin()
    LockFileOffsetStore.create(str(tmp_path / "offsets"))
    place.append(0, [event(1)])

    def step(name: str) -> None:
        if name == "planned":
            (tmp_path / "offsets").rename(tmp_path / "gone")

    place.job(spark).run(step=step)
    assert "were not published" in caplog.text
    place.check()


def test_asked_to_end_it_does_not_wait_for_the_next_epoch(tmp_path: Path, spark: Any) -> None:
    place = Place(tmp_path).begin()
    place.append(0, [event(n) for n in range(5)])
    job = place.job(spark, available_now=False, interval=600.0)
    thread = threading.Thread(target=job.run)
    thread.start()
    while place.head.epoch == 0:
        thread.join(0.1)
    job.stop()
    thread.join(30)
    assert not thread.is_alive()
    place.check()


class TestSuperseded:
    @pytest.mark.parametrize("at", ["planned", "ready"])
    def test_while_an_epoch_is_computed(self, tmp_path: Path, spark: Any, at: str) -> None:
        """Its files are cleared away under it, but its error names who took over."""
        place = Place(tmp_path).begin()
        place.append(0, [event(n) for n in range(30)])

        def step(name: str) -> None:
            if name == at:
                place.commit_all(spark, force=True)

        with pytest.raises(SplitBrainCommit):
            place.job(spark).run(step=step)
        place.check()

    def test_whatever_else_fails_then(self, tmp_path: Path, spark: Any) -> None:
        place = Place(tmp_path).begin()
        place.append(0, [event(n) for n in range(30)])

        def step(name: str) -> None:
            if name == "computed":
                place.commit_all(spark, force=True)
                raise StorageFailed("a file is missing")

        with pytest.raises(SplitBrainCommit):
            place.job(spark).run(step=step)
        place.check()

    @pytest.mark.parametrize("interval", [0.1, 600.0])
    def test_while_it_waits(self, tmp_path: Path, spark: Any, interval: float) -> None:
        place = Place(tmp_path).begin()
        job = place.job(spark, available_now=False, interval=interval)
        errors: list[SluicegateError] = []

        def run() -> None:
            try:
                job.run()
            except SluicegateError as e:
                errors.append(e)

        thread = threading.Thread(target=run)
        thread.start()
        while not place.head.writer:
            thread.join(0.1)
        # Nothing comes that it could try to commit.
        with place.claimed(spark, force=True):
            thread.join(30)
        assert not thread.is_alive()
        assert isinstance(errors[0], SplitBrainCommit)


class TestRefused:
    def test_a_table_that_differs(self, tmp_path: Path, spark: Any) -> None:
        place = Place(tmp_path).begin()
        place.write_config(shards=8, sink="out")
        with pytest.raises(UsageError, match="shards of stream clicks was 4"):
            place.run(spark)

    def test_a_log_that_was_replaced(self, tmp_path: Path, spark: Any) -> None:
        place = Place(tmp_path).begin()
        (tmp_path / "log").rename(tmp_path / "old")
        Log.create(str(tmp_path / "log"), partitions=2)
        with pytest.raises(SluicegateError, match="was replaced"):
            place.run(spark)

    def test_without_submit(self, spark: Any) -> None:
        with pytest.raises(NotFound, match="was not started for a stream"):
            StreamJob.from_conf(spark)
