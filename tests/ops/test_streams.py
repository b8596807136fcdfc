"""The maintenance of gated streams: what is done, what is left alone, and why."""

from __future__ import annotations

import errno
import os
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from sluicegate.config import Maintain
from sluicegate.findings import Severity
from sluicegate.locks import LockMode
from sluicegate.maintenance import Outcome, Steps
from sluicegate.positions import Positions
from sluicegate.sinks.base import DATA, Reach
from sluicegate.sinks.files import FileSink, directory_of
from sluicegate.stream.gc import GRACE
from sluicegate.stream.maintenance import metrics
from sluicegate.stream.output import name_of, open_sink
from sluicegate.stream.snapshot import key_of
from sluicegate.stream.state import shards_of
from sluicegate.stream.stream import Stream
from sluicegate.stream.writer import StreamWriter
from tests.job import sinks
from tests.ops.week import cared_for, terms
from tests.stream.streams import apply, check, commit, in_memory, made, opened, work
from tests.support.faults import Disk

EAGER = Maintain(keep=0.0, keep_snapshots=3)


@pytest.fixture
def root() -> Iterator[Path]:
    with in_memory() as path:
        yield path


@pytest.fixture
def stream(root: Path) -> Stream:
    return made(root / "home", epochs=12, dedup=True)


def outcomes(steps: Steps) -> dict[str, Outcome]:
    return {step.name: step.outcome for step in steps.done}


def run(root: Path, policy: Maintain = EAGER, only: str = "") -> Steps:
    return cared_for(opened(root / "home", timeout=0.0), root / "sink", terms(policy, only=only))


class TestChanges:
    def test_each_is_a_snapshot_with_its_reason(self, root: Path, stream: Stream) -> None:
        before = stream.chain.head()
        run(root)
        head = check(stream)
        new = [stream.chain.read(n) for n in range(before.number + 1, head.number + 1)]
        assert [snapshot.kind.value for snapshot in new] == ["compact", "compact", "prune"]
        assert {snapshot.reason for snapshot in new} == {"maintain"}

    def test_a_second_run_has_nothing_to_do(self, root: Path, stream: Stream) -> None:
        run(root)
        settled = run(root)
        before = stream.chain.head().number
        for _ in range(3):
            settled = run(root)
        assert stream.chain.head().number == before, "an idle stream is not pruned for ever"
        assert Outcome.DONE not in {s.outcome for s in settled.done[2:]}

    def test_a_job_continues_beside_it(self, root: Path, stream: Stream) -> None:
        with StreamWriter(stream).claim(app="job") as job:
            commit(job)
            assert run(root).findings == []
            job.refresh()
            commit(job)
        check(stream)

    def test_few_segments_beside_a_large_one_are_left_alone(self, root: Path) -> None:
        stream = made(root / "home", epochs=3, dedup=True)
        head = stream.chain.head().number
        assert outcomes(run(root, Maintain()))["compact dedup log"] is Outcome.NOTHING
        assert stream.chain.head().number == head

    @pytest.mark.parametrize("how", ["dry_run", "read_only"])
    def test_who_only_looks_changes_nothing(self, root: Path, stream: Stream, how: str) -> None:
        head = stream.chain.head()
        steps = run(root, only=how)
        expected = Outcome.PLANNED if how == "dry_run" else Outcome.SKIPPED
        assert outcomes(steps)["prune"] is expected
        assert stream.chain.head() == head


def test_a_prune_of_temporary_files_alone_is_done(root: Path, stream: Stream) -> None:
    """As `checkpoint prune` does it, when all snapshots are kept."""
    path = Path(stream.uri) / stream.blobs.put(b"orphan").key
    os.utime(path, (1, 1))
    head = stream.chain.head()
    assert apply(stream, "prune", to=0).id == f"clicks@{head.number}"
    assert not path.exists()
    assert stream.chain.head() == head


class TestOthersAtWork:
    def test_a_lock_that_is_held_is_not_waited_for(self, root: Path, stream: Stream) -> None:
        began = time.monotonic()
        with stream.lock("collect").hold(LockMode.EXCLUSIVE, note=False):
            steps = run(root)
        assert time.monotonic() - began < 5
        assert outcomes(steps)["compact state"] is Outcome.SKIPPED
        assert outcomes(steps)["prune"] is Outcome.SKIPPED
        assert steps.findings == [], "that is no problem"
        assert outcomes(run(root))["prune"] is Outcome.DONE

    def test_idle_streams_are_reported(self, root: Path, stream: Stream) -> None:
        time.sleep(0.3)
        # Its own snapshots must not make it look alive.
        run(root)
        [finding] = run(root, Maintain(idle=0.3)).findings
        assert (finding.code, finding.severity) == ("SG-MAINTAIN-IDLE", Severity.WARNING)
        with StreamWriter(stream).claim():
            assert run(root, Maintain(idle=0.0)).findings == []


