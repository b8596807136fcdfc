"""The coordinator: every message once, whatever is delivered again and wherever it dies."""

from __future__ import annotations

import json
import shutil
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from sluicegate.dedup.stamp import Stamp
from sluicegate.errors import NotFound, SplitBrainCommit, StaleGeneration, UsageError
from sluicegate.journal import Approval
from sluicegate.positions import Positions
from sluicegate.process import myself
from sluicegate.storage import LocalStorage
from sluicegate.stream.append import Epoch
from sluicegate.stream.journal import StreamJournal
from sluicegate.stream.stream import Stream
from sluicegate.stream.transactions import (
    AlreadyAborted,
    AlreadyCommitted,
    Coordinator,
    InProgress,
    Schedule,
    TimedOut,
    TransactionError,
    UnknownTransaction,
)
from sluicegate.stream.writer import StreamWriter
from tests.conftest import Sg
from tests.stream.streams import NAME, errors_of, in_memory, make_home, opened, operation_of
from tests.support.faults import Aftermath, cut_points


def at(offset: int) -> Positions:
    return Positions({"orders": {0: offset}})


def stamp(sequence: int, producer: str = "shop/eu", partition: int = 0) -> Stamp:
    return Stamp(producer, partition, sequence)


@pytest.fixture
def scratch() -> Iterator[Path]:
    with in_memory() as path:
        yield path


@pytest.fixture
def stream(scratch: Path) -> Stream:
    return begun(scratch / "home")


def begun(root: Path) -> Stream:
    stream = opened(make_home(root))
    StreamWriter(stream).genesis(at(0))
    return stream


@contextmanager
def consuming(stream: Stream, **options: object) -> Iterator[Coordinator]:
    with StreamWriter(stream).claim(app="consumer.py") as run:
        yield Coordinator(run, shards=3, **options)  # type: ignore[arg-type]


def consume(coordinator: Coordinator, *sequences: int) -> None:
    """What a consumer does with messages: count them, one snapshot each."""
    for sequence in sequences:
        if transaction := coordinator.begin(stamp(sequence)):
            seen = int(coordinator.get("count") or b"0")
            transaction.put("count", b"%d" % (seen + 1))
            transaction.put(f"order-{sequence}", b"paid")
            coordinator.commit(transaction, at(sequence + 1))


