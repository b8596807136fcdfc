"""Reading a log: exactly what was asked for, or an error with the reason."""

from __future__ import annotations

import os
import pickle
import shutil
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sluicegate.errors import (
    Corrupt,
    Fenced,
    InvalidName,
    NotFound,
    StorageFailed,
    UnsupportedFormat,
    UsageError,
)
from sluicegate.positions import Positions
from sluicegate.sources.base import OutOfRange
from sluicegate.sources.log import layout as index
from sluicegate.sources.log.layout import MARKER, MAX_RECORD, LogDamaged, LogReplaced
from sluicegate.sources.log.log import Log
from sluicegate.sources.log.writer import LogWriter
from sluicegate.storage import LocalStorage
from tests.sources.logs import filled, forget, held, in_memory, lines, read


@pytest.fixture
def root() -> Iterator[Path]:
    forget()
    with in_memory() as path:
        yield path / "orders"


def segment(root: Path, base: int, partition: int = 0) -> Path:
    return root / f"partition-{partition}" / f"{base:020d}.jsonl"


class TestCreating:
    def test_a_log_is_named_like_its_directory_and_is_there_for_good(self, root: Path) -> None:
        log = Log.create(str(root), 3)
        assert (log.topic, log.partitions(), log.uri) == ("orders", [0, 1, 2], str(root))
        assert log.earliest() == log.latest() == Positions({"orders": {0: 0, 1: 0, 2: 0}})
        again = Log.open(f"file://{root}")
        assert again.incarnation == log.incarnation == Log.create(str(root)).incarnation

    def test_it_opens_only_what_fits(self, root: Path) -> None:
        log = Log.create(str(root), 2, "clicks")
        assert Log.create(str(root), 2).topic == "clicks"
        for partitions, topic in ((3, None), (None, "orders")):
            with pytest.raises(UsageError):
                Log.create(str(root), partitions, topic)
        log.add_partitions(4)
        # What it began with, what it has now, and nothing else.
        assert Log.create(str(root), 2).partitions() == Log.create(str(root), 4).partitions()
        with pytest.raises(UsageError):
            Log.create(str(root), 3)

    def test_partitions_are_added_and_stay(self, root: Path) -> None:
        log = Log.create(str(root))
        with LogWriter(str(root)) as writer:
            writer.append(lines(0, 3))
        log.add_partitions(3)
        log.add_partitions(2)
        assert Log.open(str(root)).latest() == Positions({"orders": {0: 3, 1: 0, 2: 0}})
        (root / "partition-3").mkdir()
        assert log.partitions() == [0, 1, 2], "one that is being added does not count yet"

    @pytest.mark.parametrize("partitions", [0, -1, 65537, True, 1.0])
    def test_no_log_has_that_many_partitions(self, root: Path, partitions: int) -> None:
        with pytest.raises(UsageError):
            Log.create(str(root), partitions)
        assert not root.exists()

    @pytest.mark.parametrize("topic", ["", "a/b", "..", "-x", "a\nb", "x" * 201])
    def test_no_topic_has_that_name(self, root: Path, topic: str) -> None:
        if topic:
            with pytest.raises(InvalidName):
                Log.create(str(root), 1, topic)
            assert not root.exists()

    def test_a_directory_with_something_else_is_not_made_a_log(self, root: Path) -> None:
        root.mkdir()
        (root / "notes.txt").write_text("mine")
        with pytest.raises(UsageError, match=r"not empty: it has 'notes\.txt'"):
            Log.create(str(root))
        assert [path.name for path in root.iterdir()] == ["notes.txt"]

    def test_one_that_was_not_finished_is(self, root: Path) -> None:
        Log.create(str(root), 2)
        (root / MARKER.name).unlink()
        segment(root, 0, 1).unlink()
        assert Log.create(str(root), 2).partitions() == [0, 1]

    def test_other_storage_is_said_to_be_unsupported(self) -> None:
        with pytest.raises(UnsupportedFormat):
            Log.open("kafka://host:9092/orders")


