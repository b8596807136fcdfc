"""Plans as files: saved, approved, applied elsewhere, refused; and what keeps a plan from applying.

A plan that was approved does exactly what it describes, once, or nothing at all.
"""

from __future__ import annotations

import json
import os
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from datetime import UTC, datetime
from hashlib import blake2b
from pathlib import Path
from typing import Any

import pexpect
import pytest

from sluicegate import __version__
from sluicegate.journal import Entry, review
from sluicegate.offsets import LockFileOffsetStore
from sluicegate.offsets.journal import StoreJournal
from sluicegate.plan import Plan
from sluicegate.saved_plan import load
from tests.cli.terminal import Terminal
from tests.conftest import Sg
from tests.offsets.test_commands import (
    BROKER,
    SECOND,
    contents,
    damage,
    make_store,
    positions_of,
    record,
    save_plan,
    write_record,
)

SCRIPT = Path(sys.executable).with_name("sluicegate")
RESET = ("offsets", "reset", "./st", "--consumer", "billing", "--topic", "orders")
DONE = {"orders": {0: 120, 1: 120}, "returns": {0: 5}}
CONSUME = """
import sys
from sluicegate.offsets import LockFileOffsetStore
from sluicegate.positions import Position
store = LockFileOffsetStore.open(sys.argv[1])
store.save(sys.argv[2], Position("orders", 0, int(sys.argv[3])))
print("committed", flush=True)
sys.stdin.read()
"""

Document = dict[str, Any]


@pytest.fixture
def store(tmp_path: Path) -> Path:
    return make_store(tmp_path / "st")


@pytest.fixture
def plan(sg: Sg, store: Path) -> Path:
    """A plan to set both partitions of orders to 120."""
    words = (*RESET, "--to-offset", "120", "--plan-out", "plan.json", "--reason", "ticket 4711")
    assert sg(*words).returncode == 0
    return store.parent / "plan.json"


