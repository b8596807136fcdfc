"""Commits to an offset store against the bare calls that make a file durable."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from itertools import count
from pathlib import Path

from harness import Bar, Row, compare

from sluicegate.offsets import LockFileOffsetStore
from sluicegate.positions import Position, Positions

PARTITIONS = 1000


def rows() -> Iterator[Row]:
    # Beside the code and not in /tmp, which often is memory and makes fsync free.
    build = Path(__file__).parent.parent / "build"
    build.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory(dir=build) as directory:
        store = LockFileOffsetStore.create(f"{directory}/store")
        bare = _Bare(Path(directory))
        yield _one(store, bare)
        yield _many(store, bare)


class _Bare:
    """One offset per file: write, fsync, rename, fsync of the directory. No lock, no checksum."""

    def __init__(self, root: Path) -> None:
        self._root = root
        self._directory = os.open(root, os.O_RDONLY)

    def save(self, name: str, offset: int) -> None:
        fd = os.open(self._root / "new", os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
        os.write(fd, str(offset).encode())
        os.fsync(fd)
        os.close(fd)
        (self._root / "new").rename(self._root / name)
        os.fsync(self._directory)


def _one(store: LockFileOffsetStore, bare: _Bare) -> Row:
    ours, theirs = count(), count()
    return compare(
        "commit, 1 partition / bare write, fsync, rename",
        lambda: store.save("one", Position("orders", 0, next(ours))),
        lambda: bare.save("one", next(theirs)),
        Bar("rate at least", 0.6),
        rounds=401,
    )


def _many(store: LockFileOffsetStore, bare: _Bare) -> Row:
    offsets = count()

    def ours() -> None:
        at = next(offsets)
        store.save_many("many", Positions({"orders": dict.fromkeys(range(PARTITIONS), at)}))

    def theirs() -> None:
        for partition in range(PARTITIONS):
            bare.save(f"orders-{partition}", partition)

    return compare(
        f"commit, {PARTITIONS} partitions / one file per partition",
        ours,
        theirs,
        Bar("rate at least", 100),
        rounds=5,
    )
