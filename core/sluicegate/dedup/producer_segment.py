"""Segments of an outbox: files of groups of messages, each group durable before it is told of.

A segment is a file that only grows: a frame of kind `outbox` that tells its epoch and number, then
groups. A group is what one call issued, and counts as a whole or not at all. Little-endian:

     0   4  magic            89 53 4F 42
     4   4  body length      u32
     8   8  epoch            u64, of the segment
    16   8  position         u64, of this group in the segment
    24   4  count            u32, how many messages
    28   4  body checksum    CRC-32 of the body
    32   4  header checksum  CRC-32 of bytes 0 to 31
    36   …  body             per message: partition u32, sequence u64, length u32, payload

Epoch and position tell a group from bytes of a payload that look like one.
"""

from __future__ import annotations

import os
import struct
import zlib
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from sluicegate import codec
from sluicegate.dedup.producer_files import segment_name
from sluicegate.dedup.producer_state import Declared
from sluicegate.dedup.stamp import MAX_PARTITION, MAX_SEQUENCE
from sluicegate.errors import Corrupt, NotFound, StorageFailed
from sluicegate.storage import LocalStorage
from sluicegate.storage.calls import Calls
from sluicegate.storage.translate import Translated

MAX_GROUP = 64 * 1024 * 1024
"""Most bytes that one call can issue."""
SEGMENT = codec.Format("outbox", version=1, max_body=4096)
MAGIC = b"\x89SOB"
_HEADER = struct.Struct("<4sIQQII")
_CRC = struct.Struct("<I")
_HEADER_BYTES = _HEADER.size + _CRC.size
_RECORD = struct.Struct("<IQI")
LIMIT = 4 * MAX_GROUP
"""Largest segment that is read."""
_APPEND = os.O_RDWR | os.O_APPEND | os.O_CLOEXEC | os.O_NOFOLLOW


class OutboxDamaged(Corrupt):
    """A segment of an outbox is damaged or missing, and with it messages that must be sent."""

    default_hint = (
        "restore the file from a backup, or open the producer with Options(salvage=True): it keeps "
        "every message that can be read and sets the damaged file aside"
    )


class Record(NamedTuple):
    """One message of a group, and where its payload is in the segment."""

    partition: int
    sequence: int
    at: int
    size: int
    checksum: int


@dataclass(slots=True, eq=False)
class Segment:
    """A file of the outbox: how far it is valid, what it holds, how much of that is pending."""

    epoch: int
    number: int
    length: int
    pending: int = 0
    spans: dict[int, tuple[int, int]] = field(default_factory=dict)

    @property
    def name(self) -> str:
        return segment_name(self.epoch, self.number)

    def declared(self) -> Declared:
        """How the state names it."""
        return Declared(self.epoch, self.number, self.length)

    def cover(self, partition: int, sequence: int) -> None:
        """Note that it holds a message."""
        first, end = self.spans.get(partition, (sequence, sequence))
        self.spans[partition] = min(first, sequence), max(end, sequence + 1)


def encode_group(messages: Iterable[tuple[int, int, bytes]], epoch: int, position: int) -> bytes:
    """The bytes of a group: partition, sequence and payload of each message."""
    pieces: list[bytes] = []
    count = 0
    for partition, sequence, payload in messages:
        pieces += _RECORD.pack(partition, sequence, len(payload)), payload
        count += 1
    body = b"".join(pieces)
    header = _HEADER.pack(MAGIC, len(body), epoch, position, count, zlib.crc32(body))
    return b"".join((header, _CRC.pack(zlib.crc32(header)), body))


def group_size(payloads: Iterable[bytes]) -> int:
    """How long the group of these payloads is."""
    return _HEADER_BYTES + sum(_RECORD.size + len(each) for each in payloads)


def group_offsets(messages: Iterable[tuple[int, int, bytes]], position: int) -> Iterator[int]:
    """Where in the segment the payload of each message of a group lies."""
    at = position + _HEADER_BYTES
    for _, _, payload in messages:
        at += _RECORD.size
        yield at
        at += len(payload)


def scan(data: bytes, start: int, epoch: int) -> tuple[list[Record], int]:
    """The messages of consecutive valid groups, and where the last of them ends."""
    records: list[Record] = []
    at = start
    while group := _group_at(data, at, epoch):
        found, at = group
        records += found
    return records, at


def salvage(data: bytes, epoch: int) -> list[Record]:
    """The messages of every valid group, whatever is between them."""
    records: list[Record] = []
    at = -1
    while (at := next_group(data, at, epoch)) >= 0:
        more, end = scan(data, at, epoch)
        records += more
        at = end - 1
    return records