class TestDamage:
    def spoil(self, stream: Stream) -> Path:
        """Change content that only a reader of all content notices."""
        ref = shards_of(stream, stream.chain.head())[0][0]
        path = Path(stream.uri) / ref.key
        data = bytearray(path.read_bytes())
        data[-1] ^= 1
        path.write_bytes(data)
        return path

    def test_what_is_damaged_is_not_changed(self, root: Path, stream: Stream) -> None:
        (Path(stream.uri) / stream.chain.head().state.refs[0].key).unlink()
        head = stream.chain.head()
        steps = run(root)
        assert "SG-BLOB-DAMAGED" in {f.code for f in steps.findings}
        assert {s.outcome for s in steps.done[1:]} == {Outcome.SKIPPED}
        assert stream.chain.head() == head

    def test_damage_that_a_step_meets_stops_those_after_it(
        self, root: Path, stream: Stream
    ) -> None:
        self.spoil(stream)
        steps = cared_for(opened(root / "home"), None, terms(EAGER, seconds=0.0))
        assert outcomes(steps)["compact state"] is Outcome.FAILED
        assert outcomes(steps)["prune"] is Outcome.SKIPPED, "what it removes may be needed now"

    def test_bad_content_is_reported_until_it_is_repaired(self, root: Path) -> None:
        stream = made(root / "home", epochs=3)
        path = self.spoil(stream)
        repaired = path.read_bytes()[:-1] + bytes([path.read_bytes()[-1] ^ 1])
        found = []
        for _ in range(30):
            steps = cared_for(opened(root / "home"), None, terms(Maintain(), seconds=0.0))
            found.append(bool([f for f in steps.findings if f.severity is Severity.ERROR]))
        first = found.index(True)
        assert all(found[first:]), "each run reads one blob; the bad one again each time"
        path.write_bytes(repaired)
        steps = cared_for(opened(root / "home"), None, terms(Maintain(), seconds=0.0))
        assert [f.detail for f in steps.findings if f.severity is Severity.ERROR] == []

    def test_a_failing_step_does_not_stop_the_others(self, root: Path, stream: Stream) -> None:
        created: list[str] = []

        def full_once(_number: int, call: str) -> None:
            if call.startswith("create"):
                created.append(call)
                # The first two are how far the check came: before it and after it.
                if len(created) == 3:
                    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

        process = Disk(root).process(full_once)
        steps = cared_for(opened(root / "home", process, 0.0), None, terms(EAGER))
        failed = [step.name for step in steps.done if step.outcome is Outcome.FAILED]
        assert failed == ["compact dedup log"]
        assert outcomes(steps)["compact state"] is outcomes(steps)["prune"] is Outcome.DONE
        [finding] = steps.findings
        assert (finding.code, finding.severity) == ("SG-MAINTAIN-FAILED", Severity.ERROR)
        assert finding.detail.startswith("compact dedup log: ")
        assert "no space left" in finding.detail


def test_after_a_repair_that_lost_the_newest_snapshot(root: Path, stream: Stream) -> None:
    """Everything continues, also the search for the last job and for garbage."""
    sink = open_sink(stream, str(root / "sink"))
    with sinks.started(stream, sink) as job:
        for _ in range(3):
            sinks.publish(stream, sink, sinks.commit(job, sink, DATA))
    newest = stream.storage.local_path(key_of(stream.chain.head().number))
    assert newest
    newest.write_bytes(b"garbage")
    apply(stream, "repair")
    assert not [f.code for f in run(root).findings if f.severity is Severity.ERROR]
    samples = {sample.metric for sample in metrics("clicks", stream)}
    assert {"sluicegate_head_age_seconds", "kafka_consumergroup_current_offset"} <= samples
    with sinks.started(stream, sink):
        """It withdraws what was lost, so there is something in the trash."""
    steps = run(root)
    assert not [f.code for f in steps.findings if f.severity is Severity.ERROR]
    assert outcomes(steps)["empty trash"] is Outcome.DONE


