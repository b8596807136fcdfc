"""Real queries that are stopped, changed by somebody, and started again: does the output come out?

`made` gives each case's query, stopped after FILES input files. A test copies a place with
`copy_place`, damages and repairs the copy, and lets `play_out` restart the query twice, each time
in a new JVM and with more input. The outcome compares what the sink then holds with an
uninterrupted run over the same input. Restarting twice matters: what a bad repair left behind in
the state may be loaded by the second start only.
"""

from __future__ import annotations

import hashlib
import json
import shutil
import struct
import subprocess
import tempfile
import zlib
from collections import Counter
from collections.abc import Sequence
from contextlib import AbstractContextManager
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from tests.lab.environments import ROOT, alone, environment, unpacked
from tests.lab.recipes import V4_0, V4_1, Recipe

# How many input files a made query has read, and how many there are at its restarts.
FILES = 8
FIRST_RESTART = 10
SECOND_RESTART = 12

_SMALL_COMPACTION = (
    ("spark.sql.streaming.fileSource.log.compactInterval", "3"),
    ("spark.sql.streaming.fileSink.log.compactInterval", "3"),
)
CASES = (
    Recipe("stateless-parquet", "file", "stateless", "none", "parquet"),
    Recipe("stateless-compact3", "file", "stateless", "none", "json", confs=_SMALL_COMPACTION),
    Recipe("stateless-once", "file", "stateless", "none", "foreachBatch"),
    Recipe("stateless-python", "python", "stateless", "none", "foreachBatch", min_spark=V4_0),
    Recipe("agg-hdfs", "file", "aggregation", "hdfs", "parquet"),
    Recipe("agg-rocksdb", "file", "aggregation", "rocksdb", "parquet"),
    Recipe("agg-changelog", "file", "aggregation", "rocksdb-changelog", "parquet"),
    Recipe(
        "agg-changelog-f2",
        "file",
        "aggregation",
        "rocksdb-changelog",
        "parquet",
        state_format=2,
        min_spark=V4_1,
    ),
    Recipe("agg-hdfs-once", "file", "aggregation", "hdfs", "foreachBatch"),
    Recipe("dedup-hdfs", "file", "dedup", "hdfs", "parquet"),
    Recipe("dedup-changelog", "file", "dedup", "rocksdb-changelog", "parquet"),
    Recipe("join-hdfs", "file+file", "join", "hdfs", "parquet"),
    # These two write absolute paths into the state's metadata.
    Recipe(
        "join-v3",
        "file+file",
        "join",
        "rocksdb-changelog",
        "foreachBatch",
        min_spark=V4_1,
        confs=(("spark.sql.streaming.join.stateFormatVersion", "3"),),
    ),
    Recipe("tws-rocksdb", "file", "tws", "rocksdb", "foreachBatch", min_spark=V4_0),
)

_HERE = Path(__file__).parent
_INGREDIENTS = ("recipes.py", "plans.py", "make.py", "ending_runner.py")
_RECIPES = {recipe.name: recipe for recipe in CASES}
_ALL_AT_ONCE = 1000
_HADOOP_CRC_BYTES = 512

Rows = tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Job:
    """One run of a case's query in a place, until it has read `files` input files.

    `closed` adds an input file far ahead in event time, so that every window reaches the sink;
    nothing can follow it.
    """

    case: str
    place: Path
    files: int
    closed: bool = False
    per_batch: int = 1
    checkpoint: Path | None = None


@dataclass(frozen=True, slots=True)
class Result:
    """What a run left: the rows that the sink holds, the batches run, and what it died of."""

    rows: Rows
    batches: tuple[int, ...]
    error: str | None


@dataclass(frozen=True, slots=True)
class Kept:
    """A directory and a digest of every byte in it."""

    root: Path
    digest: str

    @classmethod
    def of(cls, root: Path) -> Kept:
        """The directory as it is now."""
        return cls(root, _tree_digest(root))

    @property
    def is_as_it_was(self) -> bool:
        """Whether nothing in it has changed."""
        return _tree_digest(self.root) == self.digest


@dataclass(frozen=True, slots=True)
class Ending:
    """A place where a case's query has stopped, about to be started again.

    `checkpoint` is where its checkpoint is, if not in the place; `before` are rows that the query
    has written elsewhere; `untouched` is a directory that nobody may change, as it was.
    """

    case: str
    place: Path
    checkpoint: Path | None = None
    before: Rows = ()
    untouched: Kept | None = None


