"""The legacy checkpoint file (SEEDS.md 001), written here by an independent encoder."""

from __future__ import annotations

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as some

from sluicegate.errors import Corrupt
from sluicegate.legacy.v1 import V1Checkpoint, decode

u64 = some.integers(0, 2**64 - 1)


def text(value: str) -> bytes:
    raw = value.encode()
    return struct.pack("<I", len(raw)) + raw


def written(checkpoint: V1Checkpoint) -> bytes:
    out = struct.pack("<QQQ", checkpoint.sequence, checkpoint.watermark_ns, checkpoint.event_count)
    out += struct.pack("<I", len(checkpoint.operators))
    for name, state in checkpoint.operators.items():
        out += text(name) + struct.pack("<I", len(state)) + state
    out += struct.pack("<I", len(checkpoint.sources))
    for name, offset in checkpoint.sources.items():
        out += text(name) + struct.pack("<Q", offset)
    return out


checkpoints = some.builds(
    V1Checkpoint,
    u64,
    u64,
    u64,
    some.dictionaries(some.text(), some.binary(), max_size=4),
    some.dictionaries(some.text(), u64, max_size=4),
)
SAMPLE = V1Checkpoint(42, 1, 2, {"count": b"\x01\x02", "": b""}, {"orders": 9, "clicks": 0})


@given(checkpoints)
def test_round_trip(checkpoint: V1Checkpoint) -> None:
    assert decode(written(checkpoint), "f") == checkpoint


def test_every_truncation_is_an_error_that_names_the_byte() -> None:
    data = written(SAMPLE)
    for length in range(len(data)):
        with pytest.raises(Corrupt, match=rf"byte \d+: the file ends at byte {length}, inside the"):
            decode(data[:length], "f")


def test_trailing_bytes() -> None:
    data = written(SAMPLE)
    with pytest.raises(Corrupt, match=f"byte {len(data)}: 1 bytes after the end"):
        decode(data + b"\0", "f")


def test_names_that_occur_twice() -> None:
    operator = text("op") + struct.pack("<I", 0)
    data = struct.pack("<QQQI", 1, 2, 3, 2) + operator * 2 + struct.pack("<I", 0)
    with pytest.raises(Corrupt, match="operator 'op' occurs twice"):
        decode(data, "f")
    source = text("s") + struct.pack("<Q", 0)
    data = struct.pack("<QQQII", 1, 2, 3, 0, 2) + source * 2
    with pytest.raises(Corrupt, match="source 's' occurs twice"):
        decode(data, "f")


def test_a_name_that_is_not_text() -> None:
    data = struct.pack("<QQQI", 1, 2, 3, 1) + struct.pack("<I", 1) + b"\xff"
    with pytest.raises(Corrupt, match="not UTF-8"):
        decode(data, "f")


def test_huge_lengths_reserve_nothing() -> None:
    for data in (
        struct.pack("<QQQI", 1, 2, 3, 2**32 - 1),
        struct.pack("<QQQII", 1, 2, 3, 1, 2**32 - 1),
    ):
        with pytest.raises(Corrupt):
            decode(data, "f")


@given(some.binary(max_size=200))
def test_any_bytes_decode_or_give_our_error(data: bytes) -> None:
    try:
        assert written(decode(data, "f")) == data
    except Corrupt as e:
        assert e.place == "f"
