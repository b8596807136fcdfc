"""The fault layer must itself be trusted, so it is tested against storage that is wrong."""

from __future__ import annotations

import errno
import os
import shutil
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest

from sluicegate.errors import StorageFailed
from sluicegate.storage import LocalStorage
from sluicegate.storage.local import Calls
from tests.support.faults import Aftermath, Disk, Killed, Process, cut_points

OLD, NEW = b"the old content", b"the new content, which is longer"


def _put_old(storage: LocalStorage) -> None:
    storage.replace("d/a", OLD)


def test_replace_is_before_or_after_at_every_cut(tmp_path: Path) -> None:
    seen = set()
    for cut in cut_points(tmp_path, _put_old, lambda storage: storage.replace("d/a", NEW)):
        content = LocalStorage(cut.root).get("d/a")
        assert content in (OLD, NEW), cut
        if cut.acknowledged:
            assert content == NEW, cut
        seen.add((cut.aftermath, content))
    assert len(seen) >= 5, "both outcomes must occur"


def test_create_is_all_or_nothing_at_every_cut(tmp_path: Path) -> None:
    for cut in cut_points(
        tmp_path, lambda _: None, lambda storage: storage.put_if_absent("new/er/a", NEW)
    ):
        storage = LocalStorage(cut.root)
        there = storage.stat("new/er/a") is not None
        assert there or not cut.acknowledged, cut
        assert not there or storage.get("new/er/a") == NEW, cut


def test_delete_is_before_or_after_at_every_cut(tmp_path: Path) -> None:
    for cut in cut_points(tmp_path, _put_old, lambda storage: storage.delete("d/a")):
        storage = LocalStorage(cut.root)
        there = storage.stat("d/a") is not None
        assert not (there and cut.acknowledged), cut
        assert not there or storage.get("d/a") == OLD, cut


@pytest.mark.parametrize(("source", "key"), [("d/a", "new/er/b"), ("d", "new/er"), ("d/a", "d/b")])
def test_move_is_before_or_after_at_every_cut(tmp_path: Path, source: str, key: str) -> None:
    """For a file and for a directory; it is never in both places, or in none."""
    seen = set()
    for cut in cut_points(tmp_path, _put_old, lambda storage: storage.move(source, key)):
        storage = LocalStorage(cut.root)
        here, there = (storage.stat(each) is not None for each in (source, key))
        assert here != there, cut
        assert there or not cut.acknowledged, cut
        found = source if here else key
        assert storage.get(f"{found}/a" if source == "d" else found) == OLD, cut
        seen.add((cut.aftermath, here))
    assert len(seen) >= 5, "both outcomes must occur"


def test_what_a_move_needs(tmp_path: Path) -> None:
    storage = LocalStorage(tmp_path)
    _put_old(storage)
    storage.replace("b", NEW)
    assert not storage.move("nothing", "c")
    assert not storage.move("no/such", "c")
    for source, key in (("d/a", "b"), ("d", "b"), ("b", "d")):
        with pytest.raises(StorageFailed, match="already exists"):
            storage.move(source, key)
    assert (storage.get("d/a"), storage.get("b")) == (OLD, NEW)


def test_what_existed_already_is_durable_once_that_is_said(tmp_path: Path) -> None:
    """The loser of a race may rely on the winner's file, even if the winner dies now."""

    def kill(_at: int, call: str) -> None:
        if call == "fsync directory":
            raise Killed

    disk = Disk(tmp_path)
    with pytest.raises(Killed):
        LocalStorage(tmp_path, calls=disk.process(kill)).put_if_absent("a", NEW)
    assert not LocalStorage(tmp_path, calls=disk.process()).put_if_absent("a", OLD)
    disk.crash(Aftermath.POWER_LOSS)
    assert LocalStorage(tmp_path).get("a") == NEW


