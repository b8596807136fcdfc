"""Verify: nothing is found where nothing is wrong, also beside a job, and everything is read."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from sluicegate.errors import NotFound, StorageFailed, UsageError
from sluicegate.findings import Severity, has_errors
from sluicegate.storage import Entry, LocalStorage, open_storage
from sluicegate.storage.blobs import Ref
from sluicegate.stream import evidence, scan
from sluicegate.stream import snapshot as snapshots
from sluicegate.stream import verify as rules
from sluicegate.stream.append import PruneDraft, Signature
from sluicegate.stream.chain import HEAD, Hint, write_hint
from sluicegate.stream.gc import sweep
from sluicegate.stream.journal import StreamJournal
from sluicegate.stream.operations import repair
from sluicegate.stream.scan import survey
from sluicegate.stream.snapshot import Kind, Snapshot, has, key_of, merged, shown, spans, without
from sluicegate.stream.stream import Stream, open_stream
from sluicegate.stream.verify import CURSOR, Reading, Subset, verify
from sluicegate.stream.writer import StreamWriter
from tests import tree
from tests.stream import streams

DAY = 24 * 3600.0
REPOSITORY = Path(__file__).parents[2]


@pytest.fixture
def home() -> Iterator[Path]:
    with streams.in_memory() as root:
        yield root / "home"


def codes(stream: Stream, reading: Reading | None = None) -> list[str]:
    return [each.code for each in verify(stream, reading).findings]


def test_a_clean_stream(home: Path) -> None:
    stream = streams.made(home, epochs=5)
    result = verify(stream, Reading())
    assert result.findings == []
    assert result.snapshots == 7
    assert result.blobs == result.read_blobs == len(list(stream.blobs.stored()))
    assert not result.resume
    assert verify(open_stream(stream.uri, read_only=True)).findings == []


def test_a_chain_of_one_snapshot_and_no_hint(home: Path) -> None:
    """The writer of genesis may die before the hint."""
    stream = streams.made(home)
    (home / streams.NAME / HEAD).unlink()
    assert codes(stream) == []


def test_one_snapshot_above_the_floor_and_no_hint(home: Path) -> None:
    stream = streams.made(home, epochs=3)
    streams.apply(stream, "prune", to=4)
    sweep(stream)
    for number in stream.chain.numbers()[:-1]:
        (home / streams.NAME / key_of(number)).unlink()
    (home / streams.NAME / HEAD).unlink()
    assert evidence.HEAD_DAMAGED.code in codes(stream)


def test_no_stream(home: Path) -> None:
    streams.make_home(home)
    with pytest.raises(NotFound):
        verify(streams.opened(home))
    with pytest.raises(NotFound):
        StreamJournal(streams.opened(home)).propose(streams.operation_of("repair"))


# Beside a job.


def test_no_false_alarm_beside_a_job_that_prunes(home: Path) -> None:
    """A real process commits, compacts, prunes and sweeps at once what it pruned."""
    stream = streams.made(home, epochs=3)
    command = "import sys; from tests.stream import test_verify; test_verify.be_busy(sys.argv[1])"
    with subprocess.Popen(
        [sys.executable, "-c", command, home], cwd=REPOSITORY, stdin=subprocess.PIPE
    ) as job:
        try:
            started, alarms, times = time.monotonic(), [], 0
            start = stream.chain.head().floor
            # On a busy machine it takes longer until the job has done something.
            while time.monotonic() < started + 3 or times < 20 or not pruned_to(stream, start):
                assert time.monotonic() < started + 90, "the job does nothing"
                looked = open_stream(stream.uri, read_only=True)
                found = verify(looked, Reading() if times % 2 else None).findings
                alarms += [each for each in found if each.severity is Severity.ERROR]
                diagnosis = repair.diagnose(looked)
                alarms += [*diagnosis.found.findings, *diagnosis.found.obstacles]
                times += 1
        finally:
            job.communicate()
    assert alarms == []
    assert job.returncode == 0
    streams.check(streams.opened(home))


def pruned_to(stream: Stream, floor: int) -> bool:
    return stream.chain.head().floor > floor


@pytest.mark.parametrize("call", ["raw", "numbers"])
def test_a_prune_in_the_middle_of_a_look(
    home: Path, call: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    stream, other = streams.made(home, epochs=6), streams.opened(home)
    real = getattr(stream.chain, call)
    pruned: list[object] = []

    def prune_first(*arguments: int) -> object:
        result = real(*arguments)
        if not pruned:
            pruned.append(streams.apply(other, "compact"))
            streams.apply(other, "prune", to=other.chain.head().number)
            sweep(other, grace=-1)
        return result

    monkeypatch.setattr(stream.chain, call, prune_first)
    assert verify(stream, Reading()).findings == []
    assert pruned


def test_an_unfinished_file_that_is_finished_meanwhile(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stream = streams.made(home, epochs=1)
    left = home / streams.NAME / "chain" / ".sg-0123456789abcdef.tmp"
    real = LocalStorage.list

    def list_then_go(self: LocalStorage, key: str = "", *, temporary: bool = False) -> list[Entry]:
        found = real(self, key, temporary=temporary)
        return [*found, Entry(left.name, "file")] if temporary and key == "chain" else found

    monkeypatch.setattr(LocalStorage, "list", list_then_go)
    assert codes(stream) == []


def be_busy(home: str) -> None:
    """The job; ends when its standard input does."""
    os.set_blocking(0, False)
    stream = streams.opened(Path(home))
    writer = StreamWriter(stream)
    with writer.claim(app="job") as job:
        while not _is_closed():
            for _ in range(3):
                streams.commit(job)
            streams.apply(stream, "compact")
            job.refresh()
            head = writer.head()
            writer.append(PruneDraft(head.number - 2, Signature(), {}), head)
            sweep(stream, grace=-1)
            job.refresh()


def _is_closed() -> bool:
    try:
        return os.read(0, 1) == b""
    except BlockingIOError:
        return False


# Reading.


def every_blob(stream: Stream) -> set[Ref]:
    return survey(stream).live


@pytest.mark.parametrize("parts", [1, 2, 3, 7, 100])
def test_parts_cover_all_blobs_once(home: Path, parts: int) -> None:
    stream = streams.made(home, epochs=6)
    every = every_blob(stream)
    read = [verify(stream, Reading(Subset(p, parts))).read_blobs for p in range(1, parts + 1)]
    assert sum(read) == len(every)
    for ref in every:
        assert sum(Subset(p, parts).has(ref) for p in range(1, parts + 1)) == 1


@pytest.mark.parametrize(
    ("text", "parts"), [("3/10", 10), ("1/1", 1), ("10%", 10), ("100%", 1), ("33%", 3), ("1%", 100)]
)
def test_subsets_are_read(text: str, parts: int) -> None:
    assert Subset.parse(text).parts == parts


@pytest.mark.parametrize(
    "text",
    ["", "3", "0/10", "11/10", "1/0", "0%", "101%", "-1/3", "²/3", "²%", "a/b", "%", "1/2/3"],
)
def test_what_is_no_subset(text: str) -> None:
    with pytest.raises(UsageError):
        Subset.parse(text)


def test_a_damaged_blob_is_found_in_its_part_only(home: Path) -> None:
    stream = streams.made(home, epochs=4)
    ref = max(every_blob(stream), key=lambda each: each.size)
    path = home / streams.NAME / ref.key
    path.write_bytes(bytes(ref.size))
    found = [p for p in range(1, 6) if codes(stream, Reading(Subset(p, 5)))]
    assert found == [p for p in range(1, 6) if Subset(p, 5).has(ref)]
    assert codes(stream) == []


def test_a_budget_is_resumed_and_comes_to_its_end(home: Path) -> None:
    stream = streams.made(home, epochs=4)
    every = len(every_blob(stream))
    for _ in range(every - 1):
        result = verify(stream, Reading(max_duration=0.0, notes=open_storage(stream.uri)))
        assert (result.resume, result.read_blobs, result.last_complete) == (True, 1, None)
    result = verify(stream, Reading(max_duration=0.0, notes=open_storage(stream.uri)))
    assert (result.resume, result.read_blobs) == (False, 1)
    assert result.last_complete
    again = verify(stream, Reading(max_duration=0.0, notes=open_storage(stream.uri)))
    assert (again.resume, again.last_complete) == (True, result.last_complete)
    assert (
        verify(stream, Reading(max_duration=60.0, notes=open_storage(stream.uri))).read_blobs
        == every - 1
    )


def test_damage_is_found_whatever_the_budget(home: Path) -> None:
    stream = streams.made(home, epochs=4)
    every = sorted(every_blob(stream))
    bad = next(ref for ref in reversed(every) if ref.size > 1000)
    (home / streams.NAME / bad.key).write_bytes(bytes(bad.size))
    found = [
        codes(stream, Reading(max_duration=0.0, notes=open_storage(stream.uri))) for _ in every
    ]
    assert found.count([scan.BLOB_DAMAGED.code]) == 1
    assert found.count([]) == len(every) - 1


def test_each_subset_has_its_own_place(home: Path) -> None:
    stream = streams.made(home, epochs=6)
    notes = open_storage(stream.uri)
    first, second = (Reading(Subset(p, 2), 0.0, notes) for p in (1, 2))
    for _ in range(sum(first.subset.has(ref) for ref in every_blob(stream)) - 1):
        assert verify(stream, first).resume
    # The other part begins at its own beginning, and neither is the whole.
    whole = verify(stream, replace(second, max_duration=60.0))
    assert whole.read_blobs == sum(second.subset.has(ref) for ref in every_blob(stream))
    assert whole.last_complete is None


@pytest.mark.parametrize("content", [b"", b"nonsense", bytes(5000)])
def test_a_damaged_cursor_only_costs_work(home: Path, content: bytes) -> None:
    stream = streams.made(home, epochs=2)
    verify(stream, Reading(max_duration=0.0, notes=open_storage(stream.uri)))
    (home / streams.NAME / CURSOR).write_bytes(content)
    assert codes(stream) == []
    assert verify(
        stream, Reading(max_duration=60.0, notes=open_storage(stream.uri))
    ).read_blobs == len(every_blob(stream))


def test_where_nothing_can_be_remembered_nothing_is_read(home: Path) -> None:
    stream = streams.made(home, epochs=2)
    (home / streams.NAME / CURSOR).mkdir()
    read: list[int] = []
    with pytest.raises(StorageFailed, match="cannot be saved") as caught:
        verify(
            stream,
            Reading(max_duration=60.0, notes=open_storage(stream.uri)),
            lambda done, _: read.append(done),
        )
    assert "--max-duration" in caught.value.hint
    assert read == []
    assert codes(stream, Reading()) == []


def test_a_check_of_what_is_opened_to_be_read_writes_nothing(home: Path) -> None:
    streams.made(home, epochs=2)
    stream = open_stream(str(home / streams.NAME), read_only=True)
    before = tree.load(home)
    assert verify(stream, Reading(max_duration=60.0)).read_blobs == len(every_blob(stream))
    assert tree.load(home) == before
    with pytest.raises(StorageFailed, match="cannot be saved"):
        verify(stream, Reading(max_duration=60.0, notes=stream.storage))
    assert tree.load(home) == before


def test_progress_reaches_the_total(home: Path) -> None:
    stream = streams.made(home, epochs=3)
    seen: list[tuple[int, int]] = []
    verify(stream, Reading(), lambda done, total: seen.append((done, total)))
    assert seen == sorted(seen)
    assert seen[-1][0] == seen[-1][1] == sum(ref.size for ref in every_blob(stream))


# What is not damage, and what no writer makes.


def aged(path: Path) -> None:
    old = time.time() - DAY - 60
    os.utime(path, (old, old))


def test_orphans_are_noted_when_they_are_old(home: Path) -> None:
    stream = streams.made(home, epochs=1)
    ref = stream.blobs.put(b"of an attempt that was never committed")
    assert codes(stream) == []
    aged(home / streams.NAME / ref.key)
    assert codes(stream) == [rules.ORPHANS.code]
    sweep(stream)
    assert codes(stream) == []


@pytest.mark.parametrize("directory", ["", "chain", "blobs/ab"])
def test_unfinished_files_are_noted_when_they_are_old(home: Path, directory: str) -> None:
    stream = streams.made(home, epochs=1)
    path = home / streams.NAME / directory / ".sg-0123456789abcdef.tmp"
    path.parent.mkdir(exist_ok=True)
    path.write_bytes(b"half of someth")
    assert codes(stream) == []
    aged(path)
    assert codes(stream) == [rules.TEMPORARY.code]


def test_snapshots_below_the_floor_are_noted_and_removed(home: Path) -> None:
    stream = streams.made(home, epochs=5)
    writer = StreamWriter(stream)
    kept = home / "kept"
    shutil.copytree(home / streams.NAME / "chain", kept)
    streams.apply(stream, "prune", to=4)
    for number in (2, 3):
        shutil.copy(kept / Path(key_of(number)).name, home / streams.NAME / "chain")
    (home / streams.NAME / key_of(2)).write_bytes(b"damaged")
    (found,) = verify(stream).findings
    assert (found.rule, found.detail) == (rules.BELOW_FLOOR, "2 pruned snapshots")
    before = writer.head()
    streams.apply(stream, "repair")
    assert codes(stream) == []
    assert writer.head() == before


ORDER = {
    "generation": 0,
    "epoch": 0,
    "created_at": 1.0,
}


def forge(stream: Stream, **changes: object) -> Snapshot:
    """A snapshot that no writer makes, on top of the head."""
    head = stream.chain.head()
    snapshot = replace(Signature().next(head, Kind.COMPACT), **changes)  # type: ignore[arg-type]
    made = stream.chain.append(snapshot)
    assert made
    return made


@pytest.mark.parametrize("after", [0, 2])
@pytest.mark.parametrize("name", ORDER)
def test_numbers_that_go_back(home: Path, name: str, after: int) -> None:
    stream = streams.made(home, epochs=4)
    before = stream.chain.head()
    bad = forge(stream, **{name: ORDER[name]})
    for _ in range(after):
        last = forge(stream)
    (found,) = verify(stream).findings
    assert (found.rule, found.place) == (scan.ORDER, f"{stream.uri}/{key_of(bad.number)}")
    assert f"{name} of snapshot {bad.number} is " in found.detail
    streams.apply(stream, "repair")
    snapshot = stream.chain.head()
    assert snapshot.number == (last if after else bad).number + 1
    assert min(snapshot.generation - before.generation, snapshot.created_at - before.created_at) > 0
    assert snapshot.epoch >= before.epoch
    assert [f.code for f in verify(stream).findings] == [rules.REPAIRED.code]
    assert StreamJournal(stream).propose(streams.operation_of("repair")).actions == ()
    streams.resume_job(stream)


def test_a_repair_with_strange_details_is_no_traceback(home: Path) -> None:
    stream = streams.made(home, epochs=2)
    strange: tuple[object, ...] = (7, "all", [7], [["a", "b"]], [[0, 10**18, None]], [[]], {"0": 1})
    for damaged in strange:
        forge(stream, kind=Kind.REPAIR, details={"damaged": damaged, "unusable": damaged})
    assert not has_errors(verify(stream).findings)


def test_ten_thousand_snapshots(home: Path) -> None:
    """In a time that grows with the snapshots, not with what they all lead to."""
    stream = streams.made(home, epochs=3)
    storage, head = LocalStorage(home / streams.NAME), stream.chain.head()
    directory = home / streams.NAME / "chain"
    for _ in range(10_000):
        made = replace(Signature().next(head, Kind.EPOCH), nonce="0" * 32, epoch=head.epoch + 1)
        data = snapshots.encode(made)
        (directory / Path(key_of(made.number)).name).write_bytes(data)
        head = replace(made, digest=snapshots.digest_of(data))
    write_hint(storage, HEAD, Hint.of(head))
    started = time.process_time()
    result = verify(stream, Reading())
    assert time.process_time() - started < 10
    assert (result.findings, result.snapshots) == ([], 10_005)
    (home / streams.NAME / head.state.refs[-1].key).unlink()
    started = time.process_time()
    (found,) = verify(stream).findings
    assert time.process_time() - started < 10
    assert found.detail.endswith("snapshots that refer to it: 4-10004")


def test_spans() -> None:
    assert spans([3, 1, 2, 7, 7, 9]) == [(1, 3), (7, 7), (9, 9)]
    assert merged([(5, 9), (1, 3), (4, 4), (20, 30), (22, 23)]) == [(1, 9), (20, 30)]
    assert list(without((1, 10), [(3, 4), (9, 20)])) == [(1, 2), (5, 8)]
    assert list(without((1, 10), [(0, 10**18)])) == []
    assert list(without((1, 10), [])) == [(1, 10)]
    assert has([(1, 3), (7, 7)], 7)
    assert not has([(1, 3), (7, 7)], 4)
    assert shown([(1, 3), (7, 7)]) == "1-3, 7"
