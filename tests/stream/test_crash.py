"""The crash lab of gated streams: whatever call a writer dies at, the stream is before or after.

After every cut: is what was acknowledged there, does verify find no error, is every snapshot that
was there still there, is every event counted once, and can a job resume.
"""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from itertools import count
from pathlib import Path

import pytest

from sluicegate.errors import Corrupt, NotFound
from sluicegate.storage import LocalStorage
from sluicegate.stream import gc
from sluicegate.stream.append import RebalanceDraft, Signature
from sluicegate.stream.snapshot import MAX_DELTAS, Snapshot, key_of
from sluicegate.stream.stream import Stream
from sluicegate.stream.transactions import recover
from sluicegate.stream.writer import StreamWriter
from tests.stream.streams import (
    NAME,
    apply,
    as_run,
    at,
    begin,
    check,
    commit,
    errors_of,
    in_memory,
    made,
    make_home,
    opened,
    resume_job,
    work,
)
from tests.support.faults import Aftermath, Cut, Disk, Killed, _run_cut, cut_points

# Chance gets its tries where most is written; elsewhere nothing, or everything, is lost.
SURE = (Aftermath.KILL, Aftermath.POWER_LOSS)
RUN = "run"
Step = Callable[[Stream], object]


@pytest.fixture
def scratch() -> Iterator[Path]:
    with in_memory() as path:
        yield path


@dataclass(frozen=True)
class Look:
    """The fields of a head, without those that differ from run to run."""

    kind: str
    number: int
    generation: int
    version: int
    sequence: int
    epoch: int
    floor: int
    writer: bool
    positions: tuple[int, ...]
    ancestry: tuple[tuple[int, int], ...]
    manifest: tuple[bool, int]
    dedup: tuple[bool, int]

    @classmethod
    def of(cls, snapshot: Snapshot) -> Look:
        return cls(
            snapshot.kind.value,
            snapshot.number,
            snapshot.generation,
            snapshot.version,
            snapshot.sequence,
            snapshot.epoch,
            snapshot.floor,
            snapshot.writer == RUN,
            tuple(each.offset for each in snapshot.positions),
            snapshot.ancestry,
            (snapshot.state.base is not None, len(snapshot.state.deltas)),
            (snapshot.dedup.base is not None, len(snapshot.dedup.deltas)),
        )


def stream_of(storage: LocalStorage) -> Stream:
    """The stream in the home of this storage; both make their calls through the same process."""
    return opened(Path(storage.uri), storage._calls)


def acting(step: Step) -> Callable[[LocalStorage], object]:
    return lambda storage: step(stream_of(storage))


def copy_of(template: Path) -> Callable[[LocalStorage], object]:
    return lambda storage: shutil.copytree(template, storage.uri, dirs_exist_ok=True)


def cuts(
    scratch: Path,
    prepare: Callable[[LocalStorage], object],
    act: Callable[[LocalStorage], object],
    aftermaths: tuple[Aftermath, ...],
) -> Iterator[tuple[Cut, bool]]:
    """`cut_points`, but for some, and whether the disk is as it was after another one.

    A cut at a read leaves what a cut at the next write leaves; and all that a temporary file goes
    through before it has its name is tried with the torn contents only.
    """
    calls = _run_cut(scratch / "all", prepare, act, 10**9, (Aftermath.KILL, 0)).calls
    skipped: tuple[str, ...] = ("read", "stat", "list")
    if Aftermath.TORN not in aftermaths:
        skipped = (*skipped, "write", "fsync file")
    numbers = [n for n, call in enumerate(calls) if not call.startswith(skipped)]
    start = _prints(scratch / "start", prepare)
    seen: set[tuple[bool, frozenset[object]]] = set()
    for aftermath in aftermaths:
        for seed in range(3 if aftermath is Aftermath.TORN else 1):
            for number in (*numbers, len(calls)):
                root = scratch / f"{aftermath.name}-{seed}-{number}"
                cut = _run_cut(root, prepare, act, number, (aftermath, seed))
                assert cut.calls == calls[: number + 1], "it must make the same calls every time"
                left = (cut.acknowledged, _print(root, start))
                yield cut, left in seen
                seen.add(left)
                shutil.rmtree(root)


