"""Framed msgpack: the format of all of Sluicegate's own files.

Layout of a frame, little-endian (FORMAT.md has the normative text and an example):

     0   8  magic            89 53 4C 47 0D 0A 1A 0A
     8   8  kind             ASCII, padded with NUL
    16   4  version          u32, format version of that kind
    20   8  body length      u64
    28   4  header checksum  CRC-32 of bytes 0 to 27
    32  32  frame checksum   BLAKE2b-256 of bytes 0 to 31 and the body
    64   …  body             canonical msgpack

The header has its own checksum to distinguish "written by a newer release" from "damaged": a
version is trusted only if the header is intact.
"""

from __future__ import annotations

import math
import struct
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from typing import Any

import msgpack

from sluicegate.errors import Corrupt, SluicegateError, UnsupportedFormat

MAGIC = b"\x89SLG\r\n\x1a\n"
HEADER_BYTES = 64
MAX_NESTING = 32
_PREFIX = struct.Struct("<8s8sIQ")
_CHECKED = _PREFIX.size
_CRC = struct.Struct("<I")
_DIGEST = slice(32, HEADER_BYTES)
_INTEGERS = range(-(2**63), 2**64)

Value = Any
"""What a body can hold: None, bool, int, float, str, bytes, and lists and string-keyed maps."""


class NotEncodable(SluicegateError):
    """A value that has no canonical bytes; always a bug in the program, never in a file."""

    default_hint = "report this as a bug, with SG_DEBUG=1 output"


@dataclass(frozen=True, slots=True)
class Format:
    """One kind of frame, the versions this release reads, and how large a body may be."""

    kind: str
    version: int
    max_body: int
    oldest: int = 1

    def __post_init__(self) -> None:
        known = self.version >= self.oldest >= 1
        if not (self.kind.isascii() and 1 <= len(self.kind) <= 8 and known):
            raise ValueError(f"{self.kind!r} version {self.version} cannot be a kind of frame")

    @property
    def max_frame(self) -> int:
        """The limit to read such a file with."""
        return HEADER_BYTES + self.max_body


@dataclass(frozen=True, slots=True)
class Header:
    """The first 64 bytes of an intact frame, decoded."""

    kind: str
    version: int
    body_length: int
    digest: bytes


def encode(fmt: Format, value: Value) -> bytes:
    """The frame of a value: equal values give equal bytes."""
    try:
        body: bytes = msgpack.packb(_canonical(value, 0), use_bin_type=True)
    except UnicodeEncodeError as e:
        raise NotEncodable(f"a text is not valid Unicode: {e}") from e
    if len(body) > fmt.max_body:
        raise NotEncodable(f"a {fmt.kind} of {len(body)} bytes is over its limit {fmt.max_body}")
    prefix = _PREFIX.pack(MAGIC, fmt.kind.encode("ascii"), fmt.version, len(body))
    prefix += _CRC.pack(zlib.crc32(prefix))
    return prefix + _digest(prefix, body) + body


def decode(fmt: Format, data: bytes, place: str) -> Value:
    """The value in a frame, or `Corrupt` / `UnsupportedFormat` naming the place and the byte."""
    header = read_header(data, place)
    if header.kind != fmt.kind:
        raise _corrupt(place, 8, f"holds a {header.kind!r} where a {fmt.kind!r} belongs")
    if header.version < 1:
        raise _corrupt(place, 16, "claims format version 0")
    if not fmt.oldest <= header.version <= fmt.version:
        raise _unsupported(fmt, header.version, place)
    if header.body_length > fmt.max_body:
        raise _corrupt(place, 20, f"claims {header.body_length} bytes; {fmt.max_body} are allowed")
    body = _body(data, header, place)
    if _digest(data[:32], body) != header.digest:
        last = HEADER_BYTES + len(body) - 1
        raise _corrupt(place, 32, f"bytes 32 to {last} do not match their checksum")
    return _unpack(body, place)


def _unsupported(fmt: Format, version: int, place: str) -> UnsupportedFormat:
    what = f"{place} is a {fmt.kind} of format version {version}"
    if version > fmt.version:
        return UnsupportedFormat(f"{what}; this release reads up to {fmt.version}", place=place)
    return UnsupportedFormat(
        f"{what}; this release reads version {fmt.oldest} and later",
        hint="it was made by an older release: use that release for it",
        place=place,
    )


