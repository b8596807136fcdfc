"""Locks are tested between real processes, some of which are killed."""

from __future__ import annotations

import json
import multiprocessing
import os
import re
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from sluicegate.errors import Locked, StorageFailed
from sluicegate.locks import FileLock, LockMode, find_locks

HOLD = """
import pathlib, sys, time
from sluicegate.locks import FileLock, LockMode
with FileLock(pathlib.Path(sys.argv[1])).hold(LockMode(sys.argv[2])):
    print("held", flush=True)
    sys.stdin.read()
print("freed", flush=True)
"""
SHARED, EXCLUSIVE = LockMode.SHARED, LockMode.EXCLUSIVE


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "a.lock"


@contextmanager
def holder(path: Path, mode: LockMode = EXCLUSIVE) -> Iterator[subprocess.Popen[str]]:
    """Another process that holds the lock until its standard input is closed."""
    process = subprocess.Popen(
        [sys.executable, "-c", HOLD, str(path), mode.value],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdout
    assert process.stdout.readline() == "held\n"
    with process:
        try:
            yield process
        finally:
            process.kill()


def can_take(path: Path, mode: LockMode = EXCLUSIVE) -> bool:
    try:
        with FileLock(path).hold(mode, timeout=0):
            return True
    except Locked:
        return False


def test_an_exclusive_lock_excludes_other_processes(path: Path) -> None:
    with holder(path):
        assert not can_take(path, EXCLUSIVE)
        assert not can_take(path, SHARED)
    assert can_take(path)


def test_shared_locks_exclude_only_exclusive_ones(path: Path) -> None:
    with holder(path, SHARED), holder(path, SHARED):
        assert can_take(path, SHARED)
        assert not can_take(path, EXCLUSIVE)


def test_two_locks_in_one_process_exclude_each_other(path: Path) -> None:
    with FileLock(path).hold():
        assert not can_take(path)


def test_closing_another_descriptor_does_not_free_it(path: Path) -> None:
    """What lockf(3) gets wrong and flock(2) gets right."""
    with FileLock(path).hold():
        path.open("rb").close()
        assert not can_take(path)


def test_a_killed_holder_frees_the_lock(path: Path) -> None:
    with holder(path) as process:
        process.send_signal(signal.SIGKILL)
        process.wait()
        assert can_take(path)


def test_a_waiter_gets_it_when_the_holder_is_killed(path: Path) -> None:
    with holder(path) as process:
        threading.Timer(0.3, process.kill).start()
        with FileLock(path).hold(timeout=30):
            assert process.wait() == -signal.SIGKILL


def test_a_forked_child_does_not_keep_its_parents_lock(path: Path) -> None:
    code = (
        "import os, pathlib, sys, time\n"
        "from sluicegate.locks import FileLock\n"
        "with FileLock(pathlib.Path(sys.argv[1])).hold():\n"
        "    if os.fork() == 0:\n"
        "        print(os.getpid(), flush=True); time.sleep(60); os._exit(0)\n"
        "    time.sleep(60)\n"
    )
    parent = subprocess.Popen(
        [sys.executable, "-c", code, str(path)], stdout=subprocess.PIPE, text=True
    )
    assert parent.stdout
    child = int(parent.stdout.readline())
    try:
        assert not can_take(path)
        parent.kill()
        parent.wait()
        os.kill(child, 0)
        assert can_take(path), "the living child still holds the dead parent's lock"
    finally:
        parent.kill()
        os.kill(child, signal.SIGKILL)
        parent.stdout.close()
        parent.wait()


def test_a_forked_child_leaves_the_parents_note(path: Path) -> None:
    with FileLock(path).hold():
        child = os.fork()
        if child == 0:
            os._exit(0)
        os.waitpid(child, 0)
        assert not can_take(path)
        assert [h.who.pid for h in FileLock(path).holders()] == [os.getpid()]


def test_the_evidence_names_the_holder(path: Path) -> None:
    with holder(path) as process:
        with pytest.raises(Locked) as caught:
            FileLock(path).hold(timeout=0.2).__enter__()
        text = caught.value.message
        assert f"pid {process.pid}" in text
        assert "exclusive since 20" in text
        assert "that process is alive" in text
        assert "0.2 s" in text
        assert caught.value.exit_code == 11
        (found,) = FileLock(path).holders()
        assert (found.who.pid, found.mode) == (process.pid, "exclusive")
    assert FileLock(path).holders() == []


def test_all_shared_holders_are_shown(path: Path) -> None:
    with holder(path, SHARED) as one, holder(path, SHARED) as two:
        assert {h.who.pid for h in FileLock(path).holders()} == {one.pid, two.pid}


def test_the_note_of_a_killed_holder_is_not_believed(path: Path) -> None:
    with holder(path) as process:
        process.kill()
        process.wait()
    assert str(process.pid) in path.read_text(), "a kill leaves the note behind"
    assert FileLock(path).holders() == []
    with FileLock(path).hold():
        assert [h.who.pid for h in FileLock(path).holders()] == [os.getpid()]
    assert FileLock(path).holders() == []


def test_shared_notes_of_killed_holders_are_cleared(path: Path) -> None:
    directory = path.with_name("a.lock.holders")
    with holder(path, SHARED) as process:
        process.kill()
        process.wait()
    assert len(list(directory.iterdir())) == 1, "a kill leaves the note behind"
    assert FileLock(path).holders() == []
    with FileLock(path).hold():
        assert list(directory.iterdir()) == []


def test_the_note_of_a_killed_exclusive_holder_does_not_pass_for_a_shared_one(path: Path) -> None:
    with holder(path) as process:
        process.kill()
        process.wait()
    with holder(path, SHARED) as alive:
        assert [h.who.pid for h in FileLock(path).holders()] == [alive.pid]


def test_a_pid_that_is_another_process_now_is_reported(path: Path) -> None:
    with FileLock(path).hold():
        (mine,) = FileLock(path).holders()
        assert mine.who.process_state() == "that process is alive"
        note = path
        fields = json.loads(note.read_text())
        note.write_text(json.dumps(fields | {"started": "another boot/1"}))
        assert FileLock(path).holders()[0].who.process_state() == "that pid is another process"
        note.write_text(json.dumps(fields | {"pid": 2**22 + 1}))
        assert FileLock(path).holders()[0].who.process_state() == "that process is gone"
        note.write_text(json.dumps(fields | {"host": "elsewhere"}))
        assert FileLock(path).holders()[0].who.process_state() == "on another host"


@pytest.mark.parametrize(
    "note",
    [b"", b"{", b"[]", b"null", b'{"pid": 1}', b"\xff\xfe", b"x" * 100_000, b'"text"',
     b'{"user":1,"host":2,"pid":"x","started":3,"command":4,"since":"y","mode":5}'],
)  # fmt: skip
def test_damaged_notes_are_ignored(path: Path, note: bytes) -> None:
    with holder(path):
        path.write_bytes(note)
        assert FileLock(path).holders() == []
        with pytest.raises(Locked, match="left no note"):
            FileLock(path).hold(timeout=0).__enter__()


def test_the_command_in_the_note_has_no_options(path: Path) -> None:
    """Options may carry passwords."""
    code = HOLD.replace("sys.argv[1]", f"{str(path)!r}").replace("sys.argv[2]", "'exclusive'")
    script = path.with_name("job.py")
    script.write_text(code)
    with subprocess.Popen(
        [sys.executable, str(script), "run", "--password", "hunter2"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdout
        process.stdout.readline()
        (found,) = FileLock(path).holders()
        process.kill()
    assert found.who.command == "job.py run"


def test_time_out_is_kept(path: Path) -> None:
    with holder(path):
        started = time.monotonic()
        with pytest.raises(Locked):
            FileLock(path).hold(timeout=0.5).__enter__()
        assert time.monotonic() - started >= 0.5


def test_a_lock_file_removed_by_hand_does_not_let_two_in(path: Path) -> None:
    """A waiter on the removed file must end up on the new one."""
    with holder(path) as first:
        path.unlink()
        with holder(path):
            first.kill()
            first.wait()
            assert not can_take(path)


def test_the_lock_file_stays(path: Path) -> None:
    with FileLock(path).hold():
        before = path.stat().st_ino
    assert path.stat().st_ino == before


def test_looking_does_not_disturb_those_who_do_not_wait(path: Path) -> None:
    """Looking takes the lock for an instant; a zero time-out must outlast that."""
    stop = threading.Event()
    FileLock(path).hold().__enter__()

    def look() -> None:
        while not stop.is_set():
            FileLock(path).is_held()

    looker = threading.Thread(target=look)
    looker.start()
    try:
        assert all(can_take(path) for _ in range(200))
    finally:
        stop.set()
        looker.join()


def test_a_missing_directory_is_reported(tmp_path: Path) -> None:
    with pytest.raises(StorageFailed, match="no such file or directory"):
        FileLock(tmp_path / "no" / "a.lock").hold().__enter__()
    assert not FileLock(tmp_path / "no" / "a.lock").is_held()


def test_a_note_that_cannot_be_written_does_not_cost_the_lock(path: Path) -> None:
    path.with_name("a.lock.holders").write_text("a file where the directory belongs")
    with FileLock(path).hold(SHARED):
        assert not can_take(path)
    assert can_take(path)


def test_find_locks(tmp_path: Path) -> None:
    for name in ("b.lock", "x/a.lock"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        with FileLock(tmp_path / name).hold():
            pass
    (tmp_path / "c.txt").touch()
    assert [lock.path for lock in find_locks(tmp_path)] == [
        tmp_path / "b.lock",
        tmp_path / "x/a.lock",
    ]


def _count_up(path: str, counter: str, turns: int) -> None:
    for _ in range(turns):
        with FileLock(Path(path)).hold(timeout=60):
            value = int(Path(counter).read_text())
            Path(counter).write_text(str(value + 1))


def test_increments_under_the_lock_are_not_lost(path: Path, tmp_path: Path) -> None:
    counter = tmp_path / "counter"
    counter.write_text("0")
    spawn = multiprocessing.get_context("spawn")
    workers = [
        spawn.Process(target=_count_up, args=(str(path), str(counter), 100)) for _ in range(4)
    ]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join(timeout=120)
        assert worker.exitcode == 0
    assert counter.read_text() == "400"


def test_a_note_that_cannot_be_removed_does_not_keep_the_lock(path: Path) -> None:
    directory = path.with_name("a.lock.holders")
    with FileLock(path).hold(SHARED):
        for note in directory.iterdir():
            note.unlink()
        directory.rmdir()
        directory.write_text("a file in its place")
    assert can_take(path)


def test_lookers_do_not_take_each_other_for_holders(path: Path) -> None:
    with FileLock(path).hold():
        pass
    answers: list[bool] = []

    def look() -> None:
        answers.extend(FileLock(path).is_held() for _ in range(2000))

    lookers = [threading.Thread(target=look) for _ in range(2)]
    for looker in lookers:
        looker.start()
    for looker in lookers:
        looker.join()
    assert not any(answers)


def test_a_waiter_on_a_removed_file_does_not_get_in_beside_a_new_holder(path: Path) -> None:
    """It opened the old file; when that is freed, the lock it gets is worth nothing."""
    fd = os.open(path, os.O_RDWR | os.O_CREAT)
    try:
        path.unlink()
        with holder(path):
            assert not FileLock(path)._is_current(fd)
        assert not FileLock(path)._is_current(fd)
    finally:
        os.close(fd)


def test_time_out_is_not_overrun(path: Path) -> None:
    with holder(path):
        started = time.monotonic()
        with pytest.raises(Locked):
            FileLock(path).hold(timeout=0.3).__enter__()
        assert time.monotonic() - started < 3


def test_a_child_that_ends_normally_leaves_the_parents_note(path: Path) -> None:
    lock = FileLock(path)
    manager = lock.hold()
    manager.__enter__()
    child = os.fork()
    if child == 0:
        manager.__exit__(None, None, None)
        os._exit(0)
    os.waitpid(child, 0)
    assert [h.who.pid for h in lock.holders()] == [os.getpid()]
    manager.__exit__(None, None, None)


def test_a_zombie_is_gone(path: Path) -> None:
    child = subprocess.Popen([sys.executable, "-c", "pass"])
    time.sleep(0.5)
    with FileLock(path).hold():
        (mine,) = FileLock(path).holders()
        from dataclasses import replace

        assert replace(mine.who, pid=child.pid).process_state() == "that process is gone"
    child.wait()


def test_a_stale_note_is_not_taken_for_the_holder(path: Path) -> None:
    """A holder that could not write its note, after one that was killed."""
    with holder(path) as killed:
        killed.kill()
        killed.wait()
    text = path.read_text()
    with FileLock(path).hold():
        path.write_text(text)
        with pytest.raises(Locked, match="left no note"):
            FileLock(path).hold(timeout=0).__enter__()


@pytest.mark.parametrize("since", ["1e300", "Infinity", "NaN", "-1e18", "-1"])
def test_notes_with_impossible_times_are_ignored(path: Path, since: str) -> None:
    with holder(path):
        note = path
        note.write_text(re.sub(r'"since": [0-9.]+', f'"since": {since}', note.read_text()))
        assert FileLock(path).holders() == []
        note.write_text("[" * 60_000)
        assert FileLock(path).holders() == []


def test_a_linked_lock_file_is_not_opened(path: Path) -> None:
    target = path.with_name("elsewhere")
    target.touch()
    path.symlink_to(target)
    with pytest.raises(StorageFailed):
        FileLock(path).hold().__enter__()
    assert find_locks(path.parent) == []


def test_what_may_not_be_read_is_said() -> None:
    # In a process of its own that drops root.
    code = """
import os, sys, pathlib
root = pathlib.Path(sys.argv[1])
from sluicegate.errors import StorageFailed
from sluicegate.locks import FileLock, find_locks
import portalocker.portalocker
if os.geteuid() == 0:
    os.setgid(65534), os.setuid(65534)
for attempt in (lambda: FileLock(root / "a.lock").is_held(), lambda: find_locks(root)):
    try:
        attempt()
    except StorageFailed as e:
        assert "permission denied" in e.message, e.message
    else:
        raise AssertionError("not refused")
"""
    with tempfile.TemporaryDirectory() as directory:
        (Path(directory) / "a.lock").touch()
        (Path(directory) / "a.lock").chmod(0)
        (Path(directory) / "closed").mkdir(mode=0)
        Path(directory).chmod(0o755)
        subprocess.run([sys.executable, "-c", code, directory], check=True)