def next_group(data: bytes, at: int, epoch: int) -> int:
    """Where the next valid group after a position begins; -1 if there is none."""
    while (at := data.find(MAGIC, at + 1)) >= 0:
        if _group_at(data, at, epoch):
            return at
    return -1


def is_torn(data: bytes, at: int, epoch: int) -> bool:
    """Whether the end of a segment is the beginning of a group whose writer died.

    False for what was written to its end and does not match its checksum.
    """
    rest = data[at : at + _HEADER_BYTES]
    if len(rest) < _HEADER_BYTES:
        return rest[:4] == MAGIC[: len(rest)]
    header = _header_at(data, at, epoch)
    return header is not None and at + _HEADER_BYTES + header[0] > len(data)


def _header_at(data: bytes, at: int, epoch: int) -> tuple[int, int, int] | None:
    """Body length, count and checksum of an intact header."""
    if len(data) - at < _HEADER_BYTES:
        return None
    magic, size, of, position, count, checksum = _HEADER.unpack_from(data, at)
    (own,) = _CRC.unpack_from(data, at + _HEADER.size)
    if (magic, of, position) != (MAGIC, epoch, at) or zlib.crc32(data[at : at + 32]) != own:
        return None
    return size, count, checksum


def _group_at(data: bytes, at: int, epoch: int) -> tuple[list[Record], int] | None:
    header = _header_at(data, at, epoch)
    if header is None:
        return None
    size, count, checksum = header
    begin = at + _HEADER_BYTES
    end = begin + size
    if end > len(data) or zlib.crc32(memoryview(data)[begin:end]) != checksum:
        return None
    records = list(_records(data, begin, end))
    return (records, end) if len(records) == count else None


def _records(data: bytes, at: int, end: int) -> Iterator[Record]:
    while at + _RECORD.size <= end:
        partition, sequence, size = _RECORD.unpack_from(data, at)
        at += _RECORD.size
        if at + size > end or partition > MAX_PARTITION or sequence > MAX_SEQUENCE:
            return
        yield Record(partition, sequence, at, size, zlib.crc32(data[at : at + size]))
        at += size


class Writer:
    """The one segment that grows; unusable after a write that failed."""

    def __init__(self, storage: LocalStorage, calls: Calls, segment: Segment) -> None:
        self.segment = segment
        self._path = Path(storage.uri) / segment.name
        self._calls = calls
        with self._translated():
            self._fd = os.open(self._path, _APPEND)

    @classmethod
    def create(cls, storage: LocalStorage, calls: Calls, epoch: int, number: int) -> Writer:
        """A new segment, which counts when a state names it."""
        head = codec.encode(SEGMENT, {"epoch": epoch, "number": number})
        segment = Segment(epoch, number, len(head))
        if not storage.put_if_absent(segment.name, head):
            raise StorageFailed(f"{storage.uri}/{segment.name} is there already")
        return cls(storage, calls, segment)

    def append(self, group: bytes) -> None:
        """Add a group durably; `NotFound` if the segment is no longer where it was."""
        with self._translated():
            self._calls.write(self._fd, group)
            self._calls.sync(self._fd)
            # What goes into a file that was replaced or removed meanwhile goes nowhere.
            if not os.path.samestat(os.fstat(self._fd), self._path.stat()):
                raise FileNotFoundError
        self.segment.length += len(group)

    def close(self) -> None:
        """Close the file."""
        with suppress(OSError):
            os.close(self._fd)

    def _translated(self) -> Translated:
        return Translated(self._path)


def read_segment(storage: LocalStorage, declared: Declared) -> tuple[bytes, int]:
    """The bytes of a segment and where its groups begin; `OutboxDamaged` if that cannot be told."""
    name = segment_name(declared.epoch, declared.number)
    place = f"{storage.uri}/{name}"
    try:
        data = storage.get(name, limit=LIMIT)
        header = codec.read_header(data[: codec.HEADER_BYTES], place)
        start = codec.HEADER_BYTES + min(header.body_length, SEGMENT.max_body)
        fields = codec.decode(SEGMENT, data[:start], place)
    except NotFound as e:
        raise OutboxDamaged(f"{place} is missing", place=place) from e
    except Corrupt as e:
        raise OutboxDamaged(e.message, place=place) from e
    if fields != {"epoch": declared.epoch, "number": declared.number}:
        raise OutboxDamaged(f"{place} is another segment, {fields!r:.80}", place=place)
    return data, start
