"""A user's own streaming query drives the epochs: every event once, whatever Spark calls again."""

from __future__ import annotations

import json
import os
import shutil
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import StreamingQueryException

from sluicegate.errors import ConfigInvalid, UsageError
from sluicegate.stream.audit import audit_stream
from sluicegate.stream.journal import StreamJournal
from sluicegate.stream.output import look_at_sink
from tests.conftest import Sg
from tests.job.jobs import NAME, Place
from tests.job.test_epochs import event
from tests.job.truth import Row, published
from tests.stream.streams import apply, operation_of

SCHEMA = "producer string, partition long, seq long, user string, price long"


class Query:
    """A streaming query over a directory of JSON files, which writes through the gate."""

    def __init__(self, root: Path, spark: Any) -> None:
        self.root, self.spark = root, spark
        self.input, self.checkpoint = root / "input", root / "checkpoint"
        self.input.mkdir(parents=True)
        self.place = Place(root, source=f"query:{self.checkpoint}").begin()
        self.sent: list[Row] = []

    def send(self, first: int, count: int) -> None:
        """A file of events: one batch; the last of the file before comes again."""
        rows = [event(number, price=number) for number in range(max(0, first - 1), first + count)]
        text = "".join(json.dumps(row) + "\n" for row in rows)
        (self.input / f"{first:05d}.json").write_text(text)
        self.sent += rows

    def run(self, after: Callable[[int], None] = lambda _: None, **more: Any) -> None:
        """Run until all is read; `after` is called when the gate has returned."""
        frame = self.spark.readStream.schema(SCHEMA).option("maxFilesPerTrigger", 1)
        with self.place.job(self.spark).batches(**more) as gate:

            def batch(rows: Any, number: int) -> None:
                gate(rows, number)
                after(number)

            writer = frame.json(str(self.input)).writeStream.foreachBatch(batch)
            writer = writer.option("checkpointLocation", str(self.checkpoint))
            writer.trigger(availableNow=True).start().awaitTermination()

    def check(self) -> None:
        """Every event is published once, counted once, and the audit has nothing to say."""
        stamps = {row["seq"]: row for row in self.sent}
        found = Counter(row["seq"] for row in published(self.place.sink, "data"))
        assert set(found.values()) <= {1}
        assert found.keys() == stamps.keys()
        spent = sum(row["spent"] for row in self.place.state().values())
        assert spent == sum(row["price"] for row in stamps.values())
        stream = self.place.stream
        findings = audit_stream(stream, look_at_sink(stream, str(self.place.sink))).findings
        assert [each.code for each in findings] == []


@pytest.fixture
def query(tmp_path: Path, spark: Any) -> Query:
    found = Query(tmp_path, spark)
    for first in (0, 10, 20):
        found.send(first, 10)
    return found


class Killed(Exception):
    """The driver dies here."""


@contextmanager
def refused(text: str) -> Iterator[None]:
    with pytest.raises(StreamingQueryException, match=text):
        yield


def at(step: str, batch: int) -> Callable[[str], None]:
    """Die when a step of a batch is reached."""
    count = Counter[str]()

    def reached(name: str) -> None:
        count[name] += 1
        if name == step and count[name] == batch + 1:
            raise Killed(step)

    return reached


def test_batch_after_batch(query: Query) -> None:
    query.run()
    query.check()
    assert query.place.head.epoch == 3
    query.send(30, 5)
    query.run()
    query.check()
    # And nothing more where there is nothing new.
    before = query.place.head.epoch
    query.run()
    assert query.place.head.epoch == before


def test_rows_that_cannot_be_applied_are_kept_aside(query: Query) -> None:
    bad = {"producer": None, "partition": 0, "seq": 1, "user": "u", "price": 5}
    (query.input / "99999.json").write_text(json.dumps(bad) + "\n")
    query.run()
    query.check()
    [row] = published(query.place.sink, "rejects")
    assert row["_reason"] == "it has no stamp"
    assert json.loads(row["_value"])["price"] == 5


