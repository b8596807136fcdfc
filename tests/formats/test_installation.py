"""A home with streams, an offset store, producers, logs and saved plans, as f37eb7e left them.

Later releases open them, show what was there, and continue it. A change that was interrupted has
happened or not, and is done again or undone.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.drive import Driver
from tests.formats import library
from tests.formats.archive import opened

ARCHIVE = opened("installation")
STREAMS = {"clicks": 100, "views": 70, "visits": 50}
APPLIED = {"clicks": 190, "views": 130, "visits": 94}
KINDS = ["compact", "compact", "claim", "rollback", "rollback", "claim", "reset", "claim"]
DRIFTED = 5


class Installation:
    """A copy of the installation, and the command line in it."""

    def __init__(self, run: Driver, root: Path) -> None:
        self._run, self.root = run, root

    def __call__(self, *words: str, code: int = 0) -> dict[str, Any]:
        """The document of a command that must end with this code."""
        done = self._run(*words, "--json", cwd=self.root)
        assert done.code == code, (words, done.stdout, done.stderr)
        return done.document if done.stdout else done.error

    def offset(self, stream: str) -> set[int]:
        """Where the partitions of a stream are."""
        positions = self("offsets", "show", stream)["positions"]["log"]
        assert positions.keys() == {"0", "1"}
        return set(positions.values())

    def consumer(self, name: str) -> tuple[int, dict[int, int]]:
        """The newest commit of a consumer: its sequence and positions."""
        found = self("offsets", "show", "billing")["consumers"]
        (one,) = (each for each in found if each["consumer"] == name)
        return one["sequence"], {each["partition"]: each["offset"] for each in one["positions"]}

    def history(self, *target: str) -> list[dict[str, Any]]:
        entries: list[dict[str, Any]] = self("history", *target)["entries"]
        return entries

    def state(self, stream: str) -> dict[str, tuple[int, int]]:
        """Key → how many events were applied, and what was spent."""
        keys = self("state", "query", stream, "--limit", "0")["keys"]
        return {each["key"]: (each["values"]["n"], each["values"]["spent"]) for each in keys}


@pytest.fixture
def here(run: Driver, place: Path) -> Installation:
    return Installation(run, ARCHIVE.unpack("installation", place / "installation"))


def events(log: Path, end: int) -> Iterator[dict[str, Any]]:
    """The first `end` records of every partition, each event once."""
    for partition in range(2):
        lines = (json.loads(line) for line in _readable(log, partition)[:end])
        yield from {each["seq"]: each for each in lines if "user" in each}.values()


def _readable(log: Path, partition: int) -> list[bytes]:
    segments = sorted((log / f"partition-{partition}").glob("*.jsonl"))
    lines = [line for path in segments for line in path.read_bytes().splitlines()]
    return [line if line.startswith(b"{") else b"{}" for line in lines]


def counted(log: Path, end: int) -> dict[str, tuple[int, int]]:
    """What a stream that has read so far must have in its state."""
    state: dict[str, tuple[int, int]] = {}
    for event in events(log, end):
        n, spent = state.get(event["user"], (0, 0))
        state[event["user"]] = (n + 1, spent + event["price"])
    return state


class TestStreams:
    @pytest.mark.parametrize("stream", STREAMS)
    def test_what_it_holds(self, here: Installation, stream: str) -> None:
        assert here.offset(stream) == {STREAMS[stream]}
        found = here("checkpoint", "verify", stream, "--read-data")
        assert [each for each in found["findings"] if each["severity"] != "note"] == []
        inspected = here("checkpoint", "inspect", stream)
        assert inspected["sequence"] == inspected["counters"]["applied"] == APPLIED[stream]
        counters = inspected["counters"]
        assert counters["read"] == sum(counters[n] for n in ("applied", "duplicates", "rejected"))
        assert here.state(stream) == counted(here.root / "log", STREAMS[stream])
        found = here("audit", stream)["findings"]
        assert [each for each in found if each["severity"] == "error"] == []

    def test_its_history_and_every_older_snapshot(self, here: Installation) -> None:
        entries = here.history("clicks")
        assert [each["kind"] for each in entries][: len(KINDS)] == KINDS
        by_id = {each["id"]: each for each in entries}
        assert by_id["clicks@10"]["undo"] == "undone by clicks@11"
        assert by_id["clicks@10"]["reason"] == "bad deploy"
        assert by_id["clicks@7"]["reason"] == "gaps"
        wanted = {2: 20, 3: 40, 6: 60, 7: 45, 9: 80, 10: 40, 11: 80, 13: 100, 15: 100}
        for number, offset in wanted.items():
            shown = here("checkpoint", "inspect", "clicks", "--link", str(number))
            assert set(shown["positions"]["log"].values()) == {offset}, number

    def test_a_rollback_and_its_undo_continue_the_chain(self, here: Installation) -> None:
        before = here.state("clicks")
        here("checkpoint", "rollback", "clicks", "--to", "6", "--yes")
        assert here.offset("clicks") == {60}
        assert here.state("clicks") == counted(here.root / "log", 60)
        here("undo", "clicks", "--yes")
        assert here.offset("clicks") == {100}
        assert here.state("clicks") == before
        found = here("checkpoint", "verify", "clicks", "--read-data")
        assert [each for each in found["findings"] if each["severity"] != "note"] == []
        assert here("checkpoint", "inspect", "clicks")["link"] == 17

    def test_an_older_operation_is_undone_by_name(self, here: Installation) -> None:
        here("undo", "clicks", "--op", "clicks@4", "--yes")
        assert here("shards", "show", "clicks")["owners"] == [None] * 4

    def test_dedup_log_and_shards(self, here: Installation) -> None:
        stats = here("dedup", "stats", "clicks")
        assert (stats["stamps"], stats["intervals"], stats["gaps"]) == (194, 4, 0)
        shown = here("shards", "show", "clicks")
        assert (shown["assignment_version"], shown["owners"]) == (1, ["a", "a", "b", "b"])

    def test_a_job_publishes_what_was_committed_and_continues(self, here: Installation) -> None:
        """The job of `views` was killed after its third commit, before that was published."""
        sink, log = here.root / "out" / "views", here.root / "log"
        pending = {each["code"] for each in here("audit", "views")["findings"]}
        assert (published(sink), pending) == (2, {"SG-AUDIT-OUTPUT-PENDING"})
        here("submit", "views", "--available-now")
        end = len(_readable(log, 0))
        assert here.offset("views") == {end}
        assert here.state("views") == counted(log, end)
        assert published(sink) == 4, "what was pending, and one epoch with all the rest"
        assert here("audit", "views")["findings"] == []

    def test_status_of_everything(self, here: Installation) -> None:
        found = {each["target"]: each["state"] for each in here("status")["targets"]}
        assert found.keys() == {*STREAMS, "billing", "orders"}
        assert set(found.values()) <= {"ok", "note"}


def published(sink: Path) -> int:
    """How many epochs readers of the output find."""
    return sum(1 for path in (sink / "data").iterdir() if any(path.glob("*.parquet")))


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
    def test_of_a_stream(self, here: Installation) -> None:
        here("apply", "plans/stream.json", "--yes")
        assert here.offset("clicks") == {90}
        assert here.history("clicks")[0]["reason"] == "approved"
        assert here("apply", "plans/stream.json", "--yes")["applied"] is True
        assert here.offset("clicks") == {90}, "a plan is applied once"
        here("apply", "plans/stream-rollback.json", "--yes", code=DRIFTED)

    def test_of_a_rollback(self, here: Installation) -> None:
        here("apply", "plans/stream-rollback.json", "--yes")
        assert here.offset("clicks") == {40}

    def test_of_a_store(self, here: Installation) -> None:
        here("apply", "plans/store.json", "--yes")
        assert here.consumer("invoices") == (8, {0: 11960, 1: 9835})
        here("apply", "plans/undo.json", "--yes", code=DRIFTED)

    def test_of_an_undo(self, here: Installation) -> None:
        here("apply", "plans/undo.json", "--yes")
        assert here.consumer("invoices") == (8, {0: 12340, 1: 9875})

    def test_of_a_spark_checkpoint(self, here: Installation) -> None:
        here("apply", "plans/checkpoint.json", "--yes")
        assert here("checkpoint", "inspect", "orders")["last_batch"] == 12
        assert here("checkpoint", "verify", "orders")["findings"] == []
        here("undo", "orders", "--yes")
        assert here("checkpoint", "inspect", "orders")["last_batch"] == 13

    def test_of_an_assignment_file(self, here: Installation) -> None:
        here("apply", "plans/assignment.json", "--yes")
        assert "node-9" in here("shards", "show", "assignment.json")["loads"]

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
    @pytest.mark.parametrize(("tree", "offset"), cuts("stream"))
    def test_a_rollback_of_a_stream(self, run: Driver, place: Path, tree: str, offset: int) -> None:
        here = Installation(run, ARCHIVE.unpack(tree, place / "root"))
        assert here.offset("clicks") == {offset}
        found = here("checkpoint", "verify", "clicks")
        assert [each for each in found["findings"] if each["severity"] == "error"] == []
        if offset == 100:
            here("checkpoint", "rollback", "clicks", "--to", "9", "--yes")
            assert here.offset("clicks") == {80}
        here("undo", "clicks", "--yes")
        assert here.offset("clicks") == {100}
        assert here.state("clicks") == counted(here.root / "log", 100)

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
        for name, ends in (("stream", {"100", "80"}), ("store", {"12000", "12500"})):
            assert {cut["state"] for cut in ARCHIVE.cases[name]["cuts"]} == ends