def _prints(root: Path, prepare: Callable[[LocalStorage], object]) -> dict[str, bytes]:
    root.mkdir()
    prepare(LocalStorage(root))
    return {str(p.relative_to(root)): p.read_bytes() for p in root.rglob("*") if p.is_file()}


def _print(root: Path, start: dict[str, bytes]) -> frozenset[object]:
    """What is on disk: names, and which files are not what they were; locks are no matter."""
    found: set[object] = set()
    for path in root.rglob("*"):
        name = str(path.relative_to(root))
        if "/locks" in name:
            continue
        if path.is_dir() or path.name.startswith(".sg-"):
            found.add(name if path.is_dir() else "temporary")
        else:
            found.add((name, path.stat().st_size, start.get(name) == path.read_bytes()))
    return frozenset(found)


@contextmanager
def noting(cut: object) -> Iterator[None]:
    """Name the cut in whatever fails."""
    try:
        yield
    except Exception as e:
        e.add_note(str(cut))
        raise


def committed(stream: Stream) -> object:
    return commit(as_run(stream, RUN))


def claimed(stream: Stream) -> None:
    with StreamWriter(stream).claim(run=RUN):
        pass


def pruned(stream: Stream) -> None:
    """To the newest snapshot; every cut copies what is there."""
    gc.prune(StreamWriter(stream), stream.chain.head().number)


def rebalanced(stream: Stream) -> object:
    writer = StreamWriter(stream)
    head = writer.head()
    blob = stream.blobs.put(b"assignment")
    return writer.append(RebalanceDraft(head.version, head.generation, blob, Signature(), {}), head)


def with_orphans(stream: Stream) -> None:
    """Blobs and unfinished files that dead writers left behind long ago."""
    old = time.time() - gc.GRACE - 60
    paths = [Path(stream.uri) / stream.blobs.put(f"orphan {n}".encode()).key for n in range(2)]
    paths.append(Path(stream.uri) / "chain" / ".sg-0123.tmp")
    paths[-1].write_bytes(b"unfinished")
    for path in paths:
        os.utime(path, (old, old))


def damaged(number: int) -> Step:
    return lambda stream: os.truncate(Path(stream.uri) / key_of(number), 40)


def blob_lost(number: int) -> Step:
    """What only this snapshot, and those after it, refer to is gone."""

    def step(stream: Stream) -> None:
        ref = stream.chain.read(number).state_delta
        assert ref
        (Path(stream.uri) / ref.key).unlink()

    return step


@dataclass(frozen=True)
class Act:
    """Work that is cut everywhere, on a stream that the steps made."""

    steps: list[Step]
    step: Step
    aftermaths: tuple[Aftermath, ...] = SURE
    dedup: bool = False


def epochs(number: int) -> Step:
    return lambda stream: work(stream, number, run=RUN)


ACTS = {
    "a claim": Act([epochs(2)], claimed),
    "the first claim": Act([], claimed),
    "the first commit": Act([claimed], committed, tuple(Aftermath)),
    "a later commit": Act([epochs(2)], committed),
    "a commit that folds": Act([epochs(MAX_DELTAS), pruned], committed),
    "a rollback": Act([epochs(3)], lambda s: apply(s, "rollback", to=3)),
    "a reset": Act([epochs(3)], lambda s: apply(s, "reset", positions=at(3)), dedup=True),
    "a rebalance": Act([epochs(2)], rebalanced),
    "a commit that folds the dedup log": Act([epochs(MAX_DELTAS), pruned], committed, dedup=True),
    "a compact of the dedup log": Act([epochs(3)], lambda s: apply(s, "compact-dedup"), dedup=True),
    "a compact": Act([epochs(3)], lambda s: apply(s, "compact")),
    "a prune": Act([epochs(4)], lambda s: apply(s, "prune", to=3)),
    "a prune with orphans": Act([epochs(2), with_orphans], lambda s: apply(s, "prune", to=2)),
}


