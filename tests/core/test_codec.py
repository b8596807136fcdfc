from __future__ import annotations

import random
import re
import struct
import subprocess
import sys
import zlib
from hashlib import blake2b
from pathlib import Path
from typing import Any

import msgpack
import pytest
from hypothesis import given
from hypothesis import strategies as some

import sluicegate
from sluicegate import codec
from sluicegate.codec import Format, NotEncodable, decode, encode, read_header
from sluicegate.errors import Corrupt, SluicegateError, UnsupportedFormat
from sluicegate.offsets import record
from sluicegate.positions import to_spark
from sluicegate.stream import home, snapshot
from tests.memory import peak_bytes

FMT = Format("test", version=3, max_body=1 << 20)
VALUE = {"b": [1, -1, 2**63, 1.5, None, True], "a": {"text": "Grüße", "raw": b"\0\xff"}}

values = some.recursive(
    some.none()
    | some.booleans()
    | some.integers(-(2**63), 2**64 - 1)
    | some.floats(allow_nan=False)
    | some.text()
    | some.binary(),
    lambda deeper: some.lists(deeper, max_size=4) | some.dictionaries(some.text(), deeper),
    max_leaves=20,
)


def frame(body: bytes, kind: bytes = b"test", version: int = 3, length: int | None = None) -> bytes:
    """A frame with right checksums around any body, as a hostile writer would make it."""
    stated = len(body) if length is None else length
    prefix = struct.pack("<8s8sIQ", codec.MAGIC, kind, version, stated)
    prefix += struct.pack("<I", zlib.crc32(prefix))
    return prefix + blake2b(prefix + body, digest_size=32).digest() + body


@given(values)
def test_round_trip(value: Any) -> None:
    data = encode(FMT, value)
    assert decode(FMT, data, "x") == value
    assert encode(FMT, decode(FMT, data, "x")) == data


def test_equal_values_give_equal_bytes() -> None:
    shuffled = dict(sorted(VALUE.items()))
    assert list(shuffled) != list(VALUE)
    assert encode(FMT, shuffled) == encode(FMT, VALUE)
    assert encode(FMT, (1, 2)) == encode(FMT, [1, 2])


@pytest.mark.parametrize(
    "value",
    [float("nan"), 2**64, -(2**63) - 1, {1: "x"}, {"x": complex(1)}, {1, 2}, bytearray(b"x"),
     "\udcff", {"\udcff": 1}],
    ids=repr,
)  # fmt: skip
def test_values_without_canonical_bytes_are_refused(value: Any) -> None:
    with pytest.raises(NotEncodable):
        encode(FMT, value)


def nested(depth: int) -> Any:
    value: Any = 0
    for _ in range(depth):
        value = [value]
    return value


def test_nesting_is_limited_both_ways() -> None:
    encode(FMT, nested(codec.MAX_NESTING))
    with pytest.raises(NotEncodable, match="nested"):
        encode(FMT, nested(codec.MAX_NESTING + 1))
    deep = frame(b"\x91" * (codec.MAX_NESTING + 1) + b"\0")
    with pytest.raises(Corrupt, match="nested"):
        decode(FMT, deep, "x")
    with pytest.raises(Corrupt):
        decode(FMT, frame(b"\x91" * 100_000 + b"\0"), "x")


def test_length_is_limited_both_ways() -> None:
    small = Format("test", version=3, max_body=10)
    with pytest.raises(NotEncodable, match="limit"):
        encode(small, "x" * 20)
    with pytest.raises(Corrupt, match="byte 20: claims 22 bytes; 10 are allowed"):
        decode(small, encode(FMT, "x" * 21), "x")


@given(some.integers(0, 10_000), some.integers(1, 255))
def test_any_flipped_byte_is_noticed_and_named(position: int, mask: int) -> None:
    data = bytearray(encode(FMT, VALUE))
    position %= len(data)
    data[position] ^= mask
    with pytest.raises(Corrupt, match=r"^some/file, byte \d+: ") as caught:
        decode(FMT, bytes(data), "some/file")
    assert caught.value.place == "some/file"


def test_every_truncation_names_the_byte() -> None:
    data = encode(FMT, VALUE)
    for length in range(len(data)):
        with pytest.raises(Corrupt, match=f"^f, byte {length}: ends "):
            decode(FMT, data[:length], "f")


def test_trailing_bytes_are_noticed() -> None:
    data = encode(FMT, VALUE)
    with pytest.raises(Corrupt, match=f"byte {len(data)}: has 3 bytes after its end"):
        decode(FMT, data + b"abc", "f")


def test_a_newer_version_is_unsupported_not_corrupt() -> None:
    newer = encode(Format("test", 4, 1 << 20), VALUE)
    with pytest.raises(UnsupportedFormat, match="version 4; this release reads up to 3"):
        decode(FMT, newer, "f")
    damaged = bytearray(encode(FMT, VALUE))
    damaged[16] = 4
    with pytest.raises(Corrupt):
        decode(FMT, bytes(damaged), "f")


def test_older_versions_are_read() -> None:
    assert decode(FMT, encode(Format("test", 1, 100), "x"), "f") == "x"


def test_another_kind_is_named() -> None:
    with pytest.raises(Corrupt, match="holds a 'other' where a 'test' belongs"):
        decode(FMT, encode(Format("other", 1, 100), "x"), "f")


def test_the_header_alone_tells_what_a_file_is() -> None:
    header = read_header(encode(FMT, VALUE)[:64], "f")
    assert (header.kind, header.version) == ("test", 3)


