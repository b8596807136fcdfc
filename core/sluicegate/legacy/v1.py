"""The legacy checkpoint file, format v1: little-endian, without magic or checksum.

     0  8  sequence       u64
     8  8  watermark_ns   u64
    16  8  event_count    u64
    24  4  operators      u32, then per operator: u32 length, UTF-8 name, u32 length, state
     …  4  sources        u32, then per source:   u32 length, UTF-8 name, u64 offset

Without a checksum, a damaged file may still decode. Decoding detects every truncation, trailing
bytes, names that are not UTF-8 and names that occur twice.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass

from sluicegate.errors import Corrupt, UsageError
from sluicegate.storage import local_root, open_storage

_HEADER = struct.Struct("<QQQ")
_U32 = struct.Struct("<I")
_U64 = struct.Struct("<Q")
_MAX_BYTES = 64 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class V1Checkpoint:
    """Sequence of the last included event, watermark, and the states and offsets by name."""

    sequence: int
    watermark_ns: int
    event_count: int
    operators: dict[str, bytes]
    sources: dict[str, int]


def read(place: str) -> tuple[V1Checkpoint, bytes]:
    """The checkpoint in a file, and the file itself."""
    # Resolved first: the operator named the file, so a symbolic link to it is followed.
    path = local_root(place).resolve()
    data = open_storage(str(path.parent), read_only=True).get(path.name, limit=_MAX_BYTES)
    return decode(data, place), data


def decode(data: bytes, place: str) -> V1Checkpoint:
    """The checkpoint in a v1 file, or `Corrupt` naming the byte."""
    reader = _Reader(data, place)
    sequence, watermark_ns, event_count = reader.unpack(_HEADER, "the header")
    operators: dict[str, bytes] = {}
    for _ in range(reader.unpack(_U32, "the number of operators")[0]):
        name = reader.name(operators, "operator")
        operators[name] = reader.counted(f"the state of operator {name!r}")
    sources: dict[str, int] = {}
    for _ in range(reader.unpack(_U32, "the number of sources")[0]):
        name = reader.name(sources, "source")
        (sources[name],) = reader.unpack(_U64, f"the offset of source {name!r}")
    if reader.position != len(data):
        raise reader.fault(f"{len(data) - reader.position} bytes after the end of the checkpoint")
    return V1Checkpoint(sequence, watermark_ns, event_count, operators, sources)


def encode(checkpoint: V1Checkpoint) -> bytes:
    """The v1 file of a checkpoint; equal checkpoints give equal bytes."""
    for name, number in (
        ("sequence", checkpoint.sequence),
        ("watermark", checkpoint.watermark_ns),
        ("event count", checkpoint.event_count),
        *((f"the offset of source {name!r}", n) for name, n in checkpoint.sources.items()),
    ):
        if not 0 <= number < 2**64:
            raise UsageError(f"{name}: {number} does not fit into a v1 checkpoint")
    pieces = [_HEADER.pack(checkpoint.sequence, checkpoint.watermark_ns, checkpoint.event_count)]
    pieces.append(_U32.pack(len(checkpoint.operators)))
    for name, state in sorted(checkpoint.operators.items()):
        pieces += [_counted(name.encode()), _counted(state)]
    pieces.append(_U32.pack(len(checkpoint.sources)))
    for name, offset in sorted(checkpoint.sources.items()):
        pieces += [_counted(name.encode()), _U64.pack(offset)]
    return b"".join(pieces)


def _counted(data: bytes) -> bytes:
    if len(data) >= 2**32:
        raise UsageError(f"{len(data)} bytes do not fit into a v1 checkpoint, which ends at 4 GiB")
    return _U32.pack(len(data)) + data


class _Reader:
    def __init__(self, data: bytes, place: str) -> None:
        self.position = 0
        self._data = data
        self._place = place

    def unpack(self, layout: struct.Struct, what: str) -> tuple[int, ...]:
        return layout.unpack(self._take(layout.size, what))

    def counted(self, what: str) -> bytes:
        (length,) = self.unpack(_U32, f"the length of {what}")
        return self._take(length, what)

    def name(self, taken: dict[str, bytes] | dict[str, int], what: str) -> str:
        start = self.position
        raw = self.counted(f"the name of {what} {len(taken) + 1}")
        try:
            name = raw.decode()
        except UnicodeDecodeError as e:
            raise self.fault(f"the name of {what} {len(taken) + 1} is not UTF-8", start) from e
        if name in taken:
            raise self.fault(f"{what} {name!r} occurs twice", start)
        return name

    def fault(self, what: str, position: int | None = None) -> Corrupt:
        at = self.position if position is None else position
        return Corrupt(f"{self._place}, byte {at}: {what}", place=self._place)

    def _take(self, count: int, what: str) -> bytes:
        end = self.position + count
        if end > len(self._data):
            raise self.fault(f"the file ends at byte {len(self._data)}, inside {what}")
        taken = self._data[self.position : end]
        self.position = end
        return taken
