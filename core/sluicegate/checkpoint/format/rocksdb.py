"""A snapshot of Spark's RocksDB provider: `V.zip`, and the shared files that it refers to.

The zip holds RocksDB's small files and an entry `metadata`, `v1` and one line of JSON:
`{"sstFiles":[{"localFileName":"000008.sst","dfsSstFileName":"000008-<uuid>.sst","sizeBytes":1287}],
"numKeys":4,"numInternalKeys":0,"columnFamilyMapping":{},…}`. The files named there lie beside the
zip in `SSTs/`; older releases may also name `logFiles`, which lie in `logs/`.
"""

from __future__ import annotations

import io
import struct
import zipfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, BinaryIO

from sluicegate.checkpoint.format.log import integer, parse_object, parse_version
from sluicegate.errors import Corrupt
from sluicegate.storage import Storage

NEWEST_METADATA = 1
METADATA = "metadata"
MOST_METADATA = 8 << 20
"""Enough for 60,000 SST files."""
MOST_UNPACKED = 1 << 30
"""A zip that claims to unpack to more is not one of Spark's, whose largest entry is a manifest."""

_MOST_DIRECTORY = 1 << 20
_PIECE = 1 << 16
# The exceptions of zipfile for damage, depending on its place and the version of Python.
_DAMAGE = (
    zipfile.BadZipFile,
    zlib.error,
    EOFError,
    KeyError,
    RuntimeError,
    ValueError,
    struct.error,
)


@dataclass(frozen=True, slots=True)
class SharedFile:
    """A file that snapshots refer to: where it lies beside the zip, and its size."""

    key: str
    local_name: str
    size: int


@dataclass(frozen=True, slots=True)
class RocksSnapshot:
    """The metadata of a zip; `keys` is -1 if Spark did not count them."""

    keys: int
    shared: tuple[SharedFile, ...]
    column_families: tuple[str, ...]
    entries: tuple[str, ...]


def read_zip(stream: BinaryIO, place: str, *, read_data: bool = False) -> RocksSnapshot:
    """The metadata of a snapshot; with `read_data` every entry is unpacked and its CRC checked.

    `Corrupt` for any damage, `UnsupportedFormat` for metadata of a newer version. The size is
    limited before anything is unpacked.
    """
    with _damage(place), zipfile.ZipFile(_Guarded(stream, place)) as archive:
        entries = archive.infolist()
        _refuse_oversize(entries, place)
        metadata = archive.getinfo(METADATA)
        if metadata.file_size > MOST_METADATA:
            raise Corrupt(f"{place}: its metadata has {metadata.file_size} bytes", place=place)
        text = b"".join(_pieces(archive, metadata))
        for entry in entries if read_data else ():
            for _ in _pieces(archive, entry):
                pass
    return _parse(text, tuple(entry.filename for entry in entries), place)


def shared_faults(storage: Storage, directory: str, zip_name: str) -> list[str]:
    """The faults of the files that a zip in `directory` refers to; opens the zip."""
    key = f"{directory}/{zip_name}"
    with storage.open(key) as stream:
        snapshot = read_zip(stream, f"{storage.uri}/{key}")
    faults = []
    for shared in snapshot.shared:
        found = storage.stat(f"{directory}/{shared.key}")
        if found is None or found.kind != "file":
            faults.append(f"{shared.key} is missing, which {zip_name} refers to")
        elif found.size != shared.size:
            faults.append(
                f"{shared.key} has {found.size} bytes; {zip_name} has {shared.size} for it"
            )
    return faults


def _pieces(archive: zipfile.ZipFile, entry: zipfile.ZipInfo) -> Iterator[bytes]:
    # By pieces, because zipfile unpacks all that it has been given before it looks at the size
    # that the entry claims.
    with archive.open(entry) as content:
        while piece := content.read(_PIECE):
            yield piece


def _refuse_oversize(entries: list[zipfile.ZipInfo], place: str) -> None:
    for entry in entries:
        # Other methods that zipfile knows can need gigabytes to unpack a few bytes.
        if entry.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
            method = entry.compress_type
            raise Corrupt(f"{place}: an entry has the packing method {method}", place=place)
    total = sum(entry.file_size for entry in entries)
    if total > MOST_UNPACKED:
        raise Corrupt(
            f"{place}: claims {total} bytes unpacked; {MOST_UNPACKED} are allowed", place=place
        )


def _parse(text: bytes, entries: tuple[str, ...], place: str) -> RocksSnapshot:
    try:
        version, _, body = text.decode().partition("\n")
    except UnicodeDecodeError as e:
        raise Corrupt(f"{place}: its metadata is not UTF-8", place=place) from e
    parse_version(version, place, NEWEST_METADATA)
    fields = parse_object(body, place)
    if not isinstance(fields.get("sstFiles"), list):
        raise Corrupt(f"{place}: has no list of SST files", place=place)
    families = fields.get("columnFamilyMapping") or {}
    if not isinstance(families, dict):
        raise Corrupt(f"{place}: columnFamilyMapping is not an object", place=place)
    shared = [
        *_shared(fields["sstFiles"], "SSTs", "dfsSstFileName", place),
        *_shared(fields.get("logFiles") or [], "logs", "dfsLogFileName", place),
    ]
    return RocksSnapshot(integer(fields, "numKeys", place), tuple(shared), tuple(families), entries)


def _shared(items: Any, directory: str, field: str, place: str) -> Iterator[SharedFile]:
    try:
        for item in items:
            name, local = item[field], item["localFileName"]
            if not _is_file_name(name) or not _is_file_name(local):
                raise Corrupt(f"{place}: {directory} names no file: {item!a:.80}", place=place)
            yield SharedFile(f"{directory}/{name}", local, integer(item, "sizeBytes", place))
    except (KeyError, TypeError) as e:
        raise Corrupt(f"{place}: {directory} has an unknown form", place=place) from e


def _is_file_name(name: object) -> bool:
    if not isinstance(name, str) or name in ("", ".", ".."):
        return False
    return len(name) <= 255 and "/" not in name and name.isprintable()


@contextmanager
def _damage(place: str) -> Iterator[None]:
    try:
        yield
    except _DAMAGE as e:
        raise Corrupt(
            f"{place}: not a complete zip file: {e or type(e).__name__}", place=place
        ) from e


class _Guarded(io.RawIOBase):
    """The stream, without the huge reads that only a malicious directory of entries causes."""

    def __init__(self, stream: BinaryIO, place: str) -> None:
        self._stream = stream
        self._place = place

    def read(self, size: int = -1, /) -> bytes:
        data = self._stream.read(
            _MOST_DIRECTORY + 1 if size < 0 else min(size, _MOST_DIRECTORY + 1)
        )
        if len(data) > _MOST_DIRECTORY:
            raise Corrupt(
                f"{self._place}: its directory of entries is too large", place=self._place
            )
        return data

    def seek(self, offset: int, whence: int = 0, /) -> int:
        try:
            return self._stream.seek(offset, whence)
        except (OSError, ValueError, OverflowError) as e:
            raise zipfile.BadZipFile("an entry lies outside of the file") from e

    def tell(self) -> int:
        return self._stream.tell()

    def seekable(self) -> bool:
        return True

    def readable(self) -> bool:
        return True
