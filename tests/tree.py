"""A directory as a value: read once, damaged in memory, written for Spark and `sg` to see, packed.

Where Spark has written the directory's own path into a log, a mark takes its place, and checksums
fit what they fitted before.
"""

from __future__ import annotations

import base64
import hashlib
import json
import lzma
import os
import shutil
import stat
import struct
import zlib
from dataclasses import dataclass, replace
from pathlib import Path

# Stands for the place's own directory wherever Spark has written it into a log.
_HERE = b"@@PLACE@@"
_CRC_BYTES = 512


@dataclass(frozen=True, slots=True)
class Entry:
    """One file: its bytes and time, and what lies there if it is not an ordinary file."""

    data: bytes = b""
    mtime_ns: int = 0
    shape: str = "file"  # or directory, link (data is its target), fifo, unreadable


Tree = dict[str, Entry]
"""Path below the place → entry. Directories are there only if they are empty or damage."""


def load(place: Path) -> Tree:
    """Read a place, its own path replaced by a mark and checksums made to fit that."""
    root = str(place).encode()
    tree: Tree = {}
    for path in sorted(place.rglob("*")):
        if (entry := _read(path)) is not None:
            tree[str(path.relative_to(place))] = entry
    marked = {
        name: replace(entry, data=entry.data.replace(root, _HERE))
        for name, entry in tree.items()
        if root in entry.data
    }
    for name, entry in marked.items():
        hidden = sum_name(name)
        if hidden in tree and tree[hidden].data == hadoop_sum(tree[name].data):
            tree[hidden] = replace(tree[hidden], data=hadoop_sum(entry.data))
    return tree | marked


def _read(path: Path) -> Entry | None:
    if path.is_symlink():
        return Entry(os.fsencode(path.readlink()), shape="link")
    if path.is_dir():
        return None if any(path.iterdir()) else Entry(shape="directory")
    if path.is_fifo():
        return Entry(shape="fifo")
    status = path.stat()
    is_readable = bool(status.st_mode & stat.S_IRUSR)
    shape = "file" if is_readable else "unreadable"
    if not is_readable:
        path.chmod(0o600)
    data = path.read_bytes()
    if not is_readable:
        path.chmod(0)
    return Entry(data, status.st_mtime_ns, shape)


def write(tree: Tree, place: Path) -> None:
    """Write a tree where nothing is yet."""
    root = str(place).encode()
    made: set[Path] = set()
    for name, entry in tree.items():
        path = place / name
        if path.parent not in made:
            path.parent.mkdir(parents=True, exist_ok=True)
            made.add(path.parent)
        data = entry.data.replace(_HERE, root)
        owner = tree.get(owner_of(name)) if _is_sum(name) else None
        if owner and _HERE in owner.data and entry.data == hadoop_sum(owner.data):
            data = hadoop_sum(owner.data.replace(_HERE, root))
        _write(path, data, entry)


def _write(path: Path, data: bytes, entry: Entry) -> None:
    if entry.shape == "directory":
        path.mkdir(exist_ok=True)
    elif entry.shape == "link":
        path.symlink_to(os.fsdecode(data))
    elif entry.shape == "fifo":
        os.mkfifo(path)
    else:
        path.write_bytes(data)
        os.utime(path, ns=(entry.mtime_ns, entry.mtime_ns))
        if entry.shape == "unreadable":
            path.chmod(0)


def remove(place: Path) -> None:
    """Remove what `write` and the trial have left."""
    shutil.rmtree(place, ignore_errors=True)


def pack(trees: dict[str, Tree]) -> bytes:
    """Return trees of ordinary files and empty directories in a compact form."""
    fields = {
        key: {
            name: (base64.b64encode(entry.data).decode(), entry.mtime_ns, entry.shape)
            for name, entry in tree.items()
        }
        for key, tree in trees.items()
    }
    return lzma.compress(json.dumps(fields).encode())


def unpack(packed: bytes) -> dict[str, Tree]:
    """Return what was packed."""
    return {
        key: {
            name: Entry(base64.b64decode(data), mtime_ns, shape)
            for name, (data, mtime_ns, shape) in fields.items()
        }
        for key, fields in json.loads(lzma.decompress(packed)).items()
    }


def digest(tree: Tree) -> str:
    """Return a short digest of all names and contents, but not of times."""
    hashed = hashlib.sha256()
    for name in sorted(tree):
        hashed.update(f"{name}\0{tree[name].shape}\0{len(tree[name].data)}\0".encode())
        hashed.update(tree[name].data)
    return hashed.hexdigest()[:16]


def sum_name(name: str) -> str:
    """Return the name of a file's hidden Hadoop checksum."""
    directory, _, last = name.rpartition("/")
    return f"{directory}/.{last}.crc" if directory else f".{last}.crc"


def owner_of(name: str) -> str:
    """Return the name of the file that a hidden checksum belongs to."""
    directory, _, last = name.rpartition("/")
    owner = last.removeprefix(".").removesuffix(".crc")
    return f"{directory}/{owner}" if directory else owner


def _is_sum(name: str) -> bool:
    last = name.rpartition("/")[2]
    return last.startswith(".") and last.endswith(".crc")


def hadoop_sum(data: bytes) -> bytes:
    """Return the content of a hidden Hadoop checksum."""
    pieces = (data[i : i + _CRC_BYTES] for i in range(0, len(data), _CRC_BYTES))
    sums = [struct.pack(">I", zlib.crc32(piece)) for piece in pieces]
    return struct.pack(">4si", b"crc\0", _CRC_BYTES) + b"".join(sums)
