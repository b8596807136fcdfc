"""Damages of every kind, judged by real Spark: `python -m tests.oracle --spark 4.3.0`.

Visits every cell once, the widest spread first, then draws more cases with the seed of the run.
Stops after `--minutes`; what was found out is kept, and the next run goes on from there. Spark's
answers outlive a change of the product, `sg`'s do not (`--forget` drops them). Writes the report of
what is known so far.
"""

from __future__ import annotations

import argparse
import json
import random
import sys
import threading
import time
from collections import defaultdict
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import asdict
from pathlib import Path

from tests.lab.environments import ROOT
from tests.oracle import report, sample
from tests.oracle.bases import Base, bases
from tests.oracle.damages import FIFO, Damage, damages
from tests.oracle.spark import Spark
from tests.oracle.trial import Examiner, Judge, Trial, command_line

KEPT = ROOT / "build" / "lab" / "oracle"
AT_ONCE = 4
DRAWS = 500
_REPORT_EVERY_SECONDS = 30.0
# One FIFO that Spark waits at costs a new JVM: a few kinds are enough.
_WITH_FIFO = ("file", "agg-hdfs", "agg-changelog-f2")
_CHOOSING = "cells"


def select(found: Iterable[Base]) -> list[Damage]:
    """Return one damage of every cell, those first whose class of file and damage is new."""
    cells: dict[tuple[str, str, str], list[Damage]] = defaultdict(list)
    for base in found:
        for damage in damages(base):
            if damage.damage != FIFO or damage.kind in _WITH_FIFO:
                cells[damage.cell].append(damage)
    ranks: dict[tuple[str, str], int] = defaultdict(int)
    order = []
    shuffled = sorted(cells)
    random.Random(_CHOOSING).shuffle(shuffled)
    for cell in shuffled:
        variants = cells[cell]
        chosen = variants[random.Random("/".join(cell)).randrange(len(variants))]
        # What hangs comes last: it costs the JVM that others share.
        order.append((cell[2] == FIFO, ranks[cell[1:]], chosen))
        ranks[cell[1:]] += 1
    return [damage for *_, damage in sorted(order, key=lambda each: each[:2])]


def draw(found: Iterable[Base], seed: int, count: int) -> list[Damage]:
    """Return cases drawn from all damages, each class of file alike."""
    dice = random.Random(seed)
    roles: dict[tuple[str, str], list[Damage]] = defaultdict(list)
    for base in found:
        for damage in damages(base):
            if damage.damage != FIFO:
                roles[damage.kind, damage.role].append(damage)
    keys = sorted(roles)
    return [dice.choice(roles[dice.choice(keys)]) for _ in range(count)]


class Study:
    """The trials of one version, kept in a file, one line each."""

    def __init__(self, version: str, *, forget: bool = False) -> None:
        self.version = version
        self.file = KEPT / f"trials-{version}.jsonl"
        KEPT.mkdir(parents=True, exist_ok=True)
        if forget:
            self.file.unlink(missing_ok=True)
        lines = self.file.read_text().splitlines() if self.file.is_file() else []
        self.trials = {trial.name: trial for trial in map(report.parse, lines)}
        self._lock = threading.Lock()

    def keep(self, trial: Trial) -> None:
        """Add a trial to the file."""
        with self._lock, self.file.open("a") as stream:
            self.trials[trial.name] = trial
            stream.write(json.dumps(asdict(trial)) + "\n")

    def run(self, wanted: list[Damage], found: dict[str, Base], judge: Judge, until: float) -> int:
        """Try what is not known yet, until the time is over; return how many are left."""
        todo = [damage for damage in wanted if damage.name not in self.trials]
        unique = list({damage.name: damage for damage in todo}.values())
        turns = iter(unique)
        lock = threading.Lock()
        with ThreadPoolExecutor(AT_ONCE) as pool, ExitStack() as stack:
            lines = [stack.enter_context(command_line()) for _ in range(AT_ONCE)]

            def work(number: int) -> None:
                for damage in _until(turns, lock, until):
                    tester = Examiner(found[damage.kind], judge, lines[number])
                    self.keep(tester.attempt(damage))

            began = shown = time.monotonic()
            before = len(self.trials)
            workers = [pool.submit(work, number) for number in range(AT_ONCE)]
            while not all(worker.done() for worker in workers):
                time.sleep(1)
                if time.monotonic() - shown >= _REPORT_EVERY_SECONDS:
                    shown, done = time.monotonic(), len(self.trials) - before
                    print(f"{done} of {len(unique)} in {time.monotonic() - began:.0f} s, "
                          f"Spark asked {judge.asked} times", flush=True)  # fmt: skip
            for worker in workers:
                worker.result()
        return sum(damage.name not in self.trials for damage in unique)


def _until(turns: Iterator[Damage], lock: threading.Lock, until: float) -> Iterator[Damage]:
    while time.monotonic() < until:
        with lock:
            damage = next(turns, None)
        if damage is None:
            return
        yield damage


def main(arguments: list[str]) -> int:
    """Try what there is time for, and write the report; 2 while cells are left."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--spark", default="4.3.0", metavar="VERSION")
    parser.add_argument("--minutes", type=float, default=55)
    parser.add_argument("--seed", type=int, default=None, help="of the drawn cases")
    parser.add_argument("--draws", type=int, default=DRAWS)
    parser.add_argument("--kinds", help="only these, separated by commas")
    parser.add_argument("--forget", action="store_true", help="drop what sg said in earlier runs")
    parser.add_argument("--record-sample", action="store_true", help="for the test suite")
    parser.add_argument("--page", type=Path, default=report.PAGE)
    asked = parser.parse_args(arguments)
    until = time.monotonic() + asked.minutes * 60
    seed = asked.seed if asked.seed is not None else random.SystemRandom().randrange(10**6)
    study = Study(asked.spark, forget=asked.forget)
    names = set(asked.kinds.split(",")) if asked.kinds else None
    with Spark(asked.spark) as spark:
        found = bases(asked.spark, spark, names)
        judge = Judge(spark, KEPT / f"truths-{asked.spark}.jsonl")
        cells = select(found.values())
        if names is None:
            (KEPT / f"cells-{asked.spark}").write_text(str(len(cells)))
        left = study.run(cells, found, judge, until)
        print(f"{len(cells) - left} of {len(cells)} cells visited", flush=True)
        if not left:
            print(f"drawing {asked.draws} cases with --seed {seed}", flush=True)
            left = study.run(draw(found.values(), seed, asked.draws), found, judge, until)
    report.write(asked.page)
    if asked.record_sample:
        sample.record(study.trials.values(), found)
    return 2 if left else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
