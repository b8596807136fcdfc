"""LZ4Block streams: what Spark wrote, what a second encoder writes, and every kind of damage."""

from __future__ import annotations

import io
import struct
import subprocess
import sys
from collections.abc import Callable

import lz4.block  # type: ignore[import-untyped]
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sluicegate.checkpoint.format.lz4block import Torn, blocks
from sluicegate.errors import Corrupt, UnsupportedFormat
from tests.checkpoint import state_encoder as enc

RAW = b"the quick brown fox, the quick brown fox, the quick brown fox"
LEVELS = st.integers(0, 15)


def read(data: bytes) -> bytes:
    return b"".join(blocks(io.BytesIO(data), "f"))


def patched(at: int, number: int, data: bytes = enc.block(RAW) + enc.END) -> bytes:
    """The data with a little-endian 32-bit number written over byte `at`."""
    return data[:at] + struct.pack("<I", number & 0xFFFFFFFF) + data[at + 4 :]


def as_stored(raw: bytes, level: int) -> bytes:
    return enc.block(raw, None, level)


def as_literals(raw: bytes, level: int) -> bytes:
    return enc.block(raw, enc.literals(raw), level)


def as_packed(raw: bytes, level: int) -> bytes:
    return enc.block(raw, lz4.block.compress(raw, store_size=False), level)


@given(
    st.lists(st.binary(min_size=1, max_size=1024), max_size=5),
    st.sampled_from((as_stored, as_literals, as_packed)),
    LEVELS,
)
def test_round_trip(chunks: list[bytes], method: Callable[[bytes, int], bytes], level: int) -> None:
    data = b"".join(method(chunk, level) for chunk in chunks) + enc.END
    assert list(blocks(io.BytesIO(data), "f")) == chunks


def test_matches_are_unpacked() -> None:
    packed = enc.repeats(7, 30_000)
    assert read(enc.block(b"\7" * 30_000, packed) + enc.END) == b"\7" * 30_000


def test_the_encoder_hashes_like_the_specification() -> None:
    assert enc.xxh32(b"", 0) == 0x02CC5D05
    assert enc.xxh32(b"Nobody inspects the spammish repetition", 0) == 0xE2293B2F


def test_streams_that_follow_each_other_read_as_one() -> None:
    assert read(enc.lz4(b"one") + enc.END + enc.lz4(b"two")) == b"onetwo"


def test_a_stream_that_gives_less_than_asked_for() -> None:
    class Slow(io.BytesIO):
        def read(self, size: int | None = -1, /) -> bytes:
            return super().read(min(size or 0, 3))

    assert b"".join(blocks(Slow(enc.lz4(RAW, 10)), "f")) == RAW


STORED, LITERALS = as_stored(RAW, 0) + enc.END, as_literals(RAW, 0) + enc.END
DAMAGE = {
    "empty": (b"", 0, "is empty"),
    "no end block": (enc.block(RAW), 21 + len(RAW), "ends without an end block"),
    "no second end block": (enc.END + enc.block(RAW), 42 + len(RAW), "ends without an end block"),
    "other bytes": (b"x" * 40, 0, "does not start with LZ4Block"),
    "other bytes later": (enc.block(RAW) + b"x" * 40, 21 + len(RAW), "does not start with"),
    "cut in the magic": (enc.block(RAW) + b"LZ4", 24 + len(RAW), "ends inside the header"),
    "cut in the header": (enc.block(RAW)[:20], 20, "ends inside the header"),
    "cut in the data": (enc.block(RAW)[:30], 30, f"ends inside a block of {len(RAW)}"),
    "unknown method": (patched(8, 0x35), 8, "unknown method 0x30"),
    "over its level": (enc.block(b"x" * 1025, None, 0) + enc.END, 13, "1024 are allowed"),
    "raw length negative": (patched(13, -1), 13, "claims -1 bytes"),
    "packed length negative": (patched(9, -5), 9, "claims -5 bytes"),
    "packed length absurd": (patched(9, 2**31 - 1, LITERALS), 9, "claims 2147483647 bytes"),
    "stored, lengths differ": (patched(9, 7), 9, f"claims 7 bytes for {len(RAW)}"),
    "nothing packed": (patched(9, 0, LITERALS), 9, "claims 0 bytes"),
    "does not unpack": (patched(21, -1, LITERALS), 21, "does not unpack"),
    "unpacks to less": (patched(13, len(RAW) + 1, LITERALS), 13, f"unpacks to {len(RAW)} bytes"),
    "wrong checksum": (patched(17, 5), 17, "does not match its checksum"),
    "flipped byte": (patched(21, 0), 17, "does not match its checksum"),
    "end with checksum": (patched(17, 1, enc.END), 17, "an end block has a checksum"),
    "end with data": (patched(9, 4, enc.END) + b"1234", 9, "claims 4 bytes for 0"),
}


@pytest.mark.parametrize("case", DAMAGE)
def test_damage_is_named_with_its_byte(case: str) -> None:
    data, position, reason = DAMAGE[case]
    with pytest.raises(Corrupt, match=reason) as caught:
        read(data)
    assert caught.value.message.startswith(f"f, byte {position}: ")
    assert caught.value.place == "f"
    assert isinstance(caught.value, Torn) is reason.startswith(("ends", "is empty"))


def test_undamaged_inputs_of_the_table_are_fine() -> None:
    assert read(STORED) == read(LITERALS) == RAW


@pytest.mark.parametrize(
    ("start", "codec"),
    [
        (b"\x28\xb5\x2f\xfd", "zstd"),
        (b"\x82SNAPPY\0\0\0\0\1", "snappy"),
        (b"ZV\0", "lzf"),
        (b"ZV\1", "lzf"),
    ],
)
def test_other_codecs_are_not_checked(start: bytes, codec: str) -> None:
    with pytest.raises(UnsupportedFormat, match=f"{codec}; its content is not checked"):
        read(start + b"\0" * 50)
    with pytest.raises(Corrupt):
        read(enc.block(RAW) + start + b"\0" * 50)


def test_the_libraries_are_imported_only_when_needed() -> None:
    code = (
        "import sys, sluicegate.checkpoint.format.state_store, "
        "sluicegate.checkpoint.format.checksums, sluicegate.checkpoint.format.rocksdb; "
        "print([m for m in ('lz4', 'xxhash', 'google_crc32c', 'numpy') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
