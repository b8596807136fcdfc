"""The cases that the test suite tries, with what is known to be wrong about them.

`sample.tsv` has a case in each line: its name, and the classes of disagreement, if any.
`sample.json.xz` has the bases, since ids, times and snapshots are others whenever a query runs.
Both are written from a study (`python -m tests.oracle --record-sample`).
"""

from __future__ import annotations

import base64
import json
import lzma
import random
from collections.abc import Iterable
from itertools import zip_longest
from pathlib import Path
from typing import Any

from tests.oracle.bases import Base
from tests.oracle.kinds import KINDS as ALL_KINDS
from tests.oracle.report import differences
from tests.oracle.tree import Entry, Tree
from tests.oracle.trial import Trial

FILE = Path(__file__).with_name("sample.tsv")
BASES = Path(__file__).with_name("sample.json.xz")
KINDS = ("file", "kafka", "agg-hdfs", "agg-changelog-f2")
PER_KIND = 10
# Where Spark waits for ever, a case takes until its time limit.
_TOO_SLOW = "FIFO in its place"


def read() -> dict[str, set[str]]:
    """Return the cases by name, each with the classes of disagreement that are known."""
    lines = [line.split("\t") for line in FILE.read_text().splitlines()]
    return {name: set(classes.split("; ")) - {""} for name, classes in lines}


def bases() -> dict[str, Base]:
    """Return the bases of the sample by name."""
    kinds = {kind.name: kind for kind in ALL_KINDS}
    found = json.loads(lzma.decompress(BASES.read_bytes()))
    return {
        name: Base(
            kinds[name],
            _tree(base["now"]),
            _tree(base["old"]),
            _tree(base["twin"]),
            tuple(base["expected"]),
        )
        for name, base in found.items()
    }


def _tree(fields: dict[str, Any]) -> Tree:
    return {name: Entry(base64.b64decode(data), mtime) for name, (data, mtime) in fields.items()}


def _fields(tree: Tree) -> dict[str, Any]:
    return {n: (base64.b64encode(e.data).decode(), e.mtime_ns) for n, e in tree.items()}


def record(trials: Iterable[Trial], found: dict[str, Base]) -> None:
    """Write a sample of the trials, half of each kind cases of disagreement, and its bases."""
    packed = {
        name: {
            "now": _fields(found[name].now),
            "old": _fields(found[name].old),
            "twin": _fields(found[name].twin),
            "expected": found[name].expected,
        }
        for name in KINDS
    }
    BASES.write_bytes(lzma.compress(json.dumps(packed).encode()))
    usable = sorted((t for t in trials if t.damage != _TOO_SLOW), key=lambda t: t.name)
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
