"""What is done to the job of a stream while producers write, and what must come of it."""

from __future__ import annotations

import random
import shutil
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from sluicegate.job.epoch import STEPS
from sluicegate.liveness.proc import Proc
from sluicegate.stream.snapshot import Kind
from tests.job.jobs import NAME
from tests.lab.exactly_once import DRIVER, EVERYBODY, JVM, Killed, _end, kill_job, signal_job
from tests.lab.exactly_once_producers import Producers
from tests.lab.standalone import Cluster

RANDOM_KILLS = 100
_SEALED = ("committed", "published", "reported")


@dataclass
class Scenario:
    """One stream, what was done to it, and what was found in the end."""

    name: str
    done: list[str] = field(default_factory=list)
    kills: int = 0
    producer_kills: int = 0
    records: int = 0
    events: int = 0
    duplicates: int = 0
    rejects: int = 0
    epochs: int = 0
    lost: int = 0
    duplicated: int = 0
    seconds: float = 0.0


@contextmanager
def produced_for(scenario: Scenario, place: Killed) -> Iterator[None]:
    """Producers write while the block runs; then the rest is read, and everything compared."""
    began = time.monotonic()
    with Producers(place.log.uri, place.root / "producers") as producers:
        place.begin()
        yield
    place.read_all()
    scenario.lost, scenario.duplicated = place.lost_and_duplicated()
    counters = place.head.counters
    wanted = place.compare(counted=counters["read"] == place.truth().read)
    scenario.producer_kills = producers.kills
    scenario.records, scenario.events = wanted.read, len(wanted.rows)
    scenario.duplicates, scenario.rejects = wanted.duplicates, len(wanted.rejects)
    scenario.epochs = place.head.epoch
    scenario.seconds = time.monotonic() - began


def at_every_step(root: Path) -> Scenario:
    """Killed when it reaches each of the named steps, after an epoch that was let through."""
    scenario = Scenario("killed at every step of an epoch")
    place = Killed(root)
    with produced_for(scenario, place):
        for step in STEPS:
            number = 1 if step == "claimed" else 2
            before = place.head.epoch
            place.killed_at(step, number)
            committed = place.head.epoch - before
            assert committed == number - (step not in _SEALED), f"{committed} epochs at {step}"
            scenario.kills += 1
            scenario.done.append(step)
    return scenario


def at_random(root: Path, kills: int = RANDOM_KILLS) -> Scenario:
    """Killed at any moment: while it starts, works or waits; all of it, or a part."""
    scenario = Scenario(f"killed at {kills} random moments")
    chance = random.Random(11)
    place = Killed(root)
    with produced_for(scenario, place):
        for number in range(kills):
            if number % 4 == 3:
                # While the JVM starts, the stream is claimed, or the query begins.
                place.killed_when(lambda: True, chance.uniform(1, 15))
            else:
                whom = chance.choice([EVERYBODY, JVM, DRIVER])
                place.killed_when(place.runs(), chance.uniform(0, 2.5), whom)
            scenario.kills += 1
    return scenario


def with_operators(root: Path) -> Scenario:
    """Between kills the stream is rolled back, that is undone, it is reset and rebalanced."""
    scenario = Scenario("with a rollback, its undo, a reset and rebalances in the middle")
    place = Killed(root)
    with produced_for(scenario, place):

        def killed(step: str, number: int) -> None:
            place.killed_at(step, number)
            scenario.kills += 1

        def operate(*words: str) -> None:
            place.sluicegate(*words, "--yes", "--reason", "lab")
            scenario.done.append(" ".join(words))

        killed("committed", 3)
        epochs = _epochs(place)
        operate("checkpoint", "rollback", NAME, "--to", str(epochs[0]))
        killed("published", 2)
        operate("undo", NAME)
        killed("staged", 2)
        operate("offsets", "reset", NAME, "--to-earliest", "--all-topics", "--skip-seen")
        killed("committed", 2)
        _rebalanced_while_it_runs(place, operate)
        scenario.kills += 1
    return scenario


def _rebalanced_while_it_runs(place: Killed, operate: Callable[..., None]) -> None:
    """Nodes join and leave beside a job that goes on; then it is killed."""
    runs = place.runs()
    job = place.submit("--interval", "0s")
    try:
        place.wait_until(runs, job)
        for words in (("join", NAME, "one", "two", "three"), ("leave", NAME, "two")):
            operate("shards", *words)
            epoch = place.head.epoch
            place.wait_until(lambda epoch=epoch: place.head.epoch >= epoch + 2, job)  # type: ignore[misc]
        assert place.head.version == 2
        kill_job(job)
    finally:
        _end(job)
    place.check_committed()


def _epochs(place: Killed) -> list[int]:
    """The numbers of the links that are epochs."""
    chain = place.stream.chain
    return [n for n in range(place.head.number + 1) if chain.read(n).kind is Kind.EPOCH]


