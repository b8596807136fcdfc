"""The damage lab: each file of a stream damaged in each way is found, and repaired.

What must be found, and what a repair must lose, is computed from the intact stream: which
snapshots were lost, and which blobs each snapshot leads to. `SG_LAB=all` damages every blob there
is, not one of each role.
"""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from sluicegate.errors import Corrupt, Drifted, StorageFailed, UsageError
from sluicegate.findings import Finding, Severity, has_errors
from sluicegate.journal import Approval
from sluicegate.plan import Plan
from sluicegate.process import myself
from sluicegate.state import manifest
from sluicegate.storage import LocalStorage
from sluicegate.storage.blobs import Ref
from sluicegate.stream import evidence, scan
from sluicegate.stream.append import RebalanceDraft, Signature
from sluicegate.stream.chain import HEAD, Hint, write_hint
from sluicegate.stream.gc import sweep
from sluicegate.stream.history import NotRestorable
from sluicegate.stream.journal import StreamJournal, Workplace
from sluicegate.stream.operations import repair
from sluicegate.stream.snapshot import (
    ChainDamaged,
    ChainShort,
    Snapshot,
    encode,
    extended,
    key_of,
    spans,
)
from sluicegate.stream.stream import Stream, open_stream
from sluicegate.stream.verify import CURSOR, Reading, Subset, verify
from sluicegate.stream.writer import StreamWriter
from tests.stream import streams

FLOOR, NEWEST, REMEMBERED = 4, 22, 19
EVERYTHING = os.environ.get("SG_LAB") == "all"
WAYS = ("missing", "empty", "cut", "flipped", "swapped", "directory")
ROLES = (
    "base",
    "first delta",
    "newest delta",
    "operators",
    "dedup",
    "assignment",
    "compacted table",
    "newest table",
    "abandoned table",
    "abandoned manifest",
    "oldest table",
)


@dataclass(slots=True)
class Original:
    """The intact stream: its snapshots, and what each of them leads to."""

    home: Path
    snapshots: dict[int, Snapshot]
    reach: dict[int, set[str]]
    backups: dict[int, Path]
    roles: dict[str, Ref]


@dataclass(slots=True)
class Lab:
    """A copy of the stream that may be damaged, and what has been."""

    home: Path
    original: Original
    lost: set[int] = field(default_factory=set)
    bad: set[str] = field(default_factory=set)

    @property
    def root(self) -> Path:
        return self.home / streams.NAME

    @property
    def mark(self) -> Path:
        return self.home / "heads" / f"{streams.NAME}.head"

    def stream(self, *, read_only: bool = False) -> Stream:
        return open_stream(str(self.root), read_only=read_only)

    def snapshot(self, number: int) -> Path:
        return self.root / key_of(number)

    def damage(self, way: str, path: Path, neighbour: Path | None = None) -> None:
        """Do it, and note what it does to snapshots and blobs."""
        hurt = [path, *([neighbour] if neighbour and way == "swapped" else [])]
        harm(way, path, neighbour)
        for each in hurt:
            if each.suffix == ".snapshot":
                self.lost.add(int(each.stem))
            elif "blobs" in each.parts:
                self.bad.add(f"blobs/{each.parent.name}/{each.name}")

    @property
    def usable(self) -> list[int]:
        """The snapshots that are whole."""
        kept = self.original.snapshots.keys() - self.lost
        return sorted(n for n in kept if not self.original.reach[n] & self.bad)

    @property
    def base(self) -> int:
        """The snapshot that the stream must resume from."""
        head = self.original.snapshots[max(self.original.snapshots.keys() - self.lost)]
        of_the_stream = [n for n in self.usable if head.includes(n)]
        return max(of_the_stream or self.usable)


