"""The gated job against the same job without dedup, and against Spark's own `dropDuplicates`.

One input for all: events of many producers with retries and gaps, in an embedded log. Ours with and
without dedup is the job itself, epoch by epoch. Spark's reads the same log through the same source,
parses with `from_json`, drops duplicates in RocksDB with changelog checkpoints, and sums up in
`foreachBatch`; its peer does the same without dropping.
"""

from __future__ import annotations

import os
import shutil
import statistics
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from harness import Bar, Row, compare
from log_source import MAX_EVENTS, LogSource

from sluicegate.config import NamedStream
from sluicegate.dedup.ledger import Ledger
from sluicegate.dedup.stamp import Column, Stamps
from sluicegate.job.epoch import EpochContext, Epochs
from sluicegate.job.records import Shape, parse
from sluicegate.journal import Approval
from sluicegate.positions import Positions
from sluicegate.process import myself
from sluicegate.sources.log.log import Log
from sluicegate.sources.log.writer import LogWriter
from sluicegate.storage import LocalStorage
from sluicegate.stream import home as homes
from sluicegate.stream import segments
from sluicegate.stream.append import Epoch
from sluicegate.stream.operations.begin import begin
from sluicegate.stream.output import Publisher, open_sink
from sluicegate.stream.spec import describe
from sluicegate.stream.stream import open_stream
from sluicegate.stream.writer import Run, StreamWriter

EVENTS, EPOCHS, PARTITIONS = 4_000_000, 8, 2
PRODUCERS, USERS = 1_000, 100_000
RETRIES, GAPS = 0.1, 0.01
SMALL, SMALL_EPOCHS = 2_000, 300
STORED = 1_000_000
HISTORY = 4_000_000
ROUNDS = 4
_TABLE = NamedStream(
    "bench",
    "",
    ("producer", "partition", "seq"),
    "user",
    64,
    {"price": "long"},
    {"n": "count", "spent": "sum(price)"},
)
_JOBS: dict[str, dict[str, Any]] = {
    "plain": {"deduplicates": False},
    "ours": {},
    "short": {"history": HISTORY},
    "long": {"history": 5 * HISTORY},
}
_JSON = "producer STRING, partition BIGINT, seq BIGINT, user STRING, price BIGINT"


def rows() -> Iterator[Row]:
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    with tempfile.TemporaryDirectory(prefix="sluicegate-bench-") as scratch:
        spark = _spark(Path(scratch))
        try:
            yield from _throughput(spark, Path(scratch))
            yield from _storage(spark, Path(scratch))
            yield from _long_runs(spark, Path(scratch))
        finally:
            spark.stop()


def _throughput(spark: Any, root: Path) -> Iterator[Row]:
    log = _write_log(root / "log", EVENTS, GAPS)
    rounds: dict[str, list[list[float]]] = {}
    for number in range(ROUNDS + 1):
        for name, how in _JOBS.items():
            rounds.setdefault(name, []).append(_ours(spark, log, root / f"{name}-{number}", **how))
    # The first round starts Python workers and compiles; it is not counted. Of each epoch the
    # fastest is: what else a machine does only adds, and more than there is to measure here.
    fastest = {name: float(np.min(times[1:], axis=0).sum()) for name, times in rounds.items()}
    without, with_it = fastest["plain"], fastest["ours"]
    bar = Bar("rate at least", 0.75)
    ratio = without / with_it
    yield Row(
        "gated job / without dedup, throughput", with_it, without, ratio, str(bar), bar.met(ratio)
    )
    theirs = {drop: _spark_alone(spark, log, root / f"spark-{drop}", drop=drop) for drop in (0, 1)}
    added, their_added = with_it - without, theirs[1] - theirs[0]
    yield _row("time that dedup adds / dropDuplicates adds", added, their_added, 1 / 3)
    yield _row("job after 5× the history / after 1×", fastest["long"], fastest["short"], 1.1)
    yield _judging(log)


