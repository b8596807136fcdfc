"""The LZ4Block stream of lz4-java, which holds Spark's state deltas, snapshots and changelogs.

A stream is a sequence of blocks, little-endian:

     0  8  magic          `LZ4Block`
     8  1  token          high half: method, 0x10 stored or 0x20 LZ4;
                          low half: level, a block unpacks to at most 2^(10 + level) bytes
     9  4  packed length  i32, how many bytes follow this header
    13  4  raw length     i32, how many bytes they unpack to
    17  4  checksum       xxHash32 of the unpacked bytes, seed 0x9747b28c, low 28 bits
    21  …  data

A block with both lengths and the checksum 0 ends the stream. Streams may follow each other in one
file; they read as one. Spark writes blocks of 32 KiB (level 5), the format allows up to 32 MiB.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass
from typing import BinaryIO

from sluicegate.errors import Corrupt, UnsupportedFormat

MAGIC = b"LZ4Block"
SEED = 0x9747B28C
CHECKSUM_BITS = 0x0FFFFFFF
STORED = 0x10
PACKED = 0x20
LEVEL_BASE = 10
_HEADER = struct.Struct("<8sBiiI")

# The magic bytes of the other values of `spark.sql.streaming.stateStore.compression.codec`.
_OTHER_CODECS = {
    b"\x28\xb5\x2f\xfd": "zstd",
    b"\x82SNAPPY\x00": "snappy",
    b"ZV\x00": "lzf",
    b"ZV\x01": "lzf",
}


class Torn(Corrupt):
    """A file ends too early, which Spark notices only if it needs the missing part."""


@dataclass(frozen=True, slots=True)
class _Header:
    method: int
    packed: int
    raw: int
    checksum: int


def blocks(stream: BinaryIO, place: str) -> Iterator[bytes]:
    """The unpacked bytes of each block, at most two blocks in memory.

    Raises `Corrupt` naming the byte of the file, `Torn` if it ends elsewhere than behind an end
    block, and `UnsupportedFormat` if it is packed with another codec.
    """
    position, ended = 0, False
    while head := _read(stream, _HEADER.size):
        header = _header(head, position, place)
        data = _read(stream, header.packed)
        if len(data) < header.packed:
            at = position + len(head) + len(data)
            raise _torn(place, at, f"ends inside a block of {header.packed} bytes")
        if header.raw:
            yield _unpack(header, data, position, place)
        ended = not header.raw
        position += len(head) + len(data)
    if not ended:
        raise _torn(place, position, "ends without an end block" if position else "is empty")


def _header(head: bytes, position: int, place: str) -> _Header:
    if position == 0:
        _refuse_other_codec(head, place)
    if len(head) < _HEADER.size:
        raise _torn(place, position + len(head), "ends inside the header of a block")
    if not head.startswith(MAGIC):
        raise _corrupt(place, position, "a block does not start with LZ4Block")
    _, token, packed, raw, checksum = _HEADER.unpack(head)
    method = token & 0xF0
    limit = 1 << (LEVEL_BASE + (token & 0x0F))
    if method not in (STORED, PACKED):
        raise _corrupt(place, position + 8, f"a block has the unknown method {method:#04x}")
    if not 0 <= raw <= limit:
        raise _corrupt(place, position + 13, f"a block claims {raw} bytes; {limit} are allowed")
    if not _fits(method, packed, raw):
        raise _corrupt(place, position + 9, f"a block claims {packed} bytes for {raw} unpacked")
    if not raw and checksum:
        raise _corrupt(place, position + 17, "an end block has a checksum")
    return _Header(method, packed, raw, checksum)


def _refuse_other_codec(head: bytes, place: str) -> None:
    for start, codec in _OTHER_CODECS.items():
        if head.startswith(start):
            raise UnsupportedFormat(
                f"{place} is packed with {codec}; its content is not checked",
                hint="this release reads state files packed with lz4, which is Spark's default",
                place=place,
            )


def _fits(method: int, packed: int, raw: int) -> bool:
    """Whether so many bytes can be what `raw` bytes were packed to."""
    if method == STORED or raw == 0:
        return packed == raw
    # Incompressible data grows by one byte in 255, and a few.
    return 0 < packed <= raw + raw // 255 + 16


def _unpack(header: _Header, data: bytes, position: int, place: str) -> bytes:
    import lz4.block  # type: ignore[import-untyped]
    import xxhash

    raw = data
    if header.method == PACKED:
        try:
            raw = lz4.block.decompress(data, uncompressed_size=header.raw)
        except lz4.block.LZ4BlockError as e:
            raise _corrupt(place, position + _HEADER.size, "a block does not unpack") from e
    if len(raw) != header.raw:
        what = f"a block unpacks to {len(raw)} bytes; its header has {header.raw}"
        raise _corrupt(place, position + 13, what)
    if xxhash.xxh32_intdigest(raw, SEED) & CHECKSUM_BITS != header.checksum:
        raise _corrupt(place, position + 17, "a block does not match its checksum")
    return raw


def _read(stream: BinaryIO, size: int) -> bytes:
    """`size` bytes, fewer only at the end of the file."""
    data = stream.read(size)
    while len(data) < size and (more := stream.read(size - len(data))):
        data += more
    return data


def _corrupt(place: str, position: int, what: str) -> Corrupt:
    return Corrupt(f"{place}, byte {position}: {what}", place=place)


def _torn(place: str, position: int, what: str) -> Torn:
    return Torn(f"{place}, byte {position}: {what}", place=place)
