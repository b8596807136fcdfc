"""Both kinds of checksum files, as Hadoop and Spark write them, against files and damage."""

from __future__ import annotations

import io
import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sluicegate.checkpoint.format.checksums import (
    check_hidden,
    check_visible,
    hidden_name,
    visible_name,
)
from sluicegate.checkpoint.format.state_data import StateKind
from sluicegate.errors import Corrupt, UnsupportedFormat
from tests.checkpoint import state_encoder as enc

# A changelog that Spark 4.3.0 wrote, and the two checksum files that it wrote beside it.
DATA = enc.REAL[StateKind.CHANGELOG, 3]
HIDDEN = bytes.fromhex("6372630000000200b02418f2")
VISIBLE = (
    b'{"algorithm":"CRC32C","value":-459948731,"mainFileSize":175,"timestampMs":1794805196023,'
    b'"creator":{"executorId":"driver","taskInfo":"Task= 1.0, Stage= 723.0"}}'
)


def crc32c(data: bytes) -> int:
    crc = 0xFFFFFFFF
    for byte in data:
        crc ^= byte
        for _ in range(8):
            crc = crc >> 1 ^ (0x82F63B78 if crc & 1 else 0)
    return crc ^ 0xFFFFFFFF


def spark_crc(data: bytes, **fields: object) -> bytes:
    value = crc32c(data)
    signed = value - 2**32 if value >= 2**31 else value
    plain = {"algorithm": "CRC32C", "value": signed, "mainFileSize": len(data)}
    return json.dumps(plain | fields).encode()


def hidden(data: bytes, sums: bytes) -> str | None:
    return check_hidden(io.BytesIO(data), io.BytesIO(sums), ".f.crc")


def visible(data: bytes, checksum: bytes) -> str | None:
    return check_visible(io.BytesIO(data), io.BytesIO(checksum), "f.crc")


def test_names() -> None:
    assert (hidden_name("1.delta"), visible_name("1.delta")) == (".1.delta.crc", "1.delta.crc")


def test_what_spark_and_hadoop_wrote() -> None:
    assert hidden(DATA, HIDDEN) is None
    assert visible(DATA, VISIBLE) is None


@given(st.binary(max_size=5000), st.sampled_from((1, 7, 512, 4096, 2**31 - 1)))
def test_hidden_round_trip(data: bytes, size: int) -> None:
    assert hidden(data, enc.hadoop_crc(data, size)) is None


@given(st.binary(min_size=1, max_size=3000), st.data())
def test_hidden_names_the_flipped_part(data: bytes, draw: st.DataObject) -> None:
    at = draw.draw(st.integers(0, len(data) - 1))
    flipped = data[:at] + bytes([data[at] ^ 0x40]) + data[at + 1 :]
    first = at // 512 * 512
    expected = f"bytes {first} to {first + 511} do not match their checksum"
    assert hidden(flipped, enc.hadoop_crc(data)) == expected


def test_hidden_of_a_file_that_spans_many_pieces() -> None:
    data = bytes(range(256)) * 1024
    assert hidden(data, enc.hadoop_crc(data, 1000)) is None
    assert hidden(data[:-1] + b"x", enc.hadoop_crc(data, 1000)) is not None


def test_hidden_of_a_longer_or_shorter_file() -> None:
    data = bytes(1024)
    longer = hidden(data + b"x", enc.hadoop_crc(data))
    assert longer == "has bytes from 1024 on that its checksum does not cover"
    shorter = hidden(data[:512], enc.hadoop_crc(data))
    assert shorter == "ends before byte 512, but its checksum covers more"


@pytest.mark.parametrize(
    ("sums", "reason"),
    [
        (b"", "does not start like"),
        (b"crc\0\0\0\2", "does not start like"),
        (b"CRC\0" + HIDDEN[4:], "does not start like"),
        (b"crc\0\0\0\0\0", "claims 0 bytes"),
        (b"crc\0\xff\xff\xff\xff", "claims -1 bytes"),
        (HIDDEN + b"x", "ends inside a checksum"),
    ],
)
def test_hidden_files_that_are_none(sums: bytes, reason: str) -> None:
    with pytest.raises(Corrupt, match=reason) as caught:
        hidden(DATA, sums)
    assert caught.value.place == ".f.crc"


@given(st.binary(max_size=300))
def test_visible_round_trip(data: bytes) -> None:
    assert visible(data, spark_crc(data)) is None
    assert visible(data + b"x", spark_crc(data)) == (
        f"has {len(data) + 1} bytes; its checksum is of {len(data)}"
    )
    assert visible(b"y" + data, spark_crc(b"z" + data)) == "does not match its checksum"


@pytest.mark.parametrize(
    ("checksum", "reason"),
    [
        (b"", "not valid JSON"),
        (VISIBLE[:50], "not valid JSON"),
        (b"[1]", "expected a JSON object"),
        (b"\xff{}", "byte 0: not UTF-8"),
        (b"{}", "names no algorithm"),
        (b'{"algorithm":7}', "names no algorithm"),
        (spark_crc(b"", value="7"), "value is '7'"),
        (spark_crc(b"", value=True), "value is True"),
        (spark_crc(b"", value=2**31), "over 32 bits"),
        (spark_crc(b"", mainFileSize=1.5), "mainFileSize is 1.5"),
        (b" " * (1 << 20), "is larger than"),
        (b"[" * 60_000, "not valid JSON"),
    ],
)
def test_visible_files_that_are_none(checksum: bytes, reason: str) -> None:
    with pytest.raises(Corrupt, match=reason) as caught:
        visible(b"", checksum)
    assert caught.value.place == "f.crc"


def test_another_algorithm_is_not_checked() -> None:
    with pytest.raises(UnsupportedFormat, match="'SHA-256' is not known"):
        visible(b"", spark_crc(b"", algorithm="SHA-256"))


def test_all_checksums_of_the_lab_match(lab: Path) -> None:
    seen = {"hidden": 0, "visible": 0}
    for path in sorted(lab.rglob("*.crc")):
        is_hidden = path.name.startswith(".")
        beside = path.with_name(path.name.removeprefix(".").removesuffix(".crc"))
        if not beside.is_file():
            continue
        check = check_hidden if is_hidden else check_visible
        with beside.open("rb") as data, path.open("rb") as sums:
            assert check(data, sums, str(path)) is None, path
        seen["hidden" if is_hidden else "visible"] += 1
    assert all(seen.values()), seen
