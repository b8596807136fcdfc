"""One stream, sixteen real processes that are killed again and again, and a chain that holds.

Jobs claim and commit, operators compact, prune, roll back and rebalance, a collector removes
orphans without any grace, and one verifies all the while. Each writes down what was
acknowledged and what was refused. In the end the whole chain is replayed against the race table.

`SG_LAB_SECONDS=60` lets it run for a minute. All processes are forked from one that has everything
imported, because one that is killed every second must start in less.
"""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import time
import traceback
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from sluicegate.errors import Drifted, Fenced, Locked, SluicegateError, StaleVersion
from sluicegate.journal import Approval
from sluicegate.process import myself
from sluicegate.state.backend import DeltaConflict, EpochIncomplete
from sluicegate.storage.blobs import BlobDamaged
from sluicegate.stream import gc
from sluicegate.stream.append import RebalanceDraft, Signature
from sluicegate.stream.history import NotRestorable
from sluicegate.stream.journal import StreamJournal
from sluicegate.stream.operations.compact import compact
from sluicegate.stream.snapshot import Kind, Snapshot, decode
from sluicegate.stream.writer import StreamWriter
from tests.stream.streams import (
    NAME,
    NEW_GENERATION,
    check,
    check_counted,
    commit,
    errors_of,
    in_memory,
    made,
    opened,
    operation_of,
    replay,
)

SECONDS = float(os.environ.get("SG_LAB_SECONDS", "8"))
LONGEST = 120.0
# Errors that any worker may get here; all others are defects.
REFUSED = (Fenced, Locked, Drifted, NotRestorable)
# The collector takes what is not committed yet; another run may have committed an epoch of this
# number.
UNSEALED = (BlobDamaged, DeltaConflict, EpochIncomplete)


class Worker:
    """One process: where it works, and what it writes down, a line each, in one write."""

    def __init__(self, root: Path, number: int, role: str) -> None:
        self.stream = opened(root / "home")
        self.writer = StreamWriter(self.stream)
        self.archive = root / "archive"
        self.number = number
        self.chance = random.Random(os.urandom(8))
        self._stop = root / "stop"
        path = root / "lines" / f"{number:02d}-{role}"
        self._lines = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND)

    def goes_on(self, pause: float = 0.0) -> bool:
        time.sleep(self.chance.uniform(0, pause))
        return not self._stop.exists()

    def write(self, *values: object) -> None:
        os.write(self._lines, (" ".join(map(str, values)) + "\n").encode())

    def done(self, snapshot: Snapshot | None) -> None:
        if snapshot:
            self.write("done", snapshot.number, snapshot.digest)

    def refused(self, mark: object, error: SluicegateError) -> None:
        self.write("refused", mark, type(error).__name__)

    def mark(self) -> int:
        """A number that is used once, by one worker; they only grow."""
        return (time.time_ns() & ~31) + self.number


def job(worker: Worker) -> None:
    """Commits epochs as the run that claimed the stream, until another run takes over."""
    while worker.goes_on(0.2):
        force = worker.chance.random() < 0.1
        try:
            with worker.writer.claim(app=f"job {worker.number}", force=force) as run:
                worker.done(run.snapshot)
                for _ in range(worker.chance.randint(1, 60)):
                    mark = worker.mark()
                    try:
                        worker.done(commit(run, worker.chance.randint(1, 3), mark))
                    except StaleVersion as e:
                        worker.refused(mark, e)
                        run.refresh()
                    except UNSEALED as e:
                        worker.refused(mark, e)
                        run.refresh()
                    except REFUSED as e:
                        worker.refused(mark, e)
                        break
        except REFUSED as e:
            worker.refused("-", e)


def compactor(worker: Worker) -> None:
    while worker.goes_on(1.0):
        try:
            worker.done(compact(worker.writer))
        except (*REFUSED, *UNSEALED) as e:
            worker.refused("-", e)


def pruner(worker: Worker) -> None:
    """Keeps some of the newest; pruned snapshots are archived first, for the replay."""
    while worker.goes_on(2.0):
        head = worker.writer.head()
        for number in range(head.floor, head.number + 1):
            name = f"{number:020d}.snapshot"
            kept = worker.archive / name
            if not kept.exists():
                try:
                    os.link(Path(worker.stream.uri) / "chain" / name, kept)
                except (FileExistsError, FileNotFoundError):
                    # The other pruner was faster.
                    continue
        floor = head.number - worker.chance.randint(5, 40)
        worker.done(gc.prune(worker.writer, max(floor, 0), grace=0.0))