def test_sync_makes_foreign_files_durable(tmp_path: Path) -> None:
    def act(storage: LocalStorage) -> None:
        path = storage.local_path("d/e/spark-wrote-this")
        assert path is not None
        path.parent.mkdir(parents=True)
        path.write_bytes(NEW)
        storage.sync("d/e/spark-wrote-this")

    for cut in cut_points(tmp_path, lambda _: None, act, (Aftermath.POWER_LOSS,)):
        storage = LocalStorage(cut.root)
        if cut.acknowledged:
            assert storage.get("d/e/spark-wrote-this") == NEW


class _Forgetful(Process):
    """Storage with a defect: some fsyncs are left out."""

    leave_out = ""

    def sync(self, fd: int) -> None:
        is_directory = os.path.isdir(f"/proc/self/fd/{fd}")
        if self.leave_out != ("directory" if is_directory else "file"):
            super().sync(fd)


@pytest.mark.parametrize("leave_out", ["file", "directory"])
def test_a_forgotten_fsync_is_noticed(tmp_path: Path, leave_out: str) -> None:
    LocalStorage(tmp_path).replace("a", OLD)
    disk = Disk(tmp_path)
    process = _Forgetful(disk, None)
    process.leave_out = leave_out
    LocalStorage(tmp_path, calls=process).replace("a", NEW)
    assert (tmp_path / "a").read_bytes() == NEW
    disk.crash(Aftermath.POWER_LOSS)
    assert (tmp_path / "a").read_bytes() == (b"" if leave_out == "file" else OLD)


