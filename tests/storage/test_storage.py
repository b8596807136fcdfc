from __future__ import annotations

import multiprocessing
import os
import stat
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as some

from sluicegate.errors import (
    Corrupt,
    InvalidName,
    NotFound,
    ReadOnlyViolation,
    SluicegateError,
    StorageFailed,
    UnsupportedFormat,
    UsageError,
)
from sluicegate.storage import (
    Entry,
    LocalStorage,
    ReadOnlyStorage,
    local_root,
    open_storage,
    split_key,
    validate_name,
)

SPAWN = multiprocessing.get_context("spawn")


@pytest.fixture
def storage(tmp_path: Path) -> LocalStorage:
    return LocalStorage.create(tmp_path / "store")


def test_what_was_put_can_be_got(storage: LocalStorage) -> None:
    assert storage.put_if_absent("a/b/c", b"one")
    assert storage.get("a/b/c") == b"one"
    storage.replace("a/b/c", b"two")
    assert storage.get("a/b/c") == b"two"


def test_put_if_absent_keeps_the_first(storage: LocalStorage) -> None:
    assert storage.put_if_absent("a", b"first")
    assert not storage.put_if_absent("a", b"second")
    assert storage.get("a") == b"first"


def test_no_temporary_file_is_left(storage: LocalStorage, tmp_path: Path) -> None:
    storage.put_if_absent("a", b"1")
    storage.put_if_absent("a", b"2")
    storage.replace("a", b"3")
    assert os.listdir(tmp_path / "store") == ["a"]


def test_temporary_files_of_dead_writers_are_listed_apart(
    storage: LocalStorage, tmp_path: Path
) -> None:
    storage.put_if_absent("a", b"1")
    (tmp_path / "store" / ".sg-00.tmp").write_bytes(b"half")
    assert storage.list() == [Entry("a", "file")]
    assert storage.list(temporary=True) == [Entry(".sg-00.tmp", "file")]


def test_delete_says_whether_there_was_anything(storage: LocalStorage) -> None:
    storage.put_if_absent("a", b"1")
    assert storage.delete("a")
    assert not storage.delete("a")
    assert not storage.delete("no/such/directory")


def test_list_is_sorted_and_tells_kinds(storage: LocalStorage, tmp_path: Path) -> None:
    storage.put_if_absent("z", b"")
    storage.put_if_absent("d/x", b"")
    os.symlink("z", tmp_path / "store" / "link")
    assert storage.list() == [
        Entry("d", "directory"),
        Entry("link", "other"),
        Entry("z", "file"),
    ]


def test_stat(storage: LocalStorage) -> None:
    storage.put_if_absent("d/x", b"abc")
    found = storage.stat("d/x")
    assert found is not None
    assert (found.kind, found.size) == ("file", 3)
    assert storage.stat("d/y") is None
    directory = storage.stat("d")
    assert directory is not None
    assert directory.kind == "directory"


def test_a_missing_file_is_not_found_and_named(storage: LocalStorage) -> None:
    with pytest.raises(NotFound, match="store/a/b does not exist"):
        storage.get("a/b")
    with pytest.raises(NotFound):
        storage.list("nowhere")


def test_a_missing_root_is_never_made_in_passing(tmp_path: Path) -> None:
    storage = LocalStorage(tmp_path / "unmounted")
    with pytest.raises(NotFound):
        storage.put_if_absent("a", b"1")
    assert not (tmp_path / "unmounted").exists()


def test_reads_are_limited(storage: LocalStorage) -> None:
    storage.put_if_absent("a", b"x" * 11)
    assert len(storage.get("a", limit=11)) == 11
    with pytest.raises(Corrupt, match="larger than the 10 bytes"):
        storage.get("a", limit=10)


def test_an_open_stream_keeps_its_content(storage: LocalStorage) -> None:
    storage.put_if_absent("a", b"old content")
    with storage.open("a") as stream:
        assert stream.read(3) == b"old"
        storage.replace("a", b"new content")
        assert stream.read() == b" content"