def _judging(log: Log) -> Row:
    """What dedup adds to a task, alone: the stamps of an epoch, on top of what was seen before."""
    read = pa.concat_tables(
        parse(each.data, 0, each.first, _shape()).rows
        for each in log.read(0, 0, log.end(0) // EPOCHS)
    )
    stamps = Stamps.of(*(read[name] for name in _TABLE.stamp))
    short, long = _history(HISTORY), _history(5 * HISTORY)
    return compare(
        "classifier an epoch's stamps after 5× the history / 1×",
        lambda: long.fork().insert(stamps),
        lambda: short.fork().insert(stamps),
        Bar("time at most", 1.3),
    )


def _shape() -> Shape:
    description = describe(_TABLE)
    return Shape(description.columns, description.stamp, description.key)


def _storage(spark: Any, root: Path) -> Iterator[Row]:
    for gaps in (0.0, 0.01, 0.1):
        log = _write_log(root / f"log-{gaps}", STORED, gaps)
        place = root / f"stored-{gaps}"
        _ours(spark, log, place)
        head = open_stream(str(place / "bench"), read_only=True).chain.head()
        ours = sum(ref.size for ref in head.dedup.refs)
        _spark_alone(spark, log, root / f"spark-{gaps}", drop=1)
        theirs = _size(root / f"spark-{gaps}" / "state")
        bar = Bar("time at most", 0.1)
        title = f"dedup log / state store, {gaps:.0%} gaps"
        yield Row(title, ours, theirs, ours / theirs, str(bar), ours <= 0.1 * theirs, "bytes")


def _long_runs(spark: Any, root: Path) -> Iterator[Row]:
    log = _write_log(root / "small", SMALL * SMALL_EPOCHS, GAPS)
    with _job(spark, log, root / "epochs") as job:
        times = [job.commit(n * SMALL // PARTITIONS) for n in range(1, SMALL_EPOCHS + 1)]
    # 17 epochs each, so that both have one fold of the manifests in them.
    late, early = statistics.mean(times[-17:]), statistics.mean(times[3:20])
    yield _row("epoch 300 / epoch 10, compaction included", late, early, 1.3)


def _row(name: str, ours: float, peer: float, limit: float) -> Row:
    bar = Bar("time at most", limit)
    ratio = bar.ratio(max(ours, 1e-9), max(peer, 1e-9))
    return Row(name, max(ours, 1e-9), max(peer, 1e-9), ratio, str(bar), bar.met(ratio))


def _spark(root: Path) -> Any:
    from pyspark.sql import SparkSession

    provider = "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
    settings = {
        "spark.ui.enabled": "false",
        "spark.local.dir": str(root / "spark"),
        "spark.sql.shuffle.partitions": str(PARTITIONS),
        "spark.ui.showConsoleProgress": "false",
        "spark.sql.streaming.stateStore.providerClass": provider,
        "spark.sql.streaming.stateStore.rocksdb.changelogCheckpointing.enabled": "true",
    }
    builder = SparkSession.builder.master(f"local[{PARTITIONS}]").appName("bench")
    for key, value in settings.items():
        builder = builder.config(key, value)
    spark = builder.getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    spark.dataSource.register(LogSource)
    return spark


def _write_log(place: Path, count: int, gaps: float) -> Log:
    """Events of half the producers in each partition; retries come soon after the first."""
    log = Log.create(str(place), PARTITIONS, "events")
    chance = np.random.default_rng(3)
    for partition in range(PARTITIONS):
        next_of = np.full(PRODUCERS, 10 * HISTORY, np.int64)
        with LogWriter(log.uri, partition) as writer:
            for _ in range(max(1, count // PARTITIONS // 100_000)):
                size = min(100_000, count // PARTITIONS)
                writer.append(_lines(chance, partition, size, gaps, next_of))
    return log


def _lines(chance: Any, partition: int, size: int, gaps: float, next_of: Column) -> list[bytes]:
    fresh = round(size * (1 - RETRIES))
    producers = np.sort(chance.integers(0, PRODUCERS, fresh))
    steps = np.where(chance.random(fresh) < gaps, 2, 1)
    total = np.cumsum(steps)
    starts = np.searchsorted(producers, producers)
    sequences = next_of[producers] + total - total[starts]
    np.maximum.at(next_of, producers, sequences + 1)
    # In order of each producer, and the producers in no order.
    order = chance.permutation(fresh)
    order = order[np.argsort(sequences[order], kind="stable")]
    again = np.sort(chance.integers(0, fresh, size - fresh))
    chosen = np.insert(order, np.minimum(again + 50, fresh), order[again]).tolist()
    users = chance.integers(0, USERS, size).tolist()
    prices = chance.integers(0, 10_000, size).tolist()
    return [
        b'{"producer":"producer-%d","partition":%d,"seq":%d,"user":"user-%d","price":%d}'
        % (producers[at], partition, sequences[at], users[n], prices[n])
        for n, at in enumerate(chosen)
    ]


@dataclass
class _Job:
    epochs: Epochs

    def commit(self, end: int) -> float:
        """Commit an epoch up to this offset of every partition; gives the seconds it took."""
        began = time.perf_counter()
        self.epochs.commit(Positions({"events": dict.fromkeys(range(PARTITIONS), end)}))
        return time.perf_counter() - began


@contextmanager
def _job(
    spark: Any, log: Log, place: Path, *, deduplicates: bool = True, history: int = 0
) -> Iterator[_Job]:
    homes.MARKER.create(LocalStorage.create(place))
    table = replace(_TABLE, source=log.uri)
    begin(str(place), table, log.earliest(), Approval(myself(), None))
    stream = open_stream(str(place / "bench"), read_only=False)
    with StreamWriter(stream).claim() as run:
        if history:
            _remember(run, history)
        description = replace(describe(table), deduplicates=deduplicates)
        publisher = Publisher(stream, open_sink(stream, None))
        publisher.begin(run)
        yield _Job(Epochs(spark, EpochContext(run, log, publisher, description)))


def _history(count: int) -> Ledger:
    """What was seen of so many events, below those that are to come."""
    chance = np.random.default_rng(5)
    ledger = Ledger()
    each = count // PRODUCERS // PARTITIONS
    for partition in range(PARTITIONS):
        numbers = np.where(chance.random(each) < GAPS, 2, 1).cumsum()
        names = pa.array([f"producer-{n}" for n in range(PRODUCERS)])
        producers = names.take(pa.array(np.repeat(np.arange(PRODUCERS), each)))
        sequences = np.tile(numbers, PRODUCERS)
        ledger.insert(Stamps.of(producers, np.full(len(sequences), partition), sequences))
    return ledger


def _remember(run: Run, count: int) -> None:
    """Commit a dedup log as after so many events."""
    snapshot = run.snapshot
    epoch = Epoch(
        start=snapshot.positions,
        end=snapshot.positions,
        events=count,
        deltas={},
        version=snapshot.version,
        generation=snapshot.generation,
        stamps=segments.put(run.stream.blobs, _history(count).entries()),
        number=snapshot.epoch + 1,
    )
    run.commit(epoch)


def _ours(
    spark: Any, log: Log, place: Path, *, deduplicates: bool = True, history: int = 0
) -> list[float]:
    """The seconds that each epoch took."""
    total = log.end(0)
    with _job(spark, log, place, deduplicates=deduplicates, history=history) as job:
        ends = [total * number // EPOCHS for number in range(1, EPOCHS + 1)]
        return [job.commit(end) for end in ends]


def _spark_alone(spark: Any, log: Log, place: Path, *, drop: int) -> float:
    """The same with Spark's means; the first epoch, which compiles, is counted for both alike."""
    from pyspark.sql import functions as f

    shutil.rmtree(place, ignore_errors=True)
    size = log.end(0) * PARTITIONS // EPOCHS
    source = spark.readStream.format("sluicegate").option("path", log.uri)
    frame = source.option(MAX_EVENTS, str(size)).load()
    events = frame.select(f.from_json("value", _JSON).alias("e")).select("e.*")
    if drop:
        events = events.dropDuplicates(["producer", "partition", "seq"])

    def batch(part: Any, number: int) -> None:
        summed = part.groupBy("user").agg(f.count("*").alias("n"), f.sum("price").alias("spent"))
        summed.write.parquet(str(place / "out" / str(number)))

    writer = events.writeStream.foreachBatch(batch).option("checkpointLocation", str(place))
    began = time.perf_counter()
    writer.trigger(availableNow=True).start().awaitTermination()
    return time.perf_counter() - began


def _size(place: Path) -> int:
    return sum(path.stat().st_size for path in place.rglob("*") if path.is_file())