class TestTrash:
    @pytest.fixture
    def sink(self, root: Path, stream: Stream) -> FileSink:
        return open_sink(stream, str(root / "sink"))

    def test_is_kept_as_long_as_it_can_come_back(
        self, root: Path, stream: Stream, sink: FileSink
    ) -> None:
        with sinks.started(stream, sink) as job:
            snapshots = []
            for _ in range(3):
                snapshots.append(sinks.commit(job, sink, DATA))
                sinks.publish(stream, sink, snapshots[-1])
        before = sinks.shown(Path(sink.uri))
        apply(stream, "rollback", to=snapshots[0].number)
        with sinks.started(stream, sink):
            pass
        assert len(list((root / "sink/_sluicegate/trash/data").iterdir())) == 2
        # The snapshots below the tip of a rollback are pruned, the tip is not.
        run(
            root,
            Maintain(keep=0.0, keep_snapshots=stream.chain.head().number - snapshots[2].number + 1),
        )
        assert len(list((root / "sink/_sluicegate/trash/data").iterdir())) == 2
        apply(stream, "rollback", to=snapshots[2].number)
        with sinks.started(stream, sink):
            assert sinks.shown(Path(sink.uri)) == before, "also of snapshots that are not kept"

    def test_goes_when_nothing_can_bring_it_back(
        self, root: Path, stream: Stream, sink: FileSink
    ) -> None:
        with sinks.started(stream, sink) as job:
            snapshots = [sinks.commit(job, sink, DATA)]
            sinks.publish(stream, sink, snapshots[0])
            snapshots.append(sinks.commit(job, sink, DATA))
            # The first is published, the second is not, and these were never committed.
            reach = Reach(1, Positions({}), Positions({}))
            for nonce in ("a" * 32, "b" * 32):
                sink.stage(nonce, sinks.write(sink, nonce, {DATA: "never committed"}), reach)
        apply(stream, "rollback", to=snapshots[0].number - 1)
        with sinks.started(stream, sink):
            pass
        own = root / "sink/_sluicegate/trash"
        assert {path.name for path in (own / "data").iterdir()} == {
            directory_of(name_of(x)) for x in snapshots
        }
        assert {path.name for path in (own / "staged").iterdir()} == {
            "a" * 32 + ".data",
            "b" * 32 + ".data",
        }
        os.utime(own / "staged" / ("a" * 32 + ".data"), (time.time() - GRACE - 60,) * 2)
        work(stream, 6)
        run(root)
        assert not list((own / "data").iterdir())
        assert [path.name for path in (own / "staged").iterdir()] == ["b" * 32 + ".data"]

    def test_a_sink_that_is_away_keeps_the_snapshot_too(
        self, root: Path, stream: Stream, sink: FileSink
    ) -> None:
        with sinks.started(stream, sink) as job:
            snapshot = sinks.commit(job, sink, DATA)
        (root / "sink").rename(root / "away")
        for _ in range(3):
            with StreamWriter(stream).claim():
                """A start that does not find its sink."""
        run(root, Maintain(keep=0.0, keep_snapshots=1))
        (root / "away").rename(root / "sink")
        with sinks.started(stream, sink):
            assert list(sinks.shown(Path(sink.uri))) == [f"data/{directory_of(name_of(snapshot))}"]

    def test_an_epoch_that_is_not_published_keeps_its_snapshot(
        self, root: Path, stream: Stream, sink: FileSink
    ) -> None:
        with sinks.started(stream, sink) as job:
            snapshot = sinks.commit(job, sink, DATA)
        for _ in range(4):
            run(root, Maintain(keep=0.0, keep_snapshots=1))
        assert stream.chain.head().floor <= snapshot.number
        assert sinks.shown(Path(sink.uri)) == {}
        with sinks.started(stream, sink):
            assert list(sinks.shown(Path(sink.uri))) == [f"data/{directory_of(name_of(snapshot))}"]

    def test_attempts_of_the_dead_go_and_those_of_the_living_stay(
        self, root: Path, stream: Stream, sink: FileSink
    ) -> None:
        with sinks.started(stream, sink):
            old, young = (Path(sink.attempts(nonce * 32)) for nonce in "ab")
            os.utime(old, (time.time() - GRACE - 60,) * 2)
            run(root)
            assert old.exists()
        run(root)
        assert not old.exists()
        assert young.exists()