@dataclass(frozen=True, slots=True)
class Outcome:
    """Two restarts of a query, and the rows of a run that nobody interrupted."""

    first: Result
    second: Result
    expected: Rows
    before: Rows = ()
    untouched: bool = True

    @property
    def rows(self) -> Rows:
        """All that the query has written in the end, sorted."""
        return tuple(sorted((*self.before, *self.second.rows)))

    @property
    def errors(self) -> tuple[str, ...]:
        """What the restarts died of."""
        return tuple(result.error for result in (self.first, self.second) if result.error)

    @property
    def missing(self) -> Counter[str]:
        """The rows that were lost, and how often."""
        return Counter(self.expected) - Counter(self.rows)

    @property
    def extra(self) -> Counter[str]:
        """The rows that are there too often, and how often too often."""
        return Counter(self.rows) - Counter(self.expected)

    @property
    def right(self) -> bool:
        """Whether both restarts went through and left the output of the uninterrupted run."""
        return not self.errors and self.untouched and self.rows == self.expected


def cases(version: str) -> tuple[str, ...]:
    """Return the names of the cases that a version of Spark can run."""
    spark = tuple(int(part) for part in version.split(".")[:2])
    return tuple(recipe.name for recipe in CASES if recipe.min_spark <= spark)


def made(version: str, root: Path = ROOT) -> Path:
    """Return the directory of the version's places, one for each case, stopped after FILES files.

    They are made again only when the version or what they are made of has changed. Do not run or
    change anything there: use `copy_place`.
    """
    place = root / "build" / "lab" / f"endings-{version}-{_digest()}"
    done = place / "done"
    with _lock(version, root):
        if not done.is_file():
            for outdated in place.parent.glob(f"endings-{version}-*"):
                shutil.rmtree(outdated)
            place.mkdir(parents=True)
            if unpacked(place):
                return place
            starts = [Job(case, place / case, FILES) for case in cases(version)]
            # Nearly everybody asks for these, and a JVM is running anyway.
            with tempfile.TemporaryDirectory() as scratch:
                whole = _uninterrupted(version, SECOND_RESTART, Path(scratch), closed=True)
                results = _sound(starts + whole, resume(version, starts + whole, root))
            _keep(place, SECOND_RESTART, whole, results[len(starts) :])
            done.touch()
    return place


def expected(
    version: str, case: str, files: int, *, closed: bool = True, root: Path = ROOT
) -> Rows:
    """Return what the case's sink holds after an uninterrupted run over so many input files."""
    place = made(version, root)
    kept = _kept(place, files, closed=closed)
    with _lock(version, root):
        if not kept.is_file():
            with tempfile.TemporaryDirectory() as scratch:
                jobs = _uninterrupted(version, files, Path(scratch), closed=closed)
                _keep(place, files, jobs, _sound(jobs, resume(version, jobs, root)))
    return tuple(json.loads(kept.read_text())[case])


def copy_place(source: Path, target: Path) -> Path:
    """Copy a place, its input included, so that its query can go on in the copy.

    Spark's logs hold absolute paths, which are made to point into the copy; checksums follow.
    """
    shutil.copytree(source, target, symlinks=True)
    logs = ("checkpoint/sources/*/*", "checkpoint/state/*/_metadata/**/*", "out/_spark_metadata/*")
    for path in (found for pattern in logs for found in target.glob(pattern)):
        if path.is_file() and not path.name.startswith("."):
            _rewrite(path, source, target)
    return target


def resume(version: str, jobs: Sequence[Job], root: Path = ROOT) -> list[Result]:
    """Run the jobs in one new JVM, and return their results in the same order.

    A place may be in one job only: what a JVM remembers of it must not help or harm a second run.
    """
    assert len({job.place for job in jobs}) == len(jobs), "a place twice in one JVM"
    python = environment(version, root)
    with tempfile.TemporaryDirectory(prefix="endings-") as scratch:
        asked, told, log = (Path(scratch) / name for name in ("jobs.json", "results", "log"))
        asked.write_text(json.dumps([_described(job) for job in jobs]))
        command = [str(python), str(_HERE / "ending_runner.py"), str(asked), str(told)]
        with log.open("w") as stream:
            code = subprocess.run(command, stdout=stream, stderr=stream, check=False).returncode
        if code != 0:
            tail = "\n".join(log.read_text(errors="replace").splitlines()[-30:])
            raise RuntimeError(f"the queries' runner failed with code {code}:\n{tail}")
        results = [json.loads(line) for line in told.read_text().splitlines()]
    return [
        Result(tuple(result["rows"]), tuple(result["batches"]), result["error"])
        for result in sorted(results, key=lambda result: int(result["job"]))
    ]