@pytest.mark.parametrize("name", ACTS)
def test_an_act_is_before_or_after_at_every_cut(scratch: Path, name: str) -> None:
    act = ACTS[name]
    template = scratch / "template"
    stream = made(template, dedup=act.dedup)
    for step in act.steps:
        step(stream)
    before = StreamWriter(stream).head()
    snapshots = {n: stream.chain.read(n).digest for n in range(before.floor, before.number + 1)}
    after = _after(template, scratch / "after", act.step)
    seen = set()
    for cut, again in cuts(scratch, copy_of(template), acting(act.step), act.aftermaths):
        with noting(cut):
            stream = opened(cut.root)
            happened = Look.of(StreamWriter(stream).head()) == after
            seen.add((cut.aftermath, happened))
            assert happened or not cut.acknowledged
            if again:
                continue
            found = Look.of(check(stream))
            assert found in (Look.of(before), after)
            for number in range(found.floor, before.number + 1):
                assert stream.chain.read(number).digest == snapshots[number]
            resume_job(stream)
    assert len(seen) == 2 * len(act.aftermaths), "both outcomes must occur"


def _after(template: Path, root: Path, step: Step) -> Look:
    shutil.copytree(template, root)
    step(opened(root))
    return Look.of(check(opened(root)))


def test_a_genesis_is_before_or_after_at_every_cut(scratch: Path) -> None:
    seen = set()

    def act(storage: LocalStorage) -> None:
        begin(stream_of(storage), dedup=True)

    for cut in cut_points(scratch, lambda storage: make_home(Path(storage.uri)), act, SURE):
        with noting(cut):
            stream = opened(cut.root)
            there = _has_chain(stream)
            assert there or not cut.acknowledged
            if not there:
                begin(stream)
            assert check(stream).number == 0
            resume_job(stream)
            seen.add((cut.aftermath, there))
    assert len(seen) == 2 * len(SURE), "both outcomes must occur"


def _has_chain(stream: Stream) -> bool:
    try:
        StreamWriter(stream).head()
    except NotFound:
        return False
    return True


def test_a_sweep_takes_nothing_that_is_needed_at_any_cut(scratch: Path) -> None:
    template = scratch / "template"
    stream = made(template, epochs=3)
    apply(stream, "compact")
    with_orphans(stream)
    # Snapshots below the floor are left, as by a prune that was killed before its sweep.
    shutil.copytree(template / NAME / "chain", scratch / "snapshots")
    gc.prune(StreamWriter(stream), 3, grace=gc.GRACE * 9)
    shutil.copytree(scratch / "snapshots", template / NAME / "chain", dirs_exist_ok=True)
    before = StreamWriter(stream).head()
    ends = set()

    def act(storage: LocalStorage) -> None:
        gc.sweep(stream_of(storage))

    for cut, again in cuts(scratch, copy_of(template), act, SURE):
        if again:
            continue
        with noting(cut):
            stream = opened(cut.root)
            assert check(stream).digest == before.digest
            left = sorted(int(p.stem) for p in (cut.root / NAME / "chain").glob("*.snapshot"))
            assert left[-4:] == [3, 4, 5, 6]
            if cut.acknowledged:
                assert left == [3, 4, 5, 6]
            gc.sweep(stream)
            assert not gc.sweep(stream, dry_run=True)
            resume_job(stream)
            check(stream)
            ends.add(len(left))
    assert ends > {4, 7}


@dataclass(frozen=True)
class Damage:
    """What is damaged of a stream with four epochs, and where the repair resumes from."""

    steps: list[Step]
    base: int


