"""RocksDB snapshots: the zip, its metadata, the SST files it refers to; damage and bombs."""

from __future__ import annotations

import io
import struct
import zipfile
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sluicegate.checkpoint.format.rocksdb import RocksSnapshot, SharedFile, read_zip, shared_faults
from sluicegate.checkpoint.format.state_data import StateKind
from sluicegate.checkpoint.format.state_store import parse_name
from sluicegate.errors import Corrupt, NotFound, UnsupportedFormat
from sluicegate.storage import LocalStorage
from tests.checkpoint import state_encoder as enc

SST = f"000008-{enc.UID}.sst"
# The metadata of a zip that Spark 4.3.0 wrote.
REAL = (
    b'v1\n{"sstFiles":[{"localFileName":"000008.sst","dfsSstFileName":"000008-b3d8f1bb-b3f1-40ec-'
    b'afed-e0eed88eb76e.sst","sizeBytes":1287}],"numKeys":4,"numInternalKeys":0,'
    b'"columnFamilyMapping":{},"columnFamilyTypeMap":{},"maxColumnFamilyId":0}'
)


def read(data: bytes, *, read_data: bool = False) -> RocksSnapshot:
    return read_zip(io.BytesIO(data), "5.zip", read_data=read_data)


def with_metadata(text: bytes) -> bytes:
    return enc.rocks_zip({"CURRENT": b"MANIFEST-000005\n", "metadata": text})


def test_metadata_that_spark_wrote() -> None:
    found = read(with_metadata(REAL))
    name = "000008-b3d8f1bb-b3f1-40ec-afed-e0eed88eb76e.sst"
    assert found.shared == (SharedFile(f"SSTs/{name}", "000008.sst", 1287),)
    assert (found.keys, found.column_families) == (4, ())
    assert found.entries == ("CURRENT", "metadata")


@given(
    st.lists(st.tuples(st.uuids().map(lambda u: f"000008-{u}.sst"), st.integers(0, 2**40))),
    st.integers(-1, 2**60),
    st.sampled_from((zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED)),
)
def test_round_trip(names: list[tuple[str, int]], keys: int, method: int) -> None:
    text = enc.metadata(names, numKeys=keys, columnFamilyMapping={"default": 0, "timers": 1})
    found = read(enc.rocks_zip({"metadata": text, "x": b"y" * 5000}, method), read_data=True)
    assert [(s.key, s.size) for s in found.shared] == [(f"SSTs/{n}", size) for n, size in names]
    assert (found.keys, found.column_families) == (keys, ("default", "timers"))


def test_log_files_of_older_releases() -> None:
    logs = [{"localFileName": "7.log", "dfsLogFileName": "7-u.log", "sizeBytes": 9}]
    found = read(with_metadata(enc.metadata(logFiles=logs)))
    assert found.shared == (SharedFile("logs/7-u.log", "7.log", 9),)
    assert read(with_metadata(enc.metadata(logFiles=None))).shared == ()


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (b"", "the file is empty"),
        (b"x1\n{}", "not a version line"),
        (b"v1\n", "not valid JSON"),
        (b"v1\n[]", "expected a JSON object"),
        (b"v1\n\xff", "not UTF-8"),
        (b'v1\n{"numKeys":1}', "no list of SST files"),
        (b'v1\n{"sstFiles":{},"numKeys":1}', "no list of SST files"),
        (b'v1\n{"sstFiles":[]}', "numKeys is None"),
        (b'v1\n{"sstFiles":[7],"numKeys":1}', "unknown form"),
        (b'v1\n{"sstFiles":[{}],"numKeys":1}', "unknown form"),
        (enc.metadata([("../../x", 1)]), "SSTs names no file"),
        (enc.metadata([("..", 1)]), "SSTs names no file"),
        (enc.metadata([("a\nb", 1)]), "SSTs names no file"),
        (enc.metadata([(SST, -1)]).replace(b"-1", b'"9"'), "sizeBytes is '9'"),
        (enc.metadata(columnFamilyMapping=[1]), "columnFamilyMapping is not an object"),
    ],
)
def test_damaged_metadata(text: bytes, reason: str) -> None:
    with pytest.raises(Corrupt, match=reason) as caught:
        read(with_metadata(text))
    assert caught.value.place == "5.zip"


def test_metadata_of_a_newer_version_is_not_checked() -> None:
    with pytest.raises(UnsupportedFormat, match="version 2"):
        read(with_metadata(b"v2\n{}"))


def test_a_zip_without_metadata() -> None:
    with pytest.raises(Corrupt, match="metadata"):
        read(enc.rocks_zip({"CURRENT": b"x"}))


