"""The cases that the test suite tries, with what is known to be wrong about them.

`sample.tsv` has a case in each line: its name, and the classes of disagreement, if any.
`sample.json.xz` has the bases, since ids, times and snapshots are others whenever a query runs.
Both are written from a study (`python -m tests.oracle --record-sample`).
"""

from __future__ import annotations

import random
from collections.abc import Iterable
from itertools import zip_longest
from pathlib import Path

from tests.oracle.bases import Base, pack, unpack
from tests.oracle.damages import FIFO
from tests.oracle.report import differences
from tests.oracle.trial import Trial

FILE = Path(__file__).with_name("sample.tsv")
BASES = Path(__file__).with_name("sample.json.xz")
KINDS = ("file", "kafka", "agg-hdfs", "agg-changelog-f2")
PER_KIND = 7


def read() -> dict[str, set[str]]:
    """Return the cases by name, each with the classes of disagreement that are known."""
    lines = [line.split("\t") for line in FILE.read_text().splitlines()]
    return {name: set(classes.split("; ")) - {""} for name, classes in lines}


def bases() -> dict[str, Base]:
    """Return the bases of the sample by name."""
    return unpack(BASES.read_bytes())


def record(trials: Iterable[Trial], found: dict[str, Base]) -> None:
    """Write a sample of the trials, half of each kind cases of disagreement, and its bases."""
    BASES.write_bytes(pack(found[name] for name in KINDS))
    usable = sorted((t for t in trials if t.damage != FIFO), key=lambda t: t.name)
    random.Random("sample").shuffle(usable)
    chosen = []
    for kind in KINDS:
        own = [trial for trial in usable if trial.kind == kind]
        wrong = [trial for trial in own if differences(trial)]
        right = [trial for trial in own if not differences(trial)]
        pairs = zip_longest(wrong, right)
        mixed = [trial for pair in pairs for trial in pair if trial is not None]
        chosen += [t for t in own if t.damage == "healthy"] + mixed[: PER_KIND - 1]
    rows = {trial.name: "; ".join(differences(trial)) for trial in chosen}
    FILE.write_text("".join(f"{name}\t{classes}\n" for name, classes in sorted(rows.items())))
