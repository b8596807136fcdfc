"""Storage, locks and codec against the bare calls they are made of."""

from __future__ import annotations

import fcntl
import os
import tempfile
from collections.abc import Iterator
from hashlib import blake2b
from pathlib import Path

import msgpack
from harness import Bar, Row, compare

from sluicegate import codec
from sluicegate.locks import FileLock
from sluicegate.storage import LocalStorage

DATA = b"x" * 1024
FORMAT = codec.Format("bench", version=1, max_body=1 << 20)
VALUE = {"positions": {f"topic-{t}": {str(p): p * 1000 for p in range(32)} for t in range(8)}}


def rows() -> Iterator[Row]:
    # Beside the code and not in /tmp, which often is memory and makes fsync free.
    build = Path(__file__).parent.parent / "build"
    build.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory(dir=build) as directory:
        root = Path(directory)
        yield _replace(root)
        yield _lock(root)
    yield _decode()


def _replace(root: Path) -> Row:
    storage = LocalStorage(root)
    directory = os.open(root, os.O_RDONLY)

    def bare() -> None:
        fd = os.open(root / "t", os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
        os.write(fd, DATA)
        os.fsync(fd)
        os.close(fd)
        (root / "t").rename(root / "b")
        os.fsync(directory)

    row = compare(
        "storage.replace / bare write, fsync, rename",
        lambda: storage.replace("a", DATA),
        bare,
        Bar("rate at least", 0.8),
        rounds=401,
    )
    os.close(directory)
    return row


def _lock(root: Path) -> Row:
    lock = FileLock(root / "a.lock")

    def ours() -> None:
        with lock.hold():
            pass

    def bare() -> None:
        fd = os.open(root / "b.lock", os.O_RDWR | os.O_CREAT)
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        os.close(fd)

    # The note of who holds it costs two files' worth of metadata, but no fsync.
    bar = Bar("time at most", 40)
    return compare("locks.hold with note / bare flock", ours, bare, bar, rounds=401)


def _decode() -> Row:
    frame = codec.encode(FORMAT, VALUE)
    body = frame[codec.HEADER_BYTES :]

    def bare() -> None:
        blake2b(body, digest_size=32).digest()
        msgpack.unpackb(body)

    return compare(
        "codec.decode, canonical / bare msgpack, blake2b",
        lambda: codec.decode(FORMAT, frame, "bench"),
        bare,
        Bar("time at most", 20),
        rounds=401,
    )
