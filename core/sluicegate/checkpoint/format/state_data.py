"""The content of deltas, snapshots and changelogs of Spark's state, decoded to the last byte.

The content is packed as LZ4Block (see `lz4block`), numbers are big-endian. Plain records (deltas
and snapshots of the HDFS provider, changelog versions 1 and 3):

    i32 key length, key, i32 value length, value     put
    i32 key length, key, i32 -1                      delete (not in a snapshot)
    i32 -1                                           end

Typed records (changelog versions 2 and 4, of stores with column families):

    01, i32 length, key, i32 length, value           put
    10, i32 length, key, i32 -1                      delete
    11, i32 length, key, i32 length, value           merge
    20, i32 length, first key, i32 length, end key   delete range (Spark 4.3)
    00                                               end

A changelog of version 1 has no header. Versions 2 to 4 start with their version and, from 3 on, the
lineage, each as u16 length and text: `v3`, `[{"version":4,"checkpointUniqueId":"<uuid>"},…]`. The
lineage names the versions from a snapshot up to the one before this file.
"""

from __future__ import annotations

import re
import struct
from contextlib import suppress
from dataclasses import dataclass
from enum import Enum
from typing import BinaryIO

from sluicegate.checkpoint.format.log import parse_json
from sluicegate.checkpoint.format.lz4block import Torn, blocks
from sluicegate.errors import Corrupt, UnsupportedFormat

NEWEST_CHANGELOG = 4
_END = _DELETED = -1
_PUT, _DELETE, _MERGE, _DELETE_RANGE = 0x01, 0x10, 0x11, 0x20
_UNKNOWN_LINEAGE = "the lineage has an unknown form"
_I32 = struct.Struct(">i")
_U16 = struct.Struct(">H")
_VERSION = re.compile(rb"v(0|[1-9][0-9]{0,4})")


class StateKind(Enum):
    """The kinds of state files; the value is the ending of the name."""

    DELTA = "delta"
    SNAPSHOT = "snapshot"
    CHANGELOG = "changelog"
    ZIP = "zip"


@dataclass(frozen=True, slots=True, order=True)
class LineageItem:
    """One step of the history of state format 2: a version and the id of its files."""

    version: int
    uid: str


@dataclass(frozen=True, slots=True)
class Payload:
    """The content of a state file.

    `remark` describes damage behind the last record, which Spark does not read: the file loads.
    """

    kind: StateKind
    version: int
    puts: int
    deletes: int
    merges: int
    range_deletes: int
    key_bytes: int
    value_bytes: int
    raw_bytes: int
    lineage: tuple[LineageItem, ...] = ()
    remark: str | None = None

    @property
    def records(self) -> int:
        return self.puts + self.deletes + self.merges + self.range_deletes


def scan(stream: BinaryIO, kind: StateKind, place: str) -> Payload:
    """Decode a state file, not a zip, in little memory, whatever the size of it and its records.

    Raises `Corrupt`, naming the byte, if Spark cannot load it, and `UnsupportedFormat` if only a
    newer Spark or another codec can have written it.
    """
    reader = _Reader(stream, place)
    version, lineage = _header(reader) if kind is StateKind.CHANGELOG else (1, ())
    tally = _Tally(kind)
    if version % 2:
        tally.plain(reader)
    else:
        tally.typed(reader)
    return Payload(
        kind=kind,
        version=version,
        puts=tally.puts,
        deletes=tally.deletes,
        merges=tally.merges,
        range_deletes=tally.range_deletes,
        key_bytes=tally.key_bytes,
        value_bytes=tally.value_bytes,
        raw_bytes=reader.position,
        lineage=lineage,
        remark=reader.remark(),
    )


def read_lineage(stream: BinaryIO, place: str) -> tuple[LineageItem, ...]:
    """The lineage of a changelog, empty in versions 1 and 2; reads only the start of the file."""
    reader = _Reader(stream, place)
    _, lineage = _header(reader)
    if reader.torn:
        raise reader.torn
    return lineage


def _header(reader: _Reader) -> tuple[int, tuple[LineageItem, ...]]:
    version = _changelog_version(reader)
    if version == 1:
        return 1, ()
    reader.text("the version")
    return version, _lineage(reader) if version >= 3 else ()


def _changelog_version(reader: _Reader) -> int:
    start = reader.peek(_U16.size)
    length = _U16.unpack(start)[0] if len(start) == _U16.size else 0
    # Like Spark, which reads a text to look for a version, and so stumbles over damage behind the
    # last record of a short file without a version. That the file ends first is fine.
    found = _VERSION.fullmatch(reader.peek(_U16.size + length)[_U16.size :])
    version = int(found[1]) if found else 1
    if not 1 <= version <= NEWEST_CHANGELOG:
        raise reader.unsupported(f"a changelog of version {version}", 0)
    return version


def _lineage(reader: _Reader) -> tuple[LineageItem, ...]:
    start = reader.position
    raw = reader.text("the lineage")
    try:
        found = parse_json(raw.decode(), reader.place)
        items = tuple(LineageItem(item["version"], item["checkpointUniqueId"]) for item in found)
    except (Corrupt, UnicodeDecodeError, KeyError, TypeError) as e:
        raise reader.fault(_UNKNOWN_LINEAGE, start) from e
    if not all(type(item.version) is int and type(item.uid) is str for item in items):
        raise reader.fault(_UNKNOWN_LINEAGE, start)
    return items


