"""Chains: whether length matters, how snapshots grow, and what a commit costs beyond fsyncs."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from itertools import count
from pathlib import Path

from harness import Bar, Row, compare

from sluicegate.positions import Positions
from sluicegate.state import delta
from sluicegate.state.delta import Merge
from sluicegate.storage import LocalStorage
from sluicegate.storage.blobs import Blobs, Ref
from sluicegate.stream.append import Epoch, Signature
from sluicegate.stream.chain import HEAD, Chain, Hint, write_hint
from sluicegate.stream.snapshot import Kind, Snapshot, digest_of, encode, key_of
from sluicegate.stream.stream import Stream, open_stream
from sluicegate.stream.writer import Run, StreamWriter

SHORT, LONG = 100, 100_000
FEW, MANY = 10, 10_000
SHARDS = 4


def rows() -> Iterator[Row]:
    # Beside the code and not in /tmp, which often is memory and makes fsync free.
    build = Path(__file__).parent.parent / "build"
    build.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory(dir=build) as directory:
        yield from _length(Path(directory))
        yield _commit(Path(directory))
    memory = Path("/dev/shm")
    with tempfile.TemporaryDirectory(dir=memory if memory.is_dir() else build) as directory:
        yield _snapshot_size(Path(directory))


def _length(root: Path) -> Iterator[Row]:
    short, long = _chain(root / "short", SHORT), _chain(root / "long", LONG)
    os.sync()
    bar = Bar("time at most", 1.5)
    name = f"of {LONG:,} snapshots / of {SHORT}"
    yield compare(f"head {name}", long.head, short.head, bar, rounds=401)
    yield compare(f"append {name}", _appender(long), _appender(short), bar, rounds=401)


def _chain(root: Path, length: int) -> Chain:
    """A chain as a job would have left it, written without waiting for the disk."""
    (root / "chain").mkdir(parents=True)
    storage = LocalStorage(root)
    chain = Chain(storage)
    writer = StreamWriter(Stream(storage, None, root.name))
    snapshot = writer.genesis(_at(0))
    for number in range(1, length):
        snapshot = _next(snapshot)
        data = encode(snapshot)
        (root / key_of(number)).write_bytes(data)
        snapshot = replace(snapshot, digest=digest_of(data))
    write_hint(storage, HEAD, Hint.of(snapshot))
    return chain


def _appender(chain: Chain) -> Callable[[], None]:
    def append() -> None:
        assert chain.append(_next(chain.head()))

    return append


def _next(snapshot: Snapshot) -> Snapshot:
    sequence = snapshot.sequence + 30
    return Signature().next(snapshot, Kind.EPOCH, sequence=sequence, positions=_at(sequence))


def _commit(root: Path) -> Row:
    """A commit of an epoch with state, against the files it must make durable, made by hand."""
    (root / "committed").mkdir()
    stream = open_stream(str(root / "committed"), read_only=False)
    writer = StreamWriter(stream)
    writer.genesis(_at(0))
    bare = _Bare(root / "bare")
    with writer.claim(app="bench") as run:
        deltas = {shard: _delta(stream.blobs, shard) for shard in range(SHARDS)}
        return compare(
            "commit / bare write, fsync, snapshot, fsync of the same files",
            lambda: _commit_one(run, deltas),
            bare.commit,
            Bar("rate at least", 0.5),
            rounds=401,
        )


def _commit_one(run: Run, deltas: Mapping[int, Ref]) -> Snapshot:
    head = run.snapshot
    end = _at(head.sequence + 30)
    return run.commit(Epoch(head.positions, end, 30, deltas, head.version, head.generation))


class _Bare:
    """What a commit makes durable: the epoch's manifest, the snapshot, and HEAD."""

    def __init__(self, root: Path) -> None:
        for name in ("blobs", "chain"):
            (root / name).mkdir(parents=True)
        self._root = root
        self._numbers = count()

    def commit(self) -> None:
        number = next(self._numbers)
        self._create("blobs", f"{number}", b"x" * 400)
        self._create("chain", f"{number}.snapshot", b"x" * 1200)
        self._write("", "new", b"x" * 200)
        (self._root / "new").rename(self._root / "HEAD")
        self._sync("")

    def _create(self, directory: str, name: str, data: bytes) -> None:
        self._write(directory, "new", data)
        os.link(self._root / directory / "new", self._root / directory / name)
        (self._root / directory / "new").unlink()
        self._sync(directory)

    def _write(self, directory: str, name: str, data: bytes) -> None:
        fd = os.open(self._root / directory / name, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
        os.write(fd, data)
        os.fsync(fd)
        os.close(fd)

    def _sync(self, directory: str) -> None:
        fd = os.open(self._root / directory, os.O_RDONLY)
        os.fsync(fd)
        os.close(fd)


def _snapshot_size(root: Path) -> Row:
    """The bytes of a snapshot after many epochs against after a few, each with state."""
    (root / "grown").mkdir()
    stream = open_stream(str(root / "grown"), read_only=False)
    writer = StreamWriter(stream)
    writer.genesis(_at(0))
    sizes = {}
    with writer.claim(app="bench") as run:
        for epoch in range(1, MANY + 1):
            deltas = {shard: _delta(stream.blobs, epoch + shard) for shard in range(SHARDS)}
            snapshot = _commit_one(run, deltas)
            if epoch <= FEW or epoch > MANY - 64:
                sizes[epoch] = len(encode(snapshot))
    # The fullest manifest of the last ones, against the tenth snapshot as it is.
    many = max(size for epoch, size in sizes.items() if epoch > FEW)
    few = sizes[FEW]
    bar = Bar("time at most", 2)
    ratio = many / few
    name = f"snapshot size after {MANY:,} epochs / after {FEW}"
    return Row(name, many, few, ratio, str(bar), bar.met(ratio), unit="bytes")


def _delta(blobs: Blobs, number: int) -> Ref:
    keys = [f"user-{number % 100}", "all"]
    return blobs.put(delta.encode(delta.table(keys, {"n": [1, 1]}, {"n": Merge.SUM})))


def _at(sequence: int) -> Positions:
    return Positions({"clicks": {0: sequence, 1: sequence, 2: sequence, 3: sequence}})
