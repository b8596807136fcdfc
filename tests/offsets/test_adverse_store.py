"""Offset stores under adversity: hostile names, damaged files, refused writes, full disks, signals.

Whatever happens, a consumer finds its last durable positions or an error, never a guess.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import struct
import subprocess
import sys
import time
import zlib
from collections.abc import Callable, Iterator
from hashlib import blake2b
from pathlib import Path

import pytest

from sluicegate.errors import Corrupt, InvalidName, SluicegateError, StorageFailed
from sluicegate.offsets import LockFileOffsetStore, MemoryOffsetStore, StoreDamaged
from sluicegate.positions import MAX_OFFSET, Position, Positions, PositionsInvalid
from tests.cli.terminal import Terminal
from tests.conftest import Sg
from tests.offsets.test_commands import (
    SECOND,
    TEN,
    contents,
    make_store,
    positions_of,
    record,
    write_record,
)

SCRIPT = Path(sys.executable).with_name("sluicegate")
EVIL = "a\x1b[2J\x1b]0;owned\x07\t\n\u202e"
# Gives up what lets root ignore permissions, and becomes the command.
OBEDIENT = """
import ctypes, os, sys
for capability in (1, 2):
    ctypes.CDLL(None).prctl(24, capability, 0, 0, 0)
os.execv(sys.argv[1], sys.argv[1:])
"""


@pytest.fixture
def store(tmp_path: Path) -> Path:
    return make_store(tmp_path / "st")


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 128 KiB."""
    place = tmp_path / "disk"
    place.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=128k", "tmpfs", str(place)]
    done = subprocess.run(mount, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        pytest.skip(f"mounting is not permitted here: {done.stderr.strip()}")
    try:
        yield place
    finally:
        subprocess.run(["umount", "--lazy", str(place)], check=True)


def sg_obedient(*arguments: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    """`sluicegate ARGS…` as a user to whom permissions apply."""
    return subprocess.run(
        [sys.executable, "-c", OBEDIENT, str(SCRIPT), *arguments],
        cwd=cwd,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


def replace_file(path: Path, data: bytes) -> None:
    """New content in a file of its own: kept records may be other names of the old one."""
    path.unlink(missing_ok=True)
    path.write_bytes(data)


def fill(disk: Path) -> Path:
    """Use up all space; returns the file to remove."""
    filler = disk / "filler"
    with filler.open("wb", buffering=0) as stream:
        try:
            while True:
                stream.write(b"\0" * 1024)
        except OSError:
            pass
    return filler


def shown(result: subprocess.CompletedProcess[str]) -> str:
    return result.stdout + result.stderr


class TestConsumerNames:
    REFUSED = (
        "../x", "a/b", "/x", "", ".", "..", ".x", "-x", "a\tb", "a\nb", "a\x1b[2Jb", "a\x7f",
        "a\u202eb", " a", "a ", "x" * 300, "ü" * 101, "a\\b", "\udcff",
    )  # fmt: skip
    ACCEPTED = (
        "a b", "注文", "é", "x" * 200, "a.lock", "a.offsets", "sluicegate", "sluicegate.store",
        "a.00000000000000000001.version", "a@1", "~", "$(touch x)", "a;b", "'", "--", "a--b", "*",
    )  # fmt: skip

    @pytest.mark.parametrize("name", REFUSED)
    def test_the_library_refuses(self, store: Path, name: str) -> None:
        before = contents(store.parent)
        for found in (LockFileOffsetStore.open(str(store)), MemoryOffsetStore()):
            with pytest.raises(InvalidName):
                found.save(name, Position("t", 0, 1))
            with pytest.raises(InvalidName):
                found.load(name)
            with pytest.raises(InvalidName):
                found.delete(name)
        assert contents(store.parent) == before

    @pytest.mark.parametrize("name", ["../x", "", ".", "-x", "a\x1b[2Jb", "x" * 300])
    def test_the_commands_refuse(self, sg: Sg, store: Path, name: str) -> None:
        before = contents(store.parent)
        consumer = f"--consumer={name}"
        result = sg("offsets", "import", "./st", "-", consumer, "--yes", input="t 0 1")
        assert result.returncode == 2
        assert "consumer" in result.stderr
        assert "\x1b" not in shown(result)
        assert contents(store.parent) == before

    @pytest.mark.parametrize(
        "words",
        [
            ("offsets", "show", "./st"),
            ("offsets", "reset", "./st", "--to-offset", "1", "--yes"),
            ("offsets", "delete", "./st", "--all-topics", "--yes"),
            ("undo", "./st", "--yes"),
            ("history", "./st"),
        ],
        ids=lambda words: " ".join(words[:2]),
    )
    def test_none_of_them_leaves_the_store(
        self, sg: Sg, store: Path, words: tuple[str, ...]
    ) -> None:
        make_store(store.parent / "other")
        before = contents(store.parent)
        result = sg(*words, "--consumer=../other/mail")
        assert result.returncode in (2, 10)
        assert contents(store.parent) == before

    def test_all_others_are_kept_apart(self, sg: Sg, store: Path) -> None:
        found = LockFileOffsetStore.open(str(store))
        accepted = [name for name in self.ACCEPTED if not name.startswith("-")]
        for number, name in enumerate(accepted):
            found.save(name, Position("t", 0, number))
            found.save(name, Position("t", 0, number + 1))
        assert found.list() == sorted([*accepted, "billing", "mail"])
        for number, name in enumerate(accepted):
            assert positions_of(store, name) == {"t": {0: number + 1}}, name
        document = json.loads(sg("offsets", "show", "./st", "--json").stdout)
        assert [each["consumer"] for each in document["consumers"]] == found.list()
        assert not any(path.is_dir() for path in store.iterdir())

    @pytest.mark.parametrize("name", ["a b", "注文", "$(touch x)", "'"])
    def test_the_command_that_is_offered_can_be_typed(self, store: Path, name: str) -> None:
        write_record(store, record(name, 1, TEN, {"t": {0: 1}}))
        words = ("offsets", "reset", "./st", "--consumer", name, "--to-offset", "9", "--yes")
        code, text = Terminal(*words, cwd=store.parent, columns=300).finish_plain()
        assert code == 0
        offered = text.rpartition("Undo it with: sluicegate ")[2]
        line = f"'{SCRIPT}' {offered} --yes"
        subprocess.run(["bash", "-c", line], cwd=store.parent, check=True, capture_output=True)
        assert positions_of(store, name) == {"t": {0: 1}}
        assert sorted(os.listdir(store.parent)) == ["st"]


class TestTopicNames:
    def test_are_shown_harmlessly_everywhere(self, sg: Sg, store: Path) -> None:
        write_record(store, record("evil", 1, TEN, {EVIL: {0: 1}}))
        name = "a\\x1b[2J\\x1b]0;owned\\x07\\t\\n\\u202e"
        reset = ("offsets", "reset", "./st", "--consumer", "evil", "--to-offset", "9")
        code, text = Terminal(*reset, "--dry-run", "--no-color", cwd=store.parent).finish()
        assert code == 0
        assert "\x1b" not in text
        for words in (
            ("offsets", "show", "./st", "--consumer", "evil"),
            (*reset, "--dry-run"),
            (*reset, "--plan-out", "plan.json"),
            ("apply", "plan.json", "--dry-run"),
            (*reset, "--topic", "x"),
            (*reset, "--yes"),
            ("history", "./st", "--consumer", "evil"),
            ("undo", "./st", "--dry-run"),
        ):
            piped = shown(sg(*words))
            assert "\x1b" not in piped, words
            assert "\u202e" not in piped, words
            assert name in piped.replace("\\\\", "\\"), words

    def test_come_back_as_they_were(self, sg: Sg, store: Path) -> None:
        write_record(store, record("evil", 1, TEN, {EVIL: {0: 1}}))
        for form in ("spark", "csv"):
            words = ("offsets", "export", "./st", "--consumer", "evil", "--format", form)
            exported = sg(*words)
            assert exported.returncode == 0
            back = ("offsets", "import", "./st", "-", "--consumer", form, "--yes")
            assert sg(*back, input=exported.stdout).returncode == 0
            assert positions_of(store, form) == {EVIL: {0: 1}}
        refused = sg("offsets", "export", "./st", "--consumer", "evil", "--format", "rpk")
        assert refused.returncode == 2, "the error names the form that cannot hold it"


class TestPermissions:
    @pytest.fixture
    def closed(self, store: Path) -> Iterator[Path]:
        if os.geteuid() == 0 and not sys.platform.startswith("linux"):
            pytest.skip("root cannot be made to obey permissions here")
        for path in store.iterdir():
            path.chmod(0o444)
        store.chmod(0o555)
        yield store
        store.chmod(0o755)

    def test_what_may_only_be_read_is_read(self, closed: Path) -> None:
        root = closed.parent
        assert sg_obedient("offsets", "show", "./st", cwd=root).returncode == 0
        assert sg_obedient("history", "./st", cwd=root).returncode == 0
        words = ("offsets", "reset", "./st", "--consumer", "mail", "--to-offset", "1")
        assert sg_obedient(*words, "--dry-run", cwd=root).returncode == 0
        plan = sg_obedient(*words, "--plan-out", "plan.json", cwd=root)
        assert plan.returncode == 0

    def test_and_a_change_is_refused_in_words(self, closed: Path) -> None:
        before = contents(closed)
        for words in (
            ("offsets", "reset", "./st", "--consumer", "mail", "--to-offset", "1", "--yes"),
            ("offsets", "delete", "./st", "--consumer", "mail", "--all-topics", "--yes"),
            ("undo", "./st", "--op", "billing@2", "--yes"),
        ):
            result = sg_obedient(*words, cwd=closed.parent)
            assert result.returncode == 1
            assert "permission denied" in result.stderr
            assert "unexpected" not in result.stderr
        assert contents(closed) == before

    def test_a_file_that_may_not_be_read_is_a_finding(self, store: Path) -> None:
        (store / "mail.offsets").chmod(0)
        result = sg_obedient("offsets", "show", "./st", "--json", cwd=store.parent)
        document = json.loads(result.stdout)
        assert result.returncode == 3
        assert [each["consumer"] for each in document["consumers"]] == ["billing"]
        assert [f["code"] for f in document["findings"]] == ["SG-STORE-UNREADABLE"]
        assert "permission denied" in document["findings"][0]["detail"]

    def test_a_store_that_may_not_be_entered(self, store: Path) -> None:
        store.chmod(0)
        for words in (("offsets", "show", "./st"), ("status", "./st"), ("history", "./st")):
            result = sg_obedient(*words, cwd=store.parent)
            assert result.returncode in (1, 3)
            assert "permission denied" in shown(result)
        store.chmod(0o755)


class TestFullDisk:
    def test_a_commit(self, small_disk: Path) -> None:
        found = LockFileOffsetStore(LockFileOffsetStore.create(str(small_disk / "st")).storage)
        found.save("a", Position("t", 0, 1))
        found.save("a", Position("t", 0, 2))
        before = contents(small_disk / "st")
        filler = fill(small_disk)
        for consumer in ("a", "new"):
            with pytest.raises(StorageFailed, match="no space left") as caught:
                found.save(consumer, Position("t", 0, 3))
            assert "free some space" in caught.value.hint
        assert positions_of(small_disk / "st", "a") == {"t": {0: 2}}
        assert positions_of(small_disk / "st", "new") == {}
        left = contents(small_disk / "st")
        assert {name: left[name] for name in before if not name.endswith(".lock")} == {
            name: data for name, data in before.items() if not name.endswith(".lock")
        }
        assert not [name for name in left if name.endswith(".tmp")]
        filler.unlink()
        for consumer in ("a", "new"):
            found.save(consumer, Position("t", 0, 3))
            assert positions_of(small_disk / "st", consumer) == {"t": {0: 3}}

    def test_a_reset(self, sg: Sg, small_disk: Path) -> None:
        root = make_store(small_disk / "st")
        words = ("offsets", "reset", "disk/st", "--consumer", "mail", "--to-offset", "1", "--yes")
        filler = fill(small_disk)
        for again in (words, (*words, "--plan-out", "disk/plan.json")):
            result = sg(*again)
            assert result.returncode == 1
            assert "no space left to write" in result.stderr
            assert "free some space" in result.stderr
        assert sg("offsets", "show", "disk/st").returncode == 0
        assert positions_of(root, "mail") == {"orders": {0: 7}}
        assert len(LockFileOffsetStore.open(str(root)).kept("mail")) == 1
        assert not (small_disk / "plan.json").exists()
        filler.unlink()
        assert sg(*words).returncode == 0
        assert positions_of(root, "mail") == {"orders": {0: 1}}

    def test_a_restore(self, sg: Sg, small_disk: Path) -> None:
        root = make_store(small_disk / "st")
        damaged = (root / "mail.offsets").read_bytes()[:-1]
        replace_file(root / "mail.offsets", damaged)
        filler = fill(small_disk)
        words = ("undo", "disk/st", "--consumer", "mail", "--yes")
        assert sg(*words).returncode == 1
        assert (root / "mail.offsets").read_bytes() == damaged
        filler.unlink()
        assert sg(*words).returncode == 0
        assert positions_of(root, "mail") == {"orders": {0: 7}}


class TestForeignFiles:
    def test_temporary_files_of_killed_writers_are_ignored_and_noted(
        self, sg: Sg, store: Path
    ) -> None:
        temporary = store / ".sg-0123456789abcdef.tmp"
        temporary.write_bytes((store / "mail.offsets").read_bytes()[:100])
        os.utime(temporary, (time.time() - 3600,) * 2)
        for words in (("status", "./st"), ("offsets", "show", "./st")):
            result = sg(*words, "--json")
            document = json.loads(result.stdout)
            assert result.returncode == 0, "a note needs no action"
            (finding,) = document["findings"]
            assert (finding["code"], finding["severity"]) == ("SG-STORE-LEFTOVERS", "note")
        assert positions_of(store, "mail") == {"orders": {0: 7}}

    def test_what_is_not_ours_stays_and_does_not_matter(self, sg: Sg, store: Path) -> None:
        (store / "README").write_text("hands off")
        (store / "mail.offsets.bak").write_text("a copy")
        (store / "mail.offsets~").write_text("an editor's")
        (store / ".hidden.offsets").write_text("hidden")
        (store / "mail.1.version").write_text("not twenty digits")
        (store / "lost+found").mkdir()
        (store / "link").symlink_to("/etc/passwd")
        os.mkfifo(store / "pipe")
        before = sorted(os.listdir(store))
        document = json.loads(sg("offsets", "show", "./st", "--json").stdout)
        assert document["findings"] == []
        assert [each["consumer"] for each in document["consumers"]] == ["billing", "mail"]
        assert sg("history", "./st").returncode == 0
        words = ("offsets", "reset", "./st", "--consumer", "mail", "--to-offset", "1", "--yes")
        assert sg(*words).returncode == 0
        assert set(before) < set(os.listdir(store))

    def test_a_link_in_place_of_a_lock_is_not_followed(self, sg: Sg, store: Path) -> None:
        outside = store.parent / "outside"
        outside.write_text("mine")
        (store / "mail.lock").symlink_to(outside)
        words = ("offsets", "reset", "./st", "--consumer", "mail", "--to-offset", "1", "--yes")
        assert sg(*words).returncode == 1
        sg("locks", "break", "st/mail.lock", "--yes")
        assert outside.read_text() == "mine"
        assert positions_of(store, "mail") == {"orders": {0: 7}}


def cut(data: bytes) -> bytes:
    return data[: len(data) // 2]


def flip(data: bytes) -> bytes:
    return data[:-1] + bytes([data[-1] ^ 1])


def newer(data: bytes) -> bytes:
    """The same record as if a later release had written it in its own format."""
    head = data[:16] + struct.pack("<I", 2) + data[20:28]
    head += struct.pack("<I", zlib.crc32(head))
    return head + blake2b(head + data[64:], digest_size=32).digest() + data[64:]


class TestDamage:
    @pytest.mark.parametrize(
        "change",
        [lambda _: b"", cut, flip, lambda data: data + b"\0", lambda data: b"\0" * len(data)],
        ids=["empty", "cut", "flipped", "longer", "zeros"],
    )
    def test_is_found_and_never_guessed_around(
        self, sg: Sg, store: Path, change: Callable[[bytes], bytes]
    ) -> None:
        damaged = change((store / "mail.offsets").read_bytes())
        replace_file(store / "mail.offsets", damaged)
        found = LockFileOffsetStore.open(str(store))
        with pytest.raises(StoreDamaged):
            found.load("mail")
        with pytest.raises(StoreDamaged):
            found.save("mail", Position("orders", 0, 9))
        assert (store / "mail.offsets").read_bytes() == damaged
        assert found.load("billing"), "the other consumer goes on"
        result = sg("offsets", "export", "./st", "--consumer", "mail")
        assert result.returncode == 12
        assert "sluicegate undo st --consumer mail" in result.stderr
        assert sg("undo", "./st", "--consumer", "mail", "--yes").returncode == 0
        assert positions_of(store, "mail") == {"orders": {0: 7}}
        (aside,) = store.glob("mail.*.damaged")
        assert aside.read_bytes() == damaged

    def test_of_any_byte_is_noticed(self, store: Path) -> None:
        path = store / "mail.offsets"
        intact = path.read_bytes()
        assert len(intact) < 1024
        for at in range(len(intact)):
            replace_file(path, intact[:at] + bytes([intact[at] ^ (1 << at % 8)]) + intact[at + 1 :])
            with pytest.raises(StoreDamaged):
                LockFileOffsetStore.open(str(store)).load("mail")

    def test_of_any_length_is_noticed(self, store: Path) -> None:
        path = store / "mail.offsets"
        intact = path.read_bytes()
        for length in range(len(intact)):
            replace_file(path, intact[:length])
            with pytest.raises(StoreDamaged):
                LockFileOffsetStore.open(str(store)).load("mail")

    def test_files_that_were_swapped(self, sg: Sg, store: Path) -> None:
        mail, billing = ((store / f"{name}.offsets").read_bytes() for name in ("mail", "billing"))
        replace_file(store / "mail.offsets", billing)
        replace_file(store / "billing.offsets", mail)
        result = sg("offsets", "show", "./st", "--json")
        document = json.loads(result.stdout)
        assert (result.returncode, document["consumers"]) == (3, [])
        assert [finding["code"] for finding in document["findings"]] == ["SG-STORE-DAMAGED"] * 2
        assert (
            "holds the positions of another consumer, 'mail'" in (document["findings"][0]["detail"])
        )
        for name in ("mail", "billing"):
            assert sg("undo", "./st", "--consumer", name, "--yes").returncode == 0
        assert positions_of(store, "billing") == SECOND
        assert positions_of(store, "mail") == {"orders": {0: 7}}

    def test_a_directory_a_link_or_a_pipe_in_its_place(self, sg: Sg, store: Path) -> None:
        path = store / "mail.offsets"
        aside = store.parent / "aside"
        path.rename(aside)
        makers: tuple[Callable[[], object], ...] = (
            path.mkdir,
            lambda: path.symlink_to(aside),
            lambda: path.symlink_to("nowhere"),
            lambda: os.mkfifo(path),
        )
        for make in makers:
            make()
            found = LockFileOffsetStore.open(str(store))
            with pytest.raises(SluicegateError):
                found.load("mail")
            with pytest.raises(SluicegateError):
                found.save("mail", Position("orders", 0, 9))
            result = sg("offsets", "show", "./st", "--json")
            document = json.loads(result.stdout)
            assert result.returncode == 3
            assert [each["consumer"] for each in document["consumers"]] == ["billing"]
            assert [f["place"] for f in document["findings"]] == ["st/mail.offsets"]
            if path.is_dir() and not path.is_symlink():
                path.rmdir()
            else:
                path.unlink()
        aside.rename(path)
        assert positions_of(store, "mail") == {"orders": {0: 7}}

    def test_a_newer_format_is_left_alone(self, sg: Sg, store: Path) -> None:
        path = store / "mail.offsets"
        data = newer(path.read_bytes())
        replace_file(path, data)
        for words in (
            ("offsets", "export", "./st", "--consumer", "mail"),
            ("offsets", "reset", "./st", "--consumer", "mail", "--to-offset", "1", "--yes"),
            ("offsets", "import", "./st", "-", "--consumer", "mail", "--yes"),
            ("undo", "./st", "--consumer", "mail", "--yes"),
        ):
            result = sg(*words, input="orders 0 1")
            assert path.read_bytes() == data, words
            assert result.returncode == 14, words
            assert "format version 2" in result.stderr
            assert "upgrade" in result.stderr
        assert sg("offsets", "show", "./st").returncode == 3

    def test_a_missing_file_is_not_a_new_consumer(self, sg: Sg, store: Path) -> None:
        (store / "billing.offsets").unlink()
        found = LockFileOffsetStore.open(str(store))
        with pytest.raises(StoreDamaged, match="missing although older records are kept"):
            found.load("billing")
        with pytest.raises(StoreDamaged):
            found.save("billing", Position("orders", 0, 9))
        words = ("offsets", "import", "./st", "-", "--consumer", "billing", "--yes")
        refused = sg(*words, input="orders 0 1")
        assert refused.returncode == 12
        assert "sluicegate undo st --consumer billing" in refused.stderr
        assert not (store / "billing.offsets").exists()
        shows = sg("offsets", "show", "./st", "--json")
        assert shows.returncode == 3
        assert json.loads(shows.stdout)["findings"][0]["code"] == "SG-STORE-DAMAGED"
        assert sg("undo", "./st", "--consumer", "billing", "--yes").returncode == 0
        assert positions_of(store, "billing") == SECOND

    def test_damaged_kept_records_are_passed_over(self, sg: Sg, store: Path) -> None:
        for name in ("billing.offsets", "billing.00000000000000000002.version"):
            replace_file(store / name, flip((store / name).read_bytes()))
        assert "record 1 of " in sg("undo", "./st", "--consumer", "billing", "--dry-run").stdout
        assert sg("undo", "./st", "--consumer", "billing", "--yes").returncode == 0
        assert positions_of(store, "billing")["orders"] == {0: 100, 1: 200}
        assert sg("history", "./st").returncode == 0

    def test_when_nothing_can_be_read_the_advice_works(self, sg: Sg, store: Path) -> None:
        replace_file(store / "mail.offsets", b"")
        (store / "mail.00000000000000000001.version").unlink()
        result = sg("undo", "./st", "--consumer", "mail", "--yes")
        assert result.returncode == 12
        assert "no older record of it can be read" in result.stderr
        assert f"{store}/mail.* away" in result.stderr
        for path in store.glob("mail.*"):
            path.rename(store.parent / path.name)
        words = ("offsets", "import", str(store), "-", "--consumer", "mail", "--yes")
        assert sg(*words, input="orders 0 7").returncode == 0
        assert positions_of(store, "mail") == {"orders": {0: 7}}


class TestGone:
    COMMANDS = (
        ("offsets", "show", "./st"),
        ("offsets", "reset", "./st", "--consumer", "mail", "--to-offset", "1", "--yes"),
        ("offsets", "import", "./st", "-", "--consumer", "mail", "--yes"),
        ("history", "./st"),
        ("undo", "./st", "--yes"),
    )

    @pytest.mark.parametrize("words", COMMANDS, ids=lambda words: " ".join(words[:2]))
    def test_a_store_that_is_not_there_is_not_made(
        self, sg: Sg, store: Path, words: tuple[str, ...]
    ) -> None:
        shutil.rmtree(store)
        result = sg(*words, input="orders 0 1")
        assert result.returncode == 10
        assert "st does not exist" in result.stderr
        assert not store.exists()

    @pytest.mark.parametrize("words", COMMANDS, ids=lambda words: " ".join(words[:2]))
    def test_a_store_without_its_marker_is_none(
        self, sg: Sg, store: Path, words: tuple[str, ...]
    ) -> None:
        (store / "sluicegate.store").unlink()
        before = contents(store)
        result = sg(*words, input="orders 0 1")
        assert result.returncode == 10
        assert "sluicegate.store does not exist" in result.stderr
        assert "mount its disk" in result.stderr
        assert "sluicegate init --store" in result.stderr
        assert contents(store) == before

    def test_a_disk_that_is_not_mounted(self, sg: Sg, store: Path) -> None:
        """The mount point is there and empty; the configuration names what should be there."""
        shutil.rmtree(store)
        store.mkdir()
        (store.parent / "sluicegate.toml").write_text('[targets.shop]\noffsets = "st"\n')
        result = sg("offsets", "show", "shop")
        assert result.returncode == 10
        assert "mount its disk" in result.stderr
        assert sg("status").returncode == 3
        assert list(store.iterdir()) == []

    def test_a_running_consumer_notices(self, store: Path) -> None:
        found = LockFileOffsetStore.open(str(store))
        assert found.load("mail")
        aside = store.with_name("aside")
        store.rename(aside)
        with pytest.raises(SluicegateError):
            found.load("mail")
        store.mkdir()
        for consumer in ("mail", "new"):
            with pytest.raises(SluicegateError):
                found.load(consumer)
            with pytest.raises(SluicegateError):
                found.save(consumer, Position("t", 0, 1))
        assert not [path for path in store.iterdir() if path.suffix != ".lock"]

    def test_a_new_marker_finds_the_old_consumers(self, sg: Sg, store: Path) -> None:
        (store / "sluicegate.store").unlink()
        assert sg("init", "--store", "st", "--yes").returncode == 0
        assert positions_of(store, "billing") == SECOND


class TestSignals:
    RESET = ("offsets", "reset", "./st", "--consumer", "mail", "--to-offset", "1")

    @pytest.mark.parametrize(
        ("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)], ids=["INT", "TERM"]
    )
    @pytest.mark.parametrize(
        "words", [RESET, ("undo", "./st", "--op", "mail@1")], ids=["reset", "undo"]
    )
    def test_at_the_question_nothing_was_changed(
        self, store: Path, words: tuple[str, ...], number: signal.Signals, code: int
    ) -> None:
        before = contents(store)
        terminal = Terminal(*words, cwd=store.parent)
        terminal.process.expect_exact("Proceed? [y/N] ")
        terminal.process.kill(number)
        found, text = terminal.finish_plain()
        assert found == code
        assert "Traceback" not in text
        assert contents(store) == before

    def test_ctrl_c_is_a_no(self, store: Path) -> None:
        terminal = Terminal(*self.RESET, cwd=store.parent)
        terminal.process.expect_exact("Proceed? [y/N] ")
        terminal.process.sendintr()
        assert terminal.finish_plain()[0] == 130
        assert positions_of(store, "mail") == {"orders": {0: 7}}

    def test_while_it_waits_for_a_lock(self, store: Path) -> None:
        with LockFileOffsetStore.open(str(store)).lock("mail").hold():
            process = subprocess.Popen(
                [SCRIPT, *self.RESET, "--yes"],
                cwd=store.parent,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                text=True,
            )
            time.sleep(1.5)
            process.terminate()
            out, errors = process.communicate(timeout=30)
        assert (process.returncode, out) == (143, "")
        assert "Traceback" not in errors
        assert positions_of(store, "mail") == {"orders": {0: 7}}


class TestNumbers:
    @pytest.mark.parametrize("offset", [MAX_OFFSET + 1, 2**64 - 1, 2**64, 10**30, -1])
    def test_the_library_refuses_what_is_no_offset(self, store: Path, offset: int) -> None:
        found = LockFileOffsetStore.open(str(store))
        with pytest.raises(PositionsInvalid):
            found.save("mail", Position("orders", 0, offset))
        with pytest.raises(PositionsInvalid):
            found.save_many("mail", Positions({"orders": {0: offset}}))
        assert positions_of(store, "mail") == {"orders": {0: 7}}

    @pytest.mark.parametrize("offset", [str(MAX_OFFSET + 1), str(10**30), "-1", "1e3", "0x10", ""])
    def test_so_do_the_commands(self, sg: Sg, store: Path, offset: str) -> None:
        options = ("--consumer", "mail", "--yes")
        reset = sg("offsets", "reset", "./st", *options, f"--to-offset={offset}")
        assert reset.returncode == 2
        imported = sg("offsets", "import", "./st", "-", *options, input=f"orders,0,{offset}")
        assert imported.returncode == 2
        assert positions_of(store, "mail") == {"orders": {0: 7}}

    def test_the_largest_is_one(self, sg: Sg, store: Path) -> None:
        words = ("offsets", "reset", "./st", "--consumer", "mail", "--yes")
        assert sg(*words, "--to-offset", str(MAX_OFFSET)).returncode == 0
        assert sg(*words, "--shift-by", "1").returncode == 2
        assert positions_of(store, "mail") == {"orders": {0: MAX_OFFSET}}

    @pytest.mark.parametrize(
        "data",
        [
            b'{"t":{"0":' + b"9" * 5000 + b"}}",
            b'{"t":{"0":9223372036854775808}}',
            b'{"t":{"0":-1}}',
            b'{"t":{"0":1.0}}',
            b'{"t":{"0":1},"t":{"0":2}}',
            b'{"t":{"-1":1}}',
            b'{"t":[1]}',
            b'{"t":{"0":1}',
            b'{"a":' * 9999,
            b"t,2147483648,1",
            b"t,0,1\nt,0,2",
            b't,0,"1',
            b"t 0",
            b"\xff\xfet,0,1",
            b"PK\x03\x04\x00\x00\x00",
            "t 0 ٣".encode(),
            b'{"":{"0":1}}',
            b'{"' + b"t" * 5000 + b'":{"0":1}}',
        ],
        ids=range(18),
    )
    def test_files_that_hold_no_positions(self, sg: Sg, store: Path, data: bytes) -> None:
        (store.parent / "file").write_bytes(data)
        words = ("offsets", "import", "./st", "file", "--consumer", "mail", "--yes")
        result = sg(*words)
        assert result.returncode == 2, result.stderr
        assert result.stderr.startswith("sluicegate: error: file")
        assert "error: unexpected" not in result.stderr
        assert len(result.stderr) < 7000
        assert positions_of(store, "mail") == {"orders": {0: 7}}

    def test_a_file_of_100_megabytes_is_not_read(self, sg: Sg, store: Path) -> None:
        with (store.parent / "file").open("wb") as stream:
            stream.truncate(100 * 1024 * 1024)
        started = time.monotonic()
        words = ("offsets", "import", "./st", "--consumer", "mail", "--yes")
        result = sg(*words, "file")
        assert result.returncode == 2
        assert "67108864 bytes" in result.stderr
        with (store.parent / "file").open("rb") as stream:
            piped = subprocess.run(
                [SCRIPT, *words, "-"],
                stdin=stream,
                cwd=store.parent,
                capture_output=True,
                check=False,
            )
        assert piped.returncode == 2
        assert time.monotonic() - started < 20
        assert positions_of(store, "mail") == {"orders": {0: 7}}

    def test_a_record_cannot_hold_them_either(self, store: Path) -> None:
        bad = record("mail", 2, TEN, {"orders": {0: MAX_OFFSET + 1}})
        write_record(store, bad)
        with pytest.raises(Corrupt):
            LockFileOffsetStore.open(str(store)).load("mail")