DAMAGES = {
    "the newest snapshot": Damage([damaged(5)], 4),
    "an older snapshot": Damage([damaged(3)], 5),
    "the newest blob": Damage([blob_lost(5)], 4),
    "the head": Damage([lambda s: (Path(s.uri) / "HEAD").unlink()], 5),
    "the newest two snapshots": Damage([damaged(5), damaged(4)], 3),
}


@pytest.mark.parametrize("name", DAMAGES)
def test_a_repair_is_before_or_after_at_every_cut(scratch: Path, name: str) -> None:
    damage = DAMAGES[name]
    stream = made(scratch / "template", epochs=4)
    for step in damage.steps:
        step(stream)
    assert errors_of(stream)
    expected = _after(scratch / "template", scratch / "after", repaired)
    assert expected.kind == "repair"
    seen = set()
    for cut, again in cuts(scratch, copy_of(scratch / "template"), acting(repaired), SURE):
        with noting(cut):
            stream = opened(cut.root)
            is_sound = not errors_of(stream, read=False)
            seen.add((cut.aftermath, is_sound))
            assert is_sound or not cut.acknowledged
            if again:
                continue
            if not is_sound:
                if name != "an older snapshot":
                    with pytest.raises(Corrupt):
                        work(stream, 1)
                repaired(stream)
            head = check(stream)
            found = Look.of(head)
            # A second attempt may count what the first left among the lost.
            assert found.number >= expected.number
            assert found.generation >= expected.generation
            assert found.positions == expected.positions
            assert found.sequence == expected.sequence
            assert [head.includes(n) for n in range(6)] == [n <= damage.base for n in range(6)]
            resume_job(stream)
            check(stream)
    assert len(seen) == 2 * len(SURE), "both outcomes must occur"


def repaired(stream: Stream) -> object:
    return apply(stream, "repair")


def killed_at_every_call(scratch: Path, act: Step) -> Iterator[tuple[Path, Disk, bool]]:
    """The act on a copy of the template, killed at each write; the disk lives on."""
    for number in count():
        root = scratch / f"killed-{number}"
        shutil.copytree(scratch / "template", root)
        disk, killer = Disk(root), _Killer(number)
        with suppress(Killed):
            act(opened(root, disk.process(killer)))
        with noting((number, killer.left)):
            yield root, disk, killer.left >= 0
        shutil.rmtree(root)
        if killer.left >= 0:
            return


class _Killer:
    """Kills at one of the calls that write."""

    def __init__(self, at: int) -> None:
        self.left = at

    def __call__(self, _number: int, call: str) -> None:
        if call.startswith(("create", "fsync dir", "link", "mkdir", "rename", "unlink")):
            self.left -= 1
            if self.left == -1:
                raise Killed


def test_a_second_writer_relies_on_nothing_that_a_power_loss_takes(scratch: Path) -> None:
    """The first is killed and the kernel lives; the second builds on what it sees, then all ends.

    What the second one acknowledged is there, with everything that it was built on.
    """
    stream = made(scratch / "template", epochs=2)
    claimed(stream)
    before = StreamWriter(stream).head().number
    ends = set()
    for root, disk, _ in killed_at_every_call(scratch, committed):
        head = work(opened(root, disk.process()), 1)
        disk.crash(Aftermath.POWER_LOSS)
        assert check(opened(root)).digest == head.digest
        ends.add(head.number - before)
    assert ends == {2, 3}, "both outcomes must occur"


def test_what_was_acknowledged_survives_a_power_loss(scratch: Path) -> None:
    """Also what a writer did not live to make durable itself."""
    claimed(made(scratch / "template", epochs=2))
    ends = set()
    for root, disk, acknowledged in killed_at_every_call(scratch, committed):
        found = recover(opened(root, disk.process()))
        disk.crash(Aftermath.POWER_LOSS)
        assert recover(opened(root)) == found
        assert found.sequence == 18 or not acknowledged
        ends.add(found.sequence)
    assert ends == {12, 18}, "both outcomes must occur"
