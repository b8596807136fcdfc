"""The contract of every kind of storage; each kind has a subclass that tests it.

class TestMine(StorageContract):
    @pytest.fixture
    def storage(self) -> Storage:
        return MyStorage(…)
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import pytest

from sluicegate.errors import (
    Corrupt,
    InvalidName,
    Locked,
    NotFound,
    ReadOnlyViolation,
    SluicegateError,
    StorageFailed,
)
from sluicegate.locks import LockMode
from sluicegate.storage import Entry, ReadOnlyStorage, Storage
from sluicegate.storage.base import files_below

HOSTILE = ["", "/", "/a", "a/", "a//b", ".", "..", "a/../b", "../a", "a\nb", "a\0b", "x" * 256]


class StorageContract:
    """Of an empty storage, given by the fixture `storage`."""

    @pytest.fixture
    def storage(self) -> Storage:
        raise NotImplementedError

    def test_what_was_put_can_be_got(self, storage: Storage) -> None:
        assert storage.put_if_absent("a/b/c", b"one")
        assert storage.get("a/b/c") == b"one"
        storage.replace("a/b/c", b"two")
        assert storage.get("a/b/c") == b"two"
        with storage.open("a/b/c") as stream:
            assert stream.read() == b"two"

    def test_content_can_come_in_pieces(self, storage: Storage) -> None:
        assert storage.put_if_absent("a", (bytes([n]) * 1000 for n in range(5)))
        assert storage.get("a") == b"".join(bytes([n]) * 1000 for n in range(5))

    def test_who_comes_second_changes_nothing(self, storage: Storage) -> None:
        assert storage.put_if_absent("a", b"first")
        assert not storage.put_if_absent("a", b"second")
        assert storage.get("a") == b"first"

    def test_of_racing_writers_exactly_one_creates(self, storage: Storage) -> None:
        start = threading.Barrier(8)

        def write(number: int) -> bool:
            start.wait()
            return storage.put_if_absent("dir/a", b"%d" % number)

        for _ in range(10):
            with ThreadPoolExecutor(8) as pool:
                won = list(pool.map(write, range(8)))
            assert won.count(True) == 1
            assert storage.get("dir/a") == b"%d" % won.index(True)
            storage.delete("dir/a")

    def test_readers_see_the_old_or_the_new(self, storage: Storage) -> None:
        contents = [bytes([n]) * 20_000 for n in range(4)]
        storage.replace("a", contents[0])
        stop = threading.Event()

        def write() -> None:
            number = 0
            while not stop.is_set():
                number += 1
                storage.replace("a", contents[number % 4])

        with ThreadPoolExecutor(1) as pool:
            done = pool.submit(write)
            seen = {storage.get("a") for _ in range(200)}
            stop.set()
            done.result()
        assert seen <= set(contents)

    def test_an_open_stream_keeps_its_content(self, storage: Storage) -> None:
        storage.put_if_absent("a", b"old")
        with storage.open("a") as stream:
            storage.replace("a", b"new")
            assert stream.read() == b"old"
        with storage.open("a") as stream:
            storage.delete("a")
            assert stream.read() == b"new"

    def test_reads_are_limited(self, storage: Storage) -> None:
        storage.put_if_absent("a", bytes(101))
        assert len(storage.get("a", limit=101)) == 101
        with pytest.raises(Corrupt, match="larger than the 100 bytes"):
            storage.get("a", limit=100)

    @pytest.mark.parametrize("directory", ["", "dir/"])
    def test_replace_keeps_and_drops_names_beside_it(
        self, storage: Storage, directory: str
    ) -> None:
        storage.put_if_absent(f"{directory}old", b"0")
        storage.replace(f"{directory}a", b"1", keep_as="a.1", drop=("old", "never"))
        assert storage.get(f"{directory}a") == storage.get(f"{directory}a.1") == b"1"
        assert storage.stat(f"{directory}old") is None
        storage.replace(f"{directory}a", b"2", keep_as="a.2")
        assert [storage.get(f"{directory}a.{n}") for n in (1, 2)] == [b"1", b"2"]

    @pytest.mark.parametrize("name", ["a", "../b", "x/y", ""])
    def test_those_names_are_beside_it(self, storage: Storage, name: str) -> None:
        storage.put_if_absent("dir/a", b"1")
        with pytest.raises(InvalidName):
            storage.replace("dir/a", b"2", keep_as=name)
        with pytest.raises(InvalidName):
            storage.replace("dir/a", b"2", drop=(name,))
        assert storage.get("dir/a") == b"1"

    def test_a_second_name_has_the_content_of_then(self, storage: Storage) -> None:
        storage.put_if_absent("a", b"1")
        storage.link("a", "kept/a")
        storage.replace("a", b"2")
        assert (storage.get("a"), storage.get("kept/a")) == (b"2", b"1")
        with pytest.raises(StorageFailed):
            storage.link("a", "kept/a")
        storage.link("a", "kept/a", replace=True)
        assert storage.get("kept/a") == b"2"
        storage.delete("a")
        assert storage.get("kept/a") == b"2"
        with pytest.raises(NotFound):
            storage.link("a", "b")

    def test_files_and_directories_are_moved(self, storage: Storage) -> None:
        storage.put_if_absent("a/b/one", b"1")
        storage.put_if_absent("a/two", b"2")
        assert storage.move("a", "c/d")
        assert [storage.get(k) for k in ("c/d/b/one", "c/d/two")] == [b"1", b"2"]
        assert storage.stat("a/two") is None
        assert not storage.move("a", "e")
        assert storage.move("c/d/two", "two")
        with pytest.raises(StorageFailed):
            storage.move("two", "c/d/b/one")
        assert (storage.get("two"), storage.get("c/d/b/one")) == (b"2", b"1")

    def test_a_move_can_demand_the_directory(self, storage: Storage) -> None:
        """A directory that was renamed away is not made again."""
        storage.put_if_absent("a", b"1")
        storage.put_if_absent("own/claim", b"")
        storage.move("own", "fenced")
        with pytest.raises(NotFound):
            storage.move("a", "own/a", create=False)
        assert storage.get("a") == b"1"
        assert storage.stat("own") is None
        assert storage.move("a", "fenced/a", create=False)
        assert storage.get("fenced/a") == b"1"

    def test_delete_says_whether_there_was_anything(self, storage: Storage) -> None:
        storage.put_if_absent("a/b", b"1")
        assert storage.delete("a/b")
        assert not storage.delete("a/b")
        assert not storage.delete("no/such")

    def test_delete_all_takes_what_is_below_and_nothing_else(self, storage: Storage) -> None:
        for key in ("a/1", "a/b/2", "ab", "c"):
            storage.put_if_absent(key, b"")
        storage.delete_all("a")
        storage.delete_all("no")
        assert list(files_below(storage, "")) == ["ab", "c"]

    def test_list_is_sorted_and_tells_kinds(self, storage: Storage) -> None:
        for key in ("b", "a/x", "a/y/z", "C"):
            storage.put_if_absent(key, b"")
        found = [Entry("C", "file"), Entry("a", "directory"), Entry("b", "file")]
        assert storage.list() == found
        assert storage.list("a") == [Entry("x", "file"), Entry("y", "directory")]
        assert storage.list(temporary=True) == []
        with pytest.raises(NotFound):
            storage.list("no")

    def test_list_gives_sizes_and_times_if_asked(self, storage: Storage) -> None:
        storage.put_if_absent("d/a", b"123")
        storage.put_if_absent("d/b/c", b"")
        file, directory = storage.list("d", sizes=True)
        found = storage.stat("d/a")
        assert found
        assert (file.size, file.modified_ns) == (found.size, found.modified_ns)
        assert (file.name, directory.name, directory.kind) == ("a", "b", "directory")

    def test_stat(self, storage: Storage) -> None:
        storage.put_if_absent("a/b", b"123")
        file, directory = storage.stat("a/b"), storage.stat("a")
        assert file
        assert directory
        assert (file.kind, file.size, directory.kind) == ("file", 3, "directory")
        assert file.modified_ns > 10**18
        assert storage.stat("c") is None
        assert storage.stat("c/d") is None

    def test_what_is_not_there_is_named(self, storage: Storage) -> None:
        for read in (storage.get, storage.open, storage.sync):
            with pytest.raises(NotFound, match="no/such") as caught:
                read("no/such")
            assert caught.value.place == f"{storage.uri}/no/such"

    def test_a_directory_is_no_file(self, storage: Storage) -> None:
        storage.put_if_absent("a/b", b"")
        with pytest.raises(SluicegateError):
            storage.get("a")
        with pytest.raises(SluicegateError):
            storage.replace("a", b"")
        assert storage.get("a/b") == b""

    @pytest.mark.parametrize("key", HOSTILE, ids=ascii)
    def test_no_key_leads_out(self, storage: Storage, key: str) -> None:
        for call in (storage.get, storage.stat, storage.delete, storage.delete_all, storage.lock):
            with pytest.raises(InvalidName):
                call(key)
        with pytest.raises(InvalidName):
            storage.put_if_absent(key, b"")
        assert storage.list() == []

    @pytest.mark.parametrize("name", ["a b", "注文", "é", "a:b", "a%2Fb", "x" * 200, "=", "-"])
    def test_names_are_kept_as_they_are(self, storage: Storage, name: str) -> None:
        storage.put_if_absent(f"d/{name}", b"1")
        assert storage.list("d") == [Entry(name, "file")]
        assert storage.get(f"d/{name}") == b"1"

    def test_read_only_refuses_every_change(self, storage: Storage) -> None:
        storage.put_if_absent("a", b"1")
        closed = ReadOnlyStorage(storage)
        assert (closed.read_only, storage.read_only) == (True, False)
        assert (closed.uri, closed.spellings()) == (storage.uri, storage.spellings())
        assert closed.capabilities == storage.capabilities
        changes: list[Callable[[], object]] = [
            lambda: closed.put_if_absent("b", b""),
            lambda: closed.replace("a", b""),
            lambda: closed.link("a", "b"),
            lambda: closed.move("a", "b"),
            lambda: closed.delete("a"),
            lambda: closed.delete_all("a"),
            lambda: closed.sync("a"),
        ]
        for change in changes:
            with pytest.raises(ReadOnlyViolation):
                change()
        assert [closed.get(entry.name) for entry in closed.list()] == [b"1"]

    def test_a_lock_excludes(self, storage: Storage) -> None:
        lock, same = storage.lock("locks/a.lock"), storage.lock("locks/a.lock")
        assert not lock.is_held()
        assert not lock.was_held()
        assert storage.list() == []
        with lock.hold():
            assert same.is_held()
            assert same.was_held()
            assert [holder.mode for holder in same.holders()] == ["exclusive"]
            with pytest.raises(Locked), same.hold(timeout=0):
                pass
            with storage.lock("locks/b.lock").hold(timeout=0):
                pass
        shared = LockMode.SHARED
        with same.hold(shared, timeout=0), lock.hold(shared, timeout=0), pytest.raises(Locked):
            lock.remove()
        assert not lock.is_held()
        with lock.hold(timeout=0), pytest.raises(Locked):
            same.remove()
        lock.remove()
        assert not same.was_held()

    def test_locks_in_turn(self, storage: Storage) -> None:
        lock = storage.lock("a.lock")
        with lock.hold_in_turn(LockMode.SHARED), lock.hold_in_turn(LockMode.SHARED):
            assert lock.is_held()
        with lock.hold_in_turn(LockMode.EXCLUSIVE):
            assert lock.is_held()
        assert not lock.is_held()
