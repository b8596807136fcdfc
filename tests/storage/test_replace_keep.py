"""`replace` that also keeps the new content under a second name, and drops a third."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from sluicegate.errors import InvalidName, ReadOnlyViolation, SluicegateError, StorageFailed
from sluicegate.storage import LocalStorage, ReadOnlyStorage
from tests.support.faults import Aftermath, Disk, cut_points

OLD, NEW, STALE = b"the old content", b"the new content, which is longer", b"of a dead writer"
HOSTILE = [
    "", ".", "..", "x/y", "../x", "/x", "d/x", "a\0b", "a\nb", ".sg-0123.tmp", "x" * 256, "x/",
]  # fmt: skip


@pytest.fixture
def storage(tmp_path: Path) -> LocalStorage:
    return LocalStorage.create(tmp_path / "store")


def content(root: Path) -> dict[str, bytes]:
    found = (path for path in root.rglob("*") if path.is_file())
    return {str(path.relative_to(root)): path.read_bytes() for path in found}


@pytest.mark.parametrize("directory", ["", "d/", "d/e/"])
def test_both_names_have_the_same_content(storage: LocalStorage, directory: str) -> None:
    storage.replace(f"{directory}a", NEW, keep_as="a.1")
    assert storage.get(f"{directory}a") == storage.get(f"{directory}a.1") == NEW
    storage.replace(f"{directory}a", OLD, keep_as="a.2")
    assert storage.get(f"{directory}a") == storage.get(f"{directory}a.2") == OLD
    assert storage.get(f"{directory}a.1") == NEW, "what is kept does not change with the key"


def test_a_stale_file_under_the_second_name_is_replaced(
    storage: LocalStorage, tmp_path: Path
) -> None:
    storage.replace("a", OLD)
    storage.replace("a.2", STALE)
    storage.replace("a", NEW, keep_as="a.2")
    assert content(tmp_path / "store") == {"a": NEW, "a.2": NEW}


def test_a_link_under_the_second_name_is_replaced_and_not_followed(
    storage: LocalStorage, tmp_path: Path
) -> None:
    (tmp_path / "outside").write_bytes(STALE)
    (tmp_path / "store" / "a.2").symlink_to(tmp_path / "outside")
    storage.replace("a", NEW, keep_as="a.2")
    assert (tmp_path / "outside").read_bytes() == STALE
    assert storage.get("a.2") == NEW


def test_what_is_to_be_dropped_goes_away(storage: LocalStorage, tmp_path: Path) -> None:
    for name in ("a", "a.1", "b"):
        storage.replace(name, OLD)
    storage.replace("a", NEW, keep_as="a.2", drop=("a.1",))
    assert content(tmp_path / "store") == {"a": NEW, "a.2": NEW, "b": OLD}


def test_several_can_be_dropped(storage: LocalStorage, tmp_path: Path) -> None:
    for name in ("a.1", "a.3", "b"):
        storage.replace(name, OLD)
    storage.replace("a", NEW, drop=("a.1", "a.2", "a.3"))
    assert content(tmp_path / "store") == {"a": NEW, "b": OLD}


def test_what_is_not_there_need_not_be_dropped(storage: LocalStorage, tmp_path: Path) -> None:
    storage.replace("a", NEW, drop=("a.1",))
    storage.replace("d/a", NEW, keep_as="a.2", drop=("a.1",))
    assert content(tmp_path / "store") == {"a": NEW, "d/a": NEW, "d/a.2": NEW}


def test_names_are_those_of_the_keys_own_directory(storage: LocalStorage, tmp_path: Path) -> None:
    storage.replace("a.1", OLD)
    storage.replace("d/a.1", OLD)
    storage.replace("d/a", NEW, drop=("a.1",))
    assert content(tmp_path / "store") == {"a.1": OLD, "d/a": NEW}


def test_no_temporary_file_is_left(storage: LocalStorage) -> None:
    storage.replace("a", NEW, keep_as="a.1")
    storage.replace("a", NEW, keep_as="a.1", drop=("a.0",))
    assert storage.list(temporary=True) == []


def replace(storage: LocalStorage, key: str, argument: str, name: str) -> None:
    """Replace with one of the two other names."""
    if argument == "keep_as":
        storage.replace(key, NEW, keep_as=name)
    else:
        storage.replace(key, NEW, drop=("gone", name))


@pytest.mark.parametrize("argument", ["keep_as", "drop"])
@pytest.mark.parametrize("name", HOSTILE, ids=lambda name: ascii(name[:20]))
def test_hostile_names_are_refused_before_anything_happens(
    storage: LocalStorage, tmp_path: Path, argument: str, name: str
) -> None:
    for key in ("a", "d/x", "x/y"):
        storage.replace(key, OLD)
    before = content(tmp_path / "store")
    with pytest.raises(InvalidName):
        replace(storage, "a", argument, name)
    assert content(tmp_path / "store") == before


@pytest.mark.parametrize("argument", ["keep_as", "drop"])
def test_the_keys_own_name_as_one_of_the_others_does_not_cost_the_key(
    storage: LocalStorage, argument: str
) -> None:
    storage.replace("a", OLD)
    try:
        replace(storage, "a", argument, "a")
    except SluicegateError:
        assert storage.get("a") == OLD
    else:
        assert storage.get("a") == NEW


def test_read_only_storage_refuses_it(storage: LocalStorage, tmp_path: Path) -> None:
    storage.replace("a", OLD)
    storage.replace("a.1", OLD)
    with pytest.raises(ReadOnlyViolation):
        ReadOnlyStorage(storage).replace("a", NEW, keep_as="a.2", drop=("a.1",))
    assert content(tmp_path / "store") == {"a": OLD, "a.1": OLD}


def test_it_costs_no_further_fsync(tmp_path: Path) -> None:
    LocalStorage(tmp_path).replace("a.1", OLD)
    process = Disk(tmp_path).process()
    LocalStorage(tmp_path, calls=process).replace("a", NEW, keep_as="a.2", drop=("a.1",))
    assert process.made == [
        "create temporary",
        "write first half",
        "write second half",
        "fsync file",
        "rename a",
        "link a.2",
        "unlink a.1",
        "fsync directory",
    ]


@pytest.mark.parametrize("stale", [False, True], ids=["fresh", "stale"])
def test_the_key_is_before_or_after_at_every_cut(tmp_path: Path, stale: bool) -> None:
    def prepare(storage: LocalStorage) -> None:
        storage.replace("d/a", OLD, keep_as="a.1")
        if stale:
            storage.replace("d/a.2", STALE)

    def act(storage: LocalStorage) -> None:
        storage.replace("d/a", NEW, keep_as="a.2", drop=("a.1",))

    seen = set()
    for cut in cut_points(tmp_path, prepare, act):
        found = content(cut.root)
        finished = {name: data for name, data in found.items() if not name.startswith("d/.sg-")}
        key = finished["d/a"]
        assert key in (OLD, NEW), cut
        # Each of the other two is complete or absent, whatever happened to the key.
        assert finished.get("d/a.1") in (None, OLD), cut
        assert finished.get("d/a.2") in (None, NEW, STALE), cut
        assert stale or finished.get("d/a.2") != STALE
        if cut.acknowledged:
            assert finished == {"d/a": NEW, "d/a.2": NEW}, cut
        if cut.aftermath is Aftermath.POWER_LOSS and not cut.acknowledged:
            assert key == OLD, cut
            assert finished["d/a.1"] == OLD, cut
        seen.add((cut.aftermath, key))
    assert len(seen) >= 5, "both outcomes must occur"


def test_the_first_of_a_key_is_all_or_nothing_at_every_cut(tmp_path: Path) -> None:
    def act(storage: LocalStorage) -> None:
        storage.replace("a", NEW, keep_as="a.1", drop=("a.0",))

    for cut in cut_points(tmp_path, lambda _: None, act):
        found = content(cut.root)
        assert found.get("a") in (None, NEW), cut
        assert found.get("a.1") in (None, NEW), cut
        assert not cut.acknowledged or found == {"a": NEW, "a.1": NEW}, cut


@pytest.mark.parametrize("call", ["link a.2", "unlink a.1", "fsync directory"])
def test_a_call_that_fails_is_reported_and_leaves_the_key_intact(tmp_path: Path, call: str) -> None:
    for name in ("a", "a.1"):
        LocalStorage(tmp_path).replace(name, OLD)

    def fail(_at: int, made: str) -> None:
        if made == call:
            raise OSError(errno.EIO, "Input/output error")

    process = Disk(tmp_path).process(fail)
    with pytest.raises(StorageFailed, match="input/output error"):
        LocalStorage(tmp_path, calls=process).replace("a", NEW, keep_as="a.2", drop=("a.1",))
    assert LocalStorage(tmp_path).get("a") == NEW
    assert LocalStorage(tmp_path).list(temporary=True) == []
    LocalStorage(tmp_path).replace("a", NEW, keep_as="a.2", drop=("a.1",))
    assert content(tmp_path) == {"a": NEW, "a.2": NEW}


def test_a_directory_under_the_second_name_is_reported(
    storage: LocalStorage, tmp_path: Path
) -> None:
    (tmp_path / "store" / "a.2").mkdir()
    with pytest.raises(StorageFailed):
        storage.replace("a", NEW, keep_as="a.2")
    assert (tmp_path / "store" / "a.2").is_dir()


def test_no_descriptor_is_left_open(storage: LocalStorage) -> None:
    storage.replace("d/a", OLD)
    before = len(os.listdir("/proc/self/fd"))
    for _ in range(5):
        storage.replace("d/a", NEW, keep_as="b", drop=("c",))
        with pytest.raises(InvalidName):
            storage.replace("d/a", NEW, keep_as="..")
    assert len(os.listdir("/proc/self/fd")) == before
