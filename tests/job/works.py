"""The input of tasks, without Spark: works on a stream and a directory of their own."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from sluicegate.config import NamedStream
from sluicegate.job.aggregate import RESULT, fold_shards
from sluicegate.job.records import Records, Shape, parse
from sluicegate.job.tasks import RecordClassifier
from sluicegate.job.work import Classified, Folded, Work
from sluicegate.sources.base import Reached
from sluicegate.sources.log.log import LogReader
from sluicegate.state import manifest
from sluicegate.state.aggregates import parse as parse_aggregates
from sluicegate.state.aggregates import rows as shown_rows
from sluicegate.storage.blobs import Blobs
from sluicegate.stream.spec import describe
from sluicegate.stream.stream import open_stream
from tests.job.truth import Row, Table

INCARNATION = "events@1"


def work_of(root: Path, table: Table, *, shards: int = 4, tasks: int = 2, **more: Any) -> Work:
    """A work for a stream of this table; its directories are made."""
    for name in ("stream", "attempts"):
        (root / name).mkdir(parents=True, exist_ok=True)
    named = NamedStream(
        "clicks",
        "log",
        stamp=tuple(table.stamp),
        key=table.key,
        shards=shards,
        columns=table.columns,
        aggregates=table.aggregates,
    )
    description = describe(named)
    work = Work(
        slices=(),
        read=LogReader(str(root / "log"), ()),
        shape=Shape(description.columns, description.stamp, description.key),
        incarnation=INCARNATION,
        stream=str(root / "stream"),
        dedup=(),
        at_ms=1000,
        attempts=str(root / "attempts"),
        writes_rows=True,
        values=description.values,
        shards=shards,
        targets=np.arange(shards) % tasks,
        tasks=tasks,
    )
    return replace(work, **more)


def blobs_of(work: Work) -> Blobs:
    return open_stream(work.stream, read_only=False).blobs


def parsed(work: Work, rows: Iterable[Row], partition: int = 0, first: int = 0) -> Records:
    """Rows as records of a partition."""
    data = b"".join(json.dumps(row).encode() + b"\n" for row in rows)
    return parse(data, partition, first, work.shape)


def classify(
    work: Work, *records: Records, reached: Iterable[Reached] = ()
) -> tuple[Classified, list[pa.RecordBatch]]:
    """The result of a task that classifies these, and everything that it sends on."""
    classifier = RecordClassifier(work)
    classifier.reach(reached)
    for each in records:
        classifier.add(each)
    batches = list(classifier.finish())
    return Classified.from_text(batches[-1].column(RESULT)[0].as_py()), batches


def rows_in(work: Work, classified: Classified, kind: str) -> list[Row]:
    """The rows in the files that a task reported."""
    found: list[Row] = []
    for file in classified.files.get(kind, ()):
        read = pq.read_table(f"{work.attempts}/{file.name}")
        assert read.num_rows == file.rows
        found += read.to_pylist()
    return found


def folded(work: Work, batches: list[pa.RecordBatch]) -> dict[int, Folded]:
    """The results of the folding tasks for these batches, each of which gets its own rows."""
    results = {}
    for task in range(work.tasks):
        mine = [b.filter(pa.compute.equal(b.column("target"), task)) for b in batches]
        texts = fold_shards(work, task, mine)[RESULT].to_pylist()
        results[task] = Folded.from_text(texts[-1])
    return results


def state_of(work: Work, table: Table, *epochs: dict[int, Folded]) -> dict[str, Row]:
    """The state that the deltas of epochs come to."""
    refs: dict[int, list[Any]] = {}
    for epoch in epochs:
        for each in epoch.values():
            for shard, (ref, _) in each.changed.items():
                refs.setdefault(shard, []).append(ref)
    state = {}
    aggregates = parse_aggregates(table.aggregates, table.types)
    for parts in refs.values():
        contents = manifest.contents(blobs_of(work), parts)
        for row in shown_rows(contents, aggregates) if contents else ():
            state[row.pop("key")] = row
    return state