def play_out(version: str, endings: Sequence[Ending], root: Path = ROOT) -> list[Outcome]:
    """Restart all queries twice, with more input each time, and return how each came out."""
    rows = {e.case: expected(version, e.case, SECOND_RESTART, root=root) for e in endings}
    starts = [Job(e.case, e.place, FIRST_RESTART, checkpoint=e.checkpoint) for e in endings]
    first = resume(version, starts, root)
    last = [replace(job, files=SECOND_RESTART, closed=True) for job in starts]
    second = resume(version, last, root)
    return [
        Outcome(
            before,
            after,
            rows[ending.case],
            ending.before,
            ending.untouched is None or ending.untouched.is_as_it_was,
        )
        for ending, before, after in zip(endings, first, second, strict=True)
    ]


def _described(job: Job) -> dict[str, object]:
    """Return a job as the runner reads it."""
    return {
        "recipe": asdict(_RECIPES[job.case]),
        "place": str(job.place.resolve()),
        "checkpoint": str((job.checkpoint or job.place / "checkpoint").resolve()),
        "files": job.files,
        "closed": job.closed,
        "per_batch": job.per_batch,
    }


def _uninterrupted(version: str, files: int, scratch: Path, *, closed: bool) -> list[Job]:
    """Return the jobs of an uninterrupted run, in few batches since these do not matter."""
    return [
        Job(case, scratch / case, files, closed=closed, per_batch=_ALL_AT_ONCE)
        for case in cases(version)
    ]


def _sound(jobs: Sequence[Job], results: list[Result]) -> list[Result]:
    """Return the results if all runs went through: nothing can be compared with one that failed."""
    for job, result in zip(jobs, results, strict=True):
        if result.error or not result.rows:
            raise RuntimeError(f"{job.case} did not run: {result.error or 'no rows came out'}")
    return results


def _kept(place: Path, files: int, *, closed: bool) -> Path:
    return place / f"expected-{files}{'-closed' if closed else ''}.json"


def _keep(place: Path, files: int, jobs: list[Job], results: list[Result]) -> None:
    rows = {job.case: result.rows for job, result in zip(jobs, results, strict=True)}
    kept = _kept(place, files, closed=jobs[0].closed)
    unfinished = kept.with_suffix(".tmp")
    unfinished.write_text(json.dumps(rows, indent=1))
    unfinished.replace(kept)


def _rewrite(path: Path, source: Path, target: Path) -> None:
    """Let the paths in a log file point to `target`, and make its checksum fit."""
    old = path.read_bytes()
    new = old
    # Most logs have three slashes, the metadata of operators has one.
    for scheme in ("file://", "file:"):
        before, after = (f"{scheme}{place.resolve()}/".encode() for place in (source, target))
        new = new.replace(before, after)
    hidden = path.with_name(f".{path.name}.crc")
    if new != old:
        path.write_bytes(new)
        if hidden.exists():
            hidden.write_bytes(_hadoop_crc(new))


def _hadoop_crc(data: bytes) -> bytes:
    pieces = (data[i : i + _HADOOP_CRC_BYTES] for i in range(0, len(data), _HADOOP_CRC_BYTES))
    sums = [struct.pack(">I", zlib.crc32(piece)) for piece in pieces]
    return struct.pack(">4si", b"crc\0", _HADOOP_CRC_BYTES) + b"".join(sums)


def _tree_digest(root: Path) -> str:
    hashed = hashlib.sha256()
    for path in sorted(root.rglob("*")):
        hashed.update(f"{path.relative_to(root)}\0{path.lstat().st_mtime_ns}\0".encode())
        if path.is_file():
            hashed.update(path.read_bytes())
    return hashed.hexdigest()


def _lock(version: str, root: Path) -> AbstractContextManager[None]:
    return alone(root / "build" / "lab" / f"endings-{version}.lock")


def _digest() -> str:
    """Return a short hash of everything that decides what the places and the rows hold."""
    hashed = hashlib.sha256(json.dumps([asdict(recipe) for recipe in CASES]).encode())
    for name in _INGREDIENTS:
        hashed.update((_HERE / name).read_bytes())
    return hashed.hexdigest()[:12]
