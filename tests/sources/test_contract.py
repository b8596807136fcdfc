"""The embedded log as a source."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from sluicegate.sources.base import Source
from sluicegate.sources.log.log import Log
from sluicegate.sources.log.writer import LogWriter
from tests.contracts.source import SourceContract


class Tasks:
    """What a Spark session does for a scan, without one: it numbers the tasks."""

    def range(self, start: int, end: int, _step: int, _partitions: int) -> list[int]:
        return list(range(start, end))

    def batches(self, frame: list[int]) -> Iterator[pa.RecordBatch]:
        for number in frame:
            yield pa.RecordBatch.from_pydict({"id": [number]})


@pytest.fixture
def tasks() -> Tasks:
    return Tasks()


class TestLog(SourceContract):
    @pytest.fixture
    def place(self, tmp_path: Path) -> Path:
        return tmp_path / "events"

    @pytest.fixture
    def source(self, place: Path) -> Source:
        return Log.create(str(place), partitions=2)

    @pytest.fixture
    def write(self, source: Source) -> Callable[[int, Sequence[bytes]], None]:
        def write(partition: int, records: Sequence[bytes]) -> None:
            with LogWriter(source.uri, partition, timeout=5) as writer:
                writer.append(list(records))

        return write

    @pytest.fixture
    def replace(self, place: Path, write: Any) -> Callable[[], None]:
        def replace() -> None:
            shutil.rmtree(place)
            Log.create(str(place), partitions=2)

        return replace

    @pytest.fixture
    def go_back(self, place: Path) -> Callable[[int], None]:
        def go_back(remaining: int) -> None:
            [segment] = (place / "partition-0").glob("*.jsonl")
            lines = segment.read_bytes().splitlines(keepends=True)
            segment.write_bytes(b"".join(lines[:remaining]))

        return go_back