@pytest.mark.parametrize("step", ["ready", "committed", "published"])
def test_killed_and_called_again(query: Query, step: str) -> None:
    with pytest.raises(StreamingQueryException):
        query.run(step=at(step, 1))
    query.run()
    query.check()


def test_killed_between_our_commit_and_sparks(query: Query) -> None:
    """Spark calls the batch again, although the stream holds it: it is not applied again."""

    def die(number: int) -> None:
        if number == 1:
            raise Killed

    with pytest.raises(StreamingQueryException):
        query.run(die)
    epochs = query.place.head.epoch
    query.run()
    query.check()
    assert query.place.head.epoch == epochs + 1


def test_a_lost_offsets_file(query: Query) -> None:
    """Spark plans the batch again and takes other files into it: that is not the one we hold."""

    def die(number: int) -> None:
        if number == 2:
            raise Killed

    with pytest.raises(StreamingQueryException):
        query.run(die)
    for log in ("offsets", "sources/0"):
        for path in (query.checkpoint / log).glob("*2*"):
            path.unlink()
    # As it is, it would plan the same again; a file that is older than the others comes first.
    query.send(15, 3)
    an_hour_ago = time.time() - 3600
    os.utime(query.input / "00015.json", (an_hour_ago, an_hour_ago))
    with refused("holds batch 2 of query .* but Spark offers batch 2"):
        query.run()
    assert query.place.head.epoch == 3


def test_a_deleted_checkpoint(query: Query) -> None:
    query.run()
    shutil.rmtree(query.checkpoint)
    with refused("holds batch 2 of query .* but Spark offers batch 0"):
        query.run()
    query.check()


def test_a_rolled_back_chain(query: Query) -> None:
    """The query is ahead of the stream: both have to go back."""
    query.run()
    apply(query.place.stream, "rollback", to=2)
    query.send(30, 5)
    with refused("holds batch 0 .* but Spark offers batch 3"):
        query.run()


def test_a_frame_without_a_column(query: Query) -> None:
    with query.place.job(query.spark).batches() as gate:
        frame = query.spark.readStream.schema(SCHEMA).json(str(query.input)).drop("price")
        writer = frame.writeStream.foreachBatch(gate)
        writer = writer.option("checkpointLocation", str(query.checkpoint))
        with refused("has no column 'price'"):
            writer.trigger(availableNow=True).start().awaitTermination()


def test_a_stream_that_is_not_meant_for_it(tmp_path: Path, spark: Any) -> None:
    place = Place(tmp_path).begin()
    with (
        pytest.raises(ConfigInvalid, match="needs source"),
        place.job(spark).batches(),
    ):
        pass


def test_its_offsets_are_not_ours_to_reset(tmp_path: Path) -> None:
    place = Place(tmp_path, source=f"query:{tmp_path / 'checkpoint'}").begin()
    reset = operation_of("reset", positions=place.head.positions)
    with pytest.raises(UsageError, match="a streaming query of its own feeds clicks"):
        StreamJournal(place.stream).propose(reset)


APP = """
import sluicegate
from pyspark.sql import SparkSession

spark = SparkSession.builder.getOrCreate()
frame = spark.readStream.schema({schema!r}).json({input!r})
with sluicegate.StreamJob.from_conf(spark).batches() as gate:
    writer = frame.writeStream.foreachBatch(gate).option("checkpointLocation", {checkpoint!r})
    writer.trigger(availableNow=True).start().awaitTermination()
"""


def test_submitted(query: Query, sg: Sg, monkeypatch: pytest.MonkeyPatch) -> None:
    """As an operator starts it."""
    monkeypatch.chdir(query.root)
    places = {"input": str(query.input), "checkpoint": str(query.checkpoint)}
    (query.root / "job.py").write_text(APP.format(schema=SCHEMA, **places))
    text = query.place.config.read_text()
    query.place.config.write_text(text + 'app = "job.py"\n')
    done = sg("submit", NAME, "--master", "local[1]")
    assert done.returncode == 0, done.stderr
    query.check()
    assert query.place.head.hooks["query"]["number"] == 0