def test_replace_keeps_the_permissions(storage: LocalStorage, tmp_path: Path) -> None:
    storage.put_if_absent("secret", b"1")
    path = tmp_path / "store" / "secret"
    path.chmod(0o600)
    storage.replace("secret", b"2")
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


class TestLinks:
    """Nothing inside the storage may lead out of it."""

    @pytest.fixture
    def outside(self, tmp_path: Path) -> Path:
        outside = tmp_path / "outside"
        outside.mkdir()
        (outside / "file").write_bytes(b"outside")
        return outside

    @pytest.mark.parametrize("operation", ["get", "put_if_absent", "replace", "delete", "sync"])
    def test_a_linked_directory_is_not_entered(
        self, storage: LocalStorage, tmp_path: Path, outside: Path, operation: str
    ) -> None:
        os.symlink(outside, tmp_path / "store" / "way-out")
        arguments = (b"new",) if operation in ("put_if_absent", "replace") else ()
        with pytest.raises(StorageFailed, match="symbolic link"):
            getattr(storage, operation)("way-out/file", *arguments)
        assert (outside / "file").read_bytes() == b"outside"

    def test_a_linked_file_is_not_read(
        self, storage: LocalStorage, tmp_path: Path, outside: Path
    ) -> None:
        os.symlink(outside / "file", tmp_path / "store" / "file")
        with pytest.raises(StorageFailed, match="symbolic link"):
            storage.get("file")

    def test_replacing_a_link_replaces_the_link(
        self, storage: LocalStorage, tmp_path: Path, outside: Path
    ) -> None:
        os.symlink(outside / "file", tmp_path / "store" / "file")
        storage.replace("file", b"inside")
        assert (outside / "file").read_bytes() == b"outside"
        assert storage.get("file") == b"inside"

    def test_the_root_itself_may_be_a_link(self, storage: LocalStorage, tmp_path: Path) -> None:
        storage.put_if_absent("a", b"1")
        os.symlink(tmp_path / "store", tmp_path / "alias")
        assert LocalStorage(tmp_path / "alias").get("a") == b"1"


def test_a_named_pipe_is_refused_and_does_not_hang(storage: LocalStorage, tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "store" / "pipe")
    with pytest.raises(StorageFailed, match="not a regular file"):
        storage.get("pipe")


def test_a_file_where_a_directory_belongs(storage: LocalStorage) -> None:
    storage.put_if_absent("a", b"1")
    with pytest.raises(StorageFailed, match="a/b: not a directory"):
        storage.put_if_absent("a/b", b"2")


def test_missing_permission_is_reported() -> None:
    # In a process of its own that drops root, which may write everywhere.
    code = """
import os, sys, pathlib
root = pathlib.Path(sys.argv[1])
from sluicegate.errors import StorageFailed
from sluicegate.storage import LocalStorage
if os.geteuid() == 0:
    os.setgid(65534), os.setuid(65534)
for attempt in (lambda s: s.put_if_absent("a", b"1"), lambda s: s.get("closed")):
    try:
        attempt(LocalStorage(root))
    except StorageFailed as e:
        assert e.message.endswith(": permission denied"), e.message
    else:
        raise AssertionError("not refused")
"""
    with tempfile.TemporaryDirectory() as directory:
        closed = Path(directory) / "closed"
        closed.write_bytes(b"secret")
        closed.chmod(0)
        Path(directory).chmod(0o555)
        subprocess.run([sys.executable, "-c", code, directory], check=True)
        Path(directory).chmod(0o755)


def test_a_full_disk_is_reported_and_leaves_nothing(tmp_path: Path) -> None:
    mount = tmp_path / "small"
    mount.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=64k", "tmpfs", str(mount)],
        capture_output=True,
        check=False,
    )
    if mounted.returncode != 0:
        pytest.skip("may not mount a small tmpfs here")
    try:
        storage = LocalStorage(mount)
        storage.replace("a", b"before")
        with pytest.raises(StorageFailed, match="no space left to write"):
            storage.replace("a", b"x" * 200_000)
        assert storage.get("a") == b"before"
        assert os.listdir(mount) == ["a"]
    finally:
        subprocess.run(["umount", str(mount)], check=True)


