"""The commands on offset stores: what they print per mode, their exit codes, what they change."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from sluicegate import saved_plan
from sluicegate.offsets import LockFileOffsetStore, Record, legacy
from sluicegate.offsets.journal import StoreJournal
from sluicegate.offsets.operations import Reset
from sluicegate.offsets.record import encode
from sluicegate.positions import Position, Positions
from sluicegate.process import Who
from sluicegate.reset import ResetSpec, Scenario, Scope
from sluicegate.storage import LocalStorage
from tests.cli.terminal import Terminal
from tests.conftest import Sg

By = dict[str, dict[int, int]]

SCRIPT = Path(sys.executable).with_name("sluicegate")
HOST = socket.gethostname()
# Of this host, where it can be seen that it is gone: no process started at "-".
WORKER = Who("app", HOST, 4242, "-", "consumer.py")
TEN = datetime(2024, 3, 1, 10, tzinfo=UTC)
FIRST: By = {"orders": {0: 100, 1: 200}, "returns": {0: 5}}
SECOND: By = {"orders": {0: 150, 1: 200}, "returns": {0: 5}}
BROKER = "The new positions are not checked against the broker or log: its range is not known here."
AGAIN = "Their effects happen again unless the consumer recognises events it has seen."


def record(
    consumer: str, sequence: int, at: datetime, positions: By, before: By | None = None
) -> Record:
    """A commit that a consumer, gone since, made at a certain time."""
    stamps = {
        topic: {
            number: at.timestamp()
            if before is None or before[topic][number] != offset
            else TEN.timestamp()
            for number, offset in partitions.items()
        }
        for topic, partitions in positions.items()
    }
    return Record(
        consumer, sequence, at.timestamp(), "commit", WORKER, Positions(positions), stamps
    )


def write_record(root: Path, found: Record) -> None:
    """Put a commit into a store as the store itself does, with the time and author it names."""
    for name in (f"{found.consumer}.offsets", f"{found.consumer}.{found.sequence:020d}.version"):
        (root / name).unlink(missing_ok=True)  # it may be a second name of a kept record
        (root / name).write_bytes(encode(found))


def make_store(root: Path) -> Path:
    """A store of two consumers: billing committed at ten and at eleven, mail at half past ten."""
    LockFileOffsetStore.create(str(root))
    write_record(root, record("billing", 1, TEN, FIRST))
    write_record(root, record("billing", 2, TEN + timedelta(hours=1), SECOND, FIRST))
    write_record(root, record("mail", 1, TEN + timedelta(minutes=30), {"orders": {0: 7}}))
    return root


def damage(root: Path, consumer: str) -> bytes:
    """Cut a consumer's newest record; gives what is left of it."""
    path = root / f"{consumer}.offsets"
    data = path.read_bytes()[:-1]
    path.unlink()  # a kept record may be a second name of the same file
    path.write_bytes(data)
    return data


def contents(root: Path) -> dict[str, bytes]:
    """Every file below a directory."""
    return {
        str(path.relative_to(root)): path.read_bytes()
        for path in sorted(root.rglob("*"))
        if path.is_file()
    }


def positions_of(root: Path, consumer: str) -> By:
    """What a consumer would load now."""
    found = LockFileOffsetStore.open(str(root)).load(consumer)
    return {t: dict(p) for t, p in found.positions.by_topic.items()} if found else {}