class TestReading:
    @pytest.mark.parametrize("warm", [False, True])
    def test_every_range(self, root: Path, warm: bool) -> None:
        log = filled(root, 60, batch=5, segment_bytes=200)
        assert len(log.bases(0)) > 5
        for start in range(0, 61, 7):
            for end in range(start, 61, 5):
                if not warm:
                    forget()
                assert read(log, start, end) == lines(start, end - start)

    @given(
        st.lists(st.binary(min_size=1, max_size=40).filter(lambda x: b"\n" not in x), max_size=40),
        st.integers(1, 100),
        st.data(),
    )
    @settings(max_examples=60)
    def test_any_bytes_come_back(
        self, records: list[bytes], size: int, data: st.DataObject
    ) -> None:
        forget()
        with in_memory() as path:
            log = Log.create(str(path / "log"))
            with LogWriter(log.uri, segment_bytes=data.draw(st.integers(1, 200))) as writer:
                rest = records
                while rest:
                    count = data.draw(st.integers(1, len(rest)))
                    writer.append(rest[:count])
                    rest = rest[count:]
            start = data.draw(st.integers(0, len(records)))
            end = data.draw(st.integers(start, len(records)))
            assert read(log, start, end, max_bytes=size) == records[start:end]
            assert log.end(0) == len(records)

    def test_outside_is_refused_before_anything_is_read(self, root: Path) -> None:
        log = filled(root, 60)
        first = log.trim(0, 25)
        assert 0 < first <= 25
        for start, end in ((first - 1, 40), (0, 0), (40, 61), (61, 61)):
            with pytest.raises(OutOfRange) as refused:
                log.read(0, start, end)
            assert (refused.value.exit_code, bool(refused.value.hint)) == (10, True)
        assert list(log.read(0, 60, 60)) == []
        for wrong in ((5, 4, 10), (-1, 4, 10), (0, 4, 0)):
            with pytest.raises(UsageError):
                log.read(0, *wrong)
        with pytest.raises(NotFound, match="no partition 7"):
            log.read(7, 0, 1)

    def test_a_torn_tail_is_never_read(self, root: Path) -> None:
        log = filled(root, 25)
        last = segment(root, log.bases(0)[-1])
        whole = last.read_bytes()
        # Every way in which a record can be half written.
        for cut in range(len(lines(25, 1)[0]) + 1):
            last.write_bytes(whole + lines(25, 1)[0][:cut])
            forget()
            assert log.end(0) == 25
            assert held(log) == lines(0, 25)
            with pytest.raises(OutOfRange):
                log.read(0, 20, 26)
        last.write_bytes(whole + lines(25, 1)[0] + b"\n")
        assert log.end(0) == 26

    def test_long_records(self, root: Path) -> None:
        log = Log.create(str(root))
        long = b"x" * (3 << 20)
        with LogWriter(log.uri) as writer:
            writer.append([b"a", long, b"b"])
        assert read(log, 0, 3, max_bytes=10) == [b"a", long, b"b"]
        with segment(root, 0).open("ab") as stream:
            stream.write(b"y" * MAX_RECORD + b"\nz\n")
        with pytest.raises(LogDamaged, match="a record over"):
            read(log, 0, 5)

    def test_polling_a_growing_segment_counts_only_what_is_new(self, root: Path) -> None:
        log = Log.create(str(root))
        record = b"x" * 99 + b"\n"
        path = segment(root, 0)
        path.write_bytes(record * 300_000)
        assert log.end(0) == 300_000
        started = time.process_time()
        with path.open("ab", buffering=0) as stream:
            for grown in range(1, 201):
                stream.write(record * 10)
                assert log.end(0) == 300_000 + grown * 10
        # To count 30 MB 200 times takes seconds.
        assert time.process_time() - started < 1

    def test_the_marks_stay_few(self, root: Path) -> None:
        marks = index.Marks()
        for count in range(1, 100_001):
            marks = marks.with_mark(count, count * 100)
        assert len(marks.records) < 15
        assert (marks.count, marks.size) == (100_000, 10_000_000)

    @given(st.binary(max_size=30_000), st.integers(0, 10), st.data())
    @settings(max_examples=100)
    def test_the_nth_end(self, noise: bytes, start: int, data: st.DataObject) -> None:
        text = noise.replace(b"\x07", b"\n") * data.draw(st.integers(1, 3)) + b"\n" * 12
        ends = [at + 1 for at in range(start, len(text)) if text[at] == 10]
        count = data.draw(st.integers(1, len(ends)))
        assert index.nth_end(text, count, start) == ends[count - 1]

    def test_a_log_goes_to_other_processes(self, root: Path) -> None:
        log = pickle.loads(pickle.dumps(filled(root, 20)))
        assert held(log) == lines(0, 20)


