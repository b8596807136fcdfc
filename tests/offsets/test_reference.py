"""Legacy offset files, read and written."""

from __future__ import annotations

import os
import re
import tempfile
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as some

from sluicegate.errors import (
    Corrupt,
    NotFound,
    ReadOnlyViolation,
    SluicegateError,
    StorageFailed,
    UnsupportedFormat,
)
from sluicegate.offsets import LockFileOffsetStore
from sluicegate.offsets.legacy import files, is_legacy, plan_write, read, write
from sluicegate.positions import MAX_OFFSET, Positions
from sluicegate.storage import LocalStorage, open_storage

NOT_TAKEN = [
    "topic-1-consumer-2-backup.offset", "topic-01-consumer-2.offset", "topic-1-consumer-02.offset",
    "topic-1-consumer-٢.offset", "topic-１-consumer-2.offset", "Topic-1-consumer-2.offset",
    "topic-1-consumer-2.OFFSET", "topic-1-consumer-2.offset.tmp", "topic-1-consumer-2.lock",
    "topic--1-consumer-2.offset", "topic-1-consumer-.offset", "topic-a-consumer-2.offset",
    "topic-+1-consumer-2.offset", "topic-1_0-consumer-2.offset", "topic- 1-consumer-2.offset",
    "topic-1-consumer-2.offset~", " topic-1-consumer-2.offset", "topic-1-consumer-2-3.offset",
    "x-topic-1-consumer-2.offset", "topic-1-consumer-2offset", "topic-1-consumer-2xoffset",
]  # fmt: skip
GARBAGE = {
    "empty": b"",
    "blank": b" \n",
    "word": b"end",
    "negative": b"-1\n",
    "plus": b"+1\n",
    "fraction": b"1.0\n",
    "hex": b"0x10\n",
    "underscore": b"1_000\n",
    "two numbers": b"1 2\n",
    "two lines": b"1\n2\n",
    "Arabic digits": "١٢".encode(),
    "not UTF-8": b"\xff\xfe",
    "NUL": b"12\0",
    "byte order mark": b"\xef\xbb\xbf12",
    "many digits": b"1" * 21,
    "more digits than int() converts": b"1" * 4096,
    "larger than such a file can be": b"1" * 100_000,
}
TOO_LARGE = {
    "the end sentinel": 2**64 - 1,
    "above 2^63-1": 2**63,
    "above 2^64": 2**64,
    "20 digits": 10**20 - 1,
}


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    directory = tmp_path / "my-consumer"
    directory.mkdir()
    return directory


def put(directory: Path, topic: int, consumer: int, data: bytes = b"12345\n") -> Path:
    path = directory / f"topic-{topic}-consumer-{consumer}.offset"
    path.write_bytes(data)
    return path


def content(directory: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in directory.iterdir()}


