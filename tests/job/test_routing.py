"""Rows go to the partition whose number they have, on every version of Spark."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from sluicegate.job.aggregate import fold_shards
from sluicegate.job.epoch import routed
from sluicegate.state.backend import EpochIncomplete
from tests.job.truth import Table
from tests.job.works import classify, parsed, work_of

_PLACE = "spark_partition_id() AS place"
TABLE = Table(columns={"price": "long"}, stamp=(), key="user", aggregates={"n": "count"})


def places(frame: Any) -> set[tuple[int | None, int]]:
    """Each number with the partitions that its rows are in."""
    return {(row.number, row.place) for row in frame.selectExpr("number", _PLACE).collect()}


@pytest.mark.parametrize("least", range(1, 65, 8))
def test_every_number_goes_to_its_partition(spark: Any, least: int) -> None:
    for count in range(least, least + 8):
        numbers = spark.range(0, 3 * count, 1, 2).selectExpr(f"int(id % {count}) AS number")
        assert places(routed(numbers, count, "number")) == {
            (number, number) for number in range(count)
        }


def test_rows_without_a_number_go_to_the_first(spark: Any) -> None:
    numbers = spark.createDataFrame([(None,), (0,), (2,), (None,)], "number int")
    assert places(routed(numbers, 3, "number")) == {(None, 0), (0, 0), (2, 2)}


@pytest.mark.parametrize("adaptive", ["true", "false"])
def test_a_partition_without_rows_has_its_task(spark: Any, adaptive: str) -> None:
    """A task that gets nothing reports that its shards are unchanged."""

    def reported(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        from pyspark import TaskContext

        context = TaskContext.get()
        assert context
        numbers = [number for batch in batches for number in batch.column(0).to_pylist()]
        yield pa.RecordBatch.from_pydict({"place": [context.partitionId()], "numbers": [numbers]})

    before = spark.conf.get("spark.sql.adaptive.enabled")
    spark.conf.set("spark.sql.adaptive.enabled", adaptive)
    try:
        numbers = spark.createDataFrame([(3,), (1,), (3,)], "number int")
        frame = routed(numbers, 5, "number").mapInArrow(reported, "place long, numbers array<long>")
        found = {row.place: row.numbers for row in frame.collect()}
    finally:
        spark.conf.set("spark.sql.adaptive.enabled", before)
    assert found == {0: [], 1: [1], 2: [], 3: [3, 3], 4: []}


def test_a_task_that_gets_rows_of_another_ends_the_epoch(tmp_path: Path) -> None:
    work = work_of(tmp_path, TABLE, shards=4, tasks=2, deduplicates=False)
    users = [{"user": f"user-{number}"} for number in range(20)]
    _, batches = classify(work, parsed(work, users))
    with pytest.raises(EpochIncomplete, match="task 1 got rows of another task"):
        fold_shards(work, 1, batches)