class TestTrimming:
    def test_full_segments_go_and_the_newest_stays(self, root: Path) -> None:
        log = filled(root, 60)
        bases = log.bases(0)
        assert log.trim(0, bases[2] - 1) == bases[1]
        assert log.trim(0, bases[2]) == bases[2]
        assert log.trim(0, 10**9) == bases[-1]
        assert log.earliest() == Positions({"orders": {0: bases[-1]}})
        assert held(log) == lines(bases[-1], 60 - bases[-1])
        with LogWriter(log.uri) as writer:
            assert writer.append(lines(60, 1)) == 61

    def test_what_is_trimmed_while_it_is_read_is_said_to_be(self, root: Path) -> None:
        log = filled(root, 60)
        pieces = log.read(0, 0, 60, max_bytes=1)
        next(pieces)
        log.trim(0, 50)
        with pytest.raises(OutOfRange, match="trimmed"):
            list(pieces)


class TestDurability:
    class Counting(LocalStorage):
        """Storage that records what was fsynced."""

        def __init__(self, root: Path) -> None:
            super().__init__(root)
            self.synced: list[str] = []

        def sync(self, key: str) -> None:
            self.synced.append(key)
            super().sync(key)

    def test_what_was_read_is_fsynced_once(self, root: Path) -> None:
        bases = filled(root, 60).bases(0)
        storage = self.Counting(root)
        log = Log(storage, Log.open(str(root))._identity)
        names = [f"partition-0/{base:020d}.jsonl" for base in bases]
        log.sync(Positions({"orders": {0: 1}, "others": {0: 10**6}}))
        assert storage.synced == names[:1]
        log.sync(Positions({"orders": {0: 60}}))
        assert storage.synced[1:] in (names, names[1:])
        storage.synced.clear()
        log.sync(Positions({"orders": {0: 60}}))
        assert storage.synced == []
        with LogWriter(log.uri) as writer:
            writer.append(lines(60, 1))
        log.sync(Positions({"orders": {0: 61}}))
        assert storage.synced == names[-1:], "older ones are durable already"

    def test_more_than_there_is_cannot_have_been_read(self, root: Path) -> None:
        with pytest.raises(LogDamaged, match="ends at 20; 21 was read"):
            filled(root, 20).sync(Positions({"orders": {0: 21}}))