def test_writing_in_place_is_torn(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(OLD)
    outcomes = set()
    for seed in range(40):
        (tmp_path / "a").write_bytes(OLD)
        disk = Disk(tmp_path)
        (tmp_path / "a").write_bytes(NEW)
        disk.crash(Aftermath.TORN, seed)
        outcomes.add((tmp_path / "a").read_bytes())
    assert outcomes - {OLD, NEW, b""}, "a naive writer must be caught"


def test_the_dead_do_not_clean_up(tmp_path: Path) -> None:
    """A kill skips `finally`; the temporary file must stay behind."""
    left = {
        len(LocalStorage(cut.root).list(temporary=True))
        for cut in cut_points(
            tmp_path, lambda _: None, lambda s: s.replace("a", NEW), (Aftermath.KILL,)
        )
    }
    assert left == {0, 1}


def test_killed_cannot_be_swallowed(tmp_path: Path) -> None:
    def kill(_number: int, _call: str) -> None:
        raise Killed

    storage = LocalStorage(tmp_path, calls=Disk(tmp_path).process(kill))
    with pytest.raises(Killed):
        try:
            storage.replace("a", NEW)
        except Exception:  # noqa: BLE001
            pytest.fail("an ordinary handler survived the kill")
    with pytest.raises(Killed):
        storage.get("a")


@pytest.mark.parametrize("number", range(5))
def test_failing_calls_are_reported_and_leave_the_old_content(tmp_path: Path, number: int) -> None:
    LocalStorage(tmp_path).replace("a", OLD)

    def fail(at: int, _call: str) -> None:
        if at == number:
            raise OSError(errno.EIO, "Input/output error")

    process = Disk(tmp_path).process(fail)
    with pytest.raises(StorageFailed, match="input/output error"):
        LocalStorage(tmp_path, calls=process).replace("a", NEW)
    assert "rename" not in process.made[number - 1]
    assert LocalStorage(tmp_path).get("a") == OLD
    assert LocalStorage(tmp_path).list(temporary=True) == []


def test_a_failed_fsync_of_the_directory_is_not_an_acknowledgement(tmp_path: Path) -> None:
    def fail(_at: int, call: str) -> None:
        if call == "fsync directory":
            raise OSError(errno.EIO, "Input/output error")

    storage = LocalStorage(tmp_path, calls=Disk(tmp_path).process(fail))
    with pytest.raises(StorageFailed):
        storage.replace("a", NEW)


def test_a_second_actor_can_act_between_two_calls(tmp_path: Path) -> None:
    disk = Disk(tmp_path)
    other = LocalStorage(tmp_path, calls=disk.process())

    def intervene(_at: int, call: str) -> None:
        if call == "link a":
            other.put_if_absent("a", b"the other was faster")

    mine = LocalStorage(tmp_path, calls=disk.process(intervene))
    assert not mine.put_if_absent("a", b"mine")
    disk.crash(Aftermath.POWER_LOSS)
    assert LocalStorage(tmp_path).get("a") == b"the other was faster"


def test_the_calls_of_a_replace_are_the_least_that_is_safe(tmp_path: Path) -> None:
    LocalStorage(tmp_path).replace("a", OLD)
    process = Disk(tmp_path).process()
    LocalStorage(tmp_path, calls=process).replace("a", NEW)
    assert process.made == [
        "create temporary",
        "write first half",
        "write second half",
        "fsync file",
        "rename a",
        "fsync directory",
    ]


def test_real_calls_are_the_default(tmp_path: Path) -> None:
    assert type(LocalStorage(tmp_path)._calls) is Calls


class TestDirectoriesMadeByTheDead:
    """A directory may be the work of a writer that died before it fsynced the one above."""

    @staticmethod
    def killed_after_mkdir(disk: Disk, act: Callable[[LocalStorage], object]) -> None:
        made: list[str] = []

        def kill(_at: int, call: str) -> None:
            if made and call == "fsync directory":
                raise Killed
            if call.startswith("mkdir"):
                made.append(call)

        with pytest.raises(Killed):
            act(LocalStorage(disk.root, calls=disk.process(kill)))

    @pytest.mark.parametrize("write", ["put_if_absent", "replace"])
    def test_what_the_next_writer_acknowledges_survives(self, tmp_path: Path, write: str) -> None:
        disk = Disk(tmp_path)
        self.killed_after_mkdir(disk, lambda storage: storage.put_if_absent("d/e/a", OLD))
        getattr(LocalStorage(tmp_path, calls=disk.process()), write)("d/e/b", NEW)
        disk.crash(Aftermath.POWER_LOSS)
        assert LocalStorage(tmp_path).get("d/e/b") == NEW

    def test_a_known_directory_is_not_fsynced_again(self, tmp_path: Path) -> None:
        process = Disk(tmp_path).process()
        storage = LocalStorage(tmp_path, calls=process)
        storage.replace("d/a", OLD)
        before = len(process.made)
        storage.replace("d/a", NEW)
        assert process.made[before:].count("fsync directory") == 1

    def test_one_that_is_made_again_is_fsynced_again(self, tmp_path: Path) -> None:
        """It mostly has the number of the one that was removed."""
        disk = Disk(tmp_path)
        storage = LocalStorage(tmp_path, calls=disk.process())
        for content in (OLD, NEW):
            storage.replace("d/e/a", content)
            if content == OLD:
                shutil.rmtree(tmp_path / "d" / "e")
        disk.crash(Aftermath.POWER_LOSS)
        assert LocalStorage(tmp_path).get("d/e/a") == NEW

    def test_creating_the_root_is_durable(self, tmp_path: Path) -> None:
        disk = Disk(tmp_path)
        process = disk.process()
        LocalStorage.create(tmp_path / "x" / "y", calls=process)
        assert process.made == [
            f"mkdir {tmp_path}/x",
            "fsync directory",
            f"mkdir {tmp_path}/x/y",
            "fsync directory",
        ]
        again = disk.process()
        LocalStorage.create(tmp_path / "x" / "y", calls=again)
        assert again.made == ["fsync directory"], "its maker may have died before the fsync"


def test_a_delete_that_is_tried_again_is_durable(tmp_path: Path) -> None:
    LocalStorage(tmp_path).replace("a", OLD)
    disk = Disk(tmp_path)

    def fail(_at: int, call: str) -> None:
        if call == "fsync directory":
            raise OSError(errno.EIO, "Input/output error")

    with pytest.raises(StorageFailed):
        LocalStorage(tmp_path, calls=disk.process(fail)).delete("a")
    assert not LocalStorage(tmp_path, calls=disk.process()).delete("a")
    disk.crash(Aftermath.POWER_LOSS)
    assert LocalStorage(tmp_path).stat("a") is None


class TestTheModel:
    """What the disk forgets, and what it may keep, of names that were not fsynced."""

    def outcomes(self, tmp_path: Path, act: Callable[[LocalStorage], object]) -> set[str]:
        found = set()
        for seed in range(60):
            root = tmp_path / str(seed)
            root.mkdir()
            (root / "old").write_bytes(OLD)
            disk = Disk(root)

            def no_directory_fsync(_at: int, call: str) -> None:
                if call == "fsync directory":
                    raise Killed

            with suppress(Killed):
                act(LocalStorage(root, calls=disk.process(no_directory_fsync)))
            disk.crash(Aftermath.TORN, seed)
            visible = [e.name for e in LocalStorage(root).list()]
            found.add(",".join(visible))
        return found

    def test_a_torn_create_is_there_or_not(self, tmp_path: Path) -> None:
        assert self.outcomes(tmp_path, lambda s: s.put_if_absent("new", NEW)) == {"old", "new,old"}

    def test_a_torn_unlink_is_done_or_not(self, tmp_path: Path) -> None:
        assert self.outcomes(tmp_path, lambda s: s.delete("old")) == {"old", ""}

    def contents(self, tmp_path: Path, change: Callable[[int], object]) -> set[bytes]:
        """What may be left of a file that is changed and not fsynced."""
        found = set()
        for seed in range(60):
            (tmp_path / "a").write_bytes(b"durable")
            disk = Disk(tmp_path)
            fd = os.open(tmp_path / "a", os.O_WRONLY | os.O_APPEND)
            change(fd)
            os.close(fd)
            disk.crash(Aftermath.TORN, seed)
            found.add((tmp_path / "a").read_bytes())
        return found

    def test_what_was_fsynced_stays_when_a_file_grows(self, tmp_path: Path) -> None:
        found = self.contents(tmp_path, lambda fd: os.write(fd, b"more"))
        assert found == {b"durable" + b"more"[:n] for n in range(5)}

    def test_a_torn_truncate_is_done_or_not(self, tmp_path: Path) -> None:
        found = self.contents(tmp_path, lambda fd: os.ftruncate(fd, 3))
        assert found == {b"durable", b"dur"}

    def test_nothing_of_it_survives_a_power_loss(self, tmp_path: Path) -> None:
        (tmp_path / "old").write_bytes(OLD)
        disk = Disk(tmp_path)
        process = disk.process()
        directory = os.open(tmp_path, os.O_RDONLY)
        process.make_directory("d", directory)
        process.rename("old", "renamed", directory)
        os.close(directory)
        disk.crash(Aftermath.POWER_LOSS)
        assert [e.name for e in LocalStorage(tmp_path).list()] == ["old"]

    def test_reads_can_be_cut_too(self, tmp_path: Path) -> None:
        LocalStorage(tmp_path).replace("a", OLD)
        process = Disk(tmp_path).process()
        storage = LocalStorage(tmp_path, calls=process)
        storage.get("a"), storage.stat("a"), storage.list()
        assert process.made == ["read a", "stat a", "list"]

    def test_what_others_made_does_not_confuse_it(self, tmp_path: Path) -> None:
        disk = Disk(tmp_path)
        (tmp_path / "theirs").mkdir()
        (tmp_path / "link").symlink_to("theirs")
        LocalStorage(tmp_path, calls=disk.process()).replace("theirs/a", NEW)
        disk.crash(Aftermath.TORN, 3)