class TestReading:
    def test_topics_and_consumers_become_topics_and_partitions(self, directory: Path) -> None:
        put(directory, 1, 100)
        put(directory, 1, 2, b"7\n")
        put(directory, 4294967295, 0, b"0")
        (directory / "topic-1-consumer-100.lock").touch()
        found = read(LocalStorage(directory))
        assert found == Positions({"1": {100: 12345, 2: 7}, "4294967295": {0: 0}})

    @pytest.mark.parametrize("data", [b"42", b"42\n", b"42\r\n", b" \t42 \n\n", b"00042"])
    def test_blanks_and_newlines_around_the_number(self, directory: Path, data: bytes) -> None:
        put(directory, 1, 2, data)
        assert read(LocalStorage(directory)) == Positions({"1": {2: 42}})

    def test_the_largest_position(self, directory: Path) -> None:
        put(directory, 1, 2**31 - 1, str(MAX_OFFSET).encode())
        assert read(LocalStorage(directory)) == Positions({"1": {2**31 - 1: MAX_OFFSET}})

    @pytest.mark.parametrize("name", NOT_TAKEN)
    def test_names_that_are_not_taken(self, directory: Path, name: str) -> None:
        (directory / name).write_bytes(b"99\n")
        with pytest.raises(NotFound, match=r"has no topic-<t>-consumer-<c>\.offset files"):
            read(LocalStorage(directory))
        assert not is_legacy(LocalStorage(directory))
        put(directory, 7, 8, b"1\n")
        assert read(LocalStorage(directory)) == Positions({"7": {8: 1}})
        assert is_legacy(LocalStorage(directory))

    def test_a_name_with_a_newline_at_its_end_is_not_taken(self, directory: Path) -> None:
        (directory / "topic-1-consumer-2.offset\n").write_bytes(b"99\n")
        assert not is_legacy(LocalStorage(directory))

    @pytest.mark.parametrize("data", GARBAGE.values(), ids=GARBAGE.keys())
    def test_garbage_is_an_error_that_names_the_file(self, directory: Path, data: bytes) -> None:
        put(directory, 1, 1)
        path = put(directory, 1, 2, data)
        put(directory, 1, 3)
        with pytest.raises(Corrupt, match=re.escape(str(path))) as caught:
            read(LocalStorage(directory))
        assert caught.value.place == str(path)

    @pytest.mark.parametrize("offset", TOO_LARGE.values(), ids=TOO_LARGE.keys())
    def test_a_number_that_is_no_position_is_an_error_that_names_the_file(
        self, directory: Path, offset: int
    ) -> None:
        put(directory, 1, 1)
        path = put(directory, 1, 2, str(offset).encode())
        with pytest.raises((Corrupt, UnsupportedFormat)) as caught:
            read(LocalStorage(directory))
        assert str(offset) in caught.value.message
        assert path.name in f"{caught.value.message} {caught.value.place}"

    @pytest.mark.parametrize("consumer", [2**31, 2**64 - 1])
    def test_a_consumer_id_above_2_31_is_a_clear_error(
        self, directory: Path, consumer: int
    ) -> None:
        put(directory, 1, 1)
        put(directory, 1, consumer)
        with pytest.raises(UnsupportedFormat, match=str(consumer)) as caught:
            read(LocalStorage(directory))
        assert "out of range" in caught.value.message
        assert "move its file away" in caught.value.hint

    @pytest.mark.parametrize("what", ["directory", "link", "dangling link", "pipe"])
    def test_an_unreadable_file_is_an_error_and_never_skipped(
        self, directory: Path, what: str
    ) -> None:
        good = put(directory, 1, 1)
        path = directory / "topic-1-consumer-2.offset"
        match what:
            case "directory":
                path.mkdir()
            case "link":
                path.symlink_to(good)
            case "dangling link":
                path.symlink_to("nowhere")
            case "pipe":
                os.mkfifo(path)
        with pytest.raises(StorageFailed, match=re.escape(path.name)):
            read(LocalStorage(directory))

    def test_a_missing_directory_is_not_found(self, tmp_path: Path) -> None:
        with pytest.raises(NotFound):
            read(LocalStorage(tmp_path / "unmounted"))

    def test_our_own_store_is_not_taken_for_it(self, directory: Path) -> None:
        put(directory, 1, 2)
        assert is_legacy(LocalStorage(directory))
        LockFileOffsetStore.create(str(directory))
        assert not is_legacy(LocalStorage(directory))