class TestTransactions:
    def test_what_was_processed_is_a_duplicate(self, stream: Stream) -> None:
        with consuming(stream) as coordinator:
            consume(coordinator, 0, 1, 1, 0, 2)
            assert coordinator.get("count") == b"3"
            found = coordinator.counters
            assert (found.received, found.duplicates, found.opened) == (5, 2, 3)
            assert (found.committed, found.aborted) == (3, 0)

    def test_also_after_a_restart(self, stream: Stream) -> None:
        with consuming(stream) as coordinator:
            consume(coordinator, *range(20))
        with consuming(stream) as coordinator:
            assert coordinator.positions == at(20)
            consume(coordinator, *range(15, 25))
            assert coordinator.get("count") == b"25"
        assert errors_of(stream) == []

    def test_what_is_staged_is_invisible(self, stream: Stream) -> None:
        with consuming(stream) as coordinator:
            transaction = coordinator.begin(stamp(0))
            assert transaction
            transaction.put("a", b"1")
            assert coordinator.get("a") is None
            coordinator.commit(transaction)
            assert coordinator.get("a") == b"1"

    def test_several_keys_and_deletes_are_one_commit(self, stream: Stream) -> None:
        with consuming(stream) as coordinator:
            first, second = coordinator.begin(stamp(0)), coordinator.begin(stamp(1))
            assert first
            assert second
            for key in "abcdef":
                first.put(key, key.encode())
            second.delete("a")
            second.put("b", b"")
            before = stream.chain.head().number
            snapshot = coordinator.commit_all([first, second.id], at(2))
            assert (snapshot.number, snapshot.sequence) == (before + 1, 2)
            assert [coordinator.get(key) for key in "abc"] == [None, b"", b"c"]
        with consuming(stream) as coordinator:
            assert [coordinator.get(key) for key in "abc"] == [None, b"", b"c"]

    def test_an_abort_drops_and_consumes(self, stream: Stream) -> None:
        with consuming(stream) as coordinator:
            transaction = coordinator.begin(stamp(0))
            assert transaction
            transaction.put("a", b"1")
            coordinator.abort(transaction)
            assert coordinator.get("a") is None
            assert coordinator.begin(stamp(0)) is None
        with consuming(stream) as coordinator:
            assert coordinator.begin(stamp(0)) is None, "durably"

    def test_a_retryable_abort_lets_it_come_again(self, stream: Stream) -> None:
        with consuming(stream) as coordinator:
            transaction = coordinator.begin(stamp(0))
            assert transaction
            coordinator.abort(transaction, retryable=True)
            assert coordinator.begin(stamp(0))
            assert coordinator.counters.aborted == 1
        assert stream.chain.head().sequence == 0

    def test_errors_differ(self, stream: Stream) -> None:
        with consuming(stream) as coordinator:
            one, other = coordinator.begin(stamp(0)), coordinator.begin(stamp(1))
            assert one
            assert other
            coordinator.commit(one)
            coordinator.abort(other)
            for transaction, error in ((one, AlreadyCommitted), (other, AlreadyAborted)):
                with pytest.raises(error):
                    coordinator.commit(transaction)
                with pytest.raises(error):
                    coordinator.abort(transaction)
            with pytest.raises(UnknownTransaction):
                coordinator.commit("none")
            with pytest.raises(NotFound):
                coordinator.abort("none")
            with pytest.raises(TransactionError):
                coordinator.commit_all([])

    def test_ids_of_an_earlier_run_are_unknown(self, stream: Stream) -> None:
        with consuming(stream) as coordinator:
            old = coordinator.begin(stamp(0))
        with consuming(stream) as coordinator:
            coordinator.begin(stamp(1))
            assert old
            with pytest.raises(UnknownTransaction):
                coordinator.commit(old)

    def test_one_message_is_in_one_transaction(self, stream: Stream) -> None:
        with consuming(stream) as coordinator:
            coordinator.begin(stamp(0))
            with pytest.raises(InProgress):
                coordinator.begin(stamp(0))

    def test_a_time_out_lets_it_come_again(self, stream: Stream) -> None:
        now = [0.0]
        with consuming(stream, timeout=5, clock=lambda: now[0]) as coordinator:
            transaction = coordinator.begin(stamp(0))
            assert transaction
            now[0] = 5.0
            with pytest.raises(TimedOut):
                coordinator.commit(transaction)
            assert coordinator.begin(stamp(0))
            assert coordinator.counters.timed_out == 1

    def test_a_schedule_decides_when_to_commit_together(self, stream: Stream) -> None:
        with consuming(stream, schedule=Schedule(events=3)) as coordinator:
            open_ones = []
            snapshots = 0
            for sequence in range(7):
                assert not coordinator.is_due()
                open_ones.append(coordinator.begin(stamp(sequence)))
                if coordinator.is_due():
                    coordinator.commit_all([each for each in open_ones if each], at(sequence + 1))
                    snapshots, open_ones = snapshots + 1, []
            assert (snapshots, len(open_ones)) == (2, 1)

    def test_a_superseded_consumer_commits_nothing(self, stream: Stream) -> None:
        with consuming(stream) as coordinator:
            transaction = coordinator.begin(stamp(0))
            assert transaction
            with StreamWriter(stream).claim(force=True) as run:
                with pytest.raises(SplitBrainCommit):
                    coordinator.commit(transaction)
                consume(Coordinator(run, shards=3), 0)
        assert stream.chain.head().sequence == 1

    def test_two_coordinators_of_one_run_count_nothing_twice(self, stream: Stream) -> None:
        with StreamWriter(stream).claim() as run:
            one, other = Coordinator(run, shards=3), Coordinator(run, shards=3)
            consume(one, 0)
            with pytest.raises(
                SplitBrainCommit, match="checked against the dedup log before epoch 1"
            ):
                consume(other, 0)
        assert stream.chain.head().sequence == 1

    def test_events_without_stamps_are_refused_where_there_is_a_log(self, stream: Stream) -> None:
        with StreamWriter(stream).claim() as run:
            consume(Coordinator(run, shards=3), 0)
            snapshot = run.snapshot
            epoch = Epoch(snapshot.positions, at(9), 5, {}, snapshot.version, snapshot.generation)
            with pytest.raises(UsageError, match="events without stamps"):
                run.commit(epoch)

    def test_a_forced_reset_leaves_other_partitions_where_they_are_by_then(
        self, scratch: Path
    ) -> None:
        stream = opened(make_home(scratch / "two"))
        StreamWriter(stream).genesis(Positions({"orders": {0: 0, 1: 0}}))
        journal = StreamJournal(stream)
        with consuming(stream) as coordinator:
            first, second = coordinator.begin(stamp(0)), coordinator.begin(stamp(1))
            assert first
            assert second
            coordinator.commit(first, Positions({"orders": {0: 5, 1: 5}}))
            work = operation_of("reset", positions=at(3), force=True).to_work()
            plan = journal.plan(work)
            coordinator.commit(second, Positions({"orders": {0: 8, 1: 9}}))
            journal.apply(plan, Approval(myself()))
        assert stream.chain.head().positions == Positions({"orders": {0: 3, 1: 9}})

    def test_a_rollback_takes_stamps_and_state_back(self, stream: Stream) -> None:
        with consuming(stream) as coordinator:
            consume(coordinator, 0, 1, 2, 3)
        journal = StreamJournal(stream)
        plan = journal.propose(operation_of("rollback", to=3))
        journal.apply(plan, Approval(myself()))
        with consuming(stream) as coordinator:
            assert (coordinator.positions, coordinator.get("count")) == (at(2), b"2")
            consume(coordinator, 2, 3, 4)
            assert coordinator.get("count") == b"5"
            journal.apply(
                journal.propose(operation_of("rollback", to=3, force=True)),
                Approval(myself()),
            )
            with pytest.raises(StaleGeneration):
                consume(coordinator, 5)

    def test_compaction_beside_it_changes_nothing(self, stream: Stream) -> None:
        journal = StreamJournal(stream)
        with consuming(stream) as coordinator:
            for start in range(0, 60, 20):
                consume(coordinator, *range(start, start + 20))
                for operation in ("compact-dedup", "compact"):
                    journal.apply(journal.propose(operation_of(operation)), Approval(myself()))
            consume(coordinator, *range(70))
            assert coordinator.get("count") == b"70"
        assert errors_of(stream) == []


