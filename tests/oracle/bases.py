"""The healthy queries that damages start from, each run once by real Spark.

A base is a query stopped after FILES input files: its files then, its files at an earlier stop
(`old`, what a backup would hold), those of a `twin` with other input and another id, and the rows
of a run that nobody interrupted.
"""

from __future__ import annotations

import json
import tempfile
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import partial
from hashlib import sha256
from pathlib import Path
from uuid import UUID

from tests import tree
from tests.lab.environments import ROOT
from tests.oracle.kinds import KINDS, Kind, kinds_of
from tests.oracle.spark import Run, Spark, Stage
from tests.tree import Entry, Tree

OLD_FILES = 5
FILES = 8
"""Read by batches with data only, so that the newest one has done something to state and sink."""
# Restarts read more files a batch: what is right only if batches happen to be cut as before is not.
RESTARTS = [Stage(10, per_batch=2), Stage(12, closed=True, per_batch=3)]
_WHOLE = [Stage(12, closed=True, per_batch=1000)]
_TWIN_FIRST = 200
_PARTS = ("now", "old", "twin", "expected")
_HERE = Path(__file__).parent
_INGREDIENTS = (
    *(_HERE / name for name in ("kinds.py", "runner.py")),
    *(_HERE.parent / "lab" / name for name in ("ending_runner.py", "plans.py", "make.py")),
)


@dataclass(frozen=True, slots=True)
class Base:
    """One kind's healthy files, and what its sink must hold in the end."""

    kind: Kind
    now: Tree
    old: Tree
    twin: Tree
    expected: tuple[str, ...]

    @property
    def query_id(self) -> str:
        """The id in `metadata`."""
        return str(json.loads(self.now["checkpoint/metadata"].data)["id"])


def bases(version: str, spark: Spark, names: set[str] | None = None) -> dict[str, Base]:
    """Return the bases of a version by name, made where they are not kept from an earlier run."""
    wanted = [kind for kind in kinds_of(version) if names is None or kind.name in names]
    with ThreadPoolExecutor(3) as pool:
        return {base.kind.name: base for base in pool.map(partial(_base, version, spark), wanted)}


def _base(version: str, spark: Spark, kind: Kind) -> Base:
    kept = ROOT / "build" / "lab" / "oracle" / f"{version}-{kind.name}-{_digest()}.json.xz"
    if kept.is_file():
        return unpack(kept.read_bytes())[kind.name]
    made = _make(spark, kind)
    kept.parent.mkdir(parents=True, exist_ok=True)
    unfinished = kept.with_suffix(".tmp")
    unfinished.write_bytes(pack([made]))
    unfinished.replace(kept)
    return made


def pack(found: Iterable[Base]) -> bytes:
    """Return bases in a compact form."""
    parts: dict[str, Tree] = {}
    for base in found:
        rows = {"rows": Entry(json.dumps(base.expected).encode())}
        parts |= {
            f"{base.kind.name}/{part}": files
            for part, files in zip(_PARTS, (base.now, base.old, base.twin, rows), strict=True)
        }
    return tree.pack(parts)


def unpack(packed: bytes) -> dict[str, Base]:
    """Return what was packed, by name."""
    parts = tree.unpack(packed)
    kinds = {kind.name: kind for kind in KINDS}
    found = {}
    for name in dict.fromkeys(key.partition("/")[0] for key in parts):
        now, old, twin, rows = (parts[f"{name}/{part}"] for part in _PARTS)
        found[name] = Base(kinds[name], now, old, twin, tuple(json.loads(rows["rows"].data)))
    return found


def _make(spark: Spark, kind: Kind) -> Base:
    with tempfile.TemporaryDirectory(prefix="oracle-base-", dir=scratch_root()) as scratch:
        place, twin, whole = (Path(scratch) / name for name in ("place", "twin", "whole"))
        stages = [Stage(OLD_FILES), Stage(FILES, no_data_batches=False)]
        _went(kind, spark.run(kind, place, stages[:1], seconds=300))
        old = tree.load(place)
        _went(kind, spark.run(kind, place, stages[1:], seconds=300))
        _went(kind, spark.run(kind, twin, stages, first=_TWIN_FIRST, seconds=300))
        rows = _went(kind, spark.run(kind, whole, _WHOLE, seconds=300)).rows
        return Base(kind, tree.load(place), old, tree.load(twin), rows)


def _went(kind: Kind, run: Run) -> Run:
    if run.error:
        raise RuntimeError(f"{kind.name} did not run: {run.error}")
    return run


def with_id(files: Tree, query_id: UUID) -> Tree:
    """Return a tree whose query has another id: Spark runs one query of an id at a time."""
    name = "checkpoint/metadata"
    data = json.dumps({"id": str(query_id)}, separators=(",", ":")).encode()
    hidden = {tree.sum_name(name): Entry(tree.hadoop_sum(data), files[name].mtime_ns)}
    return files | {name: replace(files[name], data=data)} | hidden


def scratch_root() -> str | None:
    """Return where to put files that nobody needs after a crash: in memory, where there is room."""
    return "/dev/shm" if Path("/dev/shm").is_dir() else None


def _digest() -> str:
    hashed = sha256()
    for path in _INGREDIENTS:
        hashed.update(path.read_bytes())
    return hashed.hexdigest()[:12]
