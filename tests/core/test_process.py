"""The identity of a process, and whether it still runs; tested with real processes."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as some

from sluicegate.process import ALIVE, GONE, Who, myself

SHOW = """
import json, sys
from sluicegate.process import myself
print(json.dumps(myself().fields()), flush=True)
sys.stdin.read()
"""
FIELDS = {"user": "ann", "host": "h", "pid": 7, "started": "boot/1", "command": "sluicegate"}


@contextmanager
def another() -> Iterator[tuple[Who, subprocess.Popen[str]]]:
    """Another process, as it describes itself."""
    with subprocess.Popen(
        [sys.executable, "-c", SHOW], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout
        who = Who.from_fields(json.loads(process.stdout.readline()))
        assert who is not None
        try:
            yield who, process
        finally:
            process.kill()


def in_a_child(command: str, *arguments: str, **variables: str) -> Any:
    """The command that a process with these arguments records."""
    code = command + SHOW.replace("sys.stdin.read()", "")
    run = subprocess.run(
        [sys.executable, "-c", code, *arguments],
        env=os.environ | variables,
        capture_output=True,
        text=True,
        check=True,
    )
    return json.loads(run.stdout)


def test_this_process_is_alive_and_not_another() -> None:
    me = myself()
    assert (me.pid, me.host) == (os.getpid(), socket.gethostname())
    assert me.process_state() == ALIVE
    assert not me.is_another_living_process()
    assert myself() == me


def test_another_process_is_alive_until_it_is_killed() -> None:
    with another() as (who, process):
        assert who.pid == process.pid
        assert who.process_state() == ALIVE
        assert who.is_another_living_process()
        process.kill()
        process.wait()
        assert who.process_state() == GONE
        assert not who.is_another_living_process()


def test_a_zombie_is_gone() -> None:
    with another() as (who, process):
        process.kill()
        deadline = time.monotonic() + 10
        while who.process_state() != GONE and time.monotonic() < deadline:
            time.sleep(0.01)
        # No process has waited for it yet, so its entry still exists.
        assert Path(f"/proc/{process.pid}").exists()
        assert who.process_state() == GONE
        assert not who.is_another_living_process()


@pytest.mark.parametrize("started", ["", "another boot/1", "x"])
def test_a_later_process_with_the_same_pid_is_another(started: str) -> None:
    with another() as (who, _):
        older = replace(who, started=started)
        assert older.process_state() == "that pid is another process"
        assert not older.is_another_living_process()


def test_a_process_of_another_host_is_not_certainly_alive() -> None:
    with another() as (who, _):
        elsewhere = replace(who, host="elsewhere")
        assert elsewhere.process_state() == "on another host"
        assert not elsewhere.is_another_living_process()


@pytest.mark.parametrize("pid", [2**22 + 1, 2**31 - 1])
def test_a_pid_that_cannot_be_is_gone(pid: int) -> None:
    assert replace(myself(), pid=pid).process_state() == GONE


def test_a_program_with_brackets_in_its_name_is_seen(tmp_path: Path) -> None:
    """The name is in the middle of what the kernel shows, and may hold anything."""
    odd = tmp_path / "a) Z (b c"
    odd.symlink_to("/bin/sleep")
    with subprocess.Popen([str(odd), "60"]) as process:
        try:
            deadline = time.monotonic() + 10
            stat = Path(f"/proc/{process.pid}/stat")
            while "a) Z (b" not in stat.read_text() and time.monotonic() < deadline:
                time.sleep(0.01)
            who = replace(myself(), pid=process.pid)
            assert who.process_state() == "that pid is another process"
        finally:
            process.kill()


def test_a_forked_child_is_not_its_parent() -> None:
    parent = myself()
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        me = myself()
        shown = [me.fields(), me == parent, parent.is_another_living_process()]
        os.write(writing, json.dumps(shown).encode())
        os._exit(0)
    os.close(writing)
    with os.fdopen(reading, "rb") as stream:
        fields, is_parent, parent_lives = json.loads(stream.read())
    os.waitpid(child, 0)
    assert fields["pid"] == child
    assert (is_parent, parent_lives) == (False, True)
    assert Who.from_fields(fields) is not None
    assert myself() == parent


def test_the_user_is_the_account_and_not_a_variable() -> None:
    fields = in_a_child("", USER="mallory", LOGNAME="mallory", USERNAME="mallory")
    assert fields["user"] == myself().user != "mallory"


def test_an_account_without_a_name_is_its_number() -> None:
    if os.geteuid() != 0:
        pytest.skip("only root can be another user")
    # Imported before, because only its owner may read the project's directory.
    become = "import json, os, sluicegate.process; os.setgid(54321), os.setuid(54321)"
    fields = in_a_child(become)
    assert fields["user"] == "54321"


@pytest.mark.parametrize(
    ("arguments", "command"),
    [
        (["offsets", "reset"], "sg offsets reset"),
        (["offsets", "--token", "hunter2"], "sg offsets"),
        (["--password=hunter2"], "sg"),
        (["a", "b", "c", "d", "e"], "sg a b c d"),
    ],
)
def test_the_command_has_no_options(arguments: list[str], command: str) -> None:
    fields = in_a_child("import sys; sys.argv[0] = '/usr/bin/sg'\n", *arguments)
    assert fields["command"] == command


@pytest.mark.parametrize("argv", ["[]", "['']", "['-c']"])
def test_a_program_without_a_name_has_a_command_all_the_same(argv: str) -> None:
    assert in_a_child(f"import sys; sys.argv[:] = {argv}\n")["command"] in ("python", "-c")


def test_it_reads_as_one_line() -> None:
    assert str(Who(**FIELDS)) == "ann@h pid 7 (sluicegate)"  # type: ignore[arg-type]


def test_fields_round_trip() -> None:
    assert myself().fields().keys() == FIELDS.keys()
    assert Who.from_fields(myself().fields()) == myself()
    assert Who.from_fields(json.loads(json.dumps(FIELDS))) == Who(**FIELDS)  # type: ignore[arg-type]


def test_other_fields_do_not_matter() -> None:
    assert Who.from_fields(FIELDS | {"since": 1.5, "mode": "shared"}) == Who(**FIELDS)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "fields", [None, 1, "text", b"x", [], {}, [FIELDS], list(FIELDS.items()), set()], ids=repr
)
def test_what_is_no_map_of_fields(fields: Any) -> None:
    assert Who.from_fields(fields) is None


@pytest.mark.parametrize("missing", FIELDS)
def test_a_field_that_is_missing_or_of_another_type(missing: str) -> None:
    without = {name: value for name, value in FIELDS.items() if name != missing}
    assert Who.from_fields(without) is None
    wrongs: list[Any] = [None, 1.5, b"x", [], {}]
    for wrong in wrongs:
        assert Who.from_fields(without | {missing: wrong}) is None
    other = "7" if missing == "pid" else 7
    assert Who.from_fields(without | {missing: other}) is None


@pytest.mark.parametrize("pid", [0, -1, -(2**31), 2**31, 2**64, 10**30, True])
def test_what_is_no_pid(pid: int) -> None:
    """0 and below would mean process groups to kill(2)."""
    assert Who.from_fields(FIELDS | {"pid": pid}) is None


values = (
    some.none()
    | some.booleans()
    | some.integers()
    | some.floats()
    | some.text()
    | some.lists(some.text(), max_size=2)
)


@given(
    some.fixed_dictionaries({}, optional=dict.fromkeys(FIELDS, values)) | values,
)
def test_whatever_the_fields_are_it_is_a_process_or_none(fields: Any) -> None:
    who = Who.from_fields(fields)
    if who is not None:
        assert who.process_state()
        assert not who.is_another_living_process()