@contextmanager
def holding(lock: Path) -> Iterator[int]:
    """Another process that holds a lock; gives its pid."""
    code = (
        "import pathlib, sys\n"
        "from sluicegate.locks import FileLock\n"
        "with FileLock(pathlib.Path(sys.argv[1])).hold():\n"
        "    print(flush=True); sys.stdin.read()\n"
    )
    with subprocess.Popen(
        [sys.executable, "-c", code, str(lock)], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as process:
        assert process.stdout
        process.stdout.readline()
        try:
            yield process.pid
        finally:
            process.kill()


@pytest.fixture
def store(tmp_path: Path) -> Path:
    return make_store(tmp_path / "st")


RESET = ("offsets", "reset", "./st", "--consumer", "billing")
ORDERS = (*RESET, "--topic", "orders")


class TestInitStore:
    def test_makes_one_once(self, sg: Sg, tmp_path: Path) -> None:
        made = sg("init", "--store", "new", "--yes", "--reason", "a new service")
        assert made.returncode == 0
        assert made.stdout == "action\tplace\tdetail\ncreate the store\tnew\ta new directory\n"
        assert sorted(os.listdir(tmp_path)) == ["new"], "a store needs no home and no configuration"
        before = contents(tmp_path)
        again = sg("init", "--store", "new", "--json")
        document = json.loads(again.stdout)
        assert (again.returncode, document["actions"]) == (0, [])
        assert (document["schema"], document["version"]) == ("sluicegate.plan", 1)
        assert contents(tmp_path) == before

    def test_on_a_terminal(self, tmp_path: Path) -> None:
        terminal = Terminal("init", "--store", "new", "--no-color", cwd=tmp_path)
        terminal.process.expect_exact("Proceed? [y/N] ")
        shown = str(terminal.process.before).replace("\r\n", "\n")
        assert shown.splitlines() == [
            "Create an offset store in new",
            "ACTION            PLACE  DETAIL         ",
            "create the store  new    a new directory",
            "",
        ]
        terminal.process.sendline("y")
        assert terminal.finish_plain() == (0, "y\nDone.")
        assert LockFileOffsetStore.open(str(tmp_path / "new")).consumers() == []
        assert Terminal("init", "--store", "new", cwd=tmp_path).finish_plain() == (
            0,
            "Nothing to do.",
        )

    def test_leaves_what_is_there(self, sg: Sg, tmp_path: Path) -> None:
        (tmp_path / "new").mkdir()
        (tmp_path / "new" / "mine").write_text("mine")
        result = sg("init", "--store", "new", "--yes")
        assert "the directory exists and keeps its 1 entry" in result.stdout
        assert (tmp_path / "new" / "mine").read_text() == "mine"

    def test_refuses_a_damaged_marker(self, sg: Sg, store: Path) -> None:
        (store / "sluicegate.store").write_bytes(b"")
        result = sg("init", "--store", "st", "--yes")
        assert result.returncode == 12
        assert "st/sluicegate.store" in result.stderr


class TestImport:
    @pytest.mark.parametrize(
        "text",
        [
            '{"orders":{"0":120,"1":190}}',
            "orders,0,120\norders,1,190\n",
            "orders 0 120\norders 1 190\n",
        ],
        ids=["spark", "csv", "rpk"],
    )
    def test_each_form_is_recognised(self, sg: Sg, store: Path, text: str) -> None:
        (store.parent / "file").write_text(text)
        result = sg("offsets", "import", "./st", "file", "--consumer", "billing", "--yes")
        assert result.returncode == 0
        assert result.stdout == (
            "action\tplace\told\tnew\tdelta\tdetail\n"
            "rewind\torders[0]\t150\t120\t-30\tre-reads 30 events\n"
            "rewind\torders[1]\t200\t190\t-10\tre-reads 10 events\n"
            "\n"
            f"Re-reads 40 events of orders[0], orders[1]. {AGAIN}\n"
            f"{BROKER}\n"
        )
        assert positions_of(store, "billing") == {"orders": {0: 120, 1: 190}, "returns": {0: 5}}

    def test_of_a_new_consumer_as_json(self, sg: Sg, store: Path) -> None:
        words = ("offsets", "import", "./st", "-", "--consumer", "new", "--json", "--yes")
        result = sg(*words, input='{"t":{"3":9}}')
        document = json.loads(result.stdout)
        identity = LockFileOffsetStore.open(str(store)).mark.id
        operation = document.pop("operation")
        expected = {
            "schema": "sluicegate.plan",
            "version": 1,
            "title": "Import positions of consumer new",
            "target": {
                "kind": "offset-store",
                "uri": str(store),
                "name": None,
                "identity": identity,
            },
            "preconditions": [{"what": "t[3] of consumer new", "expected": None}],
            "actions": [
                {
                    "action": "set",
                    "place": "t[3]",
                    "old": None,
                    "new": 9,
                    "delta": None,
                    "detail": "had no position",
                }
            ],
            "consequences": [
                "t[3] had no position; the consumer starts at the new one.",
                BROKER,
            ],
            "applied": True,
        }
        assert {key: document[key] for key in expected} == expected
        assert (operation["id"], operation["kind"]) == ("new@1", "import")
        assert operation["summary"] == "t[3] none → 9"
        assert positions_of(store, "new") == {"t": {3: 9}}

    def test_times_are_written_alike_in_every_document(self, sg: Sg, store: Path) -> None:
        made = json.loads(sg(*ORDERS, "--to-offset", "1", "--yes", "--json").stdout)["operation"]
        (entry,) = json.loads(sg("history", "./st", "--limit", "1", "--json").stdout)["entries"]
        assert made["at"] == entry["at"]

    def test_a_form_can_be_forced(self, sg: Sg, store: Path) -> None:
        words = ("offsets", "import", "./st", "-", "--consumer", "billing", "--dry-run")
        assert sg(*words, "--format", "csv", input="orders 0 1\n").returncode == 2
        assert sg(*words, "--format", "rpk", input="a,b 0 1\n").returncode == 0

    def test_replace_forgets_the_rest(self, sg: Sg, store: Path) -> None:
        words = ("offsets", "import", "./st", "-", "--consumer", "billing", "--replace", "--yes")
        result = sg(*words, input="orders 0 150\nnews 0 1\n")
        assert result.stdout.splitlines()[1:4] == [
            "set\tnews[0]\t-\t1\t-\thad no position",
            "forget\torders[1]\t200\t-\t-\tremoves the position",
            "forget\treturns[0]\t5\t-\t-\tremoves the position",
        ]
        assert (
            "orders[1], returns[0] will have no position; the consumer then decides where it "
            "starts."
        ) in result.stdout
        assert positions_of(store, "billing") == {"orders": {0: 150}, "news": {0: 1}}

    @pytest.mark.parametrize("options", [(), ("--replace",)])
    def test_no_positions_at_all_are_a_mistake(
        self, sg: Sg, store: Path, options: tuple[str, ...]
    ) -> None:
        """An empty file is what a failed command before the pipe leaves."""
        words = ("offsets", "import", "./st", "-", "--consumer", "billing", "--yes", *options)
        result = sg(*words, input="")
        assert positions_of(store, "billing") == SECOND
        assert result.returncode == 2

    def test_a_reference_directory(self, sg: Sg, store: Path) -> None:
        old = store.parent / "my-service"
        old.mkdir()
        (old / "topic-1-consumer-0.offset").write_text("12\n")
        (old / "topic-1-consumer-1.offset").write_text("  7")
        (old / "topic-1-consumer-2-backup.offset").write_text("999")
        (old / "topic-1-consumer-0.lock").write_text("")
        words = ("offsets", "import", "./st", "my-service", "--consumer", "my-service")
        assert sg(*words, "--yes").returncode == 0
        assert positions_of(store, "my-service") == {"1": {0: 12, 1: 7}}
        assert sg(*words, "--dry-run", "--format", "csv").returncode == 2
        (old / "topic-2-consumer-0.offset").write_text("twelve")
        damaged = sg(*words, "--yes")
        assert damaged.returncode == 12, "never skipped in silence"
        assert "topic-2-consumer-0.offset" in damaged.stderr
        (old / "topic-2-consumer-0.offset").write_text(str(2**64 - 1))
        assert sg(*words, "--yes").returncode == 14, "the reference's sentinel is no position"

    def test_a_store_must_be_there(self, sg: Sg, tmp_path: Path) -> None:
        words = ("offsets", "import", "./none", "-", "--consumer", "a", "--yes")
        assert sg(*words, input="t 0 1").returncode == 10
        assert list(tmp_path.iterdir()) == []


class TestShow:
    def test_in_a_pipe(self, sg: Sg, tmp_path: Path) -> None:
        root = tmp_path / "st"
        LockFileOffsetStore.create(str(root))
        then = datetime.now(UTC) - timedelta(days=3, hours=4, minutes=30)
        write_record(root, record("a", 1, then, {"t": {0: 5, 1: 6}}))
        write_record(root, record("b", 1, then + timedelta(days=1), {"t": {0: 7}}))
        result = sg("offsets", "show", "st")
        assert (result.returncode, result.stderr) == (0, "")
        assert result.stdout == (
            "consumer\ttopic\tpartition\tnext offset\tcommitted\n"
            "a\tt\t0\t5\t3 d 4 h ago\n"
            "a\tt\t1\t6\t3 d 4 h ago\n"
            "b\tt\t0\t7\t2 d 4 h ago\n"
        )
        assert sg("offsets", "show", "st", "--consumer", "b").stdout.splitlines()[1:] == [
            "b\tt\t0\t7\t2 d 4 h ago"
        ]

    def test_on_a_terminal(self, tmp_path: Path) -> None:
        root = tmp_path / "st"
        LockFileOffsetStore.create(str(root))
        then = datetime.now(UTC) - timedelta(days=3, hours=4, minutes=30)
        write_record(root, record("billing", 1, then, {"orders": {0: 100}}))
        code, text = Terminal("offsets", "show", "./st", cwd=tmp_path).finish_plain()
        assert code == 0
        assert text == (
            "CONSUMER  TOPIC   PARTITION  NEXT OFFSET  COMMITTED\n"
            "billing   orders          0          100  3 d 4 h ago\n"
            "\n"
            f"billing: commit 1, 3 d 4 h ago, by app@{HOST} pid 4242 (consumer.py)"
        )

    def test_as_json(self, sg: Sg, store: Path) -> None:
        document = json.loads(sg("offsets", "show", "./st", "--json").stdout)
        assert (document["schema"], document["version"]) == ("sluicegate.store", 1)
        assert document["findings"] == []
        billing, mail = document["consumers"]
        assert (mail["consumer"], mail["sequence"], mail["kind"]) == ("mail", 1, "commit")
        assert mail["by"] == WORKER.fields()
        (position,) = mail["positions"]
        age = position.pop("age_seconds")
        assert abs(age - (time.time() - TEN.timestamp() - 1800)) < 60
        assert position == {
            "topic": "orders",
            "partition": 0,
            "offset": 7,
            "committed_at": "2024-03-01T10:30:00Z",
        }
        assert [(p["topic"], p["partition"], p["committed_at"]) for p in billing["positions"]] == [
            ("orders", 0, "2024-03-01T11:00:00Z"),
            ("orders", 1, "2024-03-01T10:00:00Z"),
            ("returns", 0, "2024-03-01T10:00:00Z"),
        ]

    def test_a_damaged_consumer_does_not_hide_the_others(self, sg: Sg, store: Path) -> None:
        damage(store, "billing")
        result = sg("offsets", "show", "./st", "--json")
        document = json.loads(result.stdout)
        assert result.returncode == 3
        assert [each["consumer"] for each in document["consumers"]] == ["mail"]
        (finding,) = document["findings"]
        assert (finding["code"], finding["severity"]) == ("SG-STORE-DAMAGED", "error")
        assert finding["place"] == "st/billing.offsets"
        assert finding["repair"] == "sluicegate undo st --consumer billing"
        code, text = Terminal("offsets", "show", "./st", cwd=store.parent).finish_plain()
        assert code == 3
        assert "\nmail      orders          0            7" in text
        assert "error SG-STORE-DAMAGED st/billing.offsets\n" in text
        assert "  next: sluicegate undo st --consumer billing" in text
        assert sg("offsets", "show", "./st", "--consumer", "mail").returncode == 0

    def test_of_nothing(self, sg: Sg, tmp_path: Path) -> None:
        LockFileOffsetStore.create(str(tmp_path / "st"))
        assert (sg("offsets", "show", "./st").returncode, sg("offsets", "show", "./st").stdout) == (
            0,
            "",
        )
        code, text = Terminal("offsets", "show", "./st", cwd=tmp_path).finish_plain()
        assert (code, text) == (0, "No consumer has positions.")

    def test_unknown_consumers_are_named_with_the_known_ones(self, sg: Sg, store: Path) -> None:
        result = sg("offsets", "show", "./st", "--consumer", "biling")
        assert result.returncode == 10
        assert "known consumers: billing, mail" in result.stderr

    def test_the_reference_layout_is_read_but_not_changed(self, sg: Sg, tmp_path: Path) -> None:
        (tmp_path / "old").mkdir()
        (tmp_path / "old" / "topic-1-consumer-0.offset").write_text("12")
        shown = sg("offsets", "show", "./old")
        assert shown.stdout == "topic\tpartition\tnext offset\n1\t0\t12\n"
        assert json.loads(sg("offsets", "show", "./old", "--json").stdout)["consumers"] == [
            {"consumer": None, "positions": [{"topic": "1", "partition": 0, "offset": 12}]}
        ]
        refused = sg("offsets", "reset", "./old", "--to-offset", "1", "--yes")
        assert refused.returncode == 14
        assert "sluicegate init --store STORE" in refused.stderr
        assert (tmp_path / "old" / "topic-1-consumer-0.offset").read_text() == "12"

    def test_options_of_checkpoints_are_refused(self, sg: Sg, store: Path) -> None:
        result = sg("offsets", "show", "./st", "--batch", "1")
        assert result.returncode == 2
        assert "--batch applies to Spark checkpoints and gated streams only" in result.stderr


class TestReset:
    def test_on_a_terminal(self, store: Path) -> None:
        words = (*RESET, "--all-topics", "--shift-by", "-3", "--no-color")
        terminal = Terminal(*words, cwd=store.parent)
        terminal.process.expect_exact("Proceed? [y/N] ")
        shown = str(terminal.process.before).replace("\r\n", "\n")
        assert [line.rstrip() for line in shown.splitlines()] == [
            f"Reset consumer billing in {store}",
            "ACTION  PLACE       OLD  NEW  DELTA  DETAIL",
            "rewind  orders[0]   150  147     -3  re-reads 3 events",
            "rewind  orders[1]   200  197     -3  re-reads 3 events",
            "rewind  returns[0]    5    2     -3  re-reads 3 events",
            "",
            "Asked for: shift-by -3.",
            f"Re-reads 9 events of orders[0], orders[1], returns[0]. {AGAIN[:37]}",
            AGAIN[38:],
            BROKER,
            "",
        ]
        terminal.process.sendline("y")
        assert terminal.finish_plain() == (
            0,
            f"y\nDone: billing@3. Undo it with: sluicegate undo {store} --op billing@3",
        )
        assert positions_of(store, "billing")["orders"] == {0: 147, 1: 197}

    @pytest.mark.parametrize(
        ("scenario", "what"), [("--to-earliest", "oldest offset"), ("--to-latest", "end")]
    )
    def test_the_edges_of_the_log_are_not_known_here(
        self, sg: Sg, store: Path, scenario: str, what: str
    ) -> None:
        result = sg(*ORDERS, scenario, "--yes")
        assert result.returncode == 2
        assert f"the {what} of orders[0], which only the broker or log knows" in result.stderr
        assert "--from-file FILE or --to-offset N" in result.stderr
        assert positions_of(store, "billing") == SECOND

    def test_to_current_is_nothing_to_do(self, sg: Sg, store: Path) -> None:
        before = contents(store)
        result = sg(*ORDERS, "--to-current", "--json")
        assert result.returncode == 0, "nothing to do needs no confirmation"
        assert json.loads(result.stdout)["actions"] == []
        assert contents(store) == before
        terminal = Terminal(*ORDERS, "--to-current", cwd=store.parent)
        assert terminal.finish_plain() == (0, "Nothing to do.")

    def test_to_offset(self, sg: Sg, store: Path) -> None:
        result = sg(*ORDERS, "--to-offset", "180", "--yes")
        assert result.stdout.splitlines()[:3] == [
            "action\tplace\told\tnew\tdelta\tdetail",
            "skip\torders[0]\t150\t180\t30\tskips 30 events",
            "rewind\torders[1]\t200\t180\t-20\tre-reads 20 events",
        ]
        skipped = "Skips 30 events of orders[0]: the consumer never reads those it has not read"
        assert skipped in result.stdout
        assert positions_of(store, "billing") == {"orders": {0: 180, 1: 180}, "returns": {0: 5}}

    @pytest.mark.parametrize(
        ("shift", "left"), [("-50", (100, 150)), ("+7", (157, 207)), ("7", (157, 207))]
    )
    def test_shift_by(self, sg: Sg, store: Path, shift: str, left: tuple[int, int]) -> None:
        assert sg(*ORDERS, "--shift-by", shift, "--yes").returncode == 0
        assert positions_of(store, "billing")["orders"] == dict(enumerate(left))

    def test_out_of_range_is_refused_unless_clamped(self, sg: Sg, store: Path) -> None:
        words = (*RESET, "--all-topics", "--shift-by", "-160", "--yes")
        refused = sg(*words)
        assert refused.returncode == 2
        assert "orders[0] cannot go to -10: offsets are from 0 to 2^63-1" in refused.stderr
        assert positions_of(store, "billing") == SECOND, "all of it or nothing"
        clamped = sg(*words, "--clamp")
        assert clamped.returncode == 0
        assert positions_of(store, "billing") == {"orders": {0: 0, 1: 40}, "returns": {0: 0}}

    def test_what_was_clamped_is_said(self, sg: Sg, store: Path) -> None:
        result = sg(*RESET, "--all-topics", "--shift-by", "-10", "--clamp", "--dry-run")
        assert "out of range" in result.stdout + result.stderr

    def test_to_a_time_without_a_zone_says_how_to_write_it(self, sg: Sg, store: Path) -> None:
        result = sg(*ORDERS, "--to-datetime", "2024-03-01T10:15:00", "--yes")
        assert result.returncode == 2
        assert "no time zone" in result.stderr
        assert "write 2024-03-01T10:15:00Z for UTC" in result.stderr

    @pytest.mark.parametrize("moment", ["2024-03-01T10:15:00Z", "2024-03-01T11:15:00+01:00"])
    def test_to_a_time_goes_to_what_was_committed_by_then(
        self, sg: Sg, store: Path, moment: str
    ) -> None:
        result = sg(*RESET, "--all-topics", "--to-datetime", moment, "--yes")
        assert (
            result.stdout.splitlines()[1] == "rewind\torders[0]\t150\t100\t-50\tre-reads 50 events"
        )
        assert positions_of(store, "billing") == FIRST
        (entry,) = json.loads(sg("history", "./st", "--limit", "1", "--json").stdout)["entries"]
        assert entry["summary"] == "to-datetime 2024-03-01T10:15:00Z: orders[0] 150 → 100"

    def test_times_that_are_not_known(self, sg: Sg, store: Path) -> None:
        early = sg(*ORDERS, "--to-datetime", "2024-03-01T09:59:59Z", "--yes")
        assert early.returncode == 2
        assert "before the oldest known point: commit billing@1" in early.stderr
        late = sg(*ORDERS, "--to-datetime", "2024-03-01T11:00:01Z", "--yes")
        assert late.returncode == 2
        assert "after the newest known point: commit billing@2" in late.stderr
        assert "--clamp" in late.stderr
        assert positions_of(store, "billing") == SECOND
        stays = sg(*ORDERS, "--to-datetime", "2024-03-01T11:00:01Z", "--clamp", "--yes")
        assert (stays.returncode, stays.stdout) == (0, "")
        oldest = sg(*ORDERS, "--to-datetime", "2024-03-01T09:59:59Z", "--clamp", "--yes")
        assert oldest.returncode == 0
        assert positions_of(store, "billing") == FIRST

    def test_a_partition_that_had_no_position_then(self, sg: Sg, store: Path) -> None:
        more: By = {**SECOND, "news": {0: 1}}
        at = TEN + timedelta(hours=2)
        write_record(store, record("billing", 3, at, more))
        result = sg(*RESET, "--all-topics", "--to-datetime", "2024-03-01T10:15:00Z", "--yes")
        assert result.returncode == 2
        assert "news[0] had no position yet at commit billing@1" in result.stderr

    @pytest.mark.parametrize("duration", ["PT50M", "50min", "3000s"])
    def test_by_duration(self, sg: Sg, store: Path, duration: str) -> None:
        now = datetime.now(UTC)
        write_record(store, record("billing", 3, now - timedelta(hours=1), FIRST))
        write_record(store, record("billing", 4, now - timedelta(minutes=10), SECOND, FIRST))
        assert sg(*ORDERS, "--by-duration", duration, "--yes").returncode == 0
        assert positions_of(store, "billing") == FIRST

    def test_a_duration_that_is_none(self, sg: Sg, store: Path) -> None:
        result = sg(*ORDERS, "--by-duration", "1m", "--yes")
        assert result.returncode == 2
        assert "PT1H30M, P7D, 0.5s, 90min" in result.stderr

    def test_from_a_file(self, sg: Sg, store: Path) -> None:
        words = (*RESET, "--all-topics", "--yes", "--from-file")
        (store.parent / "new.csv").write_text("orders,1,42\n")
        assert sg(*words, "new.csv").returncode == 0
        assert positions_of(store, "billing") == {**SECOND, "orders": {0: 150, 1: 42}}
        assert sg(*words, "-", input='{"orders":{"0":9}}').returncode == 0
        assert positions_of(store, "billing")["orders"] == {0: 9, 1: 42}
        there = positions_of(store, "billing")
        result = sg(*words, "-", input="orders 0 1\norders 9 1\n")
        assert result.returncode == 10
        assert "the file has orders[9], which the target does not have" in result.stderr
        assert "sluicegate offsets import" in result.stderr
        assert sg(*words, "missing.csv").returncode == 10
        assert positions_of(store, "billing") == there

    def test_a_consumer_without_positions(self, sg: Sg, store: Path) -> None:
        write_record(store, record("mail", 2, TEN + timedelta(hours=2), {}))
        result = sg("offsets", "reset", "./st", "--consumer", "mail", "--to-offset", "1", "--yes")
        assert result.returncode == 10
        assert "consumer mail has no positions" in result.stderr


class TestScope:
    def test_a_topic_or_some_of_its_partitions(self, sg: Sg, store: Path) -> None:
        assert sg(*RESET, "--topic", "orders:1", "--to-offset", "1", "--yes").returncode == 0
        assert positions_of(store, "billing")["orders"] == {0: 150, 1: 1}
        both = ("--topic", "orders:0,1", "--topic", "returns")
        assert sg(*RESET, *both, "--to-offset", "2", "--yes").returncode == 0
        assert positions_of(store, "billing") == {"orders": {0: 2, 1: 2}, "returns": {0: 2}}

    def test_all_topics(self, sg: Sg, store: Path) -> None:
        assert sg(*RESET, "--all-topics", "--to-offset", "1", "--yes").returncode == 0
        assert positions_of(store, "billing") == {"orders": {0: 1, 1: 1}, "returns": {0: 1}}

    def test_what_is_not_there_is_a_typing_error(self, sg: Sg, store: Path) -> None:
        topic = sg(*RESET, "--topic", "order", "--to-offset", "1", "--yes")
        assert topic.returncode == 10
        assert "there is no topic 'order'; known topics: orders, returns" in topic.stderr
        partition = sg(*RESET, "--topic", "orders:0,7", "--to-offset", "1", "--yes")
        assert partition.returncode == 10
        assert "topic 'orders' has no partition 7" in partition.stderr
        assert positions_of(store, "billing") == SECOND

    def test_several_topics_need_a_word(self, sg: Sg, store: Path) -> None:
        result = sg(*RESET, "--to-offset", "1", "--yes")
        assert result.returncode == 2
        assert "several topics: orders, returns" in result.stderr
        assert "--all-topics" in result.stderr
        both = sg(*ORDERS, "--all-topics", "--to-offset", "1", "--yes")
        assert both.returncode == 2
        one = ("offsets", "reset", "./st", "--consumer", "mail", "--to-offset", "1", "--yes")
        assert sg(*one).returncode == 0, "a single topic needs none"

    def test_several_consumers_need_a_name(self, sg: Sg, store: Path) -> None:
        result = sg("offsets", "reset", "./st", "--all-topics", "--to-offset", "1", "--yes")
        assert result.returncode == 2
        assert "known consumers: billing, mail" in result.stderr

    @pytest.mark.parametrize("given", [(), ("--to-current", "--to-offset", "5")])
    def test_exactly_one_scenario(self, sg: Sg, store: Path, given: tuple[str, ...]) -> None:
        result = sg(*ORDERS, *given, "--yes")
        assert result.returncode == 2
        assert "exactly one scenario is needed" in result.stderr
        assert "--by-duration" in result.stderr

    def test_zero_is_a_value(self, sg: Sg, store: Path) -> None:
        assert sg(*ORDERS, "--to-offset", "0", "--yes").returncode == 0
        assert positions_of(store, "billing")["orders"] == {0: 0, 1: 0}
        assert sg(*ORDERS, "--shift-by", "0", "--yes").returncode == 0


class TestDelete:
    def test_a_topic(self, sg: Sg, store: Path) -> None:
        words = ("offsets", "delete", "./st", "--consumer", "billing", "--topic", "returns")
        result = sg(*words, "--yes")
        assert result.stdout == (
            "action\tplace\told\tnew\tdelta\tdetail\n"
            "forget\treturns[0]\t5\t-\t-\tremoves the position\n"
            "\n"
            "returns[0] will have no position; the consumer then decides where it starts.\n"
        )
        assert positions_of(store, "billing") == {"orders": {0: 150, 1: 200}}
        assert sg(*words, "--yes").returncode == 10

    def test_everything_of_a_consumer_stays_in_its_history(self, sg: Sg, store: Path) -> None:
        words = ("offsets", "delete", "./st", "--consumer", "mail", "--all-topics", "--yes")
        assert sg(*words).returncode == 0
        again = sg(*words, "--json")
        assert (again.returncode, json.loads(again.stdout)["actions"]) == (0, [])
        assert positions_of(store, "mail") == {}
        assert "mail" not in sg("offsets", "show", "./st").stdout
        assert sg("undo", "./st", "--yes").returncode == 0
        assert positions_of(store, "mail") == {"orders": {0: 7}}

    def test_what_must_be_said(self, sg: Sg, store: Path) -> None:
        words = ("offsets", "delete", "./st", "--consumer", "mail")
        result = sg(*words, "--yes")
        assert result.returncode == 2
        assert "--all-topics" in result.stderr
        assert positions_of(store, "mail") == {"orders": {0: 7}}


class TestExport:
    @pytest.mark.parametrize(
        ("form", "text"),
        [
            ("spark", '{"orders":{"0":150,"1":200},"returns":{"0":5}}\n'),
            ("csv", "orders,0,150\norders,1,200\nreturns,0,5\n"),
            ("rpk", "orders 0 150\norders 1 200\nreturns 0 5\n"),
        ],
    )
    def test_comes_back_through_import(self, sg: Sg, store: Path, form: str, text: str) -> None:
        exported = sg("offsets", "export", "./st", "--consumer", "billing", "--format", form)
        assert (exported.returncode, exported.stdout) == (0, text)
        words = ("offsets", "import", "./st", "-", "--consumer", "copy", "--yes")
        assert sg(*words, input=exported.stdout).returncode == 0
        assert positions_of(store, "copy") == SECOND

    def test_as_json_and_on_a_terminal(self, sg: Sg, store: Path) -> None:
        words = ("offsets", "export", "./st", "--consumer", "mail")
        assert json.loads(sg(*words, "--json").stdout) == {
            "schema": "sluicegate.positions",
            "version": 1,
            "consumer": "mail",
            "sequence": 1,
            "positions": {"orders": {"0": 7}},
        }
        text = Terminal(*words, cwd=store.parent).finish_plain()
        assert text == (0, '{"orders":{"0":7}}')

    def test_into_the_reference_layout_and_back(self, sg: Sg, store: Path) -> None:
        write_record(store, record("legacy", 1, TEN, {"7": {0: 3, 12: 2**63 - 1}}))
        words = ("offsets", "export", "./st", "--consumer", "legacy", "--into", "old", "--yes")
        result = sg(*words)
        assert result.stdout == (
            "action\tplace\tdetail\n"
            "write\told/topic-7-consumer-0.offset\t3\n"
            f"write\told/topic-7-consumer-12.offset\t{2**63 - 1}\n"
        )
        old = store.parent / "old"
        assert contents(old) == {
            "topic-7-consumer-0.offset": b"3\n",
            "topic-7-consumer-12.offset": f"{2**63 - 1}\n".encode(),
        }
        assert sg(*words).returncode == 0, "the same again is no conflict"
        back = sg("offsets", "import", "./st", "old", "--consumer", "copy", "--yes")
        assert back.returncode == 0
        assert positions_of(store, "copy") == {"7": {0: 3, 12: 2**63 - 1}}

    def test_other_positions_in_the_directory_are_refused(self, sg: Sg, store: Path) -> None:
        write_record(store, record("legacy", 1, TEN, {"7": {0: 3}}))
        old = store.parent / "old"
        old.mkdir()
        words = ("offsets", "export", "./st", "--consumer", "legacy", "--into", "old", "--yes")
        for name, text in (("topic-7-consumer-0.offset", "4"), ("topic-9-consumer-0.offset", "3")):
            (old / name).write_text(text)
            before = contents(old)
            result = sg(*words)
            assert result.returncode == 1
            assert f"old/{name} already exists with another offset" in result.stderr
            assert contents(old) == before
            (old / name).unlink()

    def test_topics_must_be_numbers_for_that(self, sg: Sg, store: Path) -> None:
        result = sg("offsets", "export", "./st", "--consumer", "mail", "--into", "old", "--yes")
        assert result.returncode == 14
        assert not (store.parent / "old").exists()


class TestHistory:
    def test_in_a_pipe(self, sg: Sg, store: Path) -> None:
        assert sg("history", "./st").stdout == (
            "operation\twhen\tkind\twhat\tby\treason\tundo\n"
            f"billing@2\t2024-03-01T11:00:00Z\tcommit\t3 positions\tapp@{HOST}\t-\tyes\n"
            f"mail@1\t2024-03-01T10:30:00Z\tcommit\t1 position\tapp@{HOST}\t-\tyes\n"
            f"billing@1\t2024-03-01T10:00:00Z\tcommit\t3 positions\tapp@{HOST}\t-\tyes\n"
        )

    def test_of_one_consumer_on_a_terminal(self, store: Path) -> None:
        words = ("history", "./st", "--consumer", "billing", "--limit", "1")
        code, text = Terminal(*words, cwd=store.parent, columns=200).finish_plain()
        assert code == 0
        by = f"app@{HOST}"
        head = "BY".ljust(len(by))
        assert text == (
            f"OPERATION  WHEN                  KIND    WHAT         {head}  REASON  UNDO\n"
            f"billing@2  2024-03-01T11:00:00Z  commit  3 positions  {by}  -       yes\n"
            "\n"
            "1 older entry; use --limit 2 to list all"
        )

    def test_a_reason_is_kept(self, sg: Sg, store: Path) -> None:
        reason = "ticket 4711: bad deploy"
        assert sg(*ORDERS, "--to-offset", "1", "--yes", "--reason", reason).returncode == 0
        document = json.loads(sg("history", "./st", "--json", "--limit", "1").stdout)
        assert (document["schema"], document["version"]) == ("sluicegate.history", 1)
        assert document["hidden"] == 3
        (entry,) = document["entries"]
        assert (entry["id"], entry["kind"], entry["reason"]) == ("billing@3", "reset", reason)
        assert entry["summary"] == "to-offset 1: orders[0] 150 → 1, orders[1] 200 → 1"
        assert (entry["undo"], entry["undoes"], entry["plan_digest"]) == ("yes", None, None)
        assert "(sluicegate offsets reset ./st)" in entry["by"]
        assert reason in sg("history", "./st").stdout

    def test_an_unreadable_consumer_does_not_hide_the_others(self, sg: Sg, store: Path) -> None:
        (store / "mail.offsets").unlink()
        (store / "mail.offsets").mkdir()
        result = sg("history", "./st")
        assert "billing@2" in result.stdout, result.stderr
        assert "mail.offsets" in result.stdout

    def test_damage_is_what_is_seen_first(self, sg: Sg, store: Path) -> None:
        damage(store, "billing")
        first = json.loads(sg("history", "./st", "--limit", "1", "--json").stdout)["entries"][0]
        assert first["kind"] == "damaged"

    def test_of_nothing(self, sg: Sg, tmp_path: Path) -> None:
        LockFileOffsetStore.create(str(tmp_path / "st"))
        assert json.loads(sg("history", "./st", "--json").stdout)["entries"] == []
        assert sg("history", "./st", "--consumer", "x").returncode == 10


class TestUndo:
    def test_reverts_the_newest_change_and_can_be_undone(self, sg: Sg, store: Path) -> None:
        assert sg(*ORDERS, "--to-offset", "1", "--yes").returncode == 0
        write_record(store, record("mail", 2, datetime.now(UTC), {"orders": {0: 8}}))
        undone = sg("undo", "./st", "--yes", "--reason", "too far")
        assert undone.stdout.splitlines()[1:3] == [
            "skip\torders[0]\t1\t150\t149\tskips 149 events",
            "skip\torders[1]\t1\t200\t199\tskips 199 events",
        ]
        assert "Commits to these partitions since billing@3 are overwritten" in (undone.stdout)
        assert positions_of(store, "billing") == SECOND
        twice = sg("undo", "./st", "--op", "billing@3", "--yes")
        assert twice.returncode == 10
        assert "undone by billing@4" in twice.stderr
        nothing = sg("undo", "./st", "--yes")
        assert nothing.returncode == 10
        assert "all of them are undone" in nothing.stderr
        assert sg("undo", "./st", "--op", "billing@4", "--yes").returncode == 0
        assert positions_of(store, "billing")["orders"] == {0: 1, 1: 1}, "redo"
        states = {
            entry["id"]: entry["undo"]
            for entry in json.loads(sg("history", "./st", "--json").stdout)["entries"]
        }
        assert states["billing@3"] == "yes"
        assert states["billing@4"] == "undone by billing@5"

    def test_leaves_what_the_change_did_not_touch(self, sg: Sg, store: Path) -> None:
        assert sg(*RESET, "--topic", "returns", "--to-offset", "1", "--yes").returncode == 0
        newer: By = {"orders": {0: 160, 1: 210}, "returns": {0: 2}}
        write_record(store, record("billing", 4, datetime.now(UTC), newer))
        assert sg("undo", "./st", "--yes").returncode == 0
        assert positions_of(store, "billing") == {"orders": {0: 160, 1: 210}, "returns": {0: 5}}

    def test_commits_only_by_name(self, sg: Sg, store: Path) -> None:
        nothing = sg("undo", "./st", "--yes")
        assert nothing.returncode == 10
        assert "has no changes by operators" in nothing.stderr
        assert "--op" in nothing.stderr
        assert sg("undo", "./st", "--op", "billing@2", "--yes").returncode == 0
        assert positions_of(store, "billing") == FIRST
        assert sg("undo", "./st", "--op", "mail@1", "--yes").returncode == 0
        assert positions_of(store, "mail") == {}

    @pytest.mark.parametrize("name", ["billing@9", "billing", "nobody@1", "billing@x", "../x@1"])
    def test_what_is_not_there(self, sg: Sg, store: Path, name: str) -> None:
        before = contents(store)
        result = sg("undo", "./st", "--op", name, "--yes")
        assert result.returncode == 10
        assert "sluicegate history" in result.stderr
        assert contents(store) == before

    def test_restores_a_damaged_file_and_keeps_what_was_there(self, sg: Sg, store: Path) -> None:
        damaged = damage(store, "billing")
        undo = ("undo", "./st", "--consumer", "billing")
        plan = sg(*undo, "--dry-run")
        assert plan.stdout == (
            "action\tplace\tdetail\n"
            "keep\tbilling.TIME.damaged\tthe damaged file, under a second name\n"
            "restore\tbilling.offsets\trecord 2 of 2024-03-01T11:00:00Z, 3 positions\n"
            "\n"
            "Record 2 is the newest that can be read. If the consumer committed after it, it "
            "reads those events again. This cannot be undone: the damaged file cannot be read.\n"
        )
        assert sg(*undo, "--yes", "--reason", "disk").returncode == 0
        assert positions_of(store, "billing") == SECOND
        (aside,) = store.glob("billing.*.damaged")
        assert aside.read_bytes() == damaged
        (entry,) = json.loads(sg("history", "./st", "--limit", "1", "--json").stdout)["entries"]
        assert (entry["kind"], entry["reason"]) == ("restore", "disk")
        assert entry["undo"] == "no: the record before it could not be read"
        assert sg("undo", "./st", "--op", entry["id"], "--yes").returncode == 10
        assert sg("offsets", "show", "./st").returncode == 0

    def test_a_restore_does_not_offer_an_undo(self, store: Path) -> None:
        damage(store, "billing")
        words = ("undo", "./st", "--consumer", "billing", "--yes")
        code, text = Terminal(*words, cwd=store.parent).finish_plain()
        assert code == 0
        assert "Done: billing@" in text
        assert "Undo it with" not in text, "the plan has just stated that it cannot be undone"

    def test_the_damage_of_another_consumer_is_no_matter(self, sg: Sg, store: Path) -> None:
        assert sg(*ORDERS, "--to-offset", "1", "--yes").returncode == 0
        damage(store, "mail")
        assert sg("undo", "./st", "--consumer", "billing", "--yes").returncode == 0
        assert positions_of(store, "billing") == SECOND


class TestLocks:
    def test_a_held_lock_cannot_be_broken(self, sg: Sg, store: Path) -> None:
        with holding(store / "billing.lock") as pid:
            listed = sg("locks", "list", "st")
            assert listed.stdout.splitlines()[1].startswith("st/billing.lock\theld\t")
            refused = sg("locks", "break", "st/billing.lock", "--yes")
        assert refused.returncode == 11
        for evidence in (f"pid {pid}", "exclusive since", "that process is alive"):
            assert evidence in refused.stderr
        assert "sluicegate locks list st" in refused.stderr

    def test_what_a_killed_holder_left_is_cleared(self, sg: Sg, store: Path) -> None:
        with holding(store / "billing.lock") as pid:
            pass
        assert sg("locks", "list", "st").stdout == "lock\tstate\tholder\nst/billing.lock\tfree\t-\n"
        cleared = sg("locks", "break", "st/billing.lock", "--yes")
        assert cleared.returncode == 0
        assert cleared.stdout.startswith("action\tplace\tdetail\nclear\tst/billing.lock\tthe note")
        assert f"pid {pid}" in cleared.stdout
        again = sg("locks", "break", "st/billing.lock", "--json")
        document = json.loads(again.stdout)
        assert (again.returncode, document["schema"], document["actions"]) == (
            0,
            "sluicegate.plan",
            [],
        )
        assert sg(*ORDERS, "--to-offset", "1", "--yes").returncode == 0

    def test_no_such_lock(self, sg: Sg, store: Path) -> None:
        assert sg("locks", "break", "st/nobody.lock", "--yes").returncode == 10
        assert not (store / "nobody.lock").exists()

    def test_a_consumers_file_is_never_cleared(self, sg: Sg, store: Path) -> None:
        before = contents(store)
        sg("locks", "break", "st/billing.offsets", "--yes")
        assert contents(store) == before


class TestStatus:
    def test_by_path(self, sg: Sg, store: Path) -> None:
        result = sg("status", "./st")
        assert result.returncode == 0
        assert result.stdout == (
            "target\t./st\n"
            "state\tok\n"
            "kind\toffset-store\n"
            "where\t./st\n"
            "why\tit has sluicegate.store\n"
            "last_batch\t-\n"
            "updated_at\t2024-03-01T11:00:00Z\n"
            "summary\tconsumers: 2, positions: 4\n"
        )

    def test_by_name(self, sg: Sg, store: Path) -> None:
        (store.parent / "sluicegate.toml").write_text('[targets.billing]\noffsets = "st"\n')
        (target,) = json.loads(sg("status", "--json").stdout)["targets"]
        assert target == {
            "target": "billing",
            "state": "ok",
            "kind": "offset-store",
            "where": str(store),
            "why": "it has sluicegate.store",
            "last_batch": None,
            "updated_at": "2024-03-01T11:00:00Z",
            "summary": "consumers: 2, positions: 4",
        }
        words = ("offsets", "reset", "--consumer", "mail", "--to-offset", "1", "--yes")
        assert sg(*words).returncode == 0, "the only target need not be named"
        code, text = Terminal("undo", "billing", "--yes", cwd=store.parent).finish_plain()
        assert code == 0
        assert text.endswith("Undo it with: sluicegate undo billing --op mail@3")

    def test_damage_needs_a_person(self, sg: Sg, store: Path) -> None:
        (store.parent / "sluicegate.toml").write_text('[targets.billing]\noffsets = "st"\n')
        damage(store, "mail")
        for words in (("status",), ("status", "billing"), ("status", "./st")):
            result = sg(*words, "--json")
            document = json.loads(result.stdout)
            assert (result.returncode, document["targets"][0]["state"]) == (3, "error")
            assert [f["code"] for f in document["findings"]] == ["SG-STORE-DAMAGED"]

    def test_of_the_reference_layout(self, sg: Sg, tmp_path: Path) -> None:
        legacy.write(str(tmp_path / "old"), Positions({"7": {0: 3, 1: 4}}))
        result = sg("status", "./old")
        assert result.returncode == 0
        assert "summary\tlegacy offset files, positions: 2\n" in result.stdout


def save_plan(root: Path, place: Path, offset: int) -> None:
    """Save a plan to set both partitions of orders to an offset."""
    found = LockFileOffsetStore.open(str(root))
    spec = ResetSpec(Scenario.OFFSET, Scope({"orders": None}), number=offset)
    plan = StoreJournal(found).propose(Reset.to(found, "billing", spec))
    saved_plan.save(plan, str(place), None, 3600)


CHANGING = {
    "init": ("init", "--store", "new"),
    "import": ("offsets", "import", "./st", "file.csv", "--consumer", "billing"),
    "reset": (*ORDERS, "--to-offset", "1"),
    "delete": ("offsets", "delete", "./st", "--consumer", "billing", "--all-topics"),
    "export": ("offsets", "export", "./st", "--consumer", "legacy", "--into", "old"),
    "undo": ("undo", "./st", "--op", "billing@2"),
    "restore": ("undo", "./st", "--consumer", "broken"),
    "apply": ("apply", "plan.json"),
    "break": ("locks", "break", "st/legacy.lock"),
}


@pytest.fixture
def busy(store: Path) -> Path:
    """A directory in which each of the changing commands has something to do."""
    root = store.parent
    write_record(store, record("legacy", 1, TEN, {"7": {0: 3}}))
    write_record(store, record("broken", 1, TEN, {"t": {0: 3}}))
    damage(store, "broken")
    (root / "file.csv").write_text("orders,0,1\n")
    save_plan(store, root / "plan.json", 9)
    with holding(store / "legacy.lock"):
        pass
    return root


def configure(root: Path, text: str) -> None:
    (root / "sluicegate.toml").write_text(text)


@pytest.mark.parametrize("words", CHANGING.values(), ids=CHANGING)
class TestEveryChange:
    def test_a_dry_run_only_shows(self, sg: Sg, busy: Path, words: tuple[str, ...]) -> None:
        configure(busy, "read_only = true\nrequire_reason = true")
        before = contents(busy)
        result = sg(*words, "--dry-run", "--json")
        assert result.returncode == 0, "also where nothing may be changed"
        document = json.loads(result.stdout)
        assert (document["schema"], document["version"]) == ("sluicegate.plan", 1)
        assert document["actions"]
        assert (document["applied"], document["operation"]) == (False, None)
        assert contents(busy) == before

    def test_without_a_terminal_it_needs_a_word(
        self, sg: Sg, busy: Path, words: tuple[str, ...]
    ) -> None:
        before = contents(busy)
        result = sg(*words, input="y\n")
        assert (result.returncode, result.stdout) == (4, "")
        assert "--dry-run" in result.stderr
        assert "--yes" in result.stderr
        assert contents(busy) == before
        done = sg(*words, "--yes")
        assert done.returncode == 0
        assert contents(busy) != before

    def test_on_a_terminal_it_asks(self, busy: Path, words: tuple[str, ...]) -> None:
        before = contents(busy)
        refused = Terminal(*words, cwd=busy)
        refused.answer("Proceed? [y/N] ", "n")
        code, text = refused.finish_plain()
        assert code == 4
        assert "nothing was changed" in text
        assert contents(busy) == before
        agreed = Terminal(*words, cwd=busy)
        agreed.answer("Proceed? [y/N] ", "y")
        code, text = agreed.finish_plain()
        assert code == 0
        assert "Done" in text
        assert contents(busy) != before

    def test_read_only_is_obeyed(self, sg: Sg, busy: Path, words: tuple[str, ...]) -> None:
        configure(busy, "read_only = true")
        before = contents(busy)
        result = sg(*words, "--yes", "--reason", "because")
        assert result.returncode == 4
        assert "read_only = true" in result.stderr
        assert contents(busy) == before

    def test_a_reason_can_be_demanded(self, sg: Sg, busy: Path, words: tuple[str, ...]) -> None:
        configure(busy, "require_reason = true")
        before = contents(busy)
        result = sg(*words, "--yes", "--reason", "  ")
        assert result.returncode == 4
        assert "--reason" in result.stderr
        assert contents(busy) == before
        assert sg(*words, "--yes", "--reason", "because").returncode == 0
        assert contents(busy) != before

    def test_the_audit_log_tells_of_it_before_and_after(
        self, sg: Sg, busy: Path, words: tuple[str, ...]
    ) -> None:
        configure(busy, 'audit_log = "changes.jsonl"')
        (busy / "changes.jsonl").write_text('{"half a li')
        assert sg(*words, "--yes", "--reason", "because").returncode == 0
        half, *lines = (busy / "changes.jsonl").read_text().splitlines()
        assert half == '{"half a li', "what was there is not touched"
        entries = [json.loads(line) for line in lines]
        assert [entry["event"] for entry in entries] == ["applying", "applied"]
        assert [entry["reason"] for entry in entries] == ["because"] * 2

    def test_an_audit_log_that_cannot_be_written_comes_first(
        self, sg: Sg, busy: Path, words: tuple[str, ...]
    ) -> None:
        configure(busy, 'audit_log = "missing/changes.jsonl"')
        before = contents(busy)
        result = sg(*words, "--yes")
        assert result.returncode == 1
        assert "missing/changes.jsonl cannot be written" in result.stderr
        assert "nothing was changed" in result.stderr
        assert contents(busy) == before


class TestAuditLog:
    def test_a_line_says_everything(self, sg: Sg, store: Path) -> None:
        configure(store.parent, 'audit_log = "log"\n[targets.shop]\noffsets = "st"\n')
        words = ("offsets", "reset", "shop", "--consumer", "mail", "--to-offset", "1", "--yes")
        assert sg(*words, "--reason", "why").returncode == 0
        before, after = map(json.loads, (store.parent / "log").read_text().splitlines())
        for entry in (before, after):
            assert entry["target"] == {
                "kind": "offset-store",
                "uri": str(store),
                "name": "shop",
                "identity": LockFileOffsetStore.open(str(store)).mark.id,
            }
            assert (entry["title"], entry["reason"]) == ("Reset consumer mail", "why")
            assert "(sluicegate offsets reset shop)" in entry["by"]
            assert entry["time"].endswith("Z")
        assert (after["id"], after["kind"], after["undo"]) == ("mail@2", "reset", "yes")
        assert after["summary"] == "to-offset 1: orders[0] 7 → 1"

    def test_a_change_that_could_not_be_logged_is_reported_as_made(self, store: Path) -> None:
        """Who runs a shift again because it seemed to fail has shifted twice."""
        log = store.parent / "log"
        configure(store.parent, 'audit_log = "log"')
        log.write_bytes(b" " * (2048 - 600) + b"\n")  # room for the first line, not for both
        line = (
            f"ulimit -f 2; trap '' XFSZ; exec '{SCRIPT}' offsets reset ./st --consumer mail "
            "--shift-by -1 --yes"
        )
        result = subprocess.run(
            ["bash", "-c", line],
            cwd=store.parent,
            env=os.environ | {"PYTHONDONTWRITEBYTECODE": "1"},
            capture_output=True,
            text=True,
            check=False,
        )
        assert log.stat().st_size == 2048
        assert positions_of(store, "mail") == {"orders": {0: 6}}
        assert result.returncode == 1
        assert "mail@2 was applied" in result.stderr

    def test_a_full_disk_comes_first(self, sg: Sg, store: Path) -> None:
        configure(store.parent, 'audit_log = "/dev/full"')
        before = contents(store)
        result = sg("offsets", "reset", "./st", "--consumer", "mail", "--shift-by", "-1", "--yes")
        assert result.returncode == 1
        assert "nothing was changed" in result.stderr
        assert contents(store) == before

    def test_nothing_to_do_is_no_change(self, sg: Sg, store: Path) -> None:
        configure(store.parent, 'audit_log = "log"')
        assert sg(*ORDERS, "--to-current", "--yes").returncode == 0
        assert not (store.parent / "log").exists()


class TestResults:
    def test_a_change_whose_result_cannot_be_printed_is_said_to_be_made(self, store: Path) -> None:
        words = ("offsets", "reset", "./st", "--consumer", "mail", "--shift-by", "-1", "--yes")
        with Path("/dev/full").open("w") as full:
            result = subprocess.run(
                [SCRIPT, *words],
                cwd=store.parent,
                stdout=full,
                stderr=subprocess.PIPE,
                text=True,
                check=False,
            )
        assert positions_of(store, "mail") == {"orders": {0: 6}}
        assert result.returncode == 1
        assert "mail@2" in result.stderr

    def test_a_pipe_learns_the_operation_and_its_undo(self, sg: Sg, store: Path) -> None:
        """Otherwise a dry run and a change that was made read the same."""
        result = sg(*ORDERS, "--to-offset", "1", "--yes")
        assert "sluicegate undo" in result.stderr
        assert "billing@3" in result.stderr

    def test_positions_of_the_library_and_the_command_agree(self, sg: Sg, store: Path) -> None:
        found = LockFileOffsetStore(LocalStorage(store))
        found.save("new", Position("t", 0, 2**63 - 1))
        exported = sg("offsets", "export", "./st", "--consumer", "new")
        assert exported.stdout == f'{{"t":{{"0":{2**63 - 1}}}}}\n'