@contextmanager
def consuming(store: Path, consumer: str, offset: int) -> Iterator[subprocess.Popen[str]]:
    """A consumer that commits orders[0] once, and then lives on."""
    process = subprocess.Popen(
        [sys.executable, "-c", CONSUME, str(store), consumer, str(offset)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdout
    with process:
        try:
            assert process.stdout.readline() == "committed\n"
            yield process
        finally:
            process.kill()


def commit(store: Path, consumer: str, offset: int) -> None:
    """A commit of orders[0] by a process that is gone."""
    with consuming(store, consumer, offset):
        pass


def rewrite(place: Path, edit: Callable[[Document], object], *, digest: bool = True) -> Path:
    """Edit a plan; with `digest`, with a digest that matches the edit."""
    document = json.loads(place.read_text())
    edit(document)
    if digest:
        document.pop("digest")
        canonical = json.dumps(document, sort_keys=True, separators=(",", ":"))
        document["digest"] = blake2b(canonical.encode(), digest_size=32).hexdigest()
    place.write_text(json.dumps(document, indent=2))
    return place


def put(document: Document, *path: str | int, value: object) -> None:
    *above, last = path
    at: Any = document
    for step in above:
        at = at[step]
    at[last] = value


def history(sg: Sg) -> list[Document]:
    entries: list[Document] = json.loads(sg("history", "./st", "--json").stdout)["entries"]
    return entries


class TestSaving:
    def test_changes_nothing_but_the_new_file(self, sg: Sg, store: Path) -> None:
        before = contents(store)
        result = sg(*RESET, "--to-offset", "120", "--plan-out", "plan.json", "--json")
        assert result.returncode == 0, "it needs no confirmation"
        document = json.loads(result.stdout)
        assert (document["schema"], document["version"]) == ("sluicegate.plan", 1)
        assert (document["applied"], document["operation"]) == (False, None)
        saved = load(str(store.parent / "plan.json"))
        assert document["saved"] == {
            "file": "plan.json",
            "digest": saved.digest,
            "expires": saved.expires,
        }
        assert contents(store) == before
        assert sorted(os.listdir(store.parent)) == ["plan.json", "st"]

    def test_the_file_says_everything(self, plan: Path, store: Path) -> None:
        text = plan.read_text()
        assert text.startswith('{\n  "schema": "sluicegate.saved-plan",\n  "version": 1,\n')
        document = json.loads(text)
        digest = document.pop("digest")
        canonical = json.dumps(document, sort_keys=True, separators=(",", ":"))
        assert digest == blake2b(canonical.encode(), digest_size=32).hexdigest()
        made, expires = (
            datetime.fromisoformat(document.pop(name)) for name in ("made_at", "expires")
        )
        assert abs(datetime.now(UTC).timestamp() - made.timestamp()) < 60
        assert (expires - made).total_seconds() == 24 * 3600
        author = document.pop("by")
        assert author.startswith(f"root@{socket.gethostname()} pid ") or os.getuid() != 0
        assert author.endswith("(sluicegate offsets reset ./st)")
        again = "Their effects happen again unless the consumer recognises events it has seen."
        expected = {
            "title": "Reset consumer billing",
            "target": {
                "kind": "offset-store",
                "uri": str(store),
                "name": None,
                "identity": LockFileOffsetStore.open(str(store)).mark.id,
            },
            "release": __version__,
            "reason": "ticket 4711",
            "preconditions": [
                {"what": "orders[0] of consumer billing", "expected": 150},
                {"what": "orders[1] of consumer billing", "expected": 200},
            ],
            "actions": [
                {
                    "verb": "rewind",
                    "place": "orders[0]",
                    "detail": "re-reads 30 events",
                    "old": 150,
                    "new": 120,
                },
                {
                    "verb": "rewind",
                    "place": "orders[1]",
                    "detail": "re-reads 80 events",
                    "old": 200,
                    "new": 120,
                },
            ],
            "consequences": [
                "Asked for: to-offset 120.",
                f"Re-reads 110 events of orders[0], orders[1]. {again}",
                BROKER,
            ],
            "work": {
                "operation": "reset",
                "consumer": "billing",
                "put": {"orders": {"0": 120, "1": 120}},
                "remove": [],
                "note": "to-offset 120",
                "undoes": None,
                "version": None,
                "force": False,
            },
        }
        assert {key: document[key] for key in expected} == expected

    def test_on_a_terminal_it_tells_how_to_apply_it(self, store: Path) -> None:
        words = (*RESET, "--to-offset", "120", "--plan-out", "a plan.json", "--expires", "PT1H")
        code, text = Terminal(*words, cwd=store.parent, columns=200).finish_plain()
        assert code == 0
        saved = load(str(store.parent / "a plan.json"))
        assert text.splitlines()[-2:] == [
            f"Saved as a plan.json, valid until {saved.expires}. Nothing was changed.",
            f"Apply it with: sluicegate apply 'a plan.json' --expect {saved.digest}",
        ]

    def test_in_a_pipe_it_tells_how_to_apply_it_too(self, sg: Sg, store: Path) -> None:
        result = sg(*RESET, "--to-offset", "120", "--plan-out", "plan.json")
        assert load(str(store.parent / "plan.json")).digest in result.stderr

    def test_never_overwrites(self, sg: Sg, store: Path) -> None:
        root = store.parent
        (root / "file").write_text("mine")
        (root / "link").symlink_to("nowhere")
        (root / "directory").mkdir()
        before = contents(root)
        for name in ("file", "link", "directory"):
            result = sg(*RESET, "--to-offset", "120", "--plan-out", name)
            assert result.returncode == 1
            assert f"{name} already exists" in result.stderr
        assert contents(root) == before
        assert not (root / "nowhere").exists()

    def test_a_directory_that_is_not_there(self, sg: Sg, store: Path) -> None:
        result = sg(*RESET, "--to-offset", "120", "--plan-out", "missing/plan.json")
        assert result.returncode == 10
        assert not (store.parent / "missing").exists()

    def test_nothing_to_do_is_no_plan(self, sg: Sg, store: Path) -> None:
        assert sg(*RESET, "--to-current", "--plan-out", "plan.json").returncode == 0
        assert not (store.parent / "plan.json").exists()

    def test_a_reason_can_be_demanded(self, sg: Sg, store: Path) -> None:
        (store.parent / "sluicegate.toml").write_text("require_reason = true\nread_only = true\n")
        words = (*RESET, "--to-offset", "120", "--plan-out", "plan.json")
        assert sg(*words).returncode == 4
        assert not (store.parent / "plan.json").exists()
        assert sg(*words, "--reason", "why").returncode == 0, "a plan changes nothing"

    @pytest.mark.parametrize("lifetime", ["soon", "1m", "-1h", ""])
    def test_a_lifetime_that_is_none(self, sg: Sg, store: Path, lifetime: str) -> None:
        words = (*RESET, "--to-offset", "120", "--plan-out", "plan.json")
        result = sg(*words, f"--expires={lifetime}")
        assert result.returncode == 2
        assert not (store.parent / "plan.json").exists()

    @pytest.mark.parametrize(
        "words",
        [
            ("offsets", "import", "./st", "-", "--consumer", "billing"),
            ("offsets", "delete", "./st", "--consumer", "billing", "--all-topics"),
            ("undo", "./st", "--op", "billing@2"),
        ],
        ids=["import", "delete", "undo"],
    )
    def test_every_change_of_a_store_can_be_saved_and_applied(
        self, sg: Sg, store: Path, words: tuple[str, ...]
    ) -> None:
        before = contents(store)
        assert sg(*words, "--plan-out", "plan.json", input="orders 0 1\n").returncode == 0
        assert contents(store) == before
        assert sg("apply", "plan.json", "--yes").returncode == 0
        assert (
            positions_of(store, "billing")
            == {
                "import": {**SECOND, "orders": {0: 1, 1: 200}},
                "delete": {},
                "./st": {**SECOND, "orders": {0: 100, 1: 200}},
            }[words[1]]
        )


class TestApplying:
    def test_does_it_and_records_plan_and_author(self, sg: Sg, store: Path, plan: Path) -> None:
        saved = load(str(plan))
        result = sg("apply", "plan.json", "--yes", "--json")
        assert result.returncode == 0
        document = json.loads(result.stdout)
        assert (document["applied"], document["operation"]["id"]) == (True, "billing@3")
        assert positions_of(store, "billing") == DONE
        entry = history(sg)[0]
        assert (entry["id"], entry["kind"]) == ("billing@3", "reset")
        assert entry["plan_digest"] == saved.digest
        assert entry["planned_by"] == saved.by
        assert entry["reason"] == "ticket 4711"
        assert "(sluicegate apply plan.json)" in entry["by"], "it was applied by another process"

    def test_on_a_terminal_it_shows_and_asks(self, store: Path, plan: Path) -> None:
        terminal = Terminal("apply", "plan.json", "--no-color", cwd=store.parent, columns=200)
        terminal.process.expect_exact("Proceed? [y/N] ")
        shown = str(terminal.process.before)
        assert f"Reset consumer billing in {store}" in shown
        assert "rewind  orders[1]  200  120    -80  re-reads 80 events" in shown
        terminal.process.sendline("y")
        assert terminal.finish_plain()[0] == 0
        assert positions_of(store, "billing") == DONE

    def test_a_dry_run_tells_whether_it_still_holds(self, sg: Sg, store: Path, plan: Path) -> None:
        before = contents(store)
        assert sg("apply", "plan.json", "--dry-run").returncode == 0
        assert contents(store) == before
        commit(store, "billing", 151)
        assert sg("apply", "plan.json", "--dry-run").returncode == 5

    def test_another_reason_replaces_the_plans(self, sg: Sg, plan: Path) -> None:
        assert sg("apply", "plan.json", "--yes", "--reason", "now").returncode == 0
        assert history(sg)[0]["reason"] == "now"

    def test_expecting_the_digest_that_was_approved(self, sg: Sg, store: Path, plan: Path) -> None:
        digest = load(str(plan)).digest
        for right in (digest, digest[:16], digest.upper(), f" {digest}\n"):
            assert sg("apply", "plan.json", "--expect", right, "--dry-run").returncode == 0
        wrong = digest[:-1] + ("0" if digest[-1] != "0" else "1")
        for refused in (wrong, digest[:15], "", digest + "0", digest[1:]):
            result = sg("apply", "plan.json", "--expect", refused, "--yes")
            assert result.returncode == 4, refused
            assert digest in result.stderr
        assert positions_of(store, "billing") == SECOND

    def test_twice_is_once(self, sg: Sg, store: Path, plan: Path) -> None:
        assert sg("apply", "plan.json", "--yes").returncode == 0
        before = contents(store)
        again = sg("apply", "plan.json", "--json")
        assert again.returncode == 0, "and nothing is asked"
        assert "Already applied, as billing@3 at " in again.stderr
        document = json.loads(again.stdout)
        assert (document["actions"], document["operation"]["id"]) == ([], "billing@3")
        # It made sure that what it found is durable, under the lock, which has a note of that.
        left = contents(store)
        assert left.keys() == before.keys()
        assert {n: d for n, d in left.items() if n != "billing.lock"} == {
            n: d for n, d in before.items() if n != "billing.lock"
        }
        commit(store, "billing", 121)
        assert sg("apply", "plan.json", "--yes").returncode == 0, "also when it went on since"
        assert positions_of(store, "billing")["orders"][0] == 121

    def test_what_was_undone_is_not_applied_again(self, sg: Sg, store: Path, plan: Path) -> None:
        assert sg("apply", "plan.json", "--yes").returncode == 0
        assert sg("undo", "./st", "--yes").returncode == 0
        result = sg("apply", "plan.json", "--yes")
        assert result.returncode == 5
        assert "this plan was applied as billing@3, and undone by billing@4 since" in result.stderr
        assert positions_of(store, "billing") == SECOND

    def test_the_plan_of_an_undo(self, sg: Sg, store: Path, plan: Path) -> None:
        assert sg("apply", "plan.json", "--yes").returncode == 0
        assert sg("undo", "./st", "--plan-out", "back.json").returncode == 0
        assert positions_of(store, "billing") == DONE
        assert sg("apply", "back.json", "--yes").returncode == 0
        assert positions_of(store, "billing") == SECOND
        newest, older = history(sg)[:2]
        assert (newest["kind"], newest["undoes"]) == ("undo", "billing@3")
        assert older["undo"] == "undone by billing@4"

    def test_the_plan_of_a_restore(self, sg: Sg, store: Path) -> None:
        damage(store, "billing")
        assert (
            sg("undo", "./st", "--consumer", "billing", "--plan-out", "plan.json").returncode == 0
        )
        assert sg("apply", "plan.json", "--yes").returncode == 0
        assert positions_of(store, "billing") == SECOND
        again = sg("apply", "plan.json", "--yes")
        assert (again.returncode, "Already applied" in again.stderr) == (0, True)

    def test_a_restore_of_another_damage_is_refused(self, sg: Sg, store: Path) -> None:
        damage(store, "billing")
        assert (
            sg("undo", "./st", "--consumer", "billing", "--plan-out", "plan.json").returncode == 0
        )
        before = damage(store, "billing")
        assert sg("apply", "plan.json", "--yes").returncode == 5
        assert (store / "billing.offsets").read_bytes() == before

    def test_read_only_is_obeyed(self, sg: Sg, store: Path, plan: Path) -> None:
        (store.parent / "sluicegate.toml").write_text("read_only = true\n")
        before = contents(store)
        assert sg("apply", "plan.json", "--yes").returncode == 4
        assert contents(store) == before

    def test_the_plans_reason_is_reason_enough(self, sg: Sg, store: Path, plan: Path) -> None:
        (store.parent / "sluicegate.toml").write_text("require_reason = true\n")
        assert sg("apply", "plan.json", "--yes").returncode == 0
        assert positions_of(store, "billing") == DONE


class TestTampering:
    @pytest.fixture
    def plan(self, store: Path) -> Path:
        place = store.parent / "plan.json"
        save_plan(store, place, 120)
        return place

    @pytest.mark.parametrize(
        ("path", "value"),
        [
            (("title",), "Nothing to see"),
            (("reason",), "another reason"),
            (("by",), "somebody@else"),
            (("expires",), "2099-01-01T00:00:00Z"),
            (("actions", 0, "new"), 149),
            (("consequences", 0), "Harmless."),
            (("preconditions", 0, "expected"), 151),
            (("work", "put", "orders", "0"), 0),
            (("work", "force"), True),
        ],
    )
    def test_an_edit_is_noticed(
        self, sg: Sg, store: Path, plan: Path, path: tuple[str | int, ...], value: object
    ) -> None:
        rewrite(plan, lambda document: put(document, *path, value=value), digest=False)
        result = sg("apply", "plan.json", "--yes")
        assert result.returncode == 12
        assert "was changed after it was made" in result.stderr
        assert positions_of(store, "billing") == SECOND

    @pytest.mark.parametrize(
        ("path", "value"),
        [
            (("work", "put", "orders", "0"), 0),
            (("work", "put", "returns"), {"0": 0}),
            (("work", "remove"), [["returns", 0]]),
            (("work", "force"), True),
            (("work", "undoes"), "billing@2"),
            (("actions", 0, "new"), 149),
            (("actions", 0, "detail"), "harmless"),
            (("actions",), []),
            (("consequences",), []),
            (("title",), "Nothing to see"),
        ],
    )
    def test_texts_that_do_not_match_the_work_are_refused(
        self, sg: Sg, store: Path, plan: Path, path: tuple[str | int, ...], value: object
    ) -> None:
        """The digest was computed again, so that only the texts reveal the edit."""
        rewrite(plan, lambda document: put(document, *path, value=value))
        result = sg("apply", "plan.json", "--yes")
        assert result.returncode in (5, 12), result.stdout
        assert positions_of(store, "billing") == SECOND

    @pytest.mark.parametrize(
        ("path", "value"),
        [
            (("reason",), 5),
            (("reason",), ["a", "list"]),
            (("by",), None),
            (("expires",), "tomorrow"),
            (("expires",), "2099-01-01T00:00:00"),
            (("target",), None),
            (("target", "name"), []),
            (("target", "uri"), 5),
            (("target", "surprise"), 5),
            (("preconditions", 0, "what"), []),
            (("preconditions",), {}),
            (("actions",), 5),
            (("work",), []),
            (("work", "surprise"), 1),
            (("work", "operation"), "format the disk"),
            (("work", "put", "orders", "0"), 2**63),
            (("work", "put", "orders", "0"), -1),
            (("work", "put", "orders", "0"), "120"),
            (("work", "remove"), [["orders", float("inf")]]),
            (("work", "remove"), [["orders"]]),
            (("work", "consumer"), "../billing"),
        ],
    )
    def test_a_plan_that_is_none_is_a_typed_error(
        self, sg: Sg, store: Path, plan: Path, path: tuple[str | int, ...], value: object
    ) -> None:
        rewrite(plan, lambda document: put(document, *path, value=value))
        before = contents(store.parent)
        result = sg("apply", "plan.json", "--yes")
        assert positions_of(store, "billing") == SECOND, "above all the store stays readable"
        assert contents(store.parent) == before
        assert result.returncode in (2, 5, 10, 12), result.stderr
        assert "error: unexpected" not in result.stderr

    def test_the_layout_of_the_file_does_not_matter(self, sg: Sg, store: Path, plan: Path) -> None:
        document = json.loads(plan.read_text())
        mixed = dict(reversed(document.items()))
        plan.write_text(json.dumps(mixed, indent=7).replace("\n", "\r\n"))
        assert sg("apply", "plan.json", "--yes").returncode == 0
        assert positions_of(store, "billing") == DONE

    def test_a_key_given_twice(self, sg: Sg, plan: Path) -> None:
        text = plan.read_text()
        plan.write_text(text.replace('"force": false', '"force": true,\n    "force": false'))
        result = sg("apply", "plan.json", "--yes")
        assert result.returncode == 12
        assert "a key occurs twice" in result.stderr

    @pytest.mark.parametrize(
        "data",
        [b"", b"{}", b"[]", b"5", b"not JSON", b"\xff\xfe\x00", b"[" * 100_000, b'{"a":' * 9999],
        ids=["empty", "object", "list", "number", "text", "binary", "lists", "objects"],
    )
    def test_what_is_no_plan(self, sg: Sg, tmp_path: Path, data: bytes) -> None:
        (tmp_path / "plan.json").write_bytes(data)
        result = sg("apply", "plan.json", "--yes")
        assert result.returncode == 12
        assert "plan.json is not a plan" in result.stderr
        assert "--plan-out" in result.stderr

    def test_a_cut_file(self, sg: Sg, store: Path, plan: Path) -> None:
        data = plan.read_bytes()
        for length in (1, len(data) // 2, len(data) - 3):
            plan.write_bytes(data[:length])
            assert sg("apply", "plan.json", "--yes").returncode == 12
        assert positions_of(store, "billing") == SECOND

    def test_a_huge_file_is_not_read(self, sg: Sg, tmp_path: Path) -> None:
        with (tmp_path / "plan.json").open("wb") as stream:
            stream.truncate(10**12)
        started = time.monotonic()
        assert sg("apply", "plan.json", "--yes").returncode == 12
        assert time.monotonic() - started < 20

    @pytest.mark.parametrize("version", [2, 0, "1", None])
    def test_another_version(self, sg: Sg, plan: Path, version: object) -> None:
        rewrite(plan, lambda document: put(document, "version", value=version))
        result = sg("apply", "plan.json", "--yes")
        assert result.returncode == 14
        assert "plan.json is a plan of version" in result.stderr

    def test_no_file(self, sg: Sg, tmp_path: Path) -> None:
        result = sg("apply", "missing.json", "--yes")
        assert result.returncode == 10
        assert "missing.json does not exist" in result.stderr


class TestDrift:
    def test_an_expired_plan(self, sg: Sg, store: Path) -> None:
        words = (*RESET, "--to-offset", "120", "--expires", "1s", "--plan-out", "plan.json")
        assert sg(*words).returncode == 0
        expires = load(str(store.parent / "plan.json")).expires
        time.sleep(max(0.0, datetime.fromisoformat(expires).timestamp() - time.time()) + 0.01)
        result = sg("apply", "plan.json", "--yes")
        assert result.returncode == 5
        assert f"plan.json expired at {expires}" in result.stderr
        assert positions_of(store, "billing") == SECOND

    def test_a_position_it_touches_moved(self, sg: Sg, store: Path, plan: Path) -> None:
        commit(store, "billing", 151)
        result = sg("apply", "plan.json", "--yes")
        assert result.returncode == 5
        assert "orders[0] of consumer billing was 150, is 151" in result.stderr
        assert "create a new plan" in result.stderr
        assert positions_of(store, "billing")["orders"] == {0: 151, 1: 200}

    def test_a_position_it_touches_is_gone(self, sg: Sg, store: Path, plan: Path) -> None:
        words = ("offsets", "delete", "./st", "--consumer", "billing", "--topic", "orders:1")
        assert sg(*words, "--yes").returncode == 0
        result = sg("apply", "plan.json", "--yes")
        assert result.returncode == 5
        assert "orders[1] of consumer billing was 200, is absent" in result.stderr

    def test_other_partitions_and_consumers_may_move(self, sg: Sg, store: Path, plan: Path) -> None:
        newer = {"orders": {0: 150, 1: 200, 2: 9}, "returns": {0: 6}}
        write_record(store, record("billing", 3, datetime.now(UTC), newer))
        commit(store, "mail", 8)
        assert sg("apply", "plan.json", "--yes").returncode == 0
        assert positions_of(store, "billing") == {
            "orders": {0: 120, 1: 120, 2: 9},
            "returns": {0: 6},
        }

    def test_another_store_with_the_same_content(self, sg: Sg, store: Path, plan: Path) -> None:
        shutil.rmtree(store)
        make_store(store)
        result = sg("apply", "plan.json", "--yes")
        assert result.returncode == 5
        assert "identity was" in result.stderr
        assert positions_of(store, "billing") == SECOND

    def test_a_store_that_is_gone(self, sg: Sg, store: Path, plan: Path) -> None:
        store.rename(store.parent / "elsewhere")
        assert sg("apply", "plan.json", "--yes").returncode == 10
        assert not store.exists()

    def test_what_moves_while_the_operator_thinks(self, store: Path) -> None:
        terminal = Terminal(*RESET, "--to-offset", "120", cwd=store.parent)
        terminal.process.expect_exact("Proceed? [y/N] ")
        commit(store, "billing", 151)
        terminal.process.sendline("y")
        code, text = terminal.finish_plain()
        assert code == 5
        assert "orders[0] of consumer billing was 150, is 151" in text
        assert positions_of(store, "billing")["orders"] == {0: 151, 1: 200}


class TestElsewhere:
    def test_a_named_store_is_found_where_the_other_host_has_it(self, sg: Sg, store: Path) -> None:
        here, there = store.parent, store.parent / "other-host"
        (here / "sluicegate.toml").write_text('[targets.shop]\noffsets = "st"\n')
        words = ("offsets", "reset", "shop", "--consumer", "mail", "--to-offset", "1")
        assert sg(*words, "--plan-out", "plan.json", "--reason", "why").returncode == 0
        there.mkdir()
        store.rename(there / "mounted-here")
        (there / "sluicegate.toml").write_text('[targets.shop]\noffsets = "mounted-here"\n')
        (here / "plan.json").rename(there / "plan.json")
        result = sg("apply", "plan.json", "--yes", cwd=there)
        assert result.returncode == 0, result.stderr
        assert positions_of(there / "mounted-here", "mail") == {"orders": {0: 1}}

    def test_also_for_a_restore(self, sg: Sg, store: Path) -> None:
        here, there = store.parent, store.parent / "other-host"
        (here / "sluicegate.toml").write_text('[targets.shop]\noffsets = "st"\n')
        damage(store, "billing")
        assert (
            sg("undo", "shop", "--consumer", "billing", "--plan-out", "plan.json").returncode == 0
        )
        there.mkdir()
        store.rename(there / "mounted-here")
        (there / "sluicegate.toml").write_text('[targets.shop]\noffsets = "mounted-here"\n')
        (here / "plan.json").rename(there / "plan.json")
        result = sg("apply", "plan.json", "--yes", cwd=there)
        assert result.returncode == 0, result.stderr
        assert positions_of(there / "mounted-here", "billing") == SECOND

    def test_a_name_that_means_another_store_there(self, sg: Sg, store: Path) -> None:
        here, there = store.parent, store.parent / "other-host"
        (here / "sluicegate.toml").write_text('[targets.shop]\noffsets = "st"\n')
        words = ("offsets", "reset", "shop", "--consumer", "mail", "--to-offset", "1")
        assert sg(*words, "--plan-out", "plan.json").returncode == 0
        make_store(there)
        (there / "sluicegate.toml").write_text('[targets.shop]\noffsets = "."\n')
        assert sg("apply", "../plan.json", "--yes", cwd=there).returncode == 5
        assert positions_of(there, "mail") == positions_of(store, "mail") == {"orders": {0: 7}}

    def test_a_copy_is_the_same_store(self, sg: Sg, store: Path, plan: Path) -> None:
        shutil.copytree(store, store.parent / "copy")
        shutil.rmtree(store)
        (store.parent / "copy").rename(store)
        assert sg("apply", "plan.json", "--yes").returncode == 0


class TestTogether:
    def test_of_two_at_once_exactly_one_applies(self, sg: Sg, store: Path) -> None:
        for turn in range(3):
            target = str(119 - turn)
            name = f"plan-{turn}.json"
            assert sg(*RESET, "--to-offset", target, "--plan-out", name).returncode == 0
            racing = [
                subprocess.Popen(
                    [SCRIPT, "apply", name, "--yes", "--json"],
                    cwd=store.parent,
                    stdout=subprocess.PIPE,
                    stderr=subprocess.PIPE,
                    text=True,
                )
                for _ in range(2)
            ]
            answers = [(*process.communicate(timeout=60), process.returncode) for process in racing]
            assert {code for _, _, code in answers} == {0}, answers
            made = [entry for entry in history(sg) if entry["plan_digest"]]
            assert len(made) == turn + 1, "each plan once"
            assert made[0]["plan_digest"] == load(str(store.parent / name)).digest
            operations = [json.loads(out)["operation"]["id"] for out, _, _ in answers]
            assert operations == [made[0]["id"]] * 2, "both get its id"
            assert positions_of(store, "billing")["orders"] == {0: 119 - turn, 1: 119 - turn}

    def test_applied_by_another_process_while_it_is_reviewed(self, sg: Sg, store: Path) -> None:
        """The history is read, then the other process applies, then the plan is made again."""
        assert sg(*RESET, "--to-offset", "119", "--plan-out", "plan.json").returncode == 0

        class Overtaken(StoreJournal):
            def plan(self, work: Mapping[str, Any]) -> Plan:
                assert sg("apply", "plan.json", "--yes").returncode == 0
                return super().plan(work)

        saved = load(str(store.parent / "plan.json"))
        found = review(Overtaken(LockFileOffsetStore.open(str(store))), saved)
        assert isinstance(found, Entry)
        assert found.plan_digest == saved.digest


class TestLivingConsumer:
    def test_is_a_refusal_with_the_evidence(self, sg: Sg, store: Path) -> None:
        words = (*RESET, "--to-offset", "120", "--yes")
        with consuming(store, "billing", 151) as consumer:
            before = contents(store)
            refused = sg(*words)
            assert refused.returncode == 11
            for evidence in (
                f"pid {consumer.pid}",
                f"@{socket.gethostname()}",
                "alive",
                "billing@3",
            ):
                assert evidence in refused.stderr
            assert "--force" in refused.stderr
            assert contents(store) == before
            consumer.kill()
            consumer.wait()
            assert sg(*words).returncode == 0
        assert positions_of(store, "billing") == DONE

    def test_is_shown_before_the_question(self, store: Path) -> None:
        with consuming(store, "billing", 151):
            terminal = Terminal("undo", "./st", "--op", "billing@3", cwd=store.parent)
            asked = terminal.process.expect_exact(["Proceed? [y/N] ", pexpect.EOF])
            assert asked == 1, "a question whose answer cannot matter"
            assert terminal.finish_plain()[0] == 11

    def test_is_noted_by_a_dry_run_and_a_plan(self, sg: Sg, store: Path) -> None:
        with consuming(store, "billing", 151) as consumer:
            for options in (("--dry-run",), ("--plan-out", "plan.json")):
                result = sg(*RESET, "--to-offset", "120", *options)
                assert result.returncode == 0
                assert f"pid {consumer.pid}" in result.stderr

    @pytest.mark.parametrize(
        "words",
        [
            ("offsets", "import", "./st", "-", "--consumer", "billing"),
            ("offsets", "delete", "./st", "--consumer", "billing", "--all-topics"),
            ("undo", "./st", "--op", "billing@3"),
        ],
        ids=["import", "delete", "undo"],
    )
    def test_counts_for_every_change(self, sg: Sg, store: Path, words: tuple[str, ...]) -> None:
        with consuming(store, "billing", 151):
            assert sg(*words, "--yes", input="orders 0 1\n").returncode == 11
            assert positions_of(store, "billing")["orders"][0] == 151
            assert sg(*words, "--yes", "--force", input="orders 0 1\n").returncode == 0

    def test_only_for_its_own_consumer(self, sg: Sg, store: Path) -> None:
        with consuming(store, "mail", 8):
            assert sg(*RESET, "--to-offset", "120", "--yes").returncode == 0

    def test_can_be_overruled_and_that_is_said(self, sg: Sg, store: Path) -> None:
        with consuming(store, "billing", 151):
            forced = sg(*RESET, "--to-offset", "120", "--yes", "--force")
        assert forced.returncode == 0
        assert "Forced: a consumer that still runs overwrites this with its next commit" in (
            forced.stdout
        )
        assert positions_of(store, "billing") == DONE

    def test_is_not_forgotten_after_it_was_overruled(self, sg: Sg, store: Path) -> None:
        with consuming(store, "billing", 151):
            assert sg(*RESET, "--to-offset", "120", "--yes", "--force").returncode == 0
            assert sg(*RESET, "--to-offset", "119", "--yes").returncode == 11

    def test_keeps_a_saved_plan_from_applying(self, sg: Sg, store: Path) -> None:
        commit(store, "billing", 151)
        assert sg(*RESET, "--to-offset", "120", "--plan-out", "plan.json").returncode == 0
        with consuming(store, "billing", 151):
            refused = sg("apply", "plan.json", "--yes")
            assert refused.returncode == 11
            assert "plan the change with --force" in refused.stderr, "apply has no such option"
        assert sg("apply", "plan.json", "--yes").returncode == 0

    def test_a_plan_that_was_made_with_force_goes_through(self, sg: Sg, store: Path) -> None:
        words = (*RESET, "--to-offset", "120", "--force", "--plan-out", "plan.json")
        assert sg(*words).returncode == 0
        document = json.loads((store.parent / "plan.json").read_text())
        assert any(text.startswith("Forced: ") for text in document["consequences"])
        with consuming(store, "billing", 150):
            assert sg("apply", "plan.json", "--yes").returncode == 0
        assert positions_of(store, "billing") == DONE
