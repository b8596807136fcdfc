"""Deltas, snapshots and changelogs: what Spark wrote, round trips, damage, and huge files."""

from __future__ import annotations

import io
import struct
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sluicegate.checkpoint.format.state_data import (
    LineageItem,
    Payload,
    StateKind,
    read_lineage,
    scan,
)
from sluicegate.checkpoint.format.state_store import parse_name
from sluicegate.errors import Corrupt, UnsupportedFormat
from tests.checkpoint import state_encoder as enc
from tests.checkpoint.state_encoder import DELETE, DELETE_RANGE, MERGE, PUT, Record

DELTA, SNAPSHOT, CHANGELOG = StateKind.DELTA, StateKind.SNAPSHOT, StateKind.CHANGELOG
NONE = struct.pack(">i", -1)


def read(payload: bytes, kind: StateKind = DELTA) -> Payload:
    return scan(io.BytesIO(enc.lz4(payload)), kind, "f")


def record(*tags: int) -> st.SearchStrategy[Record]:
    data = st.binary(max_size=60)
    return st.sampled_from(tags).flatmap(
        lambda tag: st.tuples(st.just(tag), data, st.none() if tag == DELETE else data)
    )


KEYED = ((PUT, b"key", b"value!"), (DELETE, b"gone", None))
TYPED = (*KEYED, (MERGE, b"list", b"item"), (DELETE_RANGE, b"a", b"bc"))
REAL = {
    (CHANGELOG, 1): (1, 1, 0, 114, 17, 151),
    (CHANGELOG, 2): (4, 14, 0, 422, 116, 705),
    (CHANGELOG, 3): (1, 3, 0, 68, 17, 203),
    (CHANGELOG, 4): (9, 7, 0, 1110, 153, 1489),
    (DELTA, 1): (2, 1, 0, 72, 32, 132),
    (SNAPSHOT, 1): (1, 0, 0, 24, 16, 52),
}


@pytest.mark.parametrize("which", REAL)
def test_files_that_spark_wrote(which: tuple[StateKind, int]) -> None:
    found = scan(io.BytesIO(enc.REAL[which]), which[0], "f")
    counts = (found.puts, found.deletes, found.merges)
    assert (*counts, found.key_bytes, found.value_bytes, found.raw_bytes) == REAL[which]
    assert (found.kind, found.version, found.remark) == (*which, None)


def test_the_lineage_of_a_file_that_spark_wrote() -> None:
    expected = (LineageItem(12, "d25d5001-cbf0-4ffc-8b9c-0744c5393355"),)
    assert scan(io.BytesIO(enc.REAL[CHANGELOG, 3]), CHANGELOG, "f").lineage == expected
    assert read_lineage(io.BytesIO(enc.REAL[CHANGELOG, 3]), "f") == expected
    assert read_lineage(io.BytesIO(enc.REAL[CHANGELOG, 2]), "f") == ()


def test_a_lineage_that_is_torn_off() -> None:
    data = enc.lz4(enc.changelog(3, [], [(1, enc.UID)]), 16)
    for size in range(len(data) - 60):
        with pytest.raises(Corrupt, match=f"f, byte {size}: "):
            read_lineage(io.BytesIO(data[:size]), "f")


@given(
    st.integers(1, 4).flatmap(
        lambda version: st.tuples(
            st.just(version),
            st.lists(record(*(PUT, DELETE) if version % 2 else (PUT, DELETE, MERGE, DELETE_RANGE))),
        )
    ),
    st.lists(st.tuples(st.integers(1, 2**63 - 1), st.uuids().map(str)), max_size=9),
    st.sampled_from((1, 3, 64, 32768)),
)
def test_changelog_round_trip(
    content: tuple[int, list[Record]], lineage: list[tuple[int, str]], block_size: int
) -> None:
    version, records = content
    data = enc.lz4(enc.changelog(version, records, lineage), block_size)
    found = scan(io.BytesIO(data), CHANGELOG, "f")
    keys = [key for _, key, _ in records] + [
        v or b"" for tag, _, v in records if tag == DELETE_RANGE
    ]
    assert found.version == version
    assert found.records == len(records)
    assert found.range_deletes == sum(tag == DELETE_RANGE for tag, _, _ in records)
    assert found.key_bytes == sum(map(len, keys))
    assert found.value_bytes == sum(len(v or b"") for tag, _, v in records if tag != DELETE_RANGE)
    assert found.lineage == (tuple(LineageItem(*item) for item in lineage) if version > 2 else ())
    assert found.remark is None


