"""Rebuilt entries of the file source's and sink's logs: each file named once, none lost."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from sluicegate.checkpoint.journal import CheckpointJournal
from sluicegate.checkpoint.verify import verify
from sluicegate.journal import Approval
from sluicegate.process import myself
from sluicegate.storage import open_storage

pytestmark = pytest.mark.usefixtures("no_writers")

ME = Approval(myself(), "a test")
THEN = 1_794_000_000
PER_BATCH = 3
INTERVAL = 3
LAST = 7


class Query:
    """A checkpoint over files with a file sink, several files a batch, compacted every third."""

    def __init__(self, root: Path) -> None:
        self.checkpoint, self.input, self.sink = root / "c", root / "in ü#", root / "out"
        self.source_log = self.checkpoint / "sources/0"
        self.sink_log = self.sink / "_spark_metadata"
        _write(self.checkpoint / "metadata", '{"id":"6333c2b4-3922-44db-8ea9-726a16064721"}')
        read, written = [], []
        for batch in range(LAST + 1):
            read += [self._read(batch, i) for i in range(PER_BATCH)]
            written += [self._written(batch, i) for i in range(PER_BATCH)]
            moment = (THEN + batch) * 1000
            head = f'v1\n{{"batchWatermarkMs":0,"batchTimestampMs":{moment},"conf":{{}}}}\n'
            _write(self.checkpoint / f"offsets/{batch}", head + f'{{"logOffset":{batch}}}')
            commit = self.checkpoint / f"commits/{batch}"
            _write(commit, 'v1\n{"nextBatchWatermarkMs":0}')
            os.utime(commit, (THEN + batch + 0.5, THEN + batch + 0.5))
            is_compact = (batch + 1) % INTERVAL == 0
            name = f"{batch}.compact" if is_compact else str(batch)
            since = 0 if is_compact else -PER_BATCH
            _write(self.source_log / name, "\n".join(["v1", *read[since:]]))
            _write(self.sink_log / name, "\n".join(["v1", *written[since:]]))

    def _read(self, batch: int, i: int) -> str:
        path = self.input / f"{batch} {i}.json"
        _write(path, "x")
        os.utime(path, (THEN + batch - 0.5, THEN + batch - 0.5))
        shown = f"file://{self.input.parent}/in%20ü%23/{batch}%20{i}.json"
        entry = {"path": shown, "timestamp": (THEN + batch) * 1000 - 500, "batchId": batch}
        return json.dumps(entry, separators=(",", ":"), ensure_ascii=False)

    def _written(self, batch: int, i: int) -> str:
        name = f"part-{i:05}-{batch:08x}-bbbb-cccc-dddd-eeeeeeeeeeee-c000.parquet"
        path = self.sink / name
        _write(path, "abc")
        os.utime(path, (THEN + batch, THEN + batch))
        entry = {"path": f"file://{path}", "size": 3, "isDir": False}
        entry |= {"modificationTime": (THEN + batch) * 1000, "action": "add"}
        return json.dumps(entry, separators=(",", ":"))

    def repair(self) -> None:
        sink = open_storage(str(self.sink))
        storage = open_storage(str(self.checkpoint))
        journal = CheckpointJournal(storage, sink=sink, writer_gone=True)
        plan = journal.plan({"operation": "repair"})
        assert plan.actions
        assert not plan.choices
        journal.apply(plan, ME)
        assert [f for f in verify(storage, sink) if f.severity.value == "error"] == []


def _write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


def entries(path: Path) -> list[str]:
    return sorted(path.read_text().split("\n")[1:])


@pytest.fixture
def query(tmp_path: Path) -> Query:
    return Query(tmp_path)


@pytest.mark.parametrize("log", ["source_log", "sink_log"])
@pytest.mark.parametrize("cleaned", [False, True])
@pytest.mark.parametrize("name", ["5.compact", "7"])
@pytest.mark.parametrize("kept", [0.0, 0.7, 1.0])
def test_an_entry_of_many_files(
    query: Query, log: str, name: str, kept: float, cleaned: bool
) -> None:
    """Cut anywhere, also between its lines; older files may have been cleaned up by Spark."""
    directory: Path = getattr(query, log)
    path = directory / name
    text = path.read_text()
    whole = entries(path)
    if cleaned:
        for old in ("0", "1"):
            (directory / old).unlink()
    path.write_text(text[: int((len(text) - 3) * kept)])
    query.repair()
    assert entries(path) == whole


def test_files_that_still_wait_are_not_taken_for_read(query: Query) -> None:
    """Of a backlog, nobody can tell which files were in an entry that is lost."""
    for number in range(4):
        path = query.input / f"waiting {number}.json"
        _write(path, "x")
        os.utime(path, (THEN + LAST - 0.5, THEN + LAST - 0.5))
    entry = query.source_log / str(LAST)
    entry.write_text(entry.read_text()[:40])
    storage = open_storage(str(query.checkpoint))
    sink = open_storage(str(query.sink))
    plan = CheckpointJournal(storage, sink=sink, writer_gone=True).plan({"operation": "repair"})
    assert plan.choices
    assert not plan.actions