class TestWriting:
    def test_files_are_as_the_reference_writes_them(self, directory: Path) -> None:
        write(str(directory), Positions({"1": {100: 12345}, "0": {0: 0}}))
        assert content(directory) == {
            "topic-1-consumer-100.offset": b"12345\n",
            "topic-0-consumer-0.offset": b"0\n",
        }

    def test_a_missing_directory_is_made(self, tmp_path: Path) -> None:
        write(f"file:{tmp_path}/a/b", Positions({"1": {2: 3}}))
        assert read(LocalStorage(tmp_path / "a" / "b")) == Positions({"1": {2: 3}})

    @pytest.mark.parametrize(
        "topic", ["orders", "01", "-1", "4294967296", "١", "1 ", "1\n", "1/2", "99999999999"]
    )
    def test_topics_that_are_no_numbers_are_refused_and_nothing_is_made(
        self, tmp_path: Path, topic: str
    ) -> None:
        positions = Positions({"1": {0: 5}, topic: {0: 5}})
        for call in (plan_write, write):
            with pytest.raises(UnsupportedFormat, match=re.escape(repr(topic))):
                call(str(tmp_path / "new"), positions)
            assert not (tmp_path / "new").exists()

    @pytest.mark.parametrize("call", [plan_write, write])
    @pytest.mark.parametrize(
        ("name", "data"),
        [
            ("topic-1-consumer-2.offset", b"99\n"),
            ("topic-1-consumer-2.offset", b"garbage"),
            ("topic-1-consumer-2.offset", b""),
            ("topic-5-consumer-5.offset", b"3\n"),
        ],
    )
    def test_other_content_is_refused_and_nothing_is_written(
        self, directory: Path, call: object, name: str, data: bytes
    ) -> None:
        (directory / name).write_bytes(data)
        before = content(directory)
        with pytest.raises(SluicegateError, match="nothing was written") as caught:
            call(str(directory), Positions({"1": {1: 3, 2: 3}}))  # type: ignore[operator]
        assert caught.value.place == str(directory / name)
        assert content(directory) == before

    def test_identical_content_is_fine(self, directory: Path) -> None:
        positions = Positions({"1": {1: 3, 2: 3}})
        write(str(directory), positions)
        before = {path: path.stat().st_mtime_ns for path in directory.iterdir()}
        plan_write(str(directory), positions)
        write(str(directory), positions)
        assert {path: path.stat().st_mtime_ns for path in directory.iterdir()} == before

    def test_what_was_cut_short_can_be_written_again(self, directory: Path) -> None:
        positions = Positions({"1": {1: 3, 2: 4}})
        put(directory, 1, 1, b"3\n")
        write(str(directory), positions)
        assert read(LocalStorage(directory)) == positions

    def test_other_files_do_not_matter(self, directory: Path) -> None:
        (directory / "topic-1-consumer-2-backup.offset").write_bytes(b"99\n")
        write(str(directory), Positions({"1": {2: 3}}))
        assert (directory / "topic-1-consumer-2-backup.offset").read_bytes() == b"99\n"

    def test_planning_writes_nothing_and_says_what_would_be(self, tmp_path: Path) -> None:
        plan = plan_write(str(tmp_path / "new"), Positions({"1": {2: 3}}))
        (action,) = plan.actions
        assert (action.verb, action.detail) == ("write", "3")
        assert action.place == str(tmp_path / "new" / "topic-1-consumer-2.offset")
        assert not (tmp_path / "new").exists()

    def test_a_file_in_the_place_of_the_directory(self, tmp_path: Path) -> None:
        (tmp_path / "file").touch()
        for call in (plan_write, write):
            with pytest.raises(StorageFailed, match="not a directory"):
                call(str(tmp_path / "file"), Positions({"1": {2: 3}}))

    def test_no_positions_are_no_files(self) -> None:
        assert files(Positions({})) == {}


exportable = some.dictionaries(
    some.integers(0, 2**32 - 1).map(str),
    some.dictionaries(
        some.integers(0, 2**31 - 1), some.integers(0, MAX_OFFSET), min_size=1, max_size=3
    ),
    min_size=1,
    max_size=3,
).map(Positions)


@settings(max_examples=25)
@given(exportable)
def test_what_is_exported_is_imported_again(positions: Positions) -> None:
    with tempfile.TemporaryDirectory() as directory:
        write(directory, positions)
        assert read(open_storage(directory, read_only=True)) == positions


def test_the_round_trip_through_a_store(directory: Path, tmp_path: Path) -> None:
    put(directory, 1, 100)
    put(directory, 2, 200, b"999\n")
    store = LockFileOffsetStore.create(str(tmp_path / "store"))
    store.save_many("my-consumer", read(LocalStorage(directory)))
    record = store.load("my-consumer")
    assert record is not None
    write(str(tmp_path / "copy"), record.positions)
    assert content(tmp_path / "copy") == content(directory)


def test_reading_needs_no_right_to_write(directory: Path) -> None:
    put(directory, 1, 2)
    view = open_storage(str(directory), read_only=True)
    assert is_legacy(view)
    assert read(view) == Positions({"1": {2: 12345}})
    with pytest.raises(ReadOnlyViolation):
        view.delete("topic-1-consumer-2.offset")
