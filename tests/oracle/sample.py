"""The cases that the test suite tries, with what is known to be wrong about them.

`sample.tsv` has a case in each line: its name, and the classes of disagreement, if any. It is
written from the trials of a study (`python -m tests.oracle --record-sample`).
"""

from __future__ import annotations

import random
from collections.abc import Iterable
from itertools import zip_longest
from pathlib import Path

from tests.oracle.report import differences
from tests.oracle.trial import Trial

FILE = Path(__file__).with_name("sample.tsv")
KINDS = ("file", "kafka", "agg-hdfs", "agg-changelog-f2")
PER_KIND = 10
# What a damage does must not depend on ids and times that are others in each base.
_BY_CHANCE = ("flipped bit", "cut at random", "grown by garbage", "FIFO in its place")


def read() -> dict[str, set[str]]:
    """Return the cases by name, each with the classes of disagreement that are known."""
    lines = [line.split("\t") for line in FILE.read_text().splitlines()]
    return {name: set(classes.split(", ")) - {""} for name, classes in lines}


def record(trials: Iterable[Trial]) -> None:
    """Write a sample of the trials: of each kind, half of them cases of disagreement."""
    usable = sorted((t for t in trials if t.damage not in _BY_CHANCE), key=lambda t: t.name)
    random.Random("sample").shuffle(usable)
    chosen = []
    for kind in KINDS:
        own = [trial for trial in usable if trial.kind == kind]
        wrong = [trial for trial in own if differences(trial)]
        right = [trial for trial in own if not differences(trial)]
        pairs = zip_longest(wrong, right)
        mixed = [trial for pair in pairs for trial in pair if trial is not None]
        chosen += [t for t in own if t.damage == "healthy"] + mixed[: PER_KIND - 1]
    rows = {trial.name: ", ".join(differences(trial)) for trial in chosen}
    FILE.write_text("".join(f"{name}\t{classes}\n" for name, classes in sorted(rows.items())))
