"""Rebuilt entries of the file source's and sink's logs: each file named once, none lost."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from sluicegate.checkpoint.journal import CheckpointJournal
from sluicegate.checkpoint.verify import verify
from sluicegate.journal import Approval
from sluicegate.process import myself
from sluicegate.storage import open_storage
from tests.checkpoint.file_query import LAST, THEN, Query, write

pytestmark = pytest.mark.usefixtures("no_writers")

ME = Approval(myself(), "a test")


def repair(query: Query) -> None:
    sink = open_storage(str(query.sink))
    storage = open_storage(str(query.checkpoint))
    journal = CheckpointJournal(storage, sink=sink, writer_gone=True)
    plan = journal.plan({"operation": "repair"})
    assert plan.actions
    assert not plan.choices
    journal.apply(plan, ME)
    assert [f for f in verify(storage, sink) if f.severity.value == "error"] == []


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
    before = entries(path)
    if cleaned:
        for old in ("0", "1"):
            (directory / old).unlink()
    path.write_text(text[: int((len(text) - 3) * kept)])
    repair(query)
    assert entries(path) == before


def test_files_that_still_wait_are_not_taken_for_read(query: Query) -> None:
    """With a backlog, the files of a lost entry cannot be determined."""
    for number in range(4):
        path = query.input / f"waiting {number}.json"
        write(path, "x")
        os.utime(path, (THEN + LAST - 0.5, THEN + LAST - 0.5))
    entry = query.source_log / str(LAST)
    entry.write_text(entry.read_text()[:40])
    storage = open_storage(str(query.checkpoint))
    sink = open_storage(str(query.sink))
    plan = CheckpointJournal(storage, sink=sink, writer_gone=True).plan({"operation": "repair"})
    assert plan.choices
    assert not plan.actions