class _Tally:
    """Counts the records of one file."""

    def __init__(self, kind: StateKind) -> None:
        self.puts = self.deletes = self.merges = self.range_deletes = 0
        self.key_bytes = self.value_bytes = 0
        self._deletes_allowed = kind is not StateKind.SNAPSHOT

    def plain(self, reader: _Reader) -> None:
        while (length := reader.int32("a key length")) != _END:
            self.key_bytes += reader.skip(length, "a key")
            length = reader.int32("a value length")
            if length == _DELETED and self._deletes_allowed:
                self.deletes += 1
            else:
                self.value_bytes += reader.skip(length, "a value")
                self.puts += 1
            self._inside_block(reader)

    def _inside_block(self, reader: _Reader) -> None:
        """Count the records that lie completely in the block, which is three times as fast."""
        block, at, size, int32 = reader.block, reader.at, len(reader.block), _I32.unpack_from
        least = _DELETED if self._deletes_allowed else 0
        keys = records = deletes = 0
        with suppress(struct.error):  # raised when a length lies in the next block
            while (key := int32(block, at)[0]) >= 0:
                (value,) = int32(block, at + 4 + key)
                end = at + 8 + key + value if value >= 0 else at + 8 + key
                if value < least or end > size:
                    break
                deletes += value < 0
                records += 1
                keys += key
                at = end
        self.puts += records - deletes
        self.deletes += deletes
        self.key_bytes += keys
        self.value_bytes += at - reader.at - 8 * records - keys
        reader.at = at

    def typed(self, reader: _Reader) -> None:
        while tag := reader.take(1, "a record type")[0]:
            if tag not in (_PUT, _DELETE, _MERGE, _DELETE_RANGE):
                # The bytes match their checksum, so this is no damage: Spark 4.3 brought a type of
                # record without a new version of the format.
                raise reader.unsupported(f"a record of type {tag:#04x}", reader.position - 1)
            self.key_bytes += reader.counted("a key")
            if tag == _DELETE:
                if (length := reader.int32("a value length")) != _DELETED:
                    raise reader.fault(f"a deleted key has a value of {length} bytes", back=4)
                self.deletes += 1
            elif tag == _DELETE_RANGE:
                self.key_bytes += reader.counted("the end of a key range")
                self.range_deletes += 1
            else:
                self.value_bytes += reader.counted("a value")
                self.puts += tag == _PUT
                self.merges += tag == _MERGE


class _Reader:
    """The unpacked bytes of a state file, one block at a time."""

    def __init__(self, stream: BinaryIO, place: str) -> None:
        self.place = place
        self._more = blocks(stream, place)
        self.block = b""
        self.at = 0
        self._before = 0
        self.torn: Torn | None = None

    @property
    def position(self) -> int:
        return self._before + self.at

    def peek(self, size: int) -> bytes:
        """The next `size` bytes, or fewer at the end, without moving on."""
        while len(self.block) - self.at < size and (block := self._next_block()):
            self._before += self.at
            self.block, self.at = self.block[self.at :] + block, 0
        return self.block[self.at : self.at + size]

    def take(self, size: int, what: str) -> bytes:
        data = self.block[self.at : self.at + size]
        if len(data) < size and len(data := self.peek(size)) < size:
            raise self.torn or self.fault(f"ends inside {what}", self.position + len(data))
        self.at += size
        return data

    def int32(self, what: str) -> int:
        return int(_I32.unpack(self.take(_I32.size, what))[0])

    def counted(self, what: str) -> int:
        """Pass over a length and as many bytes."""
        return self.skip(self.int32(f"the length of {what}"), what)

    def skip(self, size: int, what: str) -> int:
        """Pass over `size` bytes without holding them together, and return `size`."""
        if size < 0:
            raise self.fault(f"{what} has the length {size}", back=_I32.size)
        left = size
        while left > (here := len(self.block) - self.at):
            left -= here
            self._before += len(self.block)
            self.block, self.at = self._next_block(), 0
            if not self.block:
                raise self.torn or self.fault(f"ends inside {what} of {size} bytes")
        self.at += left
        return size

    def text(self, what: str) -> bytes:
        (length,) = _U16.unpack(self.take(_U16.size, f"the length of {what}"))
        return self.take(length, what)

    def remark(self) -> str | None:
        """The fault in the rest of the file, or None."""
        rest = len(self.block) - self.at
        try:
            rest += sum(map(len, self._more))
        except Corrupt as e:
            return f"behind the last record: {e.message}"
        if self.torn:
            return f"behind the last record: {self.torn.message}"
        return f"{rest} bytes behind the last record" if rest else None

    def _next_block(self) -> bytes:
        """The next block; empty at the end, also of a torn file."""
        try:
            return next(self._more, b"")
        except Torn as e:
            self.torn = e
            return b""

    def fault(self, what: str, position: int | None = None, *, back: int = 0) -> Corrupt:
        at = self.position - back if position is None else position
        return Corrupt(f"{self.place}, byte {at} unpacked: {what}", place=self.place)

    def unsupported(self, what: str, position: int) -> UnsupportedFormat:
        return UnsupportedFormat(
            f"{self.place}, byte {position} unpacked: {what} is not known to this release",
            place=self.place,
        )