def test_every_cut_is_noticed() -> None:
    data = with_metadata(REAL)
    for size in range(len(data)):
        with pytest.raises(Corrupt, match=r"5\.zip: "):
            read(data[:size])


def test_a_flipped_byte_of_an_entry_needs_read_data() -> None:
    body = b"MANIFEST-000005\n"
    data = enc.rocks_zip({"CURRENT": body, "metadata": REAL}, zipfile.ZIP_STORED)
    flipped = data.replace(body, b"MANIFEST-000006\n")
    assert read(flipped).keys == 4
    with pytest.raises(Corrupt, match="Bad CRC-32"):
        read(flipped, read_data=True)


def test_a_directory_of_entries_that_is_too_large() -> None:
    many = enc.rocks_zip({f"{i:0200}": b"" for i in range(5000)} | {"metadata": REAL})
    with pytest.raises(Corrupt, match="directory of entries is too large"):
        read(many)


def patched(data: bytes, signature: bytes, at: int, number: int) -> bytes:
    """The zip with a 32-bit number written `at` bytes after the last such signature."""
    start = data.rindex(signature) + at
    return data[:start] + struct.pack("<I", number) + data[start + 4 :]


def test_places_outside_of_the_file(tmp_path: Path) -> None:
    """On a real file, whose errors are others than those of a buffer."""
    data = enc.rocks_zip({"metadata": REAL})
    (offset,) = struct.unpack_from("<I", data, data.rindex(b"PK\5\6") + 16)
    for number, broken in enumerate(
        (
            patched(data, b"PK\1\2", 42, len(data) - 10),
            patched(data, b"PK\1\2", 42, 2**32 - 2),
            patched(data, b"PK\5\6", 16, offset + 5),
        )
    ):
        path = tmp_path / str(number)
        path.write_bytes(broken)
        with path.open("rb") as stream, pytest.raises(Corrupt):
            read_zip(stream, "5.zip")


def test_a_name_that_is_not_text() -> None:
    data = enc.rocks_zip({"metadata": REAL, "\u00e9": b""})
    with pytest.raises(Corrupt, match="not a complete zip"):
        read(data.replace("\u00e9".encode(), b"\xff\xff"))


def test_sizes_are_refused_before_they_are_unpacked() -> None:
    data = with_metadata(REAL)
    with pytest.raises(Corrupt, match="claims 3000000016 bytes unpacked"):
        read(patched(data, b"PK\1\2", 24, 3_000_000_000))
    with pytest.raises(Corrupt, match="its metadata has 100000000 bytes"):
        read(patched(data, b"PK\1\2", 24, 100_000_000))


def test_other_packing_methods_are_refused() -> None:
    with pytest.raises(Corrupt, match="packing method 14"):
        read(enc.rocks_zip({"metadata": REAL}, zipfile.ZIP_LZMA))


def store(root: Path, sizes: dict[str, int], named: list[tuple[str, int]]) -> LocalStorage:
    (root / "state/0/0/SSTs").mkdir(parents=True)
    (root / "state/0/0/5.zip").write_bytes(with_metadata(enc.metadata(named)))
    for name, size in sizes.items():
        (root / "state/0/0/SSTs" / name).write_bytes(b"x" * size)
    return LocalStorage(root)


def test_shared_files(tmp_path: Path) -> None:
    named = [(SST, 7), ("000009-a.sst", 8), ("000010-b.sst", 9)]
    storage = store(tmp_path, {SST: 7, "000009-a.sst": 3, "unused.sst": 1}, named)
    assert shared_faults(storage, "state/0/0", "5.zip") == [
        "SSTs/000009-a.sst has 3 bytes; 5.zip has 8 for it",
        "SSTs/000010-b.sst is missing, which 5.zip refers to",
    ]
    with pytest.raises(NotFound):
        shared_faults(storage, "state/0/0", "6.zip")


def test_shared_files_that_are_all_there(tmp_path: Path) -> None:
    assert shared_faults(store(tmp_path, {SST: 7}, [(SST, 7)]), "state/0/0", "5.zip") == []


def test_all_zips_of_the_lab(lab: Path) -> None:
    seen = 0
    for path in sorted(lab.rglob("*.zip")):
        file = parse_name(path.name)
        if file is None or file.kind is not StateKind.ZIP:
            continue
        with path.open("rb") as stream:
            assert "metadata" in read_zip(stream, str(path), read_data=True).entries
        above = LocalStorage(path.parents[1])
        assert shared_faults(above, path.parent.name, path.name) == [], path
        seen += 1
    assert seen