class TestDamage:
    def test_a_marker_that_is_missing(self, root: Path) -> None:
        filled(root, 20)
        (root / MARKER.name).unlink()
        with pytest.raises(NotFound, match="not an embedded log"):
            Log.open(str(root))
        with pytest.raises(LogDamaged, match="marker") as refused:
            Log.create(str(root))
        assert "restore" in refused.value.hint

    @pytest.mark.parametrize("fields", [{}, {"topic": "a"}, {"topic": "a", "partitions": 0}])
    def test_a_marker_that_lacks_fields(self, root: Path, fields: dict[str, object]) -> None:
        MARKER.create(LocalStorage.create(root), more=fields)
        with pytest.raises(LogDamaged, match="lacks"):
            Log.open(str(root))

    def test_a_marker_with_any_byte_changed(self, root: Path) -> None:
        Log.create(str(root))
        whole = (root / MARKER.name).read_bytes()
        for at in range(len(whole)):
            (root / MARKER.name).write_bytes(whole[:at] + bytes([whole[at] ^ 1]) + whole[at + 1 :])
            with pytest.raises((Corrupt, UnsupportedFormat)):
                Log.open(str(root))
            (root / MARKER.name).write_bytes(whole[:at])
            with pytest.raises(Corrupt):
                Log.open(str(root))

    def test_another_log_in_its_place(self, root: Path) -> None:
        log = filled(root, 20)
        shutil.rmtree(root)
        filled(root, 30)
        for ask in (log.partitions, log.earliest, log.latest):
            with pytest.raises(LogReplaced) as refused:
                ask()
        assert (refused.value.exit_code, isinstance(refused.value, Fenced)) == (13, True)

    def test_a_partition_or_its_segments_that_are_gone(self, root: Path) -> None:
        log = Log.create(str(root), 3)
        segment(root, 0, 2).unlink()
        with pytest.raises(LogDamaged, match="lost its records"):
            log.latest()
        shutil.rmtree(root / "partition-1")
        with pytest.raises(LogDamaged, match="partition-1 is missing"):
            log.latest()

    def test_a_gap_between_segments(self, root: Path) -> None:
        log = filled(root, 60)
        bases = log.bases(0)
        segment(root, bases[1]).unlink()
        forget()
        assert read(log, 0, bases[1]) == lines(0, bases[1])
        with pytest.raises(LogDamaged, match=f"ends at {bases[1]}, but the next begins at"):
            read(log, 0, bases[1] + 1)

    @pytest.mark.parametrize("by", [-1, 1])
    def test_a_segment_whose_name_lies(self, root: Path, by: int) -> None:
        log = filled(root, 60)
        base = log.bases(0)[2]
        segment(root, base).rename(segment(root, base + by))
        forget()
        with pytest.raises(LogDamaged, match=r"records are missing|has records beyond"):
            held(log)

    def test_a_segment_that_shrank_or_was_exchanged(self, root: Path) -> None:
        log = filled(root, 20, segment_bytes=10**6)
        assert log.end(0) == 20
        path = segment(root, 0)
        whole = path.read_bytes()
        os.truncate(path, len(whole) - 30)
        with pytest.raises(LogDamaged, match="was replaced or truncated"):
            log.end(0)
        path.write_bytes(whole)
        assert log.end(0) == 20
        with path.open("r+b") as stream:
            stream.write(b"x" * len(whole) + b"\n")
        with pytest.raises(LogDamaged, match="was replaced or truncated"):
            log.end(0)

    @pytest.mark.parametrize(
        "name", ["7.jsonl", "0" * 21 + ".jsonl", "9" * 20 + ".jsonl", "a.jsonl"]
    )
    def test_a_segment_that_is_named_by_no_offset(self, root: Path, name: str) -> None:
        log = filled(root, 20)
        (root / "partition-0" / f"{name}.jsonl").touch()
        with pytest.raises(LogDamaged, match="not named by an offset"):
            log.latest()

    def test_directories_files_and_links_in_each_others_place(self, root: Path) -> None:
        log = Log.create(str(root), 2)
        (root / "partition-2").touch()
        with pytest.raises(LogDamaged, match="partition-2 is not a directory"):
            log.latest()
        (root / "partition-2").unlink()
        segment(root, 0).unlink()
        segment(root, 0).mkdir()
        with pytest.raises(LogDamaged, match="not a regular file"):
            log.latest()
        segment(root, 0).rmdir()
        segment(root, 0).symlink_to("/etc/passwd")
        with pytest.raises(LogDamaged, match="not a regular file"):
            log.latest()
        (root / MARKER.name).unlink()
        (root / MARKER.name).mkdir()
        with pytest.raises(StorageFailed):
            log.partitions()

    @pytest.mark.skipif(os.geteuid() == 0, reason="root may read everything")
    def test_no_permission(self, root: Path) -> None:
        log = filled(root, 20)
        (root / "partition-0").chmod(0)
        try:
            with pytest.raises(StorageFailed, match="permission denied"):
                log.latest()
        finally:
            (root / "partition-0").chmod(0o755)

    def test_other_files_are_ignored(self, root: Path) -> None:
        log = filled(root, 20)
        for name in ("notes", "partition-x", "partition-01", "partition-0/.sg-1.tmp"):
            (root / name).touch()
        assert held(log) == lines(0, 20)

    def test_nothing_that_is_no_log_is_taken_for_one(self, root: Path) -> None:
        for made in ("nothing", "a directory", "a directory with a file"):
            if made != "nothing":
                root.mkdir(exist_ok=True)
            if made == "a directory with a file":
                (root / "x").touch()
            with pytest.raises(NotFound):
                Log.open(str(root))
