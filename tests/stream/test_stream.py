"""The writer: who may begin, claim, commit and change a stream, and what the others learn."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from sluicegate import saved_plan
from sluicegate.errors import (
    Drifted,
    Fenced,
    Locked,
    NotFound,
    SplitBrainCommit,
    StaleGeneration,
    StaleVersion,
    StorageFailed,
    UsageError,
)
from sluicegate.journal import Approval, Entry, review
from sluicegate.legacy import v1
from sluicegate.locks import LockMode
from sluicegate.plan import Plan
from sluicegate.positions import Positions
from sluicegate.process import myself
from sluicegate.storage import LocalStorage
from sluicegate.storage.base import Entry as StorageEntry
from sluicegate.storage.blobs import BlobDamaged, Ref
from sluicegate.storage.local import Calls
from sluicegate.stream import chain as hints
from sluicegate.stream import gc
from sluicegate.stream.append import (
    ClockWrong,
    CompactDraft,
    NewGenerationDraft,
    PruneDraft,
    RebalanceDraft,
    Signature,
)
from sluicegate.stream.chain import HEAD, Hint
from sluicegate.stream.gc import Retention
from sluicegate.stream.history import NotRestorable, content_of, snapshot_before
from sluicegate.stream.journal import StreamJournal
from sluicegate.stream.operations.compact import compact
from sluicegate.stream.operations.reset import NeedsDedup
from sluicegate.stream.snapshot import ChainDamaged, ChainShort, HeadDamaged, Kind, Snapshot, key_of
from sluicegate.stream.stream import Stream
from sluicegate.stream.transactions import Schedule, recover
from sluicegate.stream.writer import StreamWriter, WriterStopped
from tests.stream.streams import (
    NAME,
    STEP,
    TOPIC,
    apply,
    at,
    begin,
    check,
    check_counted,
    commit,
    counted_of,
    epoch_after,
    errors_of,
    in_memory,
    made,
    make_home,
    offsets_of,
    opened,
    operation_of,
    resume_job,
    work,
)
from tests.support.faults import Disk

APPROVAL = Approval(myself(), "a test")


@pytest.fixture
def root() -> Iterator[Path]:
    with in_memory() as path:
        yield make_home(path / "home")


@pytest.fixture
def stream(root: Path) -> Stream:
    """A stream with four epochs: snapshots 0 genesis, 1 claim, 2 to 5 epochs."""
    stream = opened(root)
    begin(stream)
    work(stream, 4)
    return stream


@pytest.fixture
def writer(stream: Stream) -> StreamWriter:
    return StreamWriter(stream)


def rebalance(stream: Stream, name: str = "other") -> Snapshot:
    writer = StreamWriter(stream)
    head = writer.head()
    blob = stream.blobs.put(name.encode())
    snapshot = writer.append(
        RebalanceDraft(head.version, head.generation, blob, Signature(), {}), head
    )
    assert snapshot
    return snapshot


def numbers(root: Path) -> list[int]:
    return sorted(int(path.stem) for path in (root / NAME / "chain").glob("*.snapshot"))


class TestGenesis:
    def test_begins_at_resolved_positions_with_its_pins(self, root: Path) -> None:
        snapshot = StreamWriter(opened(root)).genesis(at(7, 8), pins={"shards": 2})
        assert (snapshot.number, snapshot.kind, snapshot.generation) == (0, Kind.GENESIS, 1)
        assert (snapshot.parent, snapshot.writer, snapshot.sequence, snapshot.epoch) == (
            None,
            None,
            0,
            0,
        )
        assert snapshot.positions == at(7, 8)
        head = opened(root).chain.head()
        assert (head, head.digest, head.pins) == (snapshot, snapshot.digest, {"shards": 2})

    def test_is_refused_where_a_chain_is(self, stream: Stream) -> None:
        before = stream.chain.head()
        with pytest.raises(UsageError, match="already has a chain"):
            begin(stream)
        assert stream.chain.head().digest == before.digest

    def test_is_refused_where_the_home_remembers_a_chain_that_is_gone(
        self, root: Path, stream: Stream
    ) -> None:
        shutil.rmtree(root / NAME)
        (root / NAME).mkdir()
        with pytest.raises(ChainShort, match="the home remembers one"):
            begin(stream)
        assert numbers(root) == []

    def test_is_refused_where_only_the_head_is_gone(self, root: Path, stream: Stream) -> None:
        (root / NAME / HEAD).unlink()
        with pytest.raises(HeadDamaged):
            begin(stream)

    def test_of_two_at_once_one_is_refused(self, root: Path) -> None:
        ours = opened(root)

        class Intervening(Calls):
            done = False

            def link(
                self, source: str, name: str, directory: int, origin: int | None = None
            ) -> None:
                if not self.done:
                    self.done = True
                    begin(ours)
                super().link(source, name, directory, origin)

        with pytest.raises(Locked, match="another process"):
            begin(opened(root, Intervening()))
        check(ours)

    def test_positions_must_be_numbers(self, root: Path) -> None:
        with pytest.raises(UsageError):
            StreamWriter(opened(root)).genesis(Positions({TOPIC: {0: -1}}))
        with pytest.raises(NotFound):
            opened(root).chain.head()

    def test_blobs_it_refers_to_must_be_there(self, root: Path) -> None:
        stray = Ref("0" * 64, 5)
        with pytest.raises(Exception, match="missing"):
            StreamWriter(opened(root)).genesis(at(0, 0), content={"assignment": stray})
        with pytest.raises(NotFound):
            opened(root).chain.head()


class TestClaim:
    def test_pins_that_differ_are_refused(self, root: Path) -> None:
        writer = StreamWriter(opened(root))
        writer.genesis(at(0, 0), pins={"shards": 2, "key": "user"})
        for pins in ({"shards": 4, "key": "user"}, {"shards": 2}, {"shards": 2, "key": "x"}, {}):
            with pytest.raises(UsageError, match="fixed for the life"), writer.claim(pins=pins):
                pass
        assert numbers(root) == [0]
        with writer.claim(pins={"key": "user", "shards": 2}):
            pass

    def test_a_second_one_is_refused_with_the_evidence(
        self, root: Path, writer: StreamWriter
    ) -> None:
        with writer.claim(app="first") as run:
            before = numbers(root)
            with pytest.raises(Locked) as caught, StreamWriter(opened(root)).claim():
                pass
            assert f"run {run.id}" in caught.value.message
            assert f"pid {os.getpid()}" in caught.value.message
            assert "--force" in caught.value.hint
            assert numbers(root) == before
            commit(run)
        check(writer.stream)

    def test_force_takes_over_and_the_first_learns_the_winner(
        self, root: Path, writer: StreamWriter
    ) -> None:
        with writer.claim() as first:
            commit(first)
            with StreamWriter(opened(root)).claim(app="winner", force=True) as second:
                for _ in range(2):
                    with pytest.raises(SplitBrainCommit, match=second.id):
                        commit(first)
                with pytest.raises(SplitBrainCommit, match="winner"):
                    first.refresh()
                commit(second)
                with pytest.raises(SplitBrainCommit, match=second.id):
                    commit(first)
            # Also when the winner is gone.
            with pytest.raises(SplitBrainCommit, match=second.id):
                commit(first)
        head = check(writer.stream)
        assert head.writer == second.id

    def test_a_superseded_run_cannot_commit_what_it_read_of_the_chain_again(
        self, root: Path, writer: StreamWriter
    ) -> None:
        with writer.claim() as first, StreamWriter(opened(root)).claim(force=True) as second:
            head = writer.stream.chain.head()
            with pytest.raises(SplitBrainCommit, match=second.id):
                first.commit(epoch_after(writer, head))

    def test_a_dead_runs_claim_is_no_obstacle(self, root: Path, writer: StreamWriter) -> None:
        script = (
            "import os, sys\nfrom pathlib import Path\n"
            "from tests.stream.streams import opened, commit\n"
            "from sluicegate.stream.writer import StreamWriter\n"
            "with StreamWriter(opened(Path(sys.argv[1]))).claim(run='dead') as run:\n"
            "    commit(run)\n    print('committed', flush=True)\n    sys.stdin.read()\n"
        )
        with subprocess.Popen(
            [sys.executable, "-c", script, str(root)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            cwd=Path(__file__).parents[2],
            text=True,
        ) as process:
            assert process.stdout
            assert process.stdout.readline() == "committed\n"
            with pytest.raises(Locked, match=f"run dead, .*pid {process.pid}"), writer.claim():
                pass
            process.kill()
            process.wait()
            with writer.claim() as run:
                commit(run)
        assert [snapshot.writer for snapshot in _snapshots(writer)][-4:] == [
            "dead",
            "dead",
            run.id,
            run.id,
        ]
        check(writer.stream)

    def test_a_run_that_is_over_can_be_taken_up_under_its_name(self, writer: StreamWriter) -> None:
        """A cluster manager may restart a driver with the arguments of the first one."""
        with writer.claim(run="again") as first:
            commit(first)
        with writer.claim(run="again") as second:
            for _ in range(2):
                with pytest.raises(SplitBrainCommit, match="again"):
                    commit(first)
                with pytest.raises(SplitBrainCommit, match="again"):
                    first.refresh()
                commit(second)
        check(writer.stream)

    def test_a_stream_whose_state_is_lost_is_not_started(
        self, root: Path, writer: StreamWriter
    ) -> None:
        """Epochs that a job commits on top of it would have to be discarded, too."""
        ref = writer.head().state_delta
        assert ref
        (root / NAME / ref.key).unlink()
        before = numbers(root)
        with pytest.raises(BlobDamaged, match="missing"), writer.claim():
            pass
        assert numbers(root) == before

    def test_two_at_once_one_is_refused(self, root: Path, writer: StreamWriter) -> None:
        """The other one came between the look at the head and the append."""
        entered: list[Any] = []
        theirs = StreamWriter(opened(root)).claim(run="theirs")

        class Intervening(Calls):
            def about_to(self, call: str, name: str) -> None:
                if call == "read" and name == HEAD and not entered:
                    entered.append(None)
                    entered.append(theirs.__enter__())

        with (
            pytest.raises(Locked, match="run theirs"),
            StreamWriter(opened(root, Intervening())).claim(),
        ):
            pass
        commit(entered[1])
        theirs.__exit__(None, None, None)
        check(writer.stream)

    def test_a_claim_without_a_run_fences_the_run_off(self, writer: StreamWriter) -> None:
        with writer.claim() as run:
            apply(writer.stream, "fence")
            with pytest.raises(SplitBrainCommit, match="none-"):
                commit(run)
        resume_job(writer.stream)


class TestCommit:
    def test_adds_up(self, writer: StreamWriter) -> None:
        before = writer.head()
        with writer.claim(app="job") as run:
            snapshot = commit(run, watermark_ns=70)
            assert (snapshot.kind, snapshot.number, snapshot.epoch) == (Kind.EPOCH, 7, 5)
            assert (snapshot.writer, snapshot.app, snapshot.parent) == (
                run.id,
                "job",
                _snapshots(writer)[-2].digest,
            )
            assert snapshot.sequence == before.sequence + 2 * STEP
            assert snapshot.counters == {p: n + STEP for p, n in before.counters.items()}
            assert snapshot.ancestry == ((0, 7),)
            assert snapshot.watermark_ns == 70
            assert commit(run, watermark_ns=60).watermark_ns == 70, "it never decreases"
            assert commit(run).watermark_ns == 70
            assert commit(run, watermark_ns=80).watermark_ns == 80
        check(writer.stream)

    def test_start_positions_must_be_the_heads(self, writer: StreamWriter) -> None:
        with writer.claim() as run:
            epoch = epoch_after(writer, run.snapshot)
            for start in (at(0, 0), at(12, 15), at(14, 14), Positions({})):
                with pytest.raises(SplitBrainCommit, match="does not start where"):
                    run.commit(replace(epoch, start=start))
            run.commit(epoch)
            with pytest.raises(SplitBrainCommit, match="does not start where"):
                run.commit(epoch)
        check(writer.stream)

    def test_an_epoch_never_goes_back_or_loses_a_partition(self, writer: StreamWriter) -> None:
        """What it forgets would be read again from its beginning."""
        with writer.claim() as run:
            epoch = epoch_after(writer, run.snapshot)
            ends = [at(11, 15), at(15, 11), at(15), Positions({}), Positions({"x": {0: 9}})]
            for end in ends:
                with pytest.raises(UsageError, match="back"):
                    run.commit(replace(epoch, end=end))
            run.commit(replace(epoch, end=Positions({TOPIC: {0: 15, 1: 15, 2: 0}, "x": {0: 1}})))

    def test_events_without_a_move_are_refused(self, writer: StreamWriter) -> None:
        """Committed twice they would count twice, and nothing would show it."""
        with writer.claim() as run:
            epoch = epoch_after(writer, run.snapshot)
            still = replace(epoch, end=epoch.start)
            for each in (still, replace(still, events=0), replace(still, deltas={})):
                with pytest.raises(UsageError, match="no position"):
                    run.commit(each)
            run.commit(replace(epoch, end=epoch.start, events=0, deltas={}))

    @pytest.mark.parametrize("how", ["rollback", "reset", "repair", "import"])
    def test_stale_generation(self, root: Path, how: str) -> None:
        stream = opened(root)
        begin(stream, dedup=True)
        work(stream, 4)
        writer = StreamWriter(stream)
        with writer.claim() as run:
            commit(run)
            TAKE_OVER[how](stream)
            epoch = epoch_after(writer, run.snapshot)
            for _ in range(2):
                with pytest.raises(StaleGeneration, match=how):
                    run.commit(epoch)
            with pytest.raises(StaleGeneration, match=how):
                run.refresh()
            # Not by what it reads of the chain now, either: it has to start again.
            head = writer.head()
            now = replace(epoch, start=head.positions, generation=head.generation)
            with pytest.raises(StaleGeneration, match="generation"):
                run.commit(replace(now, end=Positions({**head.positions.by_topic, "x": {0: 1}})))
            assert writer.head().digest == head.digest
        assert writer.head().kind is Kind(how)

    def test_it_is_fenced_though_snapshots_between_are_damaged(
        self, root: Path, writer: StreamWriter
    ) -> None:
        with writer.claim() as run:
            with StreamWriter(opened(root)).claim(force=True) as other:
                lost = [commit(other).number, commit(other).number]
            os.truncate(root / NAME / key_of(lost[0]), 20)
            apply(writer.stream, "repair")
            with pytest.raises(SplitBrainCommit, match=other.id):
                commit(run)
            os.truncate(root / NAME / key_of(lost[1]), 20)
            with pytest.raises(StaleGeneration, match="repair"):
                commit(run)

    def test_stale_version(self, writer: StreamWriter) -> None:
        with writer.claim() as run:
            epoch = epoch_after(writer, run.snapshot)
            moved = rebalance(writer.stream)
            with pytest.raises(StaleVersion, match=r"version 0 .* is at 1"):
                run.commit(epoch)
            assert run.refresh().digest == moved.digest
            committed = run.commit(replace(epoch, version=moved.version))
            assert (committed.version, committed.assignment) == (1, moved.assignment)
        check(writer.stream)

    def test_compact_and_prune_do_not_disturb(self, writer: StreamWriter) -> None:
        with writer.claim() as run:
            epoch = epoch_after(writer, run.snapshot)
            assert compact(writer)
            assert gc.prune(writer, 5)
            snapshot = run.commit(epoch)
            assert (snapshot.number, snapshot.floor) == (9, 5)
            assert snapshot.state.deltas == (snapshot.state_delta,)
        check(writer.stream)

    def test_what_a_sweep_took_is_not_committed(self, writer: StreamWriter) -> None:
        with writer.claim() as run:
            epoch = epoch_after(writer, run.snapshot)
            assert gc.sweep(writer.stream, grace=-1).blobs
            with pytest.raises(Exception, match="missing"):
                run.commit(epoch)
            commit(run)
        check(writer.stream)

    def test_a_lost_reply_is_a_success(self, root: Path, writer: StreamWriter) -> None:
        class Lossy(Calls):
            """The snapshot is made, but "exists" is what comes back, as on NFS."""

            lost = 0

            def link(
                self, source: str, name: str, directory: int, origin: int | None = None
            ) -> None:
                super().link(source, name, directory, origin)
                if name.endswith(".snapshot"):
                    self.lost += 1
                    # Without the second name, which LocalStorage would notice by itself.
                    os.rename(name, name + ".x", src_dir_fd=directory, dst_dir_fd=directory)
                    data = os.open(name + ".x", os.O_RDONLY, dir_fd=directory)
                    copy = os.open(name, os.O_WRONLY | os.O_CREAT, 0o666, dir_fd=directory)
                    os.write(copy, os.pread(data, 1 << 20, 0))
                    os.close(data)
                    os.close(copy)
                    os.unlink(name + ".x", dir_fd=directory)
                    raise FileExistsError(name)

        lossy = Lossy()
        snapshot = work(opened(root, lossy), 2)
        assert lossy.lost == 3
        assert snapshot.digest == writer.head().digest
        assert snapshot.number == 8
        check(writer.stream)

    @pytest.mark.parametrize("call", ["fsync file", "fsync directory", "link", "rename HEAD"])
    def test_a_failed_write_stops_the_writer(
        self, root: Path, writer: StreamWriter, call: str
    ) -> None:
        broken = False

        def fail(_number: int, made: str) -> None:
            if broken and made.startswith(call):
                raise OSError(5, "Input/output error")

        process = Disk(root).process(fail)
        with StreamWriter(opened(root, process)).claim() as run:
            epochs = [epoch_after(run._writer, run.snapshot)]
            broken = True
            with pytest.raises(StorageFailed):
                run.commit(epochs[0])
            broken = False
            # Whatever it is: even if it were committed, this run does not know.
            for epoch in epochs:
                with pytest.raises(WriterStopped):
                    run.commit(epoch)
        head = check(writer.stream)
        assert head.epoch in (4, 5)
        resume_job(writer.stream)
        check(writer.stream)

    def test_an_interrupted_commit_stops_the_writer_too(
        self, root: Path, writer: StreamWriter
    ) -> None:
        """Ctrl-C may come after the snapshot was made."""
        committing = False

        def interrupt(_number: int, made: str) -> None:
            if committing and made == "rename HEAD":
                raise KeyboardInterrupt

        with StreamWriter(opened(root, Disk(root).process(interrupt))).claim() as run:
            epoch = epoch_after(writer, run.snapshot)
            committing = True
            with pytest.raises(KeyboardInterrupt):
                run.commit(epoch)
            with pytest.raises(WriterStopped):
                run.commit(epoch)
        assert check(writer.stream).epoch == 5

    def test_created_at_never_goes_back(self, writer: StreamWriter, monkeypatch: Any) -> None:
        future = time.time() + 1000
        with monkeypatch.context() as patch:
            patch.setattr(time, "time", lambda: future)
            work(writer.stream, 1)
        snapshots = [work(writer.stream, 1), rebalance(writer.stream)]
        apply(writer.stream, "rollback", to=3)
        assert [snapshot.created_at for snapshot in (*snapshots, writer.head())] == [future] * 3
        check(writer.stream)

    @pytest.mark.parametrize("year", [1970, 2099])
    def test_a_clock_that_is_years_off_is_refused(
        self, writer: StreamWriter, monkeypatch: Any, year: int
    ) -> None:
        """One host in 2099 would spoil the times of all later snapshots."""
        before = writer.head()
        with monkeypatch.context() as patch:
            patch.setattr(time, "time", lambda: (year - 1970) * 365.25 * 86400 + 1)
            with pytest.raises(ClockWrong, match=f"says {year}-01-01"):
                work(writer.stream, 1)
        assert writer.head() == before
        # Years of rest are no reason to refuse anything.
        with monkeypatch.context() as patch:
            patch.setattr(time, "time", lambda: before.created_at + 3 * 366 * 86400)
            work(writer.stream, 1)

    def test_empty_epochs_of_an_old_run_are_refused_too(
        self, root: Path, writer: StreamWriter
    ) -> None:
        with writer.claim() as first, StreamWriter(opened(root)).claim(force=True):
            epoch = epoch_after(writer, first.snapshot)
            with pytest.raises(SplitBrainCommit):
                first.commit(replace(epoch, end=epoch.start, events=0, deltas={}))


def _repair(stream: Stream) -> None:
    """Of an older snapshot, whose damage only prevents a rollback to it."""
    os.truncate(Path(stream.uri) / key_of(2), 10)
    apply(stream, "repair")


def _import(stream: Stream) -> None:
    checkpoint = v1.V1Checkpoint(5, 6, 7, {"op": b"state"}, {TOPIC: 3})
    import base64

    data = base64.b64encode(v1.encode(checkpoint)).decode()
    apply(stream, "import", data=data, force=True)


TAKE_OVER: dict[str, Callable[[Stream], object]] = {
    "rollback": lambda stream: apply(stream, "rollback", to=3, force=True),
    "reset": lambda stream: apply(stream, "reset", positions=at(3, 3), force=True),
    "repair": _repair,
    "import": _import,
}


def _snapshots(writer: StreamWriter) -> list[Snapshot]:
    head = writer.stream.chain.head()
    return [writer.stream.chain.read(n) for n in range(head.floor, head.number + 1)]


class TestIntervening:
    """What the draft sees of what came first, when some of that is not there any more."""

    def superseded(self, stream: Stream, change: Callable[[], object]) -> None:
        """Something happened, and was pruned before the next look."""
        change()
        gc.prune(StreamWriter(stream), stream.chain.head().number)
        work(stream, 0)

    def draft(self, base: Snapshot, *, force: bool) -> NewGenerationDraft:
        return NewGenerationDraft(Kind.ROLLBACK, content_of(base), force, Signature(), base)

    @pytest.mark.parametrize("force", [False, True])
    def test_a_rollback_drifts_after_a_pruned_one(
        self, stream: Stream, writer: StreamWriter, force: bool
    ) -> None:
        base = writer.head()
        self.superseded(stream, lambda: apply(stream, "rollback", to=3))
        # The rollback itself is below the floor now, and only its generation is left.
        gc.prune(writer, stream.chain.head().number)
        with pytest.raises(Drifted):
            writer.append(self.draft(base, force=force), base)

    def test_a_rollback_is_refused_after_pruned_epochs(
        self, stream: Stream, writer: StreamWriter
    ) -> None:
        base = writer.head()
        self.superseded(stream, lambda: work(stream, 2))
        gc.prune(writer, stream.chain.head().number)
        with pytest.raises(Locked):
            writer.append(self.draft(base, force=False), base)
        snapshot = writer.append(self.draft(base, force=True), base)
        assert snapshot
        assert snapshot.positions == base.positions
        check(stream)

    def test_an_epoch_is_refused_after_a_pruned_claim(
        self, stream: Stream, writer: StreamWriter
    ) -> None:
        with writer.claim() as run:
            self.superseded(stream, lambda: apply(stream, "fence"))
            gc.prune(writer, stream.chain.head().number)
            # Nothing else moved the stream: only its writer is another one.
            assert stream.chain.head().positions == run.snapshot.positions
            with pytest.raises(SplitBrainCommit, match="none-"):
                commit(run)


class TestHead:
    def test_is_never_left_behind_by_a_slow_writer(self, root: Path, writer: StreamWriter) -> None:
        """A writer that sleeps between its snapshot and its hint wakes up after later ones."""

        class Slow(Calls):
            slept = False

            def rename(self, source: str, name: str, directory: int) -> None:
                if name == HEAD and not self.slept:
                    self.slept = True
                    work(opened(root), 3, force=True)
                super().rename(source, name, directory)

        with StreamWriter(opened(root, Slow())).claim():
            hint = hints.read_hint(writer.stream.storage, HEAD)
            head = writer.head()
            assert hint == Hint.of(head)
            assert head.number == 10

    def test_a_hint_left_behind_by_a_killed_writer_is_no_damage_after_a_prune(
        self, root: Path, writer: StreamWriter
    ) -> None:
        """The snapshot that it names must not be removed while it names it."""
        storage = writer.stream.storage
        hints.write_hint(storage, HEAD, Hint.of(writer.stream.chain.read(2)))
        gc.prune(writer, 4)
        hints.write_hint(storage, HEAD, Hint.of(writer.stream.chain.read(4)))
        gc.sweep(writer.stream)
        assert writer.head().number == 6
        gc.prune(writer, 5)
        assert numbers(root) == [5, 6, 7]
        resume_job(writer.stream)
        check(writer.stream)

    def test_a_sweep_does_not_remove_the_snapshot_that_the_hint_names(
        self, root: Path, writer: StreamWriter
    ) -> None:
        head = writer.head()
        writer.append(PruneDraft(4, Signature(), {}), head)
        # As by a writer of snapshot 2 that was killed after this.
        hints.write_hint(writer.stream.storage, HEAD, Hint.of(writer.stream.chain.read(2)))
        gc.sweep(writer.stream)
        assert numbers(root) == [4, 5, 6]
        assert writer.head().number == 6

    def test_opening_a_chain_does_not_take_later_snapshots_for_a_lost_backup(
        self, root: Path, writer: StreamWriter
    ) -> None:
        """Another process appends between the look at the chain and the look at the home."""

        class Intervening(Calls):
            calls = 0
            at = -1

            def about_to(self, call: str, name: str) -> None:
                self.calls += 1
                if self.calls == self.at:
                    work(opened(root), 1)
                    gc.prune(StreamWriter(opened(root)), 5)

        count = Intervening()
        StreamWriter(opened(root, count)).head()
        for number in range(1, count.calls + 1):
            calls = Intervening()
            calls.at = number
            before = writer.head().number
            assert StreamWriter(opened(root, calls)).head().number >= before

    def test_a_genesis_without_hint_is_not_taken_for_damage_while_others_continue(
        self, root: Path
    ) -> None:
        shutil.rmtree(root)
        # The calls up to where the hint is written; what follows is the same with a hint.
        for number in range(20):
            made(root)
            (root / NAME / HEAD).unlink()

            def on_call(at: int, _call: str, number: int = number) -> None:
                if at == number:
                    work(opened(root), 1)
                    gc.prune(StreamWriter(opened(root)), 2)

            process = Disk(root).process(on_call)
            StreamWriter(opened(root, process)).head()
            check(opened(root))
            shutil.rmtree(root)
            assert len(process.made) > number

    def test_an_old_backup_is_refused(self, root: Path, stream: Stream) -> None:
        shutil.copytree(root / NAME, root.parent / "backup")
        work(stream, 1)
        shutil.rmtree(root / NAME)
        shutil.copytree(root.parent / "backup", root / NAME)
        with pytest.raises(ChainShort, match="old backup"):
            work(opened(root), 1)

    def test_another_stream_in_its_place_is_refused(self, root: Path, stream: Stream) -> None:
        other = made(root.parent / "other", epochs=5)
        shutil.rmtree(root / NAME)
        shutil.copytree(other.uri, root / NAME)
        with pytest.raises(ChainDamaged, match="another stream"):
            work(opened(root), 1)


class TestRecovery:
    def test_gives_the_last_included_sequence(self, stream: Stream) -> None:
        found = recover(stream)
        assert (found.sequence, found.resume_at) == (4 * 2 * STEP, 4 * 2 * STEP + 1)
        assert (found.positions, found.snapshot) == (at(12, 12), 5)
        apply(stream, "rollback", to=3)
        assert recover(stream).sequence == 2 * 2 * STEP
        assert recover(stream).positions == at(6, 6)

    def test_never_from_nothing(self, root: Path, stream: Stream) -> None:
        (root / NAME / HEAD).unlink()
        with pytest.raises(HeadDamaged):
            recover(stream)
        with pytest.raises(NotFound):
            recover(opened(make_home(root.parent / "empty")))

    def test_a_checkpoint_is_due_when_the_sequence_is_reached(self, stream: Stream) -> None:
        head = stream.chain.head()
        schedule = Schedule(events=10)
        assert schedule.next_sequence(head) == 34
        due = [schedule.is_due(head, sequence, 0.0) for sequence in (24, 25, 33, 34, 35, 99)]
        assert due == [False, False, False, True, True, True]

    def test_or_the_time_has_come_but_never_for_nothing_new(self, stream: Stream) -> None:
        head = stream.chain.head()
        schedule = Schedule(events=10, seconds=5)
        assert schedule.next_time(head) == head.created_at + 5
        now = head.created_at
        assert not schedule.is_due(head, 25, now + 4.9)
        assert schedule.is_due(head, 25, now + 5)
        assert not schedule.is_due(head, 24, now + 99)
        assert schedule.is_due(head, 34, now)
        assert Schedule().is_due(head, 25, now)
        assert not Schedule().is_due(head, 24, now)
        assert not Schedule(seconds=5).is_due(head, 99, now)

    def test_each_stream_has_its_own_interval(self, root: Path, stream: Stream) -> None:
        other = made(root.parent / "other", epochs=1)
        ours, theirs = Schedule(events=10), Schedule(events=3)
        assert ours.next_sequence(stream.chain.head()) == 34
        assert theirs.next_sequence(other.chain.head()) == 9


class TestRetention:
    def test_keeps_so_many_of_the_newest(self, stream: Stream) -> None:
        head = stream.chain.head()
        assert [Retention(n).floor(stream, head) for n in (0, 1, 2, 6, 7, 99)] == [5, 5, 4, 0, 0, 0]

    def test_keeps_what_is_young_enough(self, stream: Stream, monkeypatch: Any) -> None:
        start = stream.chain.head().created_at
        for hour in range(1, 6):
            with monkeypatch.context() as patch:
                patch.setattr(time, "time", lambda hour=hour: start + hour * 3600)
                rebalance(stream)
        head = stream.chain.head()
        now = start + 5 * 3600
        # Snapshots 6 to 10 are of hours 1 to 5; of exactly the age is young enough.
        floors = [Retention(1, h * 3600).floor(stream, head, now) for h in (0.5, 1, 2, 2.5, 4)]
        assert floors == [10, 9, 8, 8, 6]
        assert Retention(4, 3600).floor(stream, head, now) == 7, "whichever keeps more"
        assert Retention(1, 1e9).floor(stream, head, now) == 0

    def test_prune_is_strictly_less(self, root: Path, writer: StreamWriter) -> None:
        snapshot = gc.prune(writer, 3)
        assert snapshot
        assert (snapshot.floor, snapshot.kind) == (3, Kind.PRUNE)
        assert numbers(root) == [3, 4, 5, 6]
        assert gc.prune(writer, 3) is None
        assert gc.prune(writer, 1) is None
        check(writer.stream)

    def test_the_head_is_always_kept(self, root: Path, writer: StreamWriter) -> None:
        gc.prune(writer, 999)
        assert numbers(root) == [5, 6]
        resume_job(writer.stream)
        check(writer.stream)

    def test_blobs_of_kept_snapshots_stay_whatever_the_grace(self, writer: StreamWriter) -> None:
        work(writer.stream, 40)
        compact(writer)
        gc.prune(writer, 20, grace=-1)
        check(writer.stream)
        for number in range(20, writer.head().number + 1):
            check_counted(writer.stream, writer.stream.chain.read(number))
        gc.prune(writer, 999, grace=-1)
        swept = gc.sweep(writer.stream, grace=-1)
        assert not swept.blobs
        check(writer.stream)
        resume_job(writer.stream)

    def test_orphans_stay_for_the_grace_period(self, writer: StreamWriter) -> None:
        orphan = writer.stream.blobs.put(b"of a crashed attempt")
        assert not gc.sweep(writer.stream).blobs
        writer.stream.blobs.check(orphan)
        old = time.time() - gc.GRACE - 60
        os.utime(Path(writer.stream.uri) / orphan.key, (old, old))
        assert gc.sweep(writer.stream, dry_run=True).blobs == 1
        writer.stream.blobs.check(orphan)
        # A writer that needs it again now finds it young.
        writer.stream.blobs.put(b"of a crashed attempt")
        assert not gc.sweep(writer.stream).blobs
        os.utime(Path(writer.stream.uri) / orphan.key, (old, old))
        assert gc.sweep(writer.stream).blobs == 1
        check(writer.stream)

    def test_what_a_living_writer_finishes_meanwhile_is_no_matter(
        self, root: Path, writer: StreamWriter, monkeypatch: Any
    ) -> None:
        """A temporary file is seen, and has its name by the time it is looked at."""
        seen = [StorageEntry(".sg-0.tmp", "file")]
        found = LocalStorage.list

        def listed(
            storage: LocalStorage, key: str = "", *, temporary: bool = False
        ) -> list[StorageEntry]:
            return seen if temporary else found(storage, key)

        monkeypatch.setattr(LocalStorage, "list", listed)
        assert not gc.sweep(writer.stream).temporary
        assert errors_of(writer.stream) == []

    def test_locks_of_living_runs_stay(self, root: Path, writer: StreamWriter) -> None:
        with writer.claim() as first, StreamWriter(opened(root)).claim(force=True) as second:
            gc.sweep(writer.stream, grace=-1)
            left = {path.name for path in (root / NAME / "locks").glob("run-*")}
            assert left == {f"run-{first.id}.lock", f"run-{second.id}.lock"}
            with pytest.raises(Locked), writer.claim():
                pass

    def test_a_lock_that_is_taken_while_it_is_swept_stays_a_lock(
        self, root: Path, writer: StreamWriter, monkeypatch: Any
    ) -> None:
        """Otherwise the run would not be seen to be alive."""
        monkeypatch.setattr(uuid, "uuid4", lambda: uuid.UUID(int=7))
        run = uuid.UUID(int=7).hex
        lock = writer.stream.run_lock(run)
        with lock.hold():
            pass
        held = []

        def old(*arguments: Any) -> Iterator[Path]:
            yield Path(lock.place)
            entered = lock.hold(timeout=0)
            entered.__enter__()
            held.append(entered)

        monkeypatch.setattr(gc, "old_run_locks", old)
        gc.sweep(writer.stream, grace=-1)
        assert lock.is_held()
        held[0].__exit__(None, None, None)


def test_streams_are_isolated(root: Path) -> None:
    first = opened(root)
    begin(first)
    (root / "other").mkdir()
    home = LocalStorage(root)
    second = Stream(LocalStorage(root / "other"), home, "other")
    begin(second)
    with StreamWriter(first).claim() as one, StreamWriter(second).claim() as two:
        commit(one)
        commit(two)
        commit(two)
        apply(second, "rollback", to=2, force=True)
        gc.prune(StreamWriter(second), 3, grace=-1)
        commit(one)
        with pytest.raises(StaleGeneration):
            commit(two)
    assert offsets_of(check(first)) == {0: 2 * STEP, 1: 2 * STEP}
    assert offsets_of(check(second)) == {0: STEP, 1: STEP}
    assert first.chain.head().stream_id != second.chain.head().stream_id


class TestCollectLock:
    def test_excludes_appending_and_the_other_way(self, root: Path, writer: StreamWriter) -> None:
        hasty = opened(root, timeout=0)
        # Who has nothing to remove need not wait.
        writer.stream.blobs.put(b"an orphan")
        with writer.stream.collecting():
            with pytest.raises(Locked, match="collect"):
                work(hasty, 1)
            with pytest.raises(Locked, match="collect"):
                gc.sweep(hasty, grace=0)
        with writer.stream.referring():
            with pytest.raises(Locked, match="collect"):
                gc.sweep(hasty, grace=0)
            work(hasty, 1)
        check(writer.stream)

    def test_an_exclusive_waiter_gets_its_turn_among_overlapping_shared_holders(
        self, root: Path
    ) -> None:
        lock = opened(root).lock("collect")
        stop = threading.Event()
        overlaps: list[bool] = []

        def share(number: int) -> None:
            while not stop.is_set():
                with lock.hold_in_turn(LockMode.SHARED, 20):
                    held[number] = True
                    overlaps.append(sum(held) > 1)
                    time.sleep(0.03)
                    held[number] = False

        held = [False] * 4
        threads = [threading.Thread(target=share, args=(number,)) for number in range(4)]
        for thread in threads:
            thread.start()
        try:
            while sum(overlaps) < 20:
                time.sleep(0.01)
            for _ in range(5):
                with lock.hold_in_turn(LockMode.EXCLUSIVE, 10):
                    assert not any(held)
        finally:
            stop.set()
            for thread in threads:
                thread.join()
        # Without turns the shared ones would have held it without a gap.
        assert sum(overlaps) > len(overlaps) // 2

    def test_plain_holders_starve_an_exclusive_one(self, root: Path) -> None:
        """What turns are for: the same without them does not get through."""
        lock = opened(root).lock("collect")
        turn = lock.hold_in_turn(LockMode.EXCLUSIVE, 0)
        with lock.hold(LockMode.SHARED), pytest.raises(Locked), turn:
            pytest.fail("held together with a shared holder")


class TestJournal:
    @pytest.fixture
    def journal(self, stream: Stream) -> StreamJournal:
        return StreamJournal(stream)

    def plan(self, journal: StreamJournal, operation: str, **change: Any) -> Plan:
        return journal.propose(operation_of(operation, **change))

    def test_rollback_restores_everything_at_a_new_generation(
        self, stream: Stream, journal: StreamJournal
    ) -> None:
        with StreamWriter(stream).claim() as run:
            commit(run, watermark_ns=99)
        aim = stream.chain.read(3)
        entry = apply(stream, "rollback", to=3)
        head = check(stream)
        assert entry.id == f"{NAME}@{head.number}"
        assert (head.number, head.generation, head.epoch) == (8, 2, 5)
        assert content_of(head) | {"ancestry": 0} == content_of(aim) | {"ancestry": 0}
        assert head.ancestry == ((0, 3), (8, 8))
        assert head.includes(3)
        assert not head.includes(4)
        assert head.watermark_ns is None
        resume_job(stream)
        check(stream)

    def test_rollback_to_where_it_is_does_nothing(self, journal: StreamJournal) -> None:
        assert self.plan(journal, "rollback", to=5).actions == ()

    @pytest.mark.parametrize("to", [6, 99, 1])
    def test_rollback_to_what_is_not_there_is_refused(
        self, stream: Stream, journal: StreamJournal, to: int
    ) -> None:
        gc.prune(StreamWriter(stream), 2)
        with pytest.raises(NotRestorable, match=f"snapshot {to}" if to != 6 else "snapshot 6|"):
            self.plan(journal, "rollback", to=to if to != 6 else 7)

    def test_a_living_job_refuses_it_and_force_wins(
        self, stream: Stream, journal: StreamJournal
    ) -> None:
        with StreamWriter(stream).claim(app="job") as run:
            plan = self.plan(journal, "rollback", to=3)
            with pytest.raises(Locked, match=run.id):
                journal.preflight(plan)
            with pytest.raises(Locked, match=run.id):
                journal.apply(plan, APPROVAL)
            assert stream.chain.head().generation == 1
            apply(stream, "rollback", to=3, force=True)
            with pytest.raises(StaleGeneration):
                commit(run)
        check(stream)

    def test_a_plan_that_is_forced_still_applies_while_a_job_commits(
        self, stream: Stream, journal: StreamJournal
    ) -> None:
        with StreamWriter(stream).claim() as run:
            plan = self.plan(journal, "rollback", to=3, force=True)
            for _ in range(3):
                commit(run)
                journal.preflight(plan)
            journal.apply(plan, APPROVAL)
            with pytest.raises(StaleGeneration):
                commit(run)
        assert offsets_of(check(stream)) == {0: 6, 1: 6}

    @pytest.mark.parametrize(
        "between",
        [
            lambda stream: work(stream, 1),
            lambda stream: apply(stream, "rollback", to=2),
            lambda stream: work(stream, 1) and apply(stream, "rollback", to=5),
        ],
        ids=["a job went on", "a rollback", "there and back"],
    )
    def test_drift(
        self, stream: Stream, journal: StreamJournal, between: Callable[[Stream], object]
    ) -> None:
        plan = self.plan(journal, "rollback", to=3)
        between(stream)
        head = stream.chain.head()
        with pytest.raises(Drifted):
            journal.apply(plan, APPROVAL)
        assert stream.chain.head().digest == head.digest

    @pytest.mark.parametrize(
        "between",
        [compact, lambda writer: gc.prune(writer, 2), lambda writer: rebalance(writer.stream)],
        ids=["compact", "prune", "rebalance"],
    )
    def test_no_drift(
        self, stream: Stream, journal: StreamJournal, between: Callable[[StreamWriter], object]
    ) -> None:
        plan = self.plan(journal, "rollback", to=3)
        between(StreamWriter(stream))
        journal.apply(plan, APPROVAL)
        assert offsets_of(check(stream)) == {0: 6, 1: 6}

    def test_reset_without_a_dedup_log_is_refused(self, journal: StreamJournal) -> None:
        with pytest.raises(NeedsDedup, match="applied again") as caught:
            self.plan(journal, "reset", positions=at(3))
        assert "--reprocess" in caught.value.hint

    def test_reset_with_a_dedup_log_keeps_what_was_counted(self, root: Path) -> None:
        stream = made(root.parent / "dedup", epochs=4, dedup=True)
        entry = apply(stream, "reset", positions=at(3))
        assert entry.kind == "reset"
        head = check(stream)
        assert (offsets_of(head), counted_of(head)) == ({0: 3, 1: 12}, {0: 12, 1: 12})
        assert head.generation == 2
        work(stream, 4)
        head = check(stream)
        assert (offsets_of(head), counted_of(head)) == ({0: 15, 1: 24}, {0: 15, 1: 24})
        plan = StreamJournal(stream).plan_undo(None)
        assert "Discards" in " ".join(plan.consequences)
        StreamJournal(stream).apply(plan, APPROVAL)
        assert offsets_of(check(stream)) == {0: 12, 1: 12}

    def test_undo_of_a_rollback(self, stream: Stream, journal: StreamJournal) -> None:
        before = stream.chain.head()
        apply(stream, "rollback", to=3)
        plan = journal.plan_undo(None)
        assert "Restores 12 events" in " ".join(plan.consequences)
        assert "Discards" not in " ".join(plan.consequences)
        entry = journal.apply(plan, APPROVAL)
        head = check(stream)
        assert content_of(head) | {"ancestry": 0} == content_of(before) | {"ancestry": 0}
        assert (head.generation, head.ancestry) == (3, ((0, 5), (7, 7)))
        undone = [each for each in journal.history() if each.id == f"{NAME}@6"]
        assert [each.undo for each in undone] == [f"undone by {entry.id}"]
        with pytest.raises(NotFound, match="all of them are undone"):
            journal.plan_undo(None)

    def test_undo_shows_what_it_discards(self, stream: Stream, journal: StreamJournal) -> None:
        apply(stream, "rollback", to=3)
        work(stream, 1)
        plan = journal.plan_undo(f"{NAME}@6")
        text = " ".join(plan.consequences)
        assert "Discards 6 events committed since snapshot 3" in text
        assert "Restores 12 events" in text
        journal.apply(plan, APPROVAL)
        assert offsets_of(check(stream)) == {0: 12, 1: 12}

    @pytest.mark.parametrize("name", ["clicks@0", "clicks@1", "clicks@2", "nonsense"])
    def test_what_cannot_be_undone_is_reported(self, journal: StreamJournal, name: str) -> None:
        with pytest.raises(NotFound, match=name):
            journal.plan_undo(name)

    def test_a_saved_plan_applied_twice_is_once(
        self, root: Path, stream: Stream, journal: StreamJournal
    ) -> None:
        place = str(root.parent / "plan.json")
        saved_plan.save(self.plan(journal, "rollback", to=3), place, "a test", 3600)
        saved = saved_plan.load(place)

        def act() -> Entry:
            reviewed = review(journal, saved)
            if isinstance(reviewed, Entry):
                return reviewed
            return journal.apply(reviewed, replace(APPROVAL, plan_digest=saved.digest))

        first = act()
        work(stream, 1)
        assert act().id == first.id
        assert stream.chain.head().generation == 2
        journal.apply(journal.plan_undo(None), APPROVAL)
        with pytest.raises(Drifted, match="undone by"):
            act()
        check(stream)

    def test_a_saved_forced_plan_holds_while_a_job_commits(
        self, root: Path, stream: Stream, journal: StreamJournal
    ) -> None:
        with StreamWriter(stream).claim() as run:
            place = str(root.parent / "plan.json")
            plan = self.plan(journal, "rollback", to=3, force=True)
            saved_plan.save(plan, place, "a test", 3600)
            commit(run)
            reviewed = review(journal, saved_plan.load(place))
            assert isinstance(reviewed, Plan)
            journal.apply(reviewed, APPROVAL)
        assert offsets_of(check(stream)) == {0: 6, 1: 6}

    def test_history_shows_changes_and_not_of_epochs(
        self, stream: Stream, journal: StreamJournal
    ) -> None:
        apply(stream, "rollback", to=3, reason="because")
        apply(stream, "compact")
        apply(stream, "prune", to=2)
        kinds = [entry.kind for entry in journal.history()]
        assert kinds == ["prune", "compact", "rollback"]
        assert [entry.reason for entry in journal.history()] == ["a test", "a test", "because"]


class TestCompact:
    def test_keeps_the_state_and_what_was_committed_since(self, writer: StreamWriter) -> None:
        base = writer.head()
        work(writer.stream, 2)
        snapshot = compact(writer)
        assert snapshot
        assert (snapshot.kind, snapshot.state.deltas, snapshot.positions) == (
            Kind.COMPACT,
            (),
            at(18, 18),
        )
        assert snapshot.state_delta is None
        assert compact(writer) is None
        assert base.generation == snapshot.generation
        check(writer.stream)

    def test_drops_when_its_inputs_are_gone(self, writer: StreamWriter) -> None:
        base = writer.head()
        draft = CompactDraft(base.state, writer.stream.blobs.put(b""), Signature(), {})
        apply(writer.stream, "rollback", to=3)
        assert writer.append(draft, base) is None
        assert writer.head().kind is Kind.ROLLBACK


def test_fenced_errors_have_one_exit_code() -> None:
    fenced = (SplitBrainCommit, StaleGeneration, StaleVersion, WriterStopped)
    assert all(issubclass(each, Fenced) for each in fenced)
    assert {each.exit_code for each in fenced} == {13}


def test_reprocessing_after_a_replay_takes_back_what_was_counted(tmp_path: Path) -> None:
    """Positions below the wanted ones do not mean that nothing beyond them was counted."""
    stream = made(tmp_path / "home", epochs=4, dedup=True)
    counted = stream.chain.head().sequence
    apply(stream, "reset", positions=at(0, 0))
    head = work(stream, 4)
    assert head.sequence == counted, "all of it was seen before"
    found = stream.chain.read(snapshot_before(stream, head, at(6, 6)))
    assert (offsets_of(found), found.sequence) == ({0: 6, 1: 6}, 12)