def harm(way: str, path: Path, neighbour: Path | None = None) -> None:
    data = path.read_bytes()
    path.unlink()
    match way:
        case "empty":
            path.write_bytes(b"")
        case "cut":
            path.write_bytes(data[: len(data) // 2])
        case "flipped":
            middle = len(data) // 2
            path.write_bytes(data[:middle] + bytes([data[middle] ^ 0x10]) + data[middle + 1 :])
        case "swapped":
            assert neighbour
            path.write_bytes(neighbour.read_bytes())
            neighbour.write_bytes(data)
        case "directory":
            path.mkdir()
        case "missing":
            pass


@pytest.fixture(scope="module")
def original() -> Iterator[Original]:
    with streams.in_memory() as root:
        yield build(root)


@pytest.fixture
def lab(original: Original) -> Iterator[Lab]:
    with streams.in_memory() as root:
        shutil.copytree(original.home, root / "home", copy_function=shutil.copyfile)
        yield Lab(root / "home", original)


def build(root: Path) -> Original:
    """A stream with a history: every kind of snapshot that this release makes, and of blob."""
    home = streams.make_home(root / "home")
    stream = streams.opened(home)
    backups: dict[int, Path] = {}

    def back_up() -> None:
        number = stream.chain.head().number
        backups[number] = root / f"backup-{number}"
        shutil.copytree(home / streams.NAME, backups[number])

    streams.begin(stream, dedup=True)
    streams.work(stream, 1)
    back_up()
    streams.work(stream, 4)
    streams.apply(stream, "rollback", to=5)
    streams.work(stream, 3)
    back_up()
    streams.apply(stream, "compact")
    writer = StreamWriter(stream)
    head = writer.head()
    assignment = stream.blobs.put(b"which shard is whose")
    writer.append(RebalanceDraft(head.version, head.generation, assignment, Signature(), {}), head)
    with_operators(stream)
    back_up()
    streams.apply(stream, "prune", to=FLOOR)
    sweep(stream, grace=-1)
    streams.work(stream, 3)
    verify(stream, Reading(Subset(), 60.0, stream.storage))
    (home / "other").mkdir()
    other = open_stream(str(home / "other"), read_only=False)
    streams.begin(other)
    streams.work(other, 8)
    return seen(home, stream, backups)


def with_operators(stream: Stream) -> None:
    operators = stream.blobs.put(b"what operators remember")
    with StreamWriter(stream).claim(app="job") as job:
        epoch = streams.epoch_after(StreamWriter(stream), job.snapshot)
        job.commit(replace(epoch, operators=operators))
        streams.commit(job)


def seen(home: Path, stream: Stream, backups: dict[int, Path]) -> Original:
    snapshots = {n: stream.chain.read(n) for n in stream.chain.numbers()}
    assert (min(snapshots), max(snapshots)) == (FLOOR, NEWEST)
    assert (
        max(n for n, snapshot in snapshots.items() if snapshot.kind.value != "epoch") == REMEMBERED
    )
    reach = {n: {ref.key for ref in reached(stream, snapshot)} for n, snapshot in snapshots.items()}
    head, abandoned = snapshots[NEWEST], snapshots[7]
    assert head.state.base
    assert head.operators
    assert head.assignment
    assert abandoned.state_delta

    def table_in(of: Ref) -> Ref:
        return max(manifest.refs_in(stream.blobs, of), key=lambda ref: ref.size)

    refs = {
        "base": head.state.base,
        "first delta": head.state.deltas[0],
        "newest delta": head.state.deltas[-1],
        "operators": head.operators,
        "dedup": head.dedup.refs[0],
        "assignment": head.assignment,
        "compacted table": table_in(head.state.base),
        "newest table": table_in(head.state.deltas[-1]),
        "abandoned table": table_in(abandoned.state_delta),
        "abandoned manifest": abandoned.state_delta,
        "oldest table": table_in(snapshots[FLOOR].state.refs[0]),
    }
    assert set(refs) == set(ROLES)
    return Original(home, snapshots, reach, backups, refs)


def reached(stream: Stream, snapshot: Snapshot) -> Iterator[Ref]:
    yield from snapshot.refs
    for ref in (*snapshot.state.refs, *([snapshot.state_delta] if snapshot.state_delta else [])):
        yield from manifest.refs_in(stream.blobs, ref)


# What must hold before, during and after a repair.


def errors(lab: Lab) -> list[Finding]:
    found = verify(lab.stream(read_only=True), Reading()).findings
    return [each for each in found if each.severity is Severity.ERROR]


def codes(found: Iterable[Finding]) -> set[str]:
    return {each.code for each in found}


def numbers_in(found: Iterable[Finding]) -> set[int]:
    """The snapshots that findings report as damaged."""
    numbers: set[int] = set()
    for each in found:
        if each.rule is evidence.SNAPSHOT_DAMAGED:
            first, _, last = each.detail.partition(":")[0].split()[1].partition("-")
            assert each.place.endswith(key_of(int(first)))
            numbers |= set(range(int(first), int(last or first) + 1))
    return numbers


def check_found(lab: Lab, found: list[Finding]) -> None:
    """Exactly what was damaged is found, where it is, with a command that repairs it."""
    assert numbers_in(found) == lab.lost
    blobs = {each.place: each for each in found if each.rule is scan.BLOB_DAMAGED}
    assert blobs.keys() == {f"{lab.root}/{key}" for key in lab.bad}
    for key in lab.bad:
        kept = lab.original.snapshots.keys() - lab.lost
        users = sorted(n for n in kept if key in lab.original.reach[n])
        text = blobs[f"{lab.root}/{key}"].detail.rpartition("snapshots that refer to it: ")[2]
        assert text == ", ".join(f"{a}-{b}" if a != b else f"{a}" for a, b in spans(users))
    expected = {evidence.SNAPSHOT_DAMAGED.code} if lab.lost else set()
    expected |= {scan.SHORT.code} if NEWEST in lab.lost else set()
    expected |= {scan.BLOB_DAMAGED.code} if lab.bad else set()
    assert codes(found) == expected
    assert all(each.repair.startswith(f"sluicegate checkpoint repair {lab.root}") for each in found)


def clear_the_way(lab: Lab) -> list[Finding]:
    """Do what verify asks the operator to do before anything is repaired; gives the rest."""
    for _ in range(3):
        found = errors(lab)
        commands = [f.repair for f in found if f.repair.startswith(("mv ", "chmod "))]
        if not commands:
            return found
        with pytest.raises(StorageFailed) as refused:
            planned(lab)
        assert refused.value.hint == f"{commands[0]}; then run this again"
        for command in commands:
            subprocess.run(shlex.split(command), check=True)
    raise AssertionError(commands)


def planned(lab: Lab, *, read_data: bool = False) -> Plan:
    journal = StreamJournal(lab.stream(read_only=True))
    return journal.propose(streams.operation_of("repair", read_data=read_data))


def applied(lab: Lab, plan: Plan) -> Snapshot:
    StreamJournal(lab.stream()).apply(plan, Approval(myself(), "a test"))
    return lab.stream().chain.head()


def repaired(lab: Lab, found: list[Finding] | None = None) -> Snapshot:
    """Run the command that verify names."""
    found = errors(lab) if found is None else found
    read_data = any("--read-data" in each.repair for each in found)
    plan = planned(lab, read_data=read_data)
    check_plan(lab, plan)
    return applied(lab, plan)


def check_plan(lab: Lab, plan: Plan) -> None:
    """The plan shows which snapshots and how many events are lost, no more, no less."""
    text, base, snapshots = " ".join(plan.consequences), lab.base, lab.original.snapshots
    assert f"resumes from snapshot {base} " in " ".join(a.detail for a in plan.actions)
    if base == NEWEST:
        assert "newest snapshot" in text
        assert "rolled back" not in text
        return
    first = base + 1
    which = f"snapshot {first}" if first == NEWEST else f"snapshots {first} to {NEWEST}"
    assert f"is rolled back to snapshot {base} of " in text
    assert f"The changes of {which} are discarded" in text
    lost = snapshots[NEWEST].sequence - snapshots[base].sequence
    if snapshots[base].generation != snapshots[NEWEST].generation:
        assert "How many events were committed since is not known" in text
    else:
        assert (
            f"{lost} events were committed" in text if lost else "No events were committed" in text
        )


def check_repaired(lab: Lab, snapshot: Snapshot) -> None:
    """A repair records the discarded snapshots, has the content of the base, only goes up."""
    last, base = lab.original.snapshots[NEWEST], lab.original.snapshots[lab.base]
    assert (snapshot.kind.value, snapshot.number) == ("repair", NEWEST + 1)
    assert snapshot.generation == last.generation + 1
    assert (snapshot.epoch, snapshot.created_at >= last.created_at) == (last.epoch, True)
    assert snapshot.version >= last.version
    assert snapshot.floor >= last.floor
    assert (snapshot.sequence, snapshot.positions, snapshot.state) == (
        base.sequence,
        base.positions,
        base.state,
    )
    assert snapshot.ancestry == extended(base.ancestry, snapshot.number)
    unusable = lab.original.snapshots.keys() - lab.lost - set(lab.usable)
    assert declared(snapshot, "damaged") == lab.lost
    assert declared(snapshot, "unusable") == unusable


def declared(snapshot: Snapshot, name: str) -> set[int]:
    return {n for first, last, *_ in snapshot.details[name] for n in range(first, last + 1)}


def check_well(lab: Lab) -> None:
    """Verify is content, a repair finds nothing to do, and a job continues without a miscount."""
    assert errors(lab) == []
    assert planned(lab, read_data=True).actions == ()
    stream = lab.stream()
    streams.check_counted(stream, StreamWriter(stream).head())
    after = streams.resume_job(stream)
    assert streams.offsets_of(after) == streams.counted_of(after)
    assert streams.errors_of(stream, read=EVERYTHING) == []


def check_way_back(lab: Lab) -> None:
    """Intact snapshots can be restored and the change be undone; lost ones are refused."""
    stream = lab.stream()
    head = StreamWriter(stream).head()
    kept = [n for n in lab.usable if lab.original.snapshots[n].sequence != head.sequence]
    for number in sorted({kept[0], kept[-1]} if EVERYTHING else {kept[0]}):
        streams.apply(stream, "rollback", to=number)
        streams.check_counted(stream, StreamWriter(stream).head())
        journal = StreamJournal(stream)
        journal.apply(journal.plan_undo(None), Approval(myself(), "a test"))
        assert StreamWriter(stream).head().sequence == head.sequence
        streams.check_counted(stream, StreamWriter(stream).head())
    assert StreamJournal(stream).history()
    for number in sorted(lab.lost)[:1]:
        with pytest.raises(NotRestorable):
            streams.apply(stream, "rollback", to=number)
    assert streams.errors_of(stream, read=EVERYTHING) == []


def check_refused(lab: Lab) -> None:
    """Nothing starts: neither from what is left nor from nothing, and nothing is written."""
    before = sorted(each.name for each in (lab.root / "chain").iterdir())
    for start in (StreamWriter(lab.stream()).head, lambda: streams.work(lab.stream(), 1)):
        with pytest.raises((ChainDamaged, StorageFailed)):
            start()
    with pytest.raises((ChainDamaged, StorageFailed, UsageError)):
        streams.begin(lab.stream())
    assert sorted(each.name for each in (lab.root / "chain").iterdir()) == before


def check_hopeless(lab: Lab) -> None:
    """Damage that no repair can fix is refused, and gone when the files are restored."""
    with pytest.raises(ChainDamaged, match="is complete, so the stream cannot resume") as refused:
        planned(lab, read_data=True)
    assert refused.value.hint.startswith("restore the damaged files")
    restore(lab)
    check_well(lab)


def restore(lab: Lab) -> None:
    """Put every file back."""
    shutil.copytree(lab.original.home, lab.home, dirs_exist_ok=True)
    lab.lost.clear()
    lab.bad.clear()


def go_through(lab: Lab, *, and_back: bool = EVERYTHING) -> None:
    """Find, repair and continue; then roll back, to check that intact snapshots are usable."""
    found = clear_the_way(lab)
    check_found(lab, found)
    if not lab.usable:
        check_hopeless(lab)
        return
    check_repaired(lab, repaired(lab, found))
    check_well(lab)
    if and_back:
        check_way_back(lab)


def test_nothing_is_found_in_the_intact_stream(lab: Lab) -> None:
    assert errors(lab) == []
    assert planned(lab, read_data=True).actions == ()
    check_well(lab)


SPECIAL = (FLOOR, 8, 18, REMEMBERED, NEWEST)
"""The oldest, the rollback, the prune, the one that the home remembers, and the newest."""


def sampled(index: int, way: str, every: int) -> bool:
    return EVERYTHING or index % every == WAYS.index(way) % every


@pytest.mark.parametrize(
    ("way", "number"),
    [
        (way, number)
        for number in range(FLOOR, NEWEST + 1)
        for way in WAYS
        if number in SPECIAL or sampled(number, way, len(WAYS))
    ],
)
def test_snapshot(lab: Lab, way: str, number: int) -> None:
    beside = number - 1 if number > FLOOR else number + 1
    lab.damage(way, lab.snapshot(number), lab.snapshot(beside))
    if NEWEST in lab.lost:
        check_refused(lab)
    go_through(lab, and_back=EVERYTHING or way in ("missing", "flipped"))


@pytest.mark.parametrize("number", [FLOOR, 8, REMEMBERED, NEWEST])
def test_a_snapshot_of_another_branch(lab: Lab, number: int) -> None:
    """Intact in itself, but not the one that its successor, or HEAD, names."""
    forged = replace(lab.original.snapshots[number], reason="on another branch")
    lab.snapshot(number).write_bytes(encode(forged))
    lab.lost.add(number)
    go_through(lab, and_back=False)


def test_a_snapshot_of_another_branch_is_not_restored(lab: Lab) -> None:
    forged = replace(lab.original.snapshots[12], reason="on another branch")
    lab.snapshot(12).write_bytes(encode(forged))
    with pytest.raises(NotRestorable):
        streams.apply(lab.stream(), "rollback", to=12)


def test_a_newest_snapshot_that_does_not_follow(lab: Lab) -> None:
    """HEAD may be one behind; what comes after it must still be its child."""
    before = lab.original.snapshots[NEWEST - 1]
    write_hint(LocalStorage(lab.root), HEAD, Hint.of(before))
    forged = replace(lab.original.snapshots[NEWEST], parent="ab" * 32)
    lab.snapshot(NEWEST).write_bytes(encode(forged))
    check_refused(lab)
    assert numbers_in(errors(lab)) == {NEWEST}
    snapshot = applied(lab, planned(lab))
    assert (snapshot.number, snapshot.sequence) == (NEWEST + 1, before.sequence)
    check_well(lab)


@pytest.mark.parametrize(
    ("way", "role"),
    [(way, role) for i, role in enumerate(ROLES) for way in WAYS if sampled(i, way, 3)],
)
def test_blob(lab: Lab, way: str, role: str) -> None:
    roles = list(ROLES)
    alike = [r for r in roles if r != role and r.endswith(role.rpartition(" ")[2])]
    beside = lab.original.roles[(alike or [r for r in roles if r != role])[0]]
    lab.damage(way, lab.root / lab.original.roles[role].key, lab.root / beside.key)
    go_through(lab, and_back=EVERYTHING or way == "flipped")


@pytest.mark.skipif(not EVERYTHING, reason="one blob of each role is damaged; SG_LAB=all: all")
@pytest.mark.parametrize("way", WAYS)
def test_every_blob(original: Original, way: str) -> None:
    every = sorted({key for keys in original.reach.values() for key in keys})
    for key, beside in zip(every, every[1:] + every[:1], strict=True):
        with streams.in_memory() as root:
            shutil.copytree(original.home, root / "home")
            lab = Lab(root / "home", original)
            lab.damage(way, lab.root / key, lab.root / beside)
            go_through(lab)


@pytest.mark.parametrize("way", WAYS)
def test_head(lab: Lab, way: str) -> None:
    shutil.copy(lab.home / "other" / "HEAD", lab.home / "spare")
    harm(way, lab.root / "HEAD", lab.home / "spare")
    check_refused(lab)
    found = clear_the_way(lab)
    assert [(each.code, each.place) for each in found] == [
        (evidence.HEAD_DAMAGED.code, f"{lab.root}/HEAD")
    ]
    plan = planned(lab)
    assert "Without HEAD it is not known whether there were later ones" in plan.consequences[0]
    check_repaired(lab, applied(lab, plan))
    check_well(lab)
    check_way_back(lab)


def test_what_the_home_remembers_may_be_missing(lab: Lab) -> None:
    lab.mark.unlink()
    check_well(lab)
    assert lab.mark.exists()


@pytest.mark.parametrize("way", ["empty", "cut", "flipped", "directory"])
def test_what_the_home_remembers(lab: Lab, way: str) -> None:
    harm(way, lab.mark)
    check_refused(lab)
    (found,) = errors(lab)
    assert found.place == str(lab.mark)
    clear_the_way(lab)
    check_well(lab)


def test_the_home_remembers_another_stream(lab: Lab) -> None:
    shutil.copyfile(lab.home / "heads" / "other.head", lab.mark)
    check_foreign(lab)
    lab.mark.unlink()
    check_well(lab)


def test_another_stream_in_its_place(lab: Lab) -> None:
    shutil.rmtree(lab.root)
    shutil.copytree(lab.home / "other", lab.root)
    check_foreign(lab)
    shutil.rmtree(lab.root)
    shutil.copytree(lab.original.home / streams.NAME, lab.root)
    check_well(lab)


def test_the_chain_of_another_stream(lab: Lab) -> None:
    shutil.rmtree(lab.root / "chain")
    shutil.copytree(lab.home / "other" / "chain", lab.root / "chain")
    check_foreign(lab)


def check_foreign(lab: Lab) -> None:
    check_refused(lab)
    assert evidence.FOREIGN.code in codes(errors(lab))
    with pytest.raises(ChainDamaged, match="not the stream that belongs there") as refused:
        planned(lab)
    assert f"heads/{streams.NAME}.head" in refused.value.hint


def test_another_head_without_a_home(lab: Lab) -> None:
    shutil.copyfile(lab.home / "other" / "HEAD", lab.root / "HEAD")
    (lab.home / "sluicegate.home").unlink()
    check_refused(lab)
    assert codes(errors(lab)) == {evidence.FOREIGN.code}
    with pytest.raises(ChainDamaged, match="different streams") as refused:
        planned(lab)
    assert refused.value.hint.endswith("remove HEAD")
    (lab.root / "HEAD").unlink()
    check_repaired(lab, repaired(lab))


@pytest.mark.parametrize("way", [way for way in WAYS if way != "swapped"])
def test_files_that_are_no_part_of_the_stream(lab: Lab, way: str) -> None:
    for path in (*(lab.root / "locks").glob("*.lock"), lab.root / CURSOR):
        harm(way, path)
    assert errors(lab) == []
    if way == "directory":
        with pytest.raises(StorageFailed):
            streams.work(lab.stream(), 1)
        with pytest.raises(StorageFailed, match="cannot be saved"):
            verify(lab.stream(), Reading(max_duration=60.0, notes=lab.stream().storage))
    else:
        check_well(lab)
        assert not verify(
            lab.stream(), Reading(max_duration=60.0, notes=lab.stream().storage)
        ).resume


SEVERAL = {
    "the newest two snapshots": ["snapshot 22", "snapshot 21"],
    "every other snapshot": [f"snapshot {n}" for n in range(FLOOR, NEWEST, 2)],
    "all snapshots since the rollback": [f"snapshot {n}" for n in range(8, NEWEST + 1)],
    "the newest snapshot and a blob of the one before": ["snapshot 22", "blob first delta"],
    "a snapshot in the middle and the base": ["snapshot 12", "blob base"],
    "the newest snapshot and the base": ["snapshot 22", "blob base"],
    "all blobs since the compaction": ["blob base", "blob first delta", "blob newest delta"],
    "blobs of both branches": ["blob abandoned table", "blob newest table"],
}


@pytest.mark.parametrize("way", ["missing", "flipped"])
@pytest.mark.parametrize("name", SEVERAL)
def test_several_files(lab: Lab, name: str, way: str) -> None:
    for each in SEVERAL[name]:
        kind, _, which = each.partition(" ")
        key = key_of(int(which)) if kind == "snapshot" else lab.original.roles[which].key
        lab.damage(way, lab.root / key)
    go_through(lab)


@pytest.mark.parametrize("way", ["missing", "cut"])
def test_head_and_newest_snapshot(lab: Lab, way: str) -> None:
    harm(way, lab.root / "HEAD")
    harm(way, lab.snapshot(NEWEST))
    check_refused(lab)
    found = errors(lab)
    assert evidence.HEAD_DAMAGED.code in codes(found)
    plan = planned(lab)
    text = " ".join(plan.consequences)
    if way == "missing":
        # Nothing is left that shows it; the plan states that.
        assert "not known whether there were later ones" in text
    else:
        assert numbers_in(found) == {NEWEST}
        assert "How many events were committed since is not known" in text
    snapshot, before = applied(lab, plan), lab.original.snapshots[NEWEST - 1]
    assert snapshot.number == (NEWEST if way == "missing" else NEWEST + 1)
    assert snapshot.generation > lab.original.snapshots[NEWEST].generation
    assert (snapshot.sequence, snapshot.state) == (before.sequence, before.state)
    check_well(lab)


def test_all_blobs_of_one_epoch(lab: Lab) -> None:
    ref = lab.original.snapshots[21].state_delta
    assert ref
    stream = lab.stream(read_only=True)
    for each in [*manifest.refs_in(stream.blobs, ref), ref]:
        lab.damage("missing", lab.root / each.key)
    # What lies inside a manifest that is lost is not known any more.
    assert errors(lab)
    assert lab.base == 20
    check_repaired(lab, repaired(lab))
    check_well(lab)


@pytest.mark.parametrize("number", [17, 12, 2])
def test_an_old_backup_of_the_stream(lab: Lab, number: int) -> None:
    shutil.rmtree(lab.root)
    shutil.copytree(lab.original.backups[number], lab.root)
    check_refused(lab)
    found = errors(lab)
    assert scan.SHORT.code in codes(found)
    assert f"snapshot {REMEMBERED} is known to have existed" in " ".join(f.detail for f in found)
    plan, base = planned(lab), lab.stream().chain.read(number)
    text, last = " ".join(plan.consequences), lab.original.snapshots[REMEMBERED]
    assert f"is rolled back to snapshot {number} of " in text
    if base.generation == last.generation:
        assert f"at least {last.sequence - base.sequence} events were committed" in text
    else:
        assert "How many events were committed since is not known" in text
    snapshot = applied(lab, plan)
    assert (snapshot.number, snapshot.generation) == (REMEMBERED + 1, last.generation + 1)
    assert (snapshot.epoch, snapshot.version) == (last.epoch, last.version)
    assert snapshot.floor >= last.floor
    assert (snapshot.sequence, snapshot.state) == (base.sequence, base.state)
    check_well(lab)


@pytest.mark.parametrize("number", [17, 12])
def test_an_old_backup_of_the_chain(lab: Lab, number: int) -> None:
    shutil.rmtree(lab.root / "chain")
    shutil.copytree(lab.original.backups[number] / "chain", lab.root / "chain")
    lab.lost = set(range(number + 1, NEWEST + 1))
    check_refused(lab)
    check_found(lab, errors(lab))
    check_repaired(lab, repaired(lab))
    check_well(lab)
    check_way_back(lab)


@pytest.mark.parametrize("number", [17, 12, 2])
def test_an_old_backup_of_head(lab: Lab, number: int) -> None:
    shutil.copyfile(lab.original.backups[number] / "HEAD", lab.root / "HEAD")
    if number >= FLOOR:
        # It is only a hint.
        check_well(lab)
        return
    check_refused(lab)
    (found,) = errors(lab)
    assert found.rule is evidence.HEAD_DAMAGED
    check_repaired(lab, repaired(lab))
    check_well(lab)


def test_an_old_head_over_snapshots_that_were_discarded(lab: Lab) -> None:
    lab.damage("flipped", lab.snapshot(NEWEST))
    check_repaired(lab, repaired(lab))
    shutil.copyfile(lab.original.backups[17] / "HEAD", lab.root / "HEAD")
    check_refused(lab)
    (found,) = errors(lab)
    assert found.rule is evidence.HEAD_DAMAGED
    applied(lab, planned(lab))
    check_well(lab)


@pytest.mark.parametrize("how", ["deleted", "emptied"])
def test_no_stream_at_all(lab: Lab, how: str) -> None:
    shutil.rmtree(lab.root)
    if how == "emptied":
        lab.root.mkdir()
    for start in (StreamWriter(lab.stream()).head, lambda: streams.begin(lab.stream())):
        with pytest.raises(ChainShort, match="the home remembers"):
            start()
    assert scan.SHORT.code in codes(errors(lab))
    with pytest.raises(ChainDamaged) as refused:
        planned(lab)
    assert refused.value.hint.startswith("restore the damaged files")


def test_a_stray_file_does_not_take_the_chain_away(lab: Lab) -> None:
    shutil.copyfile(lab.snapshot(NEWEST), lab.snapshot(10**18))
    (found,) = [each for each in errors(lab) if each.repair.startswith("mv ")]
    assert found.place == str(lab.snapshot(10**18))
    clear_the_way(lab)
    check_well(lab)


# Damage again, otherwise, and to the repair itself.


@pytest.mark.parametrize(
    ("number", "way"), [(n, way) for n in (12, NEWEST) for way in WAYS if sampled(n // 2, way, 2)]
)
def test_what_was_discarded_may_change(lab: Lab, way: str, number: int) -> None:
    lab.damage("flipped", lab.snapshot(number))
    check_repaired(lab, repaired(lab))
    if way == "swapped":
        shutil.copyfile(lab.original.home / streams.NAME / key_of(number), lab.snapshot(number))
    else:
        harm(way, lab.snapshot(number))
    check_well(lab)


def test_what_was_discarded_may_come_back(lab: Lab) -> None:
    for each in (lab.snapshot(NEWEST), lab.root / lab.original.roles["first delta"].key):
        lab.damage("cut", each)
    check_repaired(lab, repaired(lab))
    discarded = (NEWEST, *sorted(lab.original.snapshots.keys() - set(lab.usable)))
    shutil.copytree(lab.original.home / streams.NAME, lab.root, dirs_exist_ok=True, ignore=only_new)
    check_well(lab)
    for number in discarded[:2]:
        streams.apply(lab.stream(), "rollback", to=number)
        streams.check_counted(lab.stream(), StreamWriter(lab.stream()).head())
    assert errors(lab) == []


def only_new(_directory: str, names: list[str]) -> list[str]:
    return [name for name in names if name in ("HEAD", "locks", CURSOR)]


@pytest.mark.parametrize("way", ["missing", "flipped"])
@pytest.mark.parametrize("epochs", [0, 2])
def test_the_repair_is_damaged(lab: Lab, way: str, epochs: int) -> None:
    lab.damage("cut", lab.snapshot(NEWEST))
    first = repaired(lab)
    streams.work(lab.stream(), epochs)
    before = StreamWriter(lab.stream()).head()
    harm(way, lab.snapshot(first.number))
    found = errors(lab)
    # What it had dealt with is open again.
    assert numbers_in(found) == {NEWEST, first.number}
    second = applied(lab, planned(lab))
    assert second.number == before.number + 1
    assert second.generation > before.generation
    assert second.epoch >= before.epoch
    # With epochs after it, it is only one of the older snapshots.
    assert second.sequence == (before.sequence if epochs else first.sequence)
    check_well(lab)
    harm("missing", lab.snapshot(second.number))
    applied(lab, planned(lab))
    check_well(lab)


def test_damage_after_damage(lab: Lab) -> None:
    """Each time something else of the newest snapshot, until little is left."""
    for turn in range(4):
        head = StreamWriter(lab.stream()).head()
        harm("missing" if turn % 2 else "cut", lab.snapshot(head.number))
        before = lab.stream().chain.numbers()
        snapshot = applied(lab, planned(lab))
        assert snapshot.number not in before
        assert snapshot.number == head.number + 1
        check_well(lab)


# What the repair depends on.


def test_a_plan_is_refused_when_the_damage_is_gone(lab: Lab) -> None:
    lab.damage("missing", lab.snapshot(NEWEST))
    plan = planned(lab)
    restore(lab)
    with pytest.raises(Drifted):
        applied(lab, plan)
    check_well(lab)


def test_a_plan_is_refused_when_there_is_more_damage(lab: Lab) -> None:
    lab.damage("missing", lab.snapshot(NEWEST))
    plan = planned(lab)
    lab.damage("missing", lab.root / lab.original.roles["first delta"].key)
    with pytest.raises(Drifted):
        applied(lab, plan)
    go_through(lab)


@pytest.mark.parametrize("change", ["restored", "more", "went on"])
def test_what_changes_before_the_lock(lab: Lab, change: str) -> None:
    path = lab.root / lab.original.roles["newest table"].key
    lab.damage("flipped", path)
    writer = StreamWriter(lab.stream())
    diagnosis = repair.diagnose(writer.stream, read_data=True)
    assert diagnosis.base
    assert diagnosis.base.number == lab.base == NEWEST - 1
    if change == "restored":
        restore(lab)
    elif change == "more":
        harm("missing", lab.root / lab.original.roles["base"].key)
    else:
        streams.work(lab.stream(), 1)
    with pytest.raises(Drifted):
        repair.repair(Workplace(writer.stream, writer), diagnosis, Signature(), {})


def test_a_plan_may_be_applied_where_the_stream_lies_elsewhere(lab: Lab) -> None:
    lab.damage("cut", lab.snapshot(NEWEST))
    lab.damage("flipped", lab.root / lab.original.roles["newest table"].key)
    plan = planned(lab, read_data=True)
    lab.home = lab.home.rename(lab.home.with_name("mounted-elsewhere"))
    check_repaired(lab, applied(lab, plan))
    check_well(lab)


def test_old_damage_is_repaired_beside_a_job(lab: Lab) -> None:
    lab.damage("missing", lab.snapshot(12))
    plan = planned(lab)
    after = streams.work(lab.stream(), 2)
    snapshot = applied(lab, plan)
    assert (snapshot.number, snapshot.sequence) == (after.number + 1, after.sequence)
    check_well(lab)


def test_what_was_reverted_is_not_restored(lab: Lab) -> None:
    """Snapshots 6 and 7 were rolled back by 8; the newest one records that, though damaged."""
    lose_all_since_the_rollback(lab)
    assert lab.base == 5
    go_through(lab)


def test_unless_nothing_else_is_complete(lab: Lab) -> None:
    lose_all_since_the_rollback(lab)
    for number in range(FLOOR, 6):
        lab.damage("missing", lab.snapshot(number))
    assert lab.base == 7
    text = planned(lab).consequences[0]
    assert "Snapshot 7 was reverted by an earlier change, but no other snapshot is complete" in text
    go_through(lab)


def lose_all_since_the_rollback(lab: Lab) -> None:
    for number in range(8, NEWEST):
        lab.damage("missing", lab.snapshot(number))
    lab.damage("missing", lab.root / lab.original.roles["newest delta"].key)


def test_a_job_does_not_build_on_lost_state(lab: Lab) -> None:
    lab.damage("missing", lab.root / lab.original.roles["base"].key)
    with pytest.raises(Corrupt):
        streams.work(lab.stream(), 1)


# Permissions. They do not bind root, so this runs as another user.


def test_permissions(lab: Lab) -> None:
    command = "import sys; from tests.stream import test_damage; test_damage.as_nobody(sys.argv[1])"
    repository = Path(__file__).parents[2]
    subprocess.run([sys.executable, "-c", command, lab.home], cwd=repository, check=True)


def as_nobody(home: str) -> None:
    """Take the permission of each file away in turn, as a user whom that hinders."""
    root = Path(home) / streams.NAME
    if os.getuid() == 0:
        _load_everything(Path(home))
        for path in (Path(home).parent, *Path(home).parent.rglob("*")):
            os.chown(path, 65534, 65534)
        os.setgid(65534)
        os.setuid(65534)
    stream = open_stream(str(root), read_only=True)
    blobs = [stream.chain.read(NEWEST).state.refs[i].key for i in (0, -1)]
    blobs.append(next(manifest.refs_in(stream.blobs, stream.chain.read(NEWEST).state.refs[0])).key)
    needed = [root / "HEAD", Path(home, "heads", f"{streams.NAME}.head"), root / key_of(NEWEST)]
    needed += [root / "chain", root, Path(home, "heads")]
    others = [root / key_of(n) for n in (FLOOR, 8, 18, REMEMBERED)] + [root / key for key in blobs]
    others += [root / "blobs", (root / blobs[0]).parent]
    for path in (*needed, *others):
        _without_permission(path, must_refuse=path in needed)
    for path in (root / "locks" / "collect.lock", root / CURSOR):
        path.chmod(0)
        assert not has_errors(verify(stream, Reading()).findings)
    with pytest.raises(StorageFailed, match="cannot open the lock"):
        StreamWriter(open_stream(str(root), read_only=False)).head()
        streams.work(open_stream(str(root), read_only=False), 1)


def _load_everything(home: Path) -> None:
    """Do on a copy what is done later: who drops to nobody may not read our libraries any more."""
    with TemporaryDirectory() as scratch:
        copy = Path(shutil.copytree(home, Path(scratch, "home")), streams.NAME)
        stream = open_stream(str(copy), read_only=False)
        streams.work(stream, 1)
        verify(stream, Reading())
        StreamJournal(stream).propose(streams.operation_of("repair", read_data=True))


def _without_permission(path: Path, *, must_refuse: bool) -> None:
    root = next(each for each in (path, *path.parents) if each.parent.name == "home")
    root = root.parent / streams.NAME
    stream, mode = open_stream(str(root), read_only=True), path.stat().st_mode
    path.chmod(0)
    if must_refuse:
        with pytest.raises(StorageFailed):
            StreamWriter(open_stream(str(root), read_only=False)).head()
    found = [f for f in verify(stream, Reading()).findings if f.severity is Severity.ERROR]
    assert {f.code for f in found} == {evidence.UNREADABLE.code}, (path, found)
    with pytest.raises(StorageFailed, match="repair stopped, fix this first"):
        StreamJournal(stream).propose(streams.operation_of("repair", read_data=True))
    for command in {f.repair for f in found}:
        assert str(path) in command, (path, found)
        subprocess.run(shlex.split(command), check=True)
    assert not has_errors(verify(stream, Reading()).findings), path
    path.chmod(mode)
