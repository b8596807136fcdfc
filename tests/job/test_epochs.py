"""Epochs on Spark: what they make of a log is the truth, whatever producers and operators do."""

from __future__ import annotations

import random
import time
from itertools import pairwise
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from sluicegate.job.epoch import RecordsRejected
from sluicegate.positions import Positions, to_spark
from sluicegate.shards.assignment import encode, from_names
from sluicegate.stream.append import RebalanceDraft, Signature
from sluicegate.stream.operations.rebalance import assignment_at
from sluicegate.stream.snapshot import Kind
from sluicegate.stream.writer import StreamWriter as Snapshots
from tests.job.jobs import Place
from tests.job.truth import Row, published
from tests.stream.streams import apply

BAD = [b"{", b'{"user":"u"}', b'{"producer":"p","partition":0,"seq":7}', b"\xff", b"{}{}"]


def event(sequence: int, *, producer: str = "p", partition: int = 0, price: int = 1) -> Row:
    return {
        "producer": producer,
        "partition": partition,
        "seq": sequence,
        "user": f"u{sequence % 7}",
        "price": price,
    }


def traffic(seed: int, producer: str, partition: int, first: int, count: int) -> list[Row | bytes]:
    """What a producer sends that retries, leaves gaps and reorders its messages."""
    chance = random.Random(seed)
    rows: list[Row | bytes] = []
    for sequence in range(first, first + count):
        if chance.random() < 0.05:
            continue
        price = chance.randrange(1000)
        row = event(sequence, producer=producer, partition=partition, price=price)
        rows.append(row)
        if chance.random() < 0.15:
            rows.insert(chance.randrange(max(0, len(rows) - 20), len(rows) + 1), row)
        if chance.random() < 0.02:
            rows.append(chance.choice(BAD))
    for _ in range(count // 10):
        at = chance.randrange(len(rows) - 5)
        rows[at : at + 5] = chance.sample(rows[at : at + 5], 5)
    return rows


def test_retries_gaps_and_reorder_over_several_epochs(tmp_path: Path, spark: Any) -> None:
    place = Place(tmp_path, max_events=700).begin()
    for partition in range(2):
        place.append(partition, traffic(partition, f"p{partition}", partition, 0, 1000))
    place.commit_all(spark)
    assert place.head.epoch > 2
    place.check()
    # A later run: new events, and retries of what an earlier epoch has seen.
    for partition in range(2):
        place.append(partition, traffic(partition, f"p{partition}", partition, 0, 300))
        place.append(partition, traffic(9, f"p{partition}", partition, 1000, 300))
    place.commit_all(spark)
    wanted = place.check()
    assert wanted.duplicates > 500
    assert wanted.rejects


def test_every_snapshot_of_an_epoch_adds_up(tmp_path: Path, spark: Any) -> None:
    place = Place(tmp_path, max_events=300).begin()
    place.append(0, traffic(1, "p", 0, 0, 800))
    head = place.commit_all(spark)
    names = ("read", "applied", "duplicates", "rejected")
    for number in range(1, head.number + 1):
        snapshot, before = place.stream.chain.read(number), place.stream.chain.read(number - 1)
        if snapshot.kind is Kind.EPOCH:
            more = {name: snapshot.counters[name] - before.counters.get(name, 0) for name in names}
            moved = sum(p.offset for p in snapshot.positions) - sum(
                p.offset for p in before.positions
            )
            assert more["read"] == moved == sum(more[name] for name in names[1:])
            assert snapshot.counters["written"] == snapshot.counters["applied"] == snapshot.sequence


def test_stamps_that_come_through_several_partitions(tmp_path: Path, spark: Any) -> None:
    """The epoch is classified together: of equal ones the smallest position is applied."""
    place = Place(tmp_path, partitions=3, columns={"price": "long", "home": "string"}).begin()
    chance = random.Random(5)
    for partition in range(3):
        rows: list[Any] = [event(n, price=partition * 10_000 + n) for n in range(400)]
        rows += traffic(partition, f"own{partition}", 0, 0, 200)
        rows += BAD
        chance.shuffle(rows)
        place.append(partition, rows)
    place.commit_all(spark)
    wanted = place.check()
    assert place.head.epoch == 1
    found = {(r["producer"], r["partition"], r["seq"]): r for r in published(place.sink, "data")}
    for stamp, row in found.items():
        assert (row["_partition"], row["_offset"]) == wanted.places[stamp][0]
    assert {r["_partition"] for r in found.values() if r["producer"] == "p"} == {0}
    # Only what was committed is left: the first attempt is gone.
    attempts = place.sink / "_sluicegate" / "attempts"
    assert list(attempts.iterdir()) == []


def test_positions_as_stamps(tmp_path: Path, spark: Any) -> None:
    place = Place(tmp_path, stamp=(), max_events=500).begin()
    for partition in range(2):
        place.append(partition, [{"user": f"u{n % 5}", "price": n} for n in range(600)])
        place.append(partition, [b"not json"])
    place.commit_all(spark)
    assert place.check().duplicates == 0


def test_without_key_and_without_anything(tmp_path: Path, spark: Any) -> None:
    place = Place(tmp_path / "rows", key=None).begin()
    place.append(0, [event(n % 50) for n in range(100)])
    place.commit_all(spark)
    assert place.check().duplicates == 50
    # Only counted, and written nowhere.
    place = Place(tmp_path / "none", key=None, stamp=(), columns={}, partitions=1).begin()
    place.append(0, [b"{}", b"[]", b'{"a":1}'])
    place.commit_all(spark)
    assert place.check().rejects == {(0, 1)}


def test_without_a_sink_only_rejects_are_kept(tmp_path: Path, spark: Any) -> None:
    place = Place(tmp_path)
    place.write_config(shards=4)
    place.begin()
    place.append(0, [event(1), b"bad", event(2)])
    place.commit_all(spark)
    place.check()
    own = place.home / "clicks" / "output"
    assert published(own, "data") == []
    assert [row["_value"] for row in published(own, "rejects")] == [b"bad"]


def test_rejects_stop_a_stream_that_is_set_to(tmp_path: Path, spark: Any) -> None:
    place = Place(tmp_path, on_reject="fail").begin()
    place.append(1, [event(0), event(1), {"user": "x"}])
    with pytest.raises(RecordsRejected, match="1 record cannot be applied: partition 1, offset 2"):
        place.commit_all(spark)
    assert place.head.kind is Kind.CLAIM
    assert published(place.sink, "data") == []
    # Kept aside after all.
    place.write_config(shards=4, sink="out", on_reject="keep")
    place.commit_all(spark)
    place.check()


def test_a_function_of_ones_own(tmp_path: Path, spark: Any) -> None:
    # In a place whose name could be taken for a pattern, or for an escape.
    place = Place(tmp_path / "a [b] {c,d} * %20 é", max_events=300, partitions=1).begin()
    place.append(0, traffic(3, "p", 0, 0, 500))
    epochs = []

    def process(events: Any, epoch: Any) -> Any:
        epochs.append((epoch.number, to_spark(epoch.start), to_spark(epoch.end), events.count()))
        if epoch.number == 2:
            return None
        frame = events.where("price >= 500").selectExpr("user", "price * 2 as twice", "_offset")
        return frame.repartition(3)

    head = place.commit_all(spark, process)
    wanted = place.truth()
    assert [number for number, *_ in epochs] == list(range(1, head.epoch + 1))
    assert sum(count for *_, count in epochs) == len(wanted.rows)
    assert all(before[2] == after[1] for before, after in pairwise(epochs))
    second = range(epochs[1][1]["log"]["0"], epochs[1][2]["log"]["0"])
    rows = sorted(published(place.sink, "data"), key=lambda row: row["_offset"])
    assert rows == [
        {"user": row["user"], "twice": row["price"] * 2, "_offset": wanted.places[stamp][0][1]}
        for stamp, row in wanted.rows.items()
        if row["price"] >= 500 and wanted.places[stamp][0][1] not in second
    ]
    assert head.counters["written"] == len(rows)
    # State is kept beside it.
    assert {k: v["n"] for k, v in place.state().items()} == {
        k: v["n"] for k, v in wanted.state.items()
    }


def test_what_a_function_raises_commits_nothing(tmp_path: Path, spark: Any) -> None:
    place = Place(tmp_path).begin()
    place.append(0, [event(1)])

    def process(events: Any, epoch: Any) -> Any:
        raise RuntimeError("a mistake of mine")

    with pytest.raises(Exception, match="a mistake of mine"):
        place.commit_all(spark, process)
    assert place.head.epoch == 0
    place.commit_all(spark)
    place.check()


def test_a_rebalance_is_taken_without_a_restart(tmp_path: Path, spark: Any) -> None:
    """Before an epoch is computed, and while it is: then it is routed again before it commits."""
    place = Place(tmp_path, max_events=200, partitions=1).begin()
    place.append(0, traffic(4, "p", 0, 0, 600))
    rebalances = {("planned", 2): ["a", "b"], ("staged", 3): ["a", "b", "c"], ("ready", 4): ["c"]}
    seen: list[tuple[str, int]] = []

    def step(name: str) -> None:
        at = (name, place.head.epoch + 1)
        if at in rebalances and at not in seen:
            nodes = rebalances[at]
            rebalance(place, [nodes[shard % len(nodes)] for shard in range(4)])
        seen.append(at)

    place.commit_all(spark, step=step)
    assert place.head.version == 3
    place.check()
    kinds = [place.stream.chain.read(n).kind for n in range(place.head.number + 1)]
    assert kinds.count(Kind.CLAIM) == 1
    # The epochs that were routed again, and only those, were computed twice.
    assert [seen.count(("computed", epoch)) for epoch in (1, 2, 3, 4)] == [1, 2, 2, 2]
    staged = place.sink / "_sluicegate" / "staged"
    assert not list(staged.glob("*/*.data"))


def rebalance(place: Place, owners: list[str]) -> None:
    head = place.head
    draft = RebalanceDraft(
        version=head.version,
        generation=head.generation,
        assignment=place.stream.blobs.put(encode(from_names(owners))),
        signature=Signature(),
        details={},
    )
    assert Snapshots(place.stream).append(draft, head)
    assert assignment_at(place.stream, place.head).node_of(0) == owners[0]


def test_a_partition_that_is_added(tmp_path: Path, spark: Any) -> None:
    """Empty at first: then nothing is read, but the position is there."""
    place = Place(tmp_path, partitions=1).begin()
    place.append(0, [event(n) for n in range(20)])
    place.commit_all(spark)
    place.log.add_partitions(2)
    place.commit_all(spark)
    place.check()
    place.append(1, [event(n) for n in range(10, 40)])
    place.log.add_partitions(3)
    place.append(2, [event(n, producer="q") for n in range(30)])
    place.commit_all(spark)
    wanted = place.check()
    assert len(wanted.rows) == 70


def test_output_is_read_by_spark_as_it_is(tmp_path: Path, spark: Any) -> None:
    place = Place(tmp_path).begin()
    place.append(0, [event(n) for n in range(10)])
    place.append(0, [b"bad"])
    place.commit_all(spark)
    assert spark.read.parquet(str(place.sink / "data")).count() == 10
    assert spark.read.parquet(str(place.sink / "rejects")).count() == 1
    [file] = (place.sink / "data").rglob("*.parquet")
    assert pq.read_schema(file).names == [
        *("price", "producer", "partition", "seq", "user", "_partition", "_offset")
    ]


def test_a_reset_that_skips_what_was_seen(tmp_path: Path, spark: Any) -> None:
    place = Place(tmp_path, max_events=200).begin()
    place.append(0, traffic(6, "p", 0, 0, 500))
    place.commit_all(spark)
    positions = Positions({"log": {0: 100}})
    apply(place.stream, "reset", positions=positions)
    place.append(1, traffic(7, "q", 0, 0, 100))
    place.commit_all(spark)
    place.check(counted=False)


def test_a_reset_behind_the_retention_publishes_no_reject_twice(tmp_path: Path, spark: Any) -> None:
    place = Place(tmp_path).begin()
    place.append(0, [event(0), b"bad", event(1), b"worse", event(2)])
    place.commit_all(spark)
    for _ in range(2):
        apply(place.stream, "compact-dedup", before=time.time() + 1)
        apply(place.stream, "reset", positions=Positions({"log": {0: 0}}))
        place.append(0, [b"new"])
        place.commit_all(spark)
    found = [row["_value"] for row in published(place.sink, "rejects")]
    assert [value for value in found if value in (b"bad", b"worse")] == [b"bad", b"worse"]
    assert found.count(b"new") == 2
    # Events below the retention floor are rejected, and that once, too.
    assert len(found) == 7
