"""A run of the maintenance is killed at a storage call; the next one finds nothing in its way.

`SG_LAB=all` cuts at every call that changes something; else at some of them, chosen evenly.
"""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from sluicegate.config import Maintain
from sluicegate.findings import has_errors
from sluicegate.maintenance import Outcome, Steps
from sluicegate.sinks.base import DATA
from sluicegate.storage import LocalStorage
from sluicegate.stream.gc import GRACE, list_garbage
from sluicegate.stream.output import open_sink
from sluicegate.stream.snapshot import MAX_DELTAS
from tests.job import sinks
from tests.ops.week import cared_for, temporary, terms
from tests.stream.streams import NAME, apply, check, in_memory, made, opened, resume_job
from tests.support.faults import Aftermath, Cut, _run_cut

ALL = os.environ.get("SG_LAB") == "all"
TRIED = 14
CHANGES = ("create", "write", "fsync", "link", "mkdir", "rename", "unlink", "move", "truncate")
POLICY = Maintain(keep=0.0, keep_snapshots=4)


@pytest.fixture
def scratch() -> Iterator[Path]:
    with in_memory() as path:
        yield path


def template(root: Path) -> None:
    """A stream for which there is something to do in every step."""
    root.mkdir()
    stream = made(root / "home", dedup=True)
    sink = open_sink(stream, str(root / "sink"))
    with sinks.started(stream, sink) as run:
        for number in range(MAX_DELTAS - 2):
            sinks.publish(
                stream, sink, sinks.commit(run, sink, *([DATA] if number % 3 == 0 else []))
            )
    apply(stream, "rollback", to=5)
    with sinks.started(stream, sink) as run:
        for _ in range(MAX_DELTAS - 4):
            sinks.commit(run, sink)
    for number in range(3):
        stream.blobs.put(f"orphan {number}".encode())
    (root / "home" / NAME / "chain" / ".sg-0123.tmp").write_bytes(b"unfinished")
    (root / "sink" / "_sluicegate" / "attempts" / "dead").mkdir(parents=True)
    make_old(root)


def make_old(root: Path) -> None:
    """Nothing is too young to go; the lab's disk does not keep the times of files."""
    old = time.time() - GRACE - 60
    for path in root.rglob("*"):
        os.utime(path, (old, old))


def cleaned(storage: LocalStorage) -> Steps:
    root = Path(storage.uri)
    return cared_for(opened(root / "home", storage._calls, 0.0), root / "sink", terms(POLICY))


def cuts(scratch: Path) -> Iterator[Cut]:
    """The run, killed at one call each time; the last is not killed."""

    def prepare(storage: LocalStorage) -> None:
        shutil.copytree(scratch / "template", storage.uri, dirs_exist_ok=True)

    calls = _run_cut(scratch / "all", prepare, cleaned, 10**9, (Aftermath.KILL, 0)).calls
    numbers = [number for number, call in enumerate(calls) if call.startswith(CHANGES)]
    chosen = numbers if ALL else numbers[:: max(1, len(numbers) // TRIED)]
    for aftermath in (Aftermath.KILL, Aftermath.POWER_LOSS, *([Aftermath.TORN] if ALL else [])):
        for number in (*chosen, len(calls)):
            root = scratch / f"{aftermath.name}-{number}"
            yield _run_cut(root, prepare, cleaned, number, (aftermath, 0))
            shutil.rmtree(root)


@contextmanager
def named(cut: Cut) -> Iterator[None]:
    try:
        yield
    except Exception as e:
        e.add_note(str(cut))
        raise


def test_the_next_run_heals_an_interruption_at_any_call(scratch: Path) -> None:
    template(scratch / "template")
    ends = set()
    for cut in cuts(scratch):
        with named(cut):
            head = check(opened(cut.root / "home"))
            ends.add((head.floor > 0, cut.acknowledged))
            make_old(cut.root)
            again = cleaned(LocalStorage(cut.root))
            assert not has_errors(again.findings), again.findings
            assert all(step.outcome is not Outcome.FAILED for step in again.done)
            check_intact(cut.root)
            resume_job(opened(cut.root / "home"))
    assert ends == {(False, False), (True, False), (True, True)}, "cuts must lie on both sides"


def check_intact(root: Path) -> None:
    """All is done that the run was about, and nothing is lost."""
    stream = opened(root / "home")
    head = check(stream)
    assert head.number - head.floor <= POLICY.keep_snapshots + 2
    assert not list_garbage(stream).swept
    assert temporary(root) == []
    assert not list((root / "sink" / "_sluicegate" / "trash").rglob("snapshot=*"))
    names = {p.name for p in (root / "sink" / "data").iterdir()}
    assert len(names) == 2, "what was published of the ancestry stays"


def test_there_is_something_to_do_in_every_step(scratch: Path) -> None:
    template(scratch / "template")
    outcomes = {
        step.name: step.outcome for step in cleaned(LocalStorage(scratch / "template")).done
    }
    for name in ("compact dedup log", "compact state", "prune", "empty trash"):
        assert outcomes[name] is Outcome.DONE, name
