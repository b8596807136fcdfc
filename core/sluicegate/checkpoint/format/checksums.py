"""The two kinds of checksum files in a checkpoint.

*Hidden*, `.X.crc` beside X, is written by Hadoop's local file system. Big-endian:

     0  4  magic                 `crc` and NUL
     4  4  bytes per checksum    i32, 512 unless configured
     8  …  one u32 per so many bytes of X: CRC-32, the last of what is left

*Visible*, `X.crc` beside X, is written by Spark 4.1 and later with state format 2:
`{"algorithm":"CRC32C","value":-1330042816,"mainFileSize":3795,"timestampMs":…,"creator":{…}}`, in
which the value is a signed 32-bit number. It may in turn have a hidden one, `.X.crc.crc`.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterator
from itertools import zip_longest
from typing import BinaryIO

from sluicegate.checkpoint.format.log import integer, parse_object
from sluicegate.errors import Corrupt, UnsupportedFormat

_MAGIC = b"crc\x00"
_HEADER = struct.Struct(">4si")
_SUM = struct.Struct(">I")
_PIECE = 1 << 16
_MOST_JSON = 1 << 16


def hidden_name(name: str) -> str:
    """The name of Hadoop's checksum file of a file."""
    return f".{name}.crc"


def visible_name(name: str) -> str:
    """The name of Spark's checksum file of a file."""
    return f"{name}.crc"


def check_hidden(data: BinaryIO, sums: BinaryIO, place: str) -> str | None:
    """How a file differs from its `.X.crc`, or None; `Corrupt` if the latter, at `place`, is none.

    A file that is cut where a checksum's bytes end is reported, too, though Hadoop overlooks it.
    """
    head = sums.read(_HEADER.size)
    if len(head) < _HEADER.size or not head.startswith(_MAGIC):
        raise Corrupt(f"{place}, byte 0: does not start like a checksum file", place=place)
    (_, size) = _HEADER.unpack(head)
    if size <= 0:
        raise Corrupt(f"{place}, byte 4: claims {size} bytes per checksum", place=place)
    pairs = zip_longest(_sums(data, size), _expected(sums, place))
    for number, (found, expected) in enumerate(pairs):
        if found is None:
            return f"ends before byte {number * size}, but its checksum covers more"
        if expected is None:
            return f"has bytes from {number * size} on that its checksum does not cover"
        if found != expected:
            return f"bytes {number * size} to {(number + 1) * size - 1} do not match their checksum"
    return None


def check_visible(data: BinaryIO, checksum: BinaryIO, place: str) -> str | None:
    """How a file differs from its `X.crc`, or None; `Corrupt` if the latter, at `place`, is none.

    `UnsupportedFormat` if it names another algorithm than CRC32C.
    """
    expected, length = _parse_visible(checksum.read(_MOST_JSON + 1), place)
    import google_crc32c

    crc = size = 0
    while piece := data.read(_PIECE):
        crc = google_crc32c.extend(crc, piece)
        size += len(piece)
    if size != length:
        return f"has {size} bytes; its checksum is of {length}"
    return None if crc == expected & 0xFFFFFFFF else "does not match its checksum"


def _parse_visible(raw: bytes, place: str) -> tuple[int, int]:
    """Value and file size in a visible checksum file."""
    if len(raw) > _MOST_JSON:
        raise Corrupt(f"{place}: is larger than {_MOST_JSON} bytes", place=place)
    try:
        fields = parse_object(raw.decode(), place)
    except UnicodeDecodeError as e:
        raise Corrupt(f"{place}, byte {e.start}: not UTF-8", place=place) from e
    algorithm = fields.get("algorithm")
    if not isinstance(algorithm, str):
        raise Corrupt(f"{place}: names no algorithm", place=place)
    if algorithm != "CRC32C":
        raise UnsupportedFormat(
            f"{place}: the algorithm {algorithm[:40]!r} is not known", place=place
        )
    value = integer(fields, "value", place)
    if not -(2**31) <= value < 2**31:
        raise Corrupt(f"{place}: value is {value}, which has over 32 bits", place=place)
    return value, integer(fields, "mainFileSize", place)


def _sums(data: BinaryIO, size: int) -> Iterator[int]:
    """The CRC-32 of each `size` bytes; no more than a piece is held, however large `size` is."""
    crc, room = 0, size
    while piece := data.read(_PIECE):
        view = memoryview(piece)
        while view:
            part, view = view[:room], view[room:]
            crc = zlib.crc32(part, crc)
            room -= len(part)
            if not room:
                yield crc
                crc, room = 0, size
    if room < size:
        yield crc


def _expected(sums: BinaryIO, place: str) -> Iterator[int]:
    while piece := sums.read(_PIECE):
        if len(piece) % _SUM.size:
            raise Corrupt(f"{place}: ends inside a checksum", place=place)
        for (number,) in _SUM.iter_unpack(piece):
            yield number