def read_header(data: bytes, place: str) -> Header:
    """The header of a frame from its first 64 bytes; enough to identify a file."""
    if data[:8] != MAGIC[: len(data)]:
        raise _corrupt(place, 0, "does not start like a Sluicegate file")
    if len(data) < HEADER_BYTES:
        raise _corrupt(place, len(data), f"ends inside the header, which has {HEADER_BYTES} bytes")
    (crc,) = _CRC.unpack_from(data, _CHECKED)
    if zlib.crc32(data[:_CHECKED]) != crc:
        raise _corrupt(place, 8, f"bytes 8 to {_CHECKED + 3} do not match their checksum")
    _, kind, version, length = _PREFIX.unpack_from(data)
    name = kind.rstrip(b"\0").decode("ascii", "backslashreplace")
    return Header(name, version, length, data[_DIGEST])


def _body(data: bytes, header: Header, place: str) -> bytes:
    body = data[HEADER_BYTES:]
    if len(body) < header.body_length:
        wanted = HEADER_BYTES + header.body_length
        raise _corrupt(place, len(data), f"ends early; the frame has {wanted} bytes")
    if len(body) > header.body_length:
        end = HEADER_BYTES + header.body_length
        raise _corrupt(place, end, f"has {len(body) - header.body_length} bytes after its end")
    return body


def _unpack(body: bytes, place: str) -> Value:
    try:
        # Walking the body first allocates nothing, so a hostile "array of 4 billion" inside a
        # short file is refused before msgpack makes room for it.
        walker = msgpack.Unpacker(max_buffer_size=0)
        walker.feed(body)
        walker.skip()
        if walker.tell() != len(body):
            raise _corrupt(place, HEADER_BYTES + walker.tell(), "holds more than one value")
        value = msgpack.unpackb(body, raw=False, strict_map_key=False)
        canonical = msgpack.packb(_canonical(value, 0), use_bin_type=True)
    except (ValueError, TypeError, msgpack.UnpackException, NotEncodable) as e:
        raise _corrupt(place, HEADER_BYTES, f"body is not valid: {e or type(e).__name__}") from e
    if canonical != body:
        pairs = enumerate(zip(canonical, body, strict=False))
        where = next((i for i, (a, b) in pairs if a != b), len(canonical))
        raise _corrupt(place, HEADER_BYTES + where, "body is not in canonical form")
    return value


def _canonical(value: Value, depth: int) -> Value:
    """The same value with sorted maps; refuses values without a single encoding."""
    if depth > MAX_NESTING:
        raise NotEncodable(f"nested deeper than {MAX_NESTING}")
    match value:
        case None | bool() | str() | bytes():
            return value
        case int() if value not in _INTEGERS:
            raise NotEncodable("an integer needs more than 64 bits")
        case int():
            return value
        case float() if math.isnan(value):
            raise NotEncodable("NaN has no canonical form")
        case float():
            return value
        case Mapping():
            if not all(isinstance(key, str) for key in value):
                raise NotEncodable("a map key is not a string")
            keys = sorted(value, key=str.encode)
            return {key: _canonical(value[key], depth + 1) for key in keys}
        case list() | tuple():
            plain = depth < MAX_NESTING and _is_plain(value)
            return value if plain else [_canonical(item, depth + 1) for item in value]
    raise NotEncodable(f"{type(value).__name__} cannot be encoded")


def _is_plain(items: Sequence[Value]) -> bool:
    """Whether a list need not be checked item by item: the long lists have items of one type."""
    kinds = set(map(type, items))
    if kinds == {int}:
        return min(items) in _INTEGERS and max(items) in _INTEGERS
    return kinds == {float} and not any(map(math.isnan, items))


def _digest(prefix: bytes, body: bytes) -> bytes:
    digest = blake2b(prefix, digest_size=32)
    digest.update(body)
    return digest.digest()


def _corrupt(place: str, position: int, what: str) -> Corrupt:
    return Corrupt(f"{place}, byte {position}: {what}", place=place)


def digest_of(data: bytes) -> str:
    """The digest of content, which is its name."""
    return blake2b(data, digest_size=32).hexdigest()