class TestCrash:
    """Killed at any call, a consumer that starts again has counted every message once."""

    @pytest.mark.parametrize("act", ["commit", "commit_all", "abort"])
    def test_every_cut(self, scratch: Path, act: str) -> None:
        before = 2

        template = begun(scratch / "template")
        with consuming(template) as coordinator:
            consume(coordinator, *range(before))

        def prepare(storage: LocalStorage) -> None:
            shutil.copytree(scratch / "template", storage.uri, dirs_exist_ok=True)

        def run(storage: LocalStorage) -> None:
            stream = opened(Path(storage.uri), storage._calls)
            with consuming(stream) as coordinator:
                if act == "commit_all":
                    _count_together(coordinator, before, before + 1)
                elif act == "abort":
                    transaction = coordinator.begin(stamp(before))
                    assert transaction
                    coordinator.abort(transaction)
                else:
                    consume(coordinator, before)

        # What survives a power loss, the chain's own lab shows at every call.
        both = (Aftermath.KILL, Aftermath.POWER_LOSS)
        aftermaths = both if act == "commit" else both[:1]
        for cut in cut_points(scratch / "cuts", prepare, run, aftermaths):
            stream = opened(cut.root)
            with consuming(stream) as coordinator:
                done = stream.chain.head().sequence - before
                assert done == 0 or not cut.acknowledged or act != "commit" or done == 1
                if cut.acknowledged:
                    assert done == (2 if act == "commit_all" else 1), cut
                # What was not acknowledged, and some that was, is delivered again.
                consume(coordinator, before - 1, before, before + 1)
                lost = 1 if act == "abort" and done else 0
                assert coordinator.get("count") == b"%d" % (before + 2 - lost), cut
            assert errors_of(stream, read=False) == [], cut


def _count_together(coordinator: Coordinator, *sequences: int) -> None:
    seen = int(coordinator.get("count") or b"0")
    open_ones = []
    for sequence in sequences:
        transaction = coordinator.begin(stamp(sequence))
        assert transaction
        seen += 1
        transaction.put("count", b"%d" % seen)
        open_ones.append(transaction)
    coordinator.commit_all(open_ones, at(sequences[-1] + 1))


