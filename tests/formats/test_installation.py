"""A home with streams, an offset store, producers, logs and saved plans, as f37eb7e left them.

Later releases open stores, producers and logs, and continue them. A change that was interrupted
has happened or not, and is done again or undone. Saved plans, and streams, which are of format 1,
are refused by name.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.drive import Done, Driver
from tests.formats import library
from tests.formats.archive import opened

ARCHIVE = opened("installation")
STREAMS = ("clicks", "views", "visits")
UNSUPPORTED = 14
# Of a stream; `--yes` and `--dry-run` make sure that none of them asks.
COMMANDS = (
    "checkpoint inspect clicks",
    "checkpoint list clicks",
    "checkpoint verify clicks --read-data",
    "checkpoint verify home/clicks",
    "checkpoint rollback clicks --to 6 --yes",
    "checkpoint repair clicks --yes",
    "checkpoint prune clicks --keep 2 --yes",
    "offsets show clicks",
    "offsets reset clicks --shift-by -10 --skip-seen --yes",
    "history clicks",
    "undo clicks --yes",
    "audit clicks",
    "dedup stats clicks",
    "dedup compact clicks --yes",
    "state query clicks",
    "shards show clicks",
    "locks break clicks --yes",
    "submit clicks --dry-run",
    "apply plans/stream.json --yes",
    "init --dry-run",
)
DRIFTED = 5
CORRUPT = 12


class Installation:
    """A copy of the installation, and the command line in it."""

    def __init__(self, run: Driver, root: Path) -> None:
        self._run, self.root = run, root

    def run(self, *words: str) -> Done:
        """What a command did."""
        return self._run(*words, "--json", cwd=self.root)

    def __call__(self, *words: str, code: int = 0) -> dict[str, Any]:
        """The document of a command that must end with this code."""
        done = self.run(*words)
        assert done.code == code, (words, done.stdout, done.stderr)
        return done.document if done.stdout else done.error

    def consumer(self, name: str) -> tuple[int, dict[int, int]]:
        """The newest commit of a consumer: its sequence and positions."""
        found = self("offsets", "show", "billing")["consumers"]
        (one,) = (each for each in found if each["consumer"] == name)
        return one["sequence"], {each["partition"]: each["offset"] for each in one["positions"]}

    def history(self, *target: str) -> list[dict[str, Any]]:
        entries: list[dict[str, Any]] = self("history", *target)["entries"]
        return entries


@pytest.fixture
def here(run: Driver, place: Path) -> Installation:
    return Installation(run, ARCHIVE.unpack("installation", place / "installation"))


class TestStreams:
    """Streams of format 1 are refused by name, and nothing touches them."""

    @pytest.mark.parametrize("words", COMMANDS)
    def test_refused(self, here: Installation, words: str) -> None:
        before = files(here.root)
        error = here(*words.split(), code=UNSUPPORTED)
        assert "format version 1" in error["message"]
        assert "use that release" in error["hint"]
        assert files(here.root) == before

    @pytest.mark.parametrize("head", ["missing", "damaged"])
    @pytest.mark.parametrize("words", COMMANDS)
    def test_refused_without_its_head(self, here: Installation, words: str, head: str) -> None:
        """However damaged it is, it does not look like an empty stream that may begin again."""
        path = here.root / "home" / "clicks" / "HEAD"
        path.unlink() if head == "missing" else path.write_bytes(b"?")
        before = files(here.root)
        done = here.run(*words.split())
        assert done.code in (UNSUPPORTED, CORRUPT)
        assert files(here.root) == before

    def test_status_names_each(self, here: Installation) -> None:
        found = here("status", code=3)
        states = {each["target"]: each["state"] for each in found["targets"]}
        assert states == dict.fromkeys(STREAMS, "error") | {"billing": "ok", "orders": "ok"}
        details = [each["detail"] for each in found["findings"]]
        assert len(details) == len(STREAMS)
        assert all("format version 1" in each for each in details)

    def test_maintenance_leaves_them_and_does_the_rest(self, here: Installation) -> None:
        before = files(here.root / "home")
        here("maintain", "--all", "--yes", code=3)
        assert files(here.root / "home") == before


def files(root: Path) -> dict[str, bytes]:
    """Everything below a directory that is not a lock."""
    paths = (path for path in root.rglob("*") if path.is_file() and path.suffix != ".lock")
    return {str(path.relative_to(root)): path.read_bytes() for path in paths}


class TestStore:
    def test_positions_and_history(self, here: Installation) -> None:
        assert here.consumer("invoices") == (7, {0: 12000, 1: 9875})
        assert here.consumer("mails") == (3, {0: 7, 1: 8})
        entries = here.history("billing", "--consumer", "invoices")
        assert [each["id"] for each in entries] == [f"invoices@{n}" for n in range(7, 0, -1)]
        assert (entries[0]["kind"], entries[0]["reason"]) == ("reset", "again")
        undone = here.history("billing", "--consumer", "mails")
        assert [each["kind"] for each in undone] == ["undo", "reset", "commit"]

    def test_a_reset_and_a_commit_continue_it(self, here: Installation) -> None:
        words = ("--consumer", "invoices", "--yes")
        here("offsets", "reset", "billing", "--to-offset", "12340", "--topic", "orders:0", *words)
        assert here.consumer("invoices") == (8, {0: 12340, 1: 9875})
        library.commit(here.root / "store", "invoices", {0: 12400, 1: 9900})
        assert here.consumer("invoices") == (9, {0: 12400, 1: 9900})

    def test_an_error_is_one_document_with_the_notes_before_it(self, here: Installation) -> None:
        words = ("--consumer", "invoices", "--topic", "orders:0", "--shift-by", "-1")
        error = here("offsets", "reset", "billing", *words, code=4)
        assert "invoices was last used by" in error["notes"][0]

    def test_an_operation_is_undone(self, here: Installation) -> None:
        here("undo", "billing", "--consumer", "invoices", "--yes")
        assert here.consumer("invoices") == (8, {0: 12340, 1: 9875})


def test_an_assignment_file_and_its_history(here: Installation) -> None:
    owners = here("shards", "show", "assignment.json")["owners"]
    assert {owners.count(node) for node in set(owners)} == {4}
    here("undo", "assignment.json", "--yes")
    before = here("shards", "show", "assignment.json")["loads"]
    assert before == {"node-0": 3, "node-1": 3, "node-2": 2}
    assert [each["kind"] for each in here.history("assignment.json")][1:] == ["rebalance"] * 2


class TestPlans:
    @pytest.mark.parametrize("name", ["store", "undo", "checkpoint", "assignment"])
    def test_refused_by_the_name_of_its_release(self, here: Installation, name: str) -> None:
        """What was approved is a text, and later releases describe the same change differently."""
        before = files(here.root)
        error = here("apply", f"plans/{name}.json", "--yes", code=DRIFTED)
        assert f"plans/{name}.json was made by release 0.1.0" in error["message"]
        assert "create a new plan" in error["hint"]
        assert files(here.root) == before

    def test_edited(self, here: Installation) -> None:
        path = here.root / "plans" / "store.json"
        path.write_text(path.read_text().replace("11960", "11961"))
        here("apply", "plans/store.json", "--yes", code=12)
        assert here.consumer("invoices")[0] == 7


class TestProducersAndLogs:
    def test_a_producer_that_was_killed_still_owes_its_messages(self, here: Installation) -> None:
        directory = here.root / "producer"
        every = [(p, n, b"message %d" % n) for n in range(9) for p in range(2)]
        assert sorted(library.pending(directory)) == sorted(every[7:])
        first = library.issue(directory, 0, b"one more")
        assert first >= 9, "a sequence is never issued twice"
        assert (0, first, b"one more") in library.pending(directory)

    def test_a_log_whose_last_append_was_torn(self, here: Installation) -> None:
        log = here.root / "other-log"
        found = [json.loads(line)["n"] for line in library.records(log, 0)]
        assert found == list(range(20))
        assert library.send(log, here.root / "sender", "shop", 0, 20) == 12
        assert [json.loads(line)["n"] for line in library.records(log, 0)] == list(range(21))


def cuts(name: str) -> list[Any]:
    found = ARCHIVE.cases[name]["cuts"]
    return [pytest.param(c["tree"], int(c["state"]), id=f"{c['call']} {c['state']}") for c in found]


class TestInterrupted:
    @pytest.mark.parametrize(("tree", "offset"), cuts("store"))
    def test_a_commit_to_a_store(self, run: Driver, place: Path, tree: str, offset: int) -> None:
        here = Installation(run, ARCHIVE.unpack(tree, place / "root"))
        done = offset == 12500
        wanted = (8, {0: 12500, 1: 9999}) if done else (7, {0: 12000, 1: 9875})
        assert here.consumer("invoices") == wanted
        library.commit(here.root / "store", "invoices", {0: 12600, 1: 10000})
        assert here.consumer("invoices") == (wanted[0] + 1, {0: 12600, 1: 10000})
        newest = here.history("billing", "--consumer", "invoices")[1]["id"]
        assert newest == f"invoices@{wanted[0]}"

    def test_both_ends_are_among_the_cuts(self) -> None:
        assert {cut["state"] for cut in ARCHIVE.cases["store"]["cuts"]} == {"12000", "12500"}
