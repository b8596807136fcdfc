"""The outbox: stamp and payload of every message that the log has not acknowledged.

A segment is a file that only grows: a frame of kind `outbox` with its epoch and number, then
groups. A group holds the messages of one call, and is valid as a unit or not at all.
Little-endian:

     0   4  magic            89 53 4F 42
     4   4  body length      u32
     8   8  epoch            u64, of the segment
    16   8  position         u64, of this group in the segment
    24   4  count            u32, how many messages
    28   4  body checksum    CRC-32 of the body
    32   4  header checksum  CRC-32 of bytes 0 to 31
    36   …  body             per message: partition u32, sequence u64, length u32, payload

Epoch and position distinguish a group from bytes of a payload that look like one.

It knows where each pending message is; payloads stay on disk. Only segments declared in the
producer's state count: a segment that was made but not declared, and bytes behind the declared
length of one that no longer grows, are of a writer that died or was fenced.
"""

from __future__ import annotations

import os
import struct
import zlib
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import BinaryIO, NamedTuple

from sluicegate import codec
from sluicegate.dedup.stamp import MAX_PARTITION, MAX_SEQUENCE
from sluicegate.errors import Corrupt, NotFound, StorageFailed
from sluicegate.producer.state import Declared, State, segment_name
from sluicegate.storage import LocalStorage
from sluicegate.storage.local import Calls, Translated

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

    False for a group that was written to its end and does not match its checksum.
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
        """A new segment, which is valid once a state names it."""
        head = codec.encode(SEGMENT, {"epoch": epoch, "number": number})
        segment = Segment(epoch, number, len(head))
        if not storage.put_if_absent(segment.name, head):
            raise StorageFailed(f"{storage.uri}/{segment.name} already exists")
        return cls(storage, calls, segment)

    def append(self, group: bytes) -> None:
        """Add a group durably; `NotFound` if the segment is no longer where it was."""
        with self._translated():
            self._calls.write(self._fd, group)
            self._calls.sync(self._fd)
            # A write to a file that was replaced or removed meanwhile is lost.
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
    """The bytes of a segment and where its groups begin; `OutboxDamaged` if it cannot be read."""
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


Key = tuple[int, int]
"""Partition and sequence."""
Messages = list[tuple[int, int, bytes]]
_OPEN_AT_ONCE = 16


class _Place(NamedTuple):
    segment: Segment
    at: int
    size: int
    checksum: int


@dataclass(slots=True)
class Found:
    """The result of reading an outbox.

    `cut` bytes at its end were not a complete group. They are `doubtful` if they could also be a
    damaged group whose stamps were returned to the caller; `damaged` are files that were salvaged.
    """

    highest: dict[int, int] = field(default_factory=dict)
    cut: int = 0
    doubtful: bool = False
    damaged: list[str] = field(default_factory=list)