@given(st.lists(record(PUT, DELETE)), st.sampled_from((1, 7, 32768)), st.booleans())
def test_delta_round_trip(records: list[Record], block_size: int, pack: bool) -> None:
    payload = enc.plain(records)
    found = scan(io.BytesIO(enc.lz4(payload, block_size, pack=pack)), DELTA, "f")
    assert (found.puts, found.deletes) == (
        sum(tag == PUT for tag, _, _ in records),
        sum(tag == DELETE for tag, _, _ in records),
    )
    assert found.raw_bytes == len(payload)
    assert (found.merges, found.range_deletes, found.lineage, found.remark) == (0, 0, (), None)


@pytest.mark.parametrize("version", [1, 2, 3, 4])
def test_every_cut_of_the_content_is_noticed(version: int) -> None:
    payload = enc.changelog(version, KEYED if version % 2 else TYPED, [(1, enc.UID)])
    assert read(payload, CHANGELOG).records == (2 if version % 2 else 4)
    for size in range(len(payload)):
        with pytest.raises(Corrupt) as caught:
            read(payload[:size], CHANGELOG)
        assert f"byte {size} unpacked: ends inside" in caught.value.message or size == 0


def test_a_short_changelog_without_version_is_read_beyond_its_end() -> None:
    """Spark takes its end for the length of a text, and stumbles over damage there."""
    data = enc.lz4(enc.changelog(1, []))
    with pytest.raises(Corrupt, match="an end block has a checksum"):
        scan(io.BytesIO(data[:-1] + b"x"), CHANGELOG, "f")
    with pytest.raises(Corrupt, match="an end block has a checksum"):
        scan(io.BytesIO(data + enc.lz4(bytes(9000))[:-1] + b"x"), CHANGELOG, "f")
    assert scan(io.BytesIO(data[:-1] + b"x"), DELTA, "f").remark is not None
    assert scan(io.BytesIO(data + enc.block(b"xyz")[:-1]), CHANGELOG, "f").remark is not None


@pytest.mark.parametrize("version", [1, 2, 3, 4])
def test_every_cut_of_the_file_is_noticed(version: int) -> None:
    payload = enc.changelog(version, KEYED if version % 2 else TYPED, [(1, enc.UID)])
    data = enc.lz4(payload, 16)
    needed = len(data) - len(enc.END)
    for size in range(len(data)):
        if size < needed:
            with pytest.raises(Corrupt, match=f"f, byte {size}: "):
                scan(io.BytesIO(data[:size]), CHANGELOG, "f")
        else:
            # Spark stops at the last record, so the end block is not missed by it.
            remark = scan(io.BytesIO(data[:size]), CHANGELOG, "f").remark
            assert remark is not None
            assert remark.startswith("behind the last record: f, byte")


def test_what_lies_behind_the_last_record_is_a_remark() -> None:
    payload = enc.plain(KEYED)
    assert read(payload + b"xyz").remark == "3 bytes behind the last record"
    twice = enc.lz4(payload) + enc.lz4(payload)
    assert (
        scan(io.BytesIO(twice), DELTA, "f").remark == f"{len(payload)} bytes behind the last record"
    )
    for junk, reason in ((b"junk", "ends inside the header"), (b"x" * 21, "not start with LZ4B")):
        remark = scan(io.BytesIO(enc.lz4(payload) + junk), DELTA, "f").remark
        assert remark is not None
        assert reason in remark


def test_an_empty_changelog_with_a_torn_end() -> None:
    data = enc.lz4(enc.changelog(1, []))
    for size in range(len(data) - len(enc.END), len(data)):
        found = scan(io.BytesIO(data[:size]), CHANGELOG, "f")
        assert (found.version, found.records) == (1, 0)
        assert found.remark is not None


