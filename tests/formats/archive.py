"""Opens the archives in this folder: trees of files as commit f37eb7e left them on disk.

An archive is a tar.xz with `index.json` (trees, cases), `blobs/N` (contents) and `made_by.py` (the
program that made it). A tree is a base tree and what differs from it. Files that name the directory
they lay in hold `PLACE` instead, and get the real one when they are unpacked. Checksums follow. So
this module knows the frame of f37eb7e, Hadoop's checksum files and the digest of a saved plan, each
in one place, and nothing of the product.
"""

from __future__ import annotations

import json
import os
import struct
import tarfile
import zlib
from dataclasses import dataclass, field
from functools import cache, cached_property
from hashlib import blake2b
from pathlib import Path
from typing import Any

import msgpack

HERE = Path(__file__).parent
PLACE = "/@the-place@"
"""Stands for the directory that a tree was unpacked into; absolute, as Spark writes paths."""
MODIFIED_NS = 1_735_689_600_000_000_000
"""The time of every file: long ago, so that no file looks as if a job had just written it."""
RECORDS = "_sluicegate"
"""Sluicegate's own directory in a checkpoint or sink; Spark ignores it."""

_MAGIC = b"\x89SLG\r\n\x1a\n"
_FRAME = struct.Struct("<8s8sIQ")
_CRC_BYTES = 512

Tree = dict[str, bytes]


@dataclass(frozen=True)
class Archive:
    """One archive in memory."""

    index: dict[str, Any]
    blobs: list[bytes]
    made: dict[tuple[int, str], bytes] = field(default_factory=dict)

    @cached_property
    def links(self) -> dict[str, bytes]:
        """All links of its chains, by digest."""
        return {digest_of(data): data for data in self.blobs if is_frame(data, "link")}

    @property
    def cases(self) -> dict[str, Any]:
        """What the builder wrote down of each case."""
        found: dict[str, Any] = self.index["cases"]
        return found

    def listing(self, name: str) -> dict[str, int | None]:
        """Path → number of its content; None for a directory."""
        tree = self.index["trees"][name]
        files: dict[str, int | None] = self.listing(tree["base"]) if tree["base"] else {}
        for path in tree["gone"]:
            del files[path]
        files.update(tree["files"])
        return files

    def unpack(self, name: str, root: Path) -> Path:
        """Write a tree into a directory, which need not exist."""
        root.mkdir(parents=True, exist_ok=True)
        listing = self.listing(name)
        # The time of a directory changes with a write in it, so directories come last.
        directories = {root}
        for path, number in listing.items():
            target = root / path
            directories |= {target, target.parent} if number is None else {target.parent}
            (target if number is None else target.parent).mkdir(parents=True, exist_ok=True)
            if number is not None:
                target.write_bytes(self.content(number, str(root)))
                os.utime(target, ns=(MODIFIED_NS, MODIFIED_NS))
        inside = {above for each in directories for above in (each, *each.parents)}
        for each in inside:
            if each.is_relative_to(root):
                os.utime(each, ns=(MODIFIED_NS, MODIFIED_NS))
        return root

    def content(self, number: int, root: str) -> bytes:
        """A content as it belongs into this directory."""
        kind, of = self.index["blobs"][number]
        if kind == "raw":
            return self.blobs[number]
        key = (number, root)
        if key not in self.made:
            self.made[key] = self._made(kind, number, of, root)
        return self.made[key]

    def _made(self, kind: str, number: int, of: int, root: str) -> bytes:
        match kind:
            case "text":
                return self.blobs[number].replace(PLACE.encode(), root.encode())
            case "crc":
                return hadoop_crc(self.content(of, root))
            case "frame":
                return Moves(self.links, PLACE, root).frame(self.blobs[number])
            case "plan":
                return Moves(self.links, PLACE, root).plan(self.blobs[number])
        raise AssertionError(kind)

    def tree(self, name: str, root: Path) -> Tree:
        """What `files_of` gives after `unpack`, without writing anything."""
        return {
            path: self.content(number, str(root))
            for path, number in self.listing(name).items()
            if number is not None and not is_own(Path(path))
        }


@cache
def opened(name: str) -> Archive:
    """The archive `name` of this folder."""
    with tarfile.open(HERE / f"{name}.tar.xz") as packed:
        contents: dict[str, bytes] = {}
        for member in packed:
            stream = packed.extractfile(member)
            assert stream is not None
            contents[member.name] = stream.read()
    index = json.loads(contents["index.json"])
    return Archive(index, [contents.get(f"blobs/{n}", b"") for n in range(len(index["blobs"]))])


def files_of(root: Path) -> Tree:
    """Every file below a directory, without Sluicegate's own records and temporary files."""
    return {
        str(path.relative_to(root)): path.read_bytes()
        for path in sorted(root.rglob("*"))
        if path.is_file() and not is_own(path.relative_to(root))
    }


def is_own(path: Path) -> bool:
    """Whether a file is Sluicegate's own, which no reader of a checkpoint looks at."""
    return RECORDS in path.parts or path.name.startswith(".sg-")


def hadoop_crc(data: bytes) -> bytes:
    """The hidden file that Hadoop keeps beside one with this content."""
    pieces = (data[i : i + _CRC_BYTES] for i in range(0, len(data), _CRC_BYTES))
    sums = [struct.pack(">I", zlib.crc32(piece)) for piece in pieces]
    return struct.pack(">4si", b"crc\0", _CRC_BYTES) + b"".join(sums)


class Moves:
    """Moves frames and saved plans of f37eb7e from one directory to another.

    A link names its parent by digest, and so do hints and plans. A link whose paths have moved has
    a new digest, so whatever names it must follow: `links` are the links by their digests.
    """

    def __init__(self, links: dict[str, bytes], old: str, new: str) -> None:
        self._links, self._old, self._new = links, old, new
        self._digests: dict[str, str] = {}

    def frame(self, data: bytes) -> bytes:
        """A frame with the paths and digests in all its strings replaced."""
        magic, kind, version, _ = _FRAME.unpack_from(data)
        body: bytes = msgpack.packb(self._moved(msgpack.unpackb(data[64:])), use_bin_type=True)
        prefix = _FRAME.pack(magic, kind, version, len(body))
        prefix += struct.pack("<I", zlib.crc32(prefix))
        return prefix + blake2b(prefix + body, digest_size=32).digest() + body

    def plan(self, data: bytes) -> bytes:
        """A saved plan with the same replaced."""
        document = self._moved(json.loads(data))
        del document["digest"]
        canonical = json.dumps(document, sort_keys=True, separators=(",", ":"))
        document["digest"] = blake2b(canonical.encode(), digest_size=32).hexdigest()
        return (json.dumps(document, indent=2, ensure_ascii=False) + "\n").encode()

    def _moved(self, value: Any) -> Any:
        match value:
            case str() if value in self._links:
                if value not in self._digests:
                    self._digests[value] = digest_of(self.frame(self._links[value]))
                return self._digests[value]
            case str():
                return value.replace(self._old, self._new)
            case list():
                return [self._moved(each) for each in value]
            case dict():
                return {key: self._moved(each) for key, each in value.items()}
        return value


def is_frame(data: bytes, kind: str = "") -> bool:
    """Whether a content is a whole frame, of this kind."""
    if len(data) < 64 or data[:8] != _MAGIC:
        return False
    length: int = _FRAME.unpack_from(data)[3]
    return len(data) == 64 + length and data[8:16].startswith(kind.encode())


def digest_of(frame: bytes) -> str:
    """How other files name a link."""
    return frame[32:64].hex()