def collector(worker: Worker) -> None:
    """Without any grace: what an epoch wrote and has not committed is gone."""
    while worker.goes_on(1.5):
        gc.sweep(worker.stream, grace=0.0)


def operator(worker: Worker) -> None:
    """Rolls back, with and without force; the reason records what it was decided on."""
    while worker.goes_on(2.5):
        head = worker.writer.head()
        force = worker.chance.random() < 0.5
        mark = worker.mark()
        to = worker.chance.randint(head.floor, head.number)
        journal = StreamJournal(worker.stream)
        try:
            plan = journal.propose(operation_of("rollback", to=to, force=force))
            if not plan.actions:
                continue
            # Asked after the plan was made: what came before it was taken into account.
            base = worker.writer.head().number
            reason = f"{mark} {base} {'forced' if force else 'asked'}"
            entry = journal.apply(plan, Approval(myself(), reason))
            worker.write("changed", entry.id.rpartition("@")[2])
        except REFUSED as e:
            worker.refused(mark, e)


def balancer(worker: Worker) -> None:
    while worker.goes_on(2.5):
        head = worker.writer.head()
        blob = worker.stream.blobs.put(str(worker.mark()).encode())
        mark = worker.mark()
        signature = Signature(reason=f"{mark} {head.number} asked")
        draft = RebalanceDraft(head.version, head.generation, blob, signature, {})
        try:
            worker.done(worker.writer.append(draft, head))
        except (*REFUSED, BlobDamaged) as e:
            worker.refused(mark, e)


def verifier(worker: Worker) -> None:
    """Finds nothing wrong, whatever the others do."""
    while worker.goes_on(1.0):
        found = errors_of(worker.stream)
        assert not found, found
        worker.write("verified")


ROLES: dict[str, tuple[int, Callable[[Worker], None]]] = {
    "job": (7, job),
    "compactor": (2, compactor),
    "pruner": (2, pruner),
    "collector": (1, collector),
    "operator": (2, operator),
    "balancer": (1, balancer),
    "verifier": (1, verifier),
}


def main(root: Path, seconds: float) -> None:
    """Fork the workers, kill one after the other and fork it again, and let them come to an end."""
    import pyarrow.compute
    import pyarrow.parquet  # noqa: F401

    roles = [role for role, (count, _) in ROLES.items() for _ in range(count)]
    chance = random.Random(7)
    pids = {number: _fork(root, number, role) for number, role in enumerate(roles)}
    end = time.monotonic() + seconds
    kills = 0
    while time.monotonic() < end:
        time.sleep(chance.uniform(0.02, 0.3))
        number = chance.randrange(len(roles))
        os.kill(pids[number], signal.SIGKILL)
        _, status = os.waitpid(pids[number], 0)
        kills += os.WIFSIGNALED(status)
        pids[number] = _fork(root, number, roles[number])
    (root / "stop").touch()
    codes = [os.waitpid(pid, 0)[1] for pid in pids.values()]
    print(json.dumps({"kills": kills, "failed": sum(code != 0 for code in codes)}))


def _fork(root: Path, number: int, role: str) -> int:
    pid = os.fork()
    if pid:
        return pid
    worker = Worker(root, number, role)
    try:
        ROLES[role][1](worker)
    except BaseException:  # noqa: BLE001 - reported in the end, whatever it is
        worker.write("defect", json.dumps(traceback.format_exc()))
        os._exit(1)
    os._exit(0)


@pytest.fixture
def root() -> Iterator[Path]:
    with in_memory() as path:
        made(path / "home")
        for name in ("archive", "lines"):
            (path / name).mkdir()
        yield path


@dataclass(frozen=True)
class Lines:
    """What the workers wrote down."""

    done: dict[int, str]
    refused: set[str]
    errors: Counter[str]
    defects: list[str]
    verified: int
    changed: set[int]