DAMAGE = {
    "negative key": (DELTA, struct.pack(">i", -2), "byte 0 unpacked: a key has the length -2"),
    "negative value": (
        DELTA,
        enc.counted(b"k") + struct.pack(">i", -9),
        "byte 5 unpacked: a value has the length -9",
    ),
    "delete in a snapshot": (SNAPSHOT, enc.plain(KEYED[1:]), "byte 8 unpacked: a value has the l"),
    "huge key": (DELTA, struct.pack(">i", 2**31 - 1) + b"abc", "a key of 2147483647 bytes"),
    "deleted with a value": (
        CHANGELOG,
        enc.text(b"v2") + b"\x10" + enc.counted(b"k") + enc.counted(b"v"),
        "byte 10 unpacked: a deleted key has a value of 1 bytes",
    ),
    "lineage, no JSON": (CHANGELOG, enc.text(b"v3") + enc.text(b"[{") + NONE, "unknown form"),
    "lineage, too deep": (CHANGELOG, enc.text(b"v3") + enc.text(b"[" * 60000), "unknown form"),
    "lineage, no list": (CHANGELOG, enc.text(b"v3") + enc.text(b"7") + NONE, "unknown form"),
    "lineage, no text": (CHANGELOG, enc.text(b"v3") + enc.text(b"\xff") + NONE, "unknown form"),
    "lineage, no number": (
        CHANGELOG,
        enc.text(b"v3") + enc.text(b'[{"version":"1","checkpointUniqueId":"a"}]') + NONE,
        "byte 4 unpacked: the lineage has an unknown form",
    ),
    "lineage, a boolean": (
        CHANGELOG,
        enc.text(b"v3") + enc.text(b'[{"version":true,"checkpointUniqueId":"a"}]') + NONE,
        "unknown form",
    ),
}


@pytest.mark.parametrize("case", DAMAGE)
def test_damage_is_named(case: str) -> None:
    kind, payload, reason = DAMAGE[case]
    with pytest.raises(Corrupt, match=reason) as caught:
        read(payload, kind)
    assert caught.value.place == "f"


@pytest.mark.parametrize("before", [1, 2, 9])
def test_damage_after_other_records(before: int) -> None:
    records = (enc.counted(b"key") + enc.counted(b"value")) * before
    at = len(records)
    for kind, record, reason in (
        (DELTA, struct.pack(">i", -2), f"byte {at} unpacked: a key has the length -2"),
        (DELTA, enc.counted(b"k") + struct.pack(">i", -9), f"byte {at + 5} unpacked: a value has"),
        (SNAPSHOT, enc.counted(b"k") + NONE + NONE, f"byte {at + 5} unpacked: a value has"),
        (DELTA, enc.counted(b"k") + b"\0\0\0\2v", f"byte {at + 10} unpacked: ends inside a val"),
        (DELTA, enc.counted(b"k") + b"\0\0", f"byte {at + 7} unpacked: ends inside a value len"),
        (DELTA, b"\0\0\0\2k", f"byte {at + 5} unpacked: ends inside a key"),
    ):
        with pytest.raises(Corrupt, match=reason):
            read(records + record, kind)
    assert read(records + NONE).puts == before


def test_what_a_newer_spark_may_have_written_is_not_called_damage() -> None:
    with pytest.raises(UnsupportedFormat, match="changelog of version 5 is not known"):
        read(enc.text(b"v5") + b"\0" * 20, CHANGELOG)
    with pytest.raises(UnsupportedFormat, match="byte 4 unpacked: a record of type 0x30"):
        read(enc.text(b"v2") + b"\x30" + b"\0" * 20, CHANGELOG)


@pytest.mark.parametrize("length", [0x761F, 0x00060000 + 0x7600, 0x00020000 + 0x7629])
def test_a_first_key_that_looks_a_little_like_a_version(length: int) -> None:
    """Its length is 0, 6 and 2 as the length of a text, the last with the text `v)`."""
    found = read(enc.changelog(1, [(PUT, b"k" * length, b"v")]), CHANGELOG)
    assert (found.version, found.key_bytes, found.puts) == (1, length, 1)


def test_all_files_of_the_lab_scan_clean(lab: Path) -> None:
    seen = 0
    for path in sorted(lab.rglob("*")):
        file = parse_name(path.name)
        if file is None or file.kind is StateKind.ZIP:
            continue
        with path.open("rb") as stream:
            try:
                assert scan(stream, file.kind, str(path)).remark is None, path
            except UnsupportedFormat:
                assert "zstd" in str(path)
        seen += 1
    assert seen