def two_jobs(root: Path) -> Scenario:
    """The second is refused; by force it takes over, and the first can never commit again."""
    scenario = Scenario("two jobs on one stream")
    place = Killed(root)
    with produced_for(scenario, place):
        runs = place.runs()
        first = place.submit("--interval", "0s")
        second: subprocess.Popen[str] | None = None
        try:
            place.wait_until(runs, first)
            place.ended(place.submit("--available-now"), 11)
            scenario.done.append("the second is refused (11)")
            deposed = place.head.writer
            runs = place.runs()
            second = place.submit("--interval", "0s", "--force")
            place.wait_until(runs, second)
            place.ended(first, 13)
            scenario.done.append("by force it takes over; the first ends (13)")
            chain, head = place.stream.chain, place.head
            claim = max(n for n in range(head.number + 1) if chain.read(n).kind is Kind.CLAIM)
            assert chain.read(claim - 1).writer == deposed
            assert all(chain.read(n).writer != deposed for n in range(claim, head.number + 1))
            kill_job(second)
            scenario.kills += 1
        finally:
            for job in (first, second):
                if job:
                    _end(job)
    return scenario


def on_a_cluster(root: Path) -> Scenario:
    """A standalone cluster on this machine: a worker dies, then the driver."""
    scenario = Scenario("on a standalone cluster, a worker and the driver killed")
    with Cluster(root / "cluster") as cluster:
        place = Killed(root / "stream", master=cluster.url)
        with produced_for(scenario, place):
            runs = place.runs()
            job = place.submit("--interval", "0s")
            try:
                place.wait_until(runs, job)
                cluster.kill_worker()
                scenario.kills += 1
                epoch = place.head.epoch
                place.wait_until(lambda: place.head.epoch >= epoch + 3, job)
                assert job.poll() is None
                scenario.done.append("a worker and its executor are killed; the job goes on")
                cluster.start_worker()
                kill_job(job)
                scenario.kills += 1
                scenario.done.append("the driver is killed")
            finally:
                _end(job)
            place.check_committed()
            place.killed_at("committed", 2)
            scenario.kills += 1
    assert not [p for p in Proc().processes() if str(root) in " ".join(p.words)]
    return scenario


def zombies(root: Path, times: int = 6) -> Scenario:
    """A job is frozen at any moment, another takes over by force, and the first wakes up."""
    scenario = Scenario("frozen jobs that wake up after another took over")
    chance = random.Random(5)
    place = Killed(root)
    with produced_for(scenario, place):
        for _ in range(times):
            runs = place.runs()
            first = place.submit("--interval", "0s")
            second: subprocess.Popen[str] | None = None
            try:
                place.wait_until(runs, first)
                time.sleep(chance.uniform(0, 1.5))
                signal_job(first, signal.SIGSTOP)
                runs = place.runs()
                second = place.submit("--interval", "0s", "--force")
                place.wait_until(runs, second)
                signal_job(first, signal.SIGCONT)
                place.ended(first, 13)
                epoch = place.head.epoch
                place.wait_until(lambda epoch=epoch: place.head.epoch > epoch, second)  # type: ignore[misc]
                kill_job(second)
                scenario.kills += 1
            finally:
                for job in (first, second):
                    if job:
                        signal_job(job, signal.SIGCONT)
                        _end(job)
            place.check_committed()
        scenario.done.append(f"{times} jobs were frozen; each ended (13) when it woke up")
    return scenario


def restored_backups(root: Path) -> Scenario:
    """The home is copied while its job runs, and the copy is put in its place later."""
    scenario = Scenario("with old backups of the home, copied while the job ran, restored")
    place = Killed(root)
    with produced_for(scenario, place):
        for number, choice in enumerate(("adopt", "withdraw", "adopt")):
            backup = root / f"backup-{number}"
            runs = place.runs()
            job = place.submit("--interval", "0s")
            try:
                place.wait_until(runs, job)
                _copy(place.home, backup)
                epoch = place.head.epoch
                place.wait_until(lambda epoch=epoch: place.head.epoch >= epoch + 2, job)  # type: ignore[misc]
                kill_job(job)
                scenario.kills += 1
            finally:
                _end(job)
            shutil.rmtree(place.home)
            _copy(backup, place.home)
            place.ended(place.submit("--available-now"), 12)
            place.sluicegate(
                "checkpoint", "repair", NAME, f"--{choice}", "--yes", "--reason", "lab"
            )
            scenario.done.append(f"the start is refused (12); repair --{choice}")
            place.killed_at("published", 2)
            scenario.kills += 1
    return scenario


def _copy(source: Path, place: Path) -> None:
    """As a backup does: some files come and go meanwhile."""
    subprocess.run(["cp", "-a", source, place], check=False, capture_output=True)


SCENARIOS: dict[str, Callable[[Path], Scenario]] = {
    "steps": at_every_step,
    "random": at_random,
    "operators": with_operators,
    "two": two_jobs,
    "cluster": on_a_cluster,
    "zombies": zombies,
    "backups": restored_backups,
}