def _race(root: str, number: int, ready: object, results: object) -> None:
    storage = LocalStorage(Path(root))
    won = []
    for turn in range(50):
        ready.wait()  # type: ignore[attr-defined]
        won.append(storage.put_if_absent(f"race/{turn}", f"{number}".encode()))
    results.put((number, won))  # type: ignore[attr-defined]


def test_of_racing_processes_exactly_one_creates(storage: LocalStorage, tmp_path: Path) -> None:
    contenders = 4
    ready = SPAWN.Barrier(contenders)
    results = SPAWN.Queue()
    processes = [
        SPAWN.Process(target=_race, args=(str(tmp_path / "store"), n, ready, results))
        for n in range(contenders)
    ]
    for process in processes:
        process.start()
    answers = dict(results.get(timeout=60) for _ in processes)
    for process in processes:
        process.join(timeout=60)
    for turn in range(50):
        winners = [n for n in range(contenders) if answers[n][turn]]
        assert len(winners) == 1
        assert storage.get(f"race/{turn}") == f"{winners[0]}".encode()


def test_concurrent_writers_make_one_directory(storage: LocalStorage) -> None:
    import threading

    failures: list[BaseException] = []

    def write(n: int) -> None:
        try:
            storage.put_if_absent(f"deep/er/{n}", b"x")
        except BaseException as e:  # noqa: BLE001
            failures.append(e)

    threads = [threading.Thread(target=write, args=(n,)) for n in range(16)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []
    assert len(storage.list("deep/er")) == 16


class TestReadOnly:
    def test_reading_goes_through(self, storage: LocalStorage) -> None:
        storage.put_if_absent("d/a", b"1")
        view = ReadOnlyStorage(storage)
        assert view.get("d/a") == b"1"
        assert view.list("d") == [Entry("a", "file")]
        assert view.stat("d/a") == storage.stat("d/a")
        assert view.local_path("d/a") == storage.local_path("d/a")
        assert view.uri == storage.uri
        with view.open("d/a") as stream:
            assert stream.read() == b"1"

    def test_writing_is_refused_and_changes_nothing(self, storage: LocalStorage) -> None:
        storage.put_if_absent("a", b"1")
        view = ReadOnlyStorage(storage)
        for write in (
            lambda: view.put_if_absent("b", b"2"),
            lambda: view.replace("a", b"2"),
            lambda: view.delete("a"),
            lambda: view.sync("a"),
        ):
            with pytest.raises(ReadOnlyViolation):
                write()
        assert storage.list() == [Entry("a", "file")]
        assert storage.get("a") == b"1"


HOSTILE = [
    "", ".", "..", "a/b", "a\\b", "../x", "a\0b", "a\nb", "a\x1b[2J", "\u202eabc", "-rf", ".hidden",
    " a", "a ", "x" * 201, "é" * 101, "\udcff",
]  # fmt: skip


@pytest.mark.parametrize("name", HOSTILE, ids=ascii)
def test_hostile_names_are_refused(name: str) -> None:
    with pytest.raises(InvalidName) as caught:
        validate_name(name, "stream")
    assert caught.value.message.isprintable()


@pytest.mark.parametrize("name", ["orders", "a.b-c_d", "Bestellungen für Köln", "注文", "x" * 200])
def test_ordinary_names_are_accepted(name: str) -> None:
    assert validate_name(name) == name


@pytest.mark.parametrize(
    "key", ["", "/etc/passwd", "a//b", "a/", "../x", "a/../b", "./a", "a\0b", "a/\n", "x" * 256]
)
def test_keys_that_could_leave_are_refused(storage: LocalStorage, key: str) -> None:
    with pytest.raises(InvalidName):
        storage.put_if_absent(key, b"")


@given(some.text(max_size=40))
def test_no_key_escapes(key: str) -> None:
    try:
        parts = split_key(key)
    except InvalidName:
        return
    assert os.path.normpath(os.path.join("/root", *parts)) == "/root/" + "/".join(parts)


class TestUris:
    @pytest.mark.parametrize(
        ("uri", "path"),
        [
            ("/a/b", "/a/b"),
            ("a/b", "a/b"),
            ("file:///a/b%20c", "/a/b c"),
            ("file:/a/b", "/a/b"),
            ("file://localhost/a", "/a"),
            ("FILE:/a", "/a"),
            ("a:b", "a:b"),
        ],
    )
    def test_local(self, uri: str, path: str) -> None:
        assert local_root(uri) == Path(path)

    def test_home_directory(self) -> None:
        assert local_root("~/x") == Path.home() / "x"

    @pytest.mark.parametrize("uri", ["s3a://bucket/x", "hdfs://nn:8020/x", "gs://b/x"])
    def test_other_schemes_are_named(self, uri: str) -> None:
        with pytest.raises(UnsupportedFormat, match=uri.split(":", maxsplit=1)[0]):
            open_storage(uri)

    @pytest.mark.parametrize("uri", ["", "file://server/x", "file:x", "a\0b", "~no-such-user/x"])
    def test_nonsense(self, uri: str) -> None:
        with pytest.raises(UsageError):
            local_root(uri)

    def test_read_only(self, tmp_path: Path) -> None:
        with pytest.raises(ReadOnlyViolation):
            open_storage(str(tmp_path), read_only=True).put_if_absent("a", b"")


@given(some.text(min_size=1, max_size=30), some.binary(max_size=100))
def test_any_name_is_stored_or_refused_with_our_error(
    tmp_path_factory: pytest.TempPathFactory, key: str, data: bytes
) -> None:
    storage = LocalStorage(tmp_path_factory.mktemp("names"))
    try:
        storage.put_if_absent(key, data)
    except SluicegateError:
        return
    assert storage.get(key) == data


def test_replacing_a_link_does_not_take_its_mode(storage: LocalStorage, tmp_path: Path) -> None:
    os.symlink("nowhere", tmp_path / "store" / "a")
    storage.replace("a", b"1")
    assert stat.S_IMODE((tmp_path / "store" / "a").stat().st_mode) & 0o111 == 0


@pytest.mark.skipif(os.geteuid() != 0, reason="only root may give files away")
def test_replacing_keeps_the_owner(storage: LocalStorage, tmp_path: Path) -> None:
    storage.put_if_absent("a", b"1")
    path = tmp_path / "store" / "a"
    os.chown(path, 1000, 1000)
    path.chmod(0o640)
    storage.replace("a", b"2")
    found = path.stat()
    assert (found.st_uid, found.st_gid, stat.S_IMODE(found.st_mode)) == (1000, 1000, 0o640)


def test_stat_does_not_follow_links(storage: LocalStorage, tmp_path: Path) -> None:
    storage.put_if_absent("real", b"12345")
    os.symlink("real", tmp_path / "store" / "link")
    found = storage.stat("link")
    assert found is not None
    assert found.kind == "other"


def test_no_descriptor_is_left_open(storage: LocalStorage) -> None:
    storage.put_if_absent("d/e/a", b"1")
    before = len(os.listdir("/proc/self/fd"))
    for _ in range(5):
        storage.replace("d/e/a", b"2")
        storage.put_if_absent("d/e/a", b"2")
        storage.get("d/e/a"), storage.stat("d/e/a"), storage.list("d")
        storage.sync("d/e/a")
        for wrong in ("d", "d/e/a/b", "x/y"):
            with pytest.raises(SluicegateError):
                storage.get(wrong)
    assert len(os.listdir("/proc/self/fd")) == before


def test_names_of_unfinished_files_are_refused(storage: LocalStorage) -> None:
    with pytest.raises(InvalidName, match="temporary file"):
        storage.put_if_absent("d/.sg-0123.tmp", b"")


@pytest.mark.skipif(not Path("/proc/self/mem").exists(), reason="needs a file that cannot be read")
def test_a_read_error_names_the_file() -> None:
    with pytest.raises(StorageFailed, match="mem: input/output error"):
        LocalStorage(Path("/proc/self")).get("mem")