NOT_CANONICAL = {
    "integer in two bytes": b"\xcc\x05",
    "unsorted map": b"\x82\xa1b\x01\xa1a\x02",
    "key twice": b"\x82\xa1a\x01\xa1a\x02",
    "key not text": b"\x81\x01\x02",
    "key a list": b"\x81\x91\x01\x02",
    "extension": b"\xd4\x05\x00",
    "timestamp": msgpack.packb(msgpack.Timestamp(1, 2)),
    "not a number": b"\xcb\x7f\xf8\0\0\0\0\0\0",
    "single float": b"\xca\x3f\x80\0\0",
    "text not UTF-8": b"\xa1\xff",
    "two values": b"\x01\x02",
    "nothing": b"",
    "reserved byte": b"\xc1",
    "array of four billion": b"\xdd\xff\xff\xff\xff",
    "map of four billion": b"\xdf\xff\xff\xff\xff",
    "text of four billion": b"\xdb\xff\xff\xff\xff",
    "nested arrays of a million": b"\xdd\x00\x10\x00\x00" * 30,
}


@pytest.mark.parametrize("body", NOT_CANONICAL.values(), ids=NOT_CANONICAL.keys())
def test_a_body_with_right_checksum_but_wrong_content(body: bytes) -> None:
    with pytest.raises(Corrupt, match=r"^f, byte \d+: "):
        decode(FMT, frame(body), "f")


def test_ten_thousand_corruptions_in_bounded_memory() -> None:
    """In a process of its own, whose memory the kernel limits."""
    code = """
import random, resource, sys
from tests.core.test_codec import corruptions
resource.setrlimit(resource.RLIMIT_AS, (400 << 20, 400 << 20))
print(corruptions(10_000))
"""
    root = Path(__file__).parents[2]
    result = subprocess.run(
        [sys.executable, "-c", code], cwd=root, capture_output=True, text=True, check=False
    )
    assert result.returncode == 0, result.stderr
    assert result.stdout.split()[-1] == "10000"


def corruptions(count: int) -> int:
    """Damage a frame in `count` random ways; how many gave a typed error."""
    chance = random.Random(7)
    original = encode(FMT, {"rows": [list(range(50)), {"key": "value" * 20}] * 5})
    typed = 0
    while typed < count:
        data = _damage(bytearray(original), chance)
        if data == original:
            continue
        # Half of them with right checksums, so that the damage reaches the parser of the body.
        if chance.random() < 0.5 and len(data) > 64:
            data = frame(data[64:], version=chance.choice([3, 3, 3, 9]))
        try:
            decode(FMT, data, "f")
        except SluicegateError:
            typed += 1
        else:
            # Only a damage that made another valid body may pass.
            assert data[:64] == frame(data[64:])[:64]
    assert peak_bytes() < 400 << 20
    return typed


def _damage(data: bytearray, chance: random.Random) -> bytes:
    at = chance.randrange(len(data))
    match chance.randrange(5):
        case 0:
            data[at] ^= 1 << chance.randrange(8)
        case 1:
            del data[at:]
        case 2:
            data[at:at] = chance.randbytes(chance.randrange(1, 9))
        case 3:
            del data[at : at + chance.randrange(1, 9)]
        case _:
            data[at : at + 5] = b"\xdd\xff\xff\xff\xff"
    return bytes(data)


def format_examples() -> list[bytes]:
    """The files that FORMAT.md shows in hex."""
    text = (Path(sluicegate.__file__).parent / "FORMAT.md").read_text()
    blocks = re.findall(r"```hex\n(.*?)```", text, re.DOTALL)
    return [bytes.fromhex("".join(line[10:58] for line in block.splitlines())) for block in blocks]


def test_the_example_of_a_marker_in_the_format_document() -> None:
    data = format_examples()[0]
    fields = decode(home.MARKER.format, data, "FORMAT.md")
    assert fields["id"] == "3f2a6c1e-8f5d-4a53-9c4e-0b7d1a2e9f60"
    assert (fields["created_at"], fields["reason"]) == (1794800000.5, None)
    assert encode(home.MARKER.format, fields) == data


def test_the_example_of_a_record_in_the_format_document() -> None:
    data = format_examples()[1]
    found = record.decode(data, "FORMAT.md", "billing")
    assert (found.id, found.kind, found.by.command) == ("billing@2", "commit", "job.py")
    assert to_spark(found.positions) == {"orders": {"0": 12340, "1": 9876}}
    assert found.times["orders"] == {0: 1794800000.5, 1: 1794799990.0}
    assert record.encode(found) == data


def test_the_example_of_a_snapshot_in_the_format_document() -> None:
    data = format_examples()[2]
    found = snapshot.decode(data, "FORMAT.md")
    assert (found.stream, found.number, found.kind) == ("clicks", 2, snapshot.Kind.EPOCH)
    assert to_spark(found.positions) == {"clicks": {"0": 20, "1": 10}}
    assert found.state_delta == found.state.deltas[0]
    assert snapshot.encode(found) == data


def test_version_0_is_damage() -> None:
    with pytest.raises(Corrupt, match="byte 16: claims format version 0"):
        decode(FMT, frame(b"\x01", version=0), "f")


@pytest.mark.parametrize(("kind", "version"), [("ninechars", 1), ("", 1), ("ä", 1), ("ok", 0)])
def test_kinds_that_cannot_be_written(kind: str, version: int) -> None:
    with pytest.raises(ValueError, match="cannot be a kind"):
        Format(kind, version, 10)