class TestCommands:
    @pytest.fixture
    def stream(self, tmp_path: Path) -> Stream:
        stream = begun(tmp_path / ".sluicegate")
        with consuming(stream) as coordinator:
            consume(coordinator, *range(10), *range(15, 20))
        return stream

    def ask(self, sg: Sg, *arguments: str) -> dict[str, object]:
        result = sg(*arguments, "--json")
        assert result.returncode == 0, result.stderr
        found: dict[str, object] = json.loads(result.stdout)
        return found

    def verdicts(self, sg: Sg, *stamps: str) -> list[tuple[str, int | None]]:
        found = self.ask(sg, "dedup", "check", NAME, *stamps)["stamps"]
        return [(each["verdict"], each["snapshot"]) for each in found]  # type: ignore[attr-defined]

    def test_stats(self, sg: Sg, stream: Stream) -> None:
        found = self.ask(sg, "dedup", "stats", NAME)
        known = {
            name: found[name] for name in ("producers", "stamps", "intervals", "gaps", "missing")
        }
        assert known == {"producers": 1, "stamps": 15, "intervals": 2, "gaps": 1, "missing": 5}
        assert found["widest"] == ["shop/eu", 0, 2]
        assert "Worth compacting" not in sg("dedup", "stats", NAME).stdout, "only on a terminal"

    def test_check(self, sg: Sg, stream: Stream) -> None:
        asked = ("shop/eu/0/0", "shop/eu/0/12", "shop/eu/1/0", "shop/eu/0/19", "shop/eu/0/0")
        assert self.verdicts(sg, *asked) == [
            ("seen", 2), ("fresh", None), ("fresh", None), ("seen", 16), ("seen", 2),
        ]  # fmt: skip
        result = sg("dedup", "check", NAME, "nonsense")
        assert (result.returncode, "PRODUCER/PARTITION/SEQUENCE" in result.stderr) == (2, True)

    def test_compact_knows_the_same(self, sg: Sg, stream: Stream) -> None:
        head = stream.chain.head().number
        assert sg("dedup", "compact", NAME, "--dry-run").returncode == 0
        assert stream.chain.head().number == head
        assert sg("dedup", "compact", NAME, "--yes").returncode == 0
        assert len(stream.chain.head().dedup.refs) == 1
        assert self.verdicts(sg, "shop/eu/0/9", "shop/eu/0/10") == [("seen", 11), ("fresh", None)]
        assert sg("dedup", "compact", NAME, "--yes").returncode == 0
        assert stream.chain.head().number == head + 1, "nothing to do"
        assert sg("undo", NAME, "--yes").returncode == 10, "nothing to undo"

    def test_what_was_pruned_since_is_not_offered_to_be_undone(
        self, sg: Sg, stream: Stream
    ) -> None:
        assert sg("dedup", "compact", NAME, "--retain", "0s", "--yes").returncode == 0
        number = stream.chain.head().number
        assert sg("checkpoint", "prune", NAME, "--keep", "1", "--yes").returncode == 0
        assert stream.chain.head().floor == number
        shown = [line.split("\t") for line in sg("history", NAME).stdout.splitlines()]
        undo = {fields[0]: fields[-1] for fields in shown}
        assert undo[f"{NAME}@{number}"] == "no: the snapshot before it is pruned"
        for chosen in ((), ("--op", f"{NAME}@{number}")):
            assert sg("undo", NAME, *chosen, "--yes").returncode == 10

    def test_retention_keeps_floors_and_can_be_undone(self, sg: Sg, stream: Stream) -> None:
        result = sg("dedup", "compact", NAME, "--retain", "7d", "--yes")
        assert result.returncode == 0
        assert "drop" not in result.stdout, "all of it is young"
        time.sleep(1.1)
        assert "drop" in sg("dedup", "compact", NAME, "--retain", "1s", "--yes").stdout
        # Below the floor nothing is known, also of new stamps; above it all is as before.
        below, above = ("shop/eu/0/0", "shop/eu/0/12"), "shop/eu/0/20"
        assert self.verdicts(sg, *below, above) == [
            ("expired", None), ("expired", None), ("fresh", None),
        ]  # fmt: skip
        with consuming(stream) as coordinator:
            assert coordinator.begin(stamp(12)) is None
            assert coordinator.counters.expired == 1
            consume(coordinator, 20)
        number = stream.chain.head().number
        assert sg("undo", NAME, "--yes").returncode == 0
        assert self.verdicts(sg, *below, above) == [("seen", 2), ("fresh", None), ("seen", number)]