def read_lines(root: Path) -> Lines:
    rows = [
        line.split(maxsplit=1)
        for path in sorted((root / "lines").iterdir())
        for line in path.read_text().splitlines()
    ]
    acknowledged = [row[1].split() for row in rows if row[0] == "done"]
    refused = [row[1].split() for row in rows if row[0] == "refused"]
    done = {int(number): digest for number, digest in acknowledged}
    assert len(done) == len(acknowledged), "a number was given to two"
    return Lines(
        done,
        {mark for mark, _ in refused} - {"-"},
        Counter(error for _, error in refused),
        [json.loads(row[1]) for row in rows if row[0] == "defect"],
        sum(row[0] == "verified" for row in rows),
        {int(row[1]) for row in rows if row[0] == "changed"},
    )


def read_snapshots(root: Path) -> list[Snapshot]:
    """The whole chain, from what is there and what was archived before it was pruned."""
    files = {p.name: p for p in (root / "archive").iterdir()}
    files |= {p.name: p for p in (root / "home" / NAME / "chain").glob("*.snapshot")}
    return [decode(files[name].read_bytes(), name) for name in sorted(files)]


def test_sixteen_processes_and_sigkill(root: Path) -> None:
    command = [sys.executable, "-m", "tests.stream.test_processes", str(root), str(SECONDS)]
    lab = subprocess.run(
        command,
        cwd=Path(__file__).parents[2],
        capture_output=True,
        text=True,
        timeout=SECONDS + LONGEST,
        check=False,
    )
    lines = read_lines(root)
    assert lines.defects == [], "".join(lines.defects[:6])
    assert lab.returncode == 0, lab.stderr
    summary = json.loads(lab.stdout)
    assert summary["failed"] == 0
    snapshots = read_snapshots(root)
    _check_lines(snapshots, lines)
    _check_intervened(snapshots)
    replay(snapshots)
    stream = opened(root / "home")
    head = check(stream)
    assert head.digest == snapshots[-1].digest
    for snapshot in snapshots:
        if snapshot.number >= head.floor and snapshot.kind in (
            Kind.COMPACT,
            Kind.ROLLBACK,
            Kind.PRUNE,
        ):
            check_counted(stream, snapshot)
    kinds = Counter(snapshot.kind.value for snapshot in snapshots)
    print(
        f"{len(snapshots)} snapshots {dict(kinds)}, {summary['kills']} kills, {lines.verified} "
        "looks,"
    )
    print(f"{sum(lines.errors.values())} refused {dict(lines.errors)}")
    wanted = {"claim", "epoch", "rollback", "compact", "prune", "rebalance"}
    assert wanted <= kinds.keys(), "everybody must get somewhere"
    assert {"SplitBrainCommit", "StaleGeneration"} <= lines.errors.keys(), "and get in the way"
    assert summary["kills"] > SECONDS
    assert lines.verified


def _check_lines(snapshots: list[Snapshot], lines: Lines) -> None:
    assert [snapshot.number for snapshot in snapshots] == list(range(len(snapshots))), (
        "numbers without gaps"
    )
    for number, digest in lines.done.items():
        assert snapshots[number].digest == digest, "what was acknowledged is there"
    assert all(snapshots[number].kind is Kind.ROLLBACK for number in lines.changed)
    marks = {str(snapshot.watermark_ns) for snapshot in snapshots}
    marks |= {snapshot.reason.split()[0] for snapshot in snapshots if snapshot.reason}
    assert not marks & lines.refused, "what was refused is not there"


def _check_intervened(snapshots: list[Snapshot]) -> None:
    """The race table: what may have come between a decision and its snapshot."""
    for snapshot in snapshots:
        if not snapshot.reason or snapshot.kind not in (Kind.ROLLBACK, Kind.REBALANCE):
            continue
        _, base, how = snapshot.reason.split()
        between = {each.kind for each in snapshots[int(base) + 1 : snapshot.number]}
        refusing = set(NEW_GENERATION)
        if snapshot.kind is Kind.REBALANCE:
            refusing.add(Kind.REBALANCE)
        elif how == "asked":
            refusing |= {Kind.CLAIM, Kind.EPOCH}
        assert not between & refusing, f"snapshot {snapshot.number} must have been refused"


if __name__ == "__main__":
    main(Path(sys.argv[1]), float(sys.argv[2]))
