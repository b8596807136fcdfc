"""Others read a segment as it is: Spark and DuckDB see what the library wrote."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import duckdb
import pytest

from sluicegate.dedup import segment
from sluicegate.dedup.ledger import Ledger
from sluicegate.stream import segments
from sluicegate.stream.stream import Stream
from tests.dedup.batches import PRODUCERS, TOP, stamps
from tests.stream import streams

COLUMNS = ["producer", "partition", "first", "last", "at", "expired"]
Row = tuple[object, ...]


def ledger() -> Ledger:
    """All kinds of names and numbers, gaps, and a floor."""
    found = Ledger()
    found.insert(stamps([("old", 3, n) for n in range(50)]), at_ms=1)
    found.expire(2)
    everybody = range(len(PRODUCERS))
    found.insert(stamps([(p, q, n) for p in everybody for q in (0, 7) for n in (0, 1, 5, TOP)]), 5)
    found.insert(stamps([("x", 2**31 - 1, 2 * n) for n in range(5000)]), at_ms=1763300000123)
    return found


@pytest.fixture(scope="module")
def blob(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[Row]]:
    """Where a segment of a stream lies, and what the library reads from it."""
    stream: Stream = streams.opened(streams.make_home(tmp_path_factory.mktemp("home") / "home"))
    ref = segments.put(stream.blobs, ledger().entries())
    assert ref
    entries = segment.decode(stream.blobs.get(ref), ref.key)
    columns = (entries.partitions, entries.first, entries.last, entries.at, entries.expired)
    texts = entries.producers.to_pylist()
    rows = list(zip(texts, *(each.tolist() for each in columns), strict=True))
    assert len(rows) == len(ledger()) + 1, "and a floor"
    return Path(stream.uri) / ref.key, rows


def test_duckdb(blob: tuple[Path, list[Row]]) -> None:
    path, rows = blob
    found = duckdb.read_parquet(str(path))
    assert found.columns == COLUMNS
    assert list(map(str, found.types)) == [
        "VARCHAR", "INTEGER", "BIGINT", "BIGINT", "BIGINT", "BOOLEAN",
    ]  # fmt: skip
    assert found.fetchall() == rows
    asked = (
        "select count(*) from read_parquet(?) where producer = ? and 3000 between first and last"
    )
    assert duckdb.execute(asked, [str(path), "x"]).fetchone() == (1,)


SPARK = """
import json, sys
from pyspark.sql import SparkSession

settings = {"spark.ui.enabled": "false", "spark.sql.warehouse.dir": sys.argv[2]}
builder = SparkSession.builder.master("local[1]")
for name, value in settings.items():
    builder = builder.config(name, value)
spark = builder.getOrCreate()
found = spark.read.parquet(sys.argv[1])
with open(sys.argv[3], "w") as answer:
    json.dump([found.dtypes, [tuple(row) for row in found.collect()]], answer)
"""


def test_spark(blob: tuple[Path, list[Row]], tmp_path: Path) -> None:
    path, rows = blob
    answer = tmp_path / "answer.json"
    command = [sys.executable, "-c", SPARK, str(path), str(tmp_path / "warehouse"), str(answer)]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    types, found = json.loads(answer.read_text())
    kinds = ["string", "int", "bigint", "bigint", "bigint", "boolean"]
    assert types == [list(each) for each in zip(COLUMNS, kinds, strict=True)]
    assert [tuple(row) for row in found] == rows