class Outbox:
    """The pending messages of one instance of a producer, those it inherited included."""

    def __init__(self, storage: LocalStorage, calls: Calls, epoch: int, segment_bytes: int) -> None:
        self._storage = storage
        self._calls = calls
        self._epoch = epoch
        self._segment_bytes = segment_bytes
        self._number = 0
        self._segments: list[Segment] = []
        self._places: dict[Key, _Place] = {}
        self._writer: Writer | None = None

    def __contains__(self, key: Key) -> bool:
        return key in self._places

    def __len__(self) -> int:
        return len(self._places)

    @property
    def growing(self) -> bool:
        """Whether the last segment will be appended to."""
        return self._writer is not None

    def keys(self) -> list[Key]:
        """The pending messages, by partition and sequence."""
        return sorted(self._places)

    def load(self, state: State, *, rescue: bool) -> Found:
        """Take over the segments that a state declares; `OutboxDamaged` if one is damaged.

        With `rescue`, the readable messages of a damaged one are written again and the file is
        set aside.
        """
        found = Found()
        rescued: list[Messages] = []
        for declared in state.segments:
            grows = state.growing and declared is state.segments[-1]
            try:
                self._load(state, declared, grows, found)
            except OutboxDamaged as e:
                if not rescue:
                    raise
                found.damaged.append(e.place or "")
                rescued.append(self._salvage(state, declared, found))
        for messages in filter(None, rescued):
            self.begin()
            self.append(messages)
        found.doubtful |= bool(found.damaged)
        self.close_segment()
        return found

    def _load(self, state: State, declared: Declared, grows: bool, found: Found) -> None:
        data, start = read_segment(self._storage, declared)
        if not grows:
            data = data[: declared.length]
        records, end = scan(data, start, declared.epoch)
        segment = Segment(declared.epoch, declared.number, end)
        place = f"{self._storage.uri}/{segment.name}"
        if end < declared.length or next_group(data, end, declared.epoch) >= 0:
            raise OutboxDamaged(f"{place}, byte {end}: damaged before its end", place=place)
        if grows:
            # Its writer may have died before the fsync, and we build on what it wrote.
            self._storage.sync(segment.name)
            found.cut = len(data) - end
            found.doubtful = found.cut > 0 and not is_torn(data, end, declared.epoch)
        if any(self._contradicts(record) for record in records):
            raise OutboxDamaged(f"{place} has a stamp of another message", place=place)
        self._segments.append(segment)
        for record in records:
            self._adopt(state, segment, record, found)

    def _contradicts(self, record: Record) -> bool:
        other = self._places.get((record.partition, record.sequence))
        return other is not None and other[2:] != (record.size, record.checksum)

    def _adopt(self, state: State, segment: Segment, record: Record, found: Found) -> None:
        partition, sequence, at, size, checksum = record
        found.highest[partition] = max(found.highest.get(partition, 0), sequence)
        segment.cover(partition, sequence)
        counter = state.counters.get(partition)
        if counter and sequence in counter.acknowledged:
            return
        if (partition, sequence) not in self._places:
            segment.pending += 1
            self._places[partition, sequence] = _Place(segment, at, size, checksum)

    def _salvage(self, state: State, declared: Declared, found: Found) -> Messages:
        """The readable messages of a damaged segment, which is kept under another name."""
        segment = Segment(declared.epoch, declared.number, 0)
        try:
            data = self._storage.get(segment.name, limit=LIMIT)
            self._storage.link(segment.name, f"{segment.name}.damaged", replace=True)
        except NotFound:
            return []
        messages: Messages = []
        for partition, sequence, at, size, _ in salvage(data, declared.epoch):
            found.highest[partition] = max(found.highest.get(partition, 0), sequence)
            counter = state.counters.get(partition)
            acknowledged = counter is not None and sequence in counter.acknowledged
            if not acknowledged and (partition, sequence) not in self._places:
                messages.append((partition, sequence, data[at : at + size]))
        return messages

    def has_room(self, size: int) -> bool:
        """Whether a group of that size goes into the segment that grows."""
        if self._writer is None:
            return False
        length = self._writer.segment.length
        return length + size <= self._segment_bytes or not self._writer.segment.spans

    def begin(self) -> None:
        """Begin a segment; it must be declared in a durable state before anything is appended."""
        self.close_segment()
        self._number += 1
        self._writer = Writer.create(self._storage, self._calls, self._epoch, self._number)
        self._segments.append(self._writer.segment)

    def close_segment(self) -> None:
        """Let the last segment grow no more."""
        if self._writer:
            self._writer.close()
            self._writer = None

    def append(self, messages: Messages) -> None:
        """Add a group durably; after a failure the segment is not appended to again."""
        writer = self._writer
        assert writer is not None
        segment = writer.segment
        position = segment.length
        try:
            writer.append(encode_group(messages, self._epoch, position))
        except BaseException:
            # Half a group may be there; the state that declares the next segment cuts it off.
            self.close_segment()
            raise
        places = zip(messages, group_offsets(messages, position), strict=True)
        for (partition, sequence, payload), at in places:
            checksum = zlib.crc32(payload)
            self._places[partition, sequence] = _Place(segment, at, len(payload), checksum)
        segment.pending += len(messages)
        # Sequences ascend, so the first and the last of each partition are enough.
        for order in (messages, reversed(messages)):
            for partition, sequence in {each[0]: each[1] for each in order}.items():
                segment.cover(partition, sequence)

    def drop(self, key: Key) -> bool:
        """Forget a message that need not be sent again; False if it was not pending."""
        place = self._places.pop(key, None)
        if place is None:
            return False
        place.segment.pending -= 1
        return True

    def finished(self) -> list[Segment]:
        """The segments that are no longer needed."""
        active = self._writer.segment if self._writer else None
        return [each for each in self._segments if not each.pending and each is not active]

    def declared(self) -> list[Declared]:
        """The segments that a state must name."""
        finished = set(map(id, self.finished()))
        return [each.declared() for each in self._segments if id(each) not in finished]

    def forget(self, finished: list[Segment]) -> None:
        """Delete segments that the durable state no longer names."""
        gone = set(map(id, finished))
        self._segments = [each for each in self._segments if id(each) not in gone]
        for each in finished:
            # A file that cannot be deleted is not declared either, so the next opening deletes it.
            with suppress(StorageFailed):
                self._storage.delete(each.name)

    def read(self, keys: Iterable[Key]) -> Iterator[tuple[Key, bytes]]:
        """The payloads of these messages, without those that are dropped meanwhile."""
        with ExitStack() as stack:
            streams: dict[str, BinaryIO] = {}
            for key in keys:
                place = self._places.get(key)
                if place is None:
                    continue
                name = place.segment.name
                if len(streams) >= _OPEN_AT_ONCE and name not in streams:
                    stack.close()
                    streams.clear()
                try:
                    payload = self._read(place, streams, stack)
                except NotFound as e:
                    # Its last message may have been acknowledged just now.
                    if key not in self._places:
                        continue
                    where = f"{self._storage.uri}/{name}"
                    raise OutboxDamaged(f"{where} is missing", place=where) from e
                yield key, payload

    def _read(self, place: _Place, streams: dict[str, BinaryIO], stack: ExitStack) -> bytes:
        name = place.segment.name
        if name not in streams:
            streams[name] = stack.enter_context(self._storage.open(name))
        streams[name].seek(place.at)
        payload = streams[name].read(place.size)
        if len(payload) != place.size or zlib.crc32(payload) != place.checksum:
            where = f"{self._storage.uri}/{name}"
            raise OutboxDamaged(f"{where}, byte {place.at}: damaged", place=where)
        return payload
