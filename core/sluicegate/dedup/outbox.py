"""The outbox: stamp and payload of every message that the log has not acknowledged.

It knows where each pending message is; payloads stay on disk. What is declared in the producer's
state counts, and nothing else: a segment that was made but not declared, and bytes behind the
declared length of one that no longer grows, are of a writer that died or was fenced.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from typing import BinaryIO, NamedTuple

from sluicegate.dedup.producer_segment import (
    LIMIT,
    OutboxDamaged,
    Record,
    Segment,
    Writer,
    encode_group,
    group_offsets,
    is_torn,
    next_group,
    read_segment,
    salvage,
    scan,
)
from sluicegate.dedup.producer_state import Declared, State
from sluicegate.errors import NotFound, StorageFailed
from sluicegate.storage import LocalStorage
from sluicegate.storage.calls import Calls

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
    """What reading an outbox brought up.

    `cut` bytes at its end were not a whole group. They are `doubtful` when this cannot be told
    from damage to a group that somebody was told of; `damaged` are files that were salvaged.
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
        """What is pending, by partition and sequence."""
        return sorted(self._places)

    def load(self, state: State, *, rescue: bool) -> Found:
        """Take over the segments that a state declares; `OutboxDamaged` if one is not whole.

        With `rescue`, what can be read of a damaged one is written anew and the file set aside.
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
        self.seal()
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
        """Every message that can be read of a damaged segment, which is kept under another name."""
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
        self.seal()
        self._number += 1
        self._writer = Writer.create(self._storage, self._calls, self._epoch, self._number)
        self._segments.append(self._writer.segment)

    def seal(self) -> None:
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
            self.seal()
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
        """The segments that are of no use any more."""
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
            # What cannot be deleted is not declared either, so the next opening deletes it.
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
