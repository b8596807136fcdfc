"""The fixed corpus: packed archives, held in memory and written out for one case at a time.

Spark writes absolute paths into its logs. The corpus was made in `PLACE`, and every case runs in a
root whose path is exactly as long, so that replacing one by the other changes no size and no
position. A damaged member is a healthy one with a patch: files that are removed or replaced.
"""

from __future__ import annotations

import base64
import hashlib
import json
import lzma
import os
import struct
import tarfile
import zlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent / "corpus"
PLACE = "/tmp/sluicegate-net/corpus-of-the-regression-net-whose-path-has-eighty-characters-aaaa"
DAMAGES = HERE / "damages.json.xz"
# Nothing in the corpus is newer than this; a later time in a document comes from the clock.
NEWEST = HERE / "NEWEST"

MAGIC = b"\x89SLG\r\n\x1a\n"
FRAME_HEADER = 64
_HADOOP_CRC_BYTES = 512
_CRC_HEADER = struct.pack(">4si", b"crc\0", _HADOOP_CRC_BYTES)


@dataclass(frozen=True, slots=True)
class Entry:
    """A file, directory or symbolic link of a member; `holes` are written behind `data`."""

    kind: str
    mode: int
    mtime_ns: int
    data: bytes = b""
    holes: tuple[tuple[int, bytes], ...] = ()


Member = Mapping[str, Entry]


@cache
def newest() -> float:
    """A moment after every one that the corpus names, in seconds since 1970."""
    return float(NEWEST.read_text())


def archives() -> list[str]:
    """The names of the packed archives."""
    return sorted(path.name.removesuffix(".tar.xz") for path in HERE.glob("*.tar.xz"))


@cache
def archive(name: str) -> Mapping[str, Member]:
    """The members of an archive by name: `<archive>/<directory>`."""
    members: dict[str, dict[str, Entry]] = {}
    with tarfile.open(HERE / f"{name}.tar.xz") as packed:
        for info in packed:
            first, _, rest = info.name.partition("/")
            directory, _, inner = rest.partition("/")
            if not directory:
                continue
            found = _entry(packed, info)
            members.setdefault(f"{first}/{directory}", {})[inner] = found
    return members


def _entry(packed: tarfile.TarFile, info: tarfile.TarInfo) -> Entry:
    mtime_ns = round(float(info.pax_headers.get("mtime", info.mtime)) * 1e9)
    if info.isdir():
        return Entry("d", info.mode, mtime_ns)
    if info.issym():
        return Entry("l", info.mode, mtime_ns, info.linkname.encode())
    stream = packed.extractfile(info)
    assert stream is not None, info.name
    return Entry("f", info.mode, mtime_ns, stream.read())


def member(name: str) -> Member:
    """A member of the corpus; `<member>!<damage>` is the damaged one."""
    healthy, _, damage = name.partition("!")
    found = archive(healthy.partition("/")[0])[healthy]
    return _patched(found, damages()[name]) if damage else found


@cache
def damages() -> Mapping[str, Mapping[str, Any]]:
    """Patches by `<member>!<damage>`."""
    if not DAMAGES.exists():
        return {}
    found = json.loads(lzma.decompress(DAMAGES.read_bytes()))
    assert isinstance(found, dict)
    return found


def _patched(healthy: Member, patch: Mapping[str, Any]) -> Member:
    removed = set(patch["removed"])
    changed = {inner: entry for inner, entry in healthy.items() if inner not in removed}
    for inner, new in patch["written"].items():
        holes = tuple((at, base64.b64decode(data)) for at, data in new.get("holes", ()))
        old = healthy.get(inner)
        data = old.data if old and "data" not in new else base64.b64decode(new["data"])
        changed[inner] = Entry("f", new["mode"], new["mtime_ns"], data, holes)
    return changed


def place(name: str, root: Path) -> Path:
    """Write a member below a case's root and give its directory; times are those of the corpus."""
    assert len(str(root)) == len(PLACE), f"{root} must be as long as {PLACE}"
    found = member(name)
    top = root / name.partition("!")[0]
    real = str(root).encode()
    frames = _relinked(found, real)
    paths = {inner: f"{top}/{inner}" if inner else str(top) for inner in sorted(found)}
    top.mkdir(parents=True)
    for inner, path in paths.items():
        entry = found[inner]
        if entry.kind != "d":
            _write(path, entry, frames.get(inner) or _relocated(found, inner, entry, real))
        elif inner:
            os.mkdir(path)
    for inner in reversed(paths):
        at = found[inner].mtime_ns
        os.utime(paths[inner], ns=(at, at), follow_symlinks=False)
    return top


def _write(path: str, entry: Entry, data: bytes) -> None:
    if entry.kind == "l":
        os.symlink(data.decode(), path)
        return
    with open(path, "wb", buffering=0) as stream:
        stream.write(data)
        for at, piece in entry.holes:
            stream.seek(at)
            stream.write(piece)
    if entry.mode & 0o777 != 0o644:
        os.chmod(path, entry.mode)


def _relinked(found: Member, real: bytes) -> dict[str, bytes]:
    """The framed files that change with the root: a chain names its source by an absolute path.

    Every link of a chain holds the checksum of the one before it, and hints hold the newest one's,
    so links come first, in order, and checksums that have changed are replaced in what follows.
    """
    old = PLACE.encode()
    framed = [inner for inner, entry in found.items() if entry.data.startswith(MAGIC)]
    if not any(old in found[inner].data for inner in framed):
        return {}
    changed: dict[str, bytes] = {}
    digests: list[tuple[bytes, bytes]] = []
    for inner in sorted(framed, key=lambda inner: ("/chain/" not in inner, inner)):
        before = found[inner].data
        after = before.replace(old, real)
        for was, now in digests:
            after = after.replace(was, now).replace(was.hex().encode(), now.hex().encode())
        if after != before:
            after = after[:32] + frame_sum(after) + after[FRAME_HEADER:]
            digests.append((before[32:FRAME_HEADER], after[32:FRAME_HEADER]))
            changed[inner] = after
    return changed


def frame_sum(data: bytes) -> bytes:
    """The checksum that belongs into the header of a frame."""
    return hashlib.blake2b(data[:32] + data[FRAME_HEADER:], digest_size=32).digest()


def _relocated(found: Member, inner: str, entry: Entry, real: bytes) -> bytes:
    """The content with the case's own paths; a checksum that fitted before fits afterwards."""
    old = PLACE.encode()
    if old in entry.data and not entry.data.startswith(MAGIC):
        return entry.data.replace(old, real)
    directory, _, name = inner.rpartition("/")
    if name.startswith(".") and name.endswith(".crc"):
        about = f"{directory}/{name[1:-4]}".lstrip("/")
        checked = found.get(about)
        if checked and old in checked.data and entry.data == hadoop_crc(checked.data):
            return hadoop_crc(checked.data.replace(old, real))
    return entry.data


def hadoop_crc(data: bytes) -> bytes:
    """The hidden checksum file that Hadoop writes beside a file with this content."""
    pieces = (data[at : at + _HADOOP_CRC_BYTES] for at in range(0, len(data), _HADOOP_CRC_BYTES))
    return _CRC_HEADER + b"".join(struct.pack(">I", zlib.crc32(piece)) for piece in pieces)


def members() -> Iterator[str]:
    """Every member, healthy and damaged."""
    for name in archives():
        yield from archive(name)
    yield from damages()
