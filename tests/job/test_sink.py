"""What epochs write: published with their snapshot, unpublished with it, never lost in between."""

from __future__ import annotations

import os
import random
import shutil
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from sluicegate import codec
from sluicegate.errors import Corrupt, NotFound, SplitBrainCommit, UsageError
from sluicegate.positions import Positions
from sluicegate.sinks.base import (
    DATA,
    PENDING,
    PUBLISHED,
    REJECTS,
    File,
    Output,
    OutputLost,
    Reach,
    SnapshotName,
)
from sluicegate.sinks.files import FileSink, directory_of
from sluicegate.storage import LocalStorage
from sluicegate.stream import gc
from sluicegate.stream.history import NotRestorable, intact_snapshots
from sluicegate.stream.output import Publisher, encode, name_of, open_sink, read_output
from sluicegate.stream.snapshot import Snapshot, key_of
from sluicegate.stream.stream import Stream
from sluicegate.stream.writer import Run, StreamWriter
from tests.job.sinks import Contents, commit, publish, shown, started, wanted, write
from tests.stream.streams import (
    NAME,
    NothingToDo,
    apply,
    as_run,
    in_memory,
    made,
    offsets_of,
    opened,
)
from tests.support.faults import Aftermath, Disk, _run_cut

RUN = "run"
NONCE = "0" * 32
REACH = Reach(1, Positions({}), Positions({}))


@pytest.fixture
def root() -> Iterator[Path]:
    with in_memory() as path:
        yield path


@pytest.fixture
def stream(root: Path) -> Stream:
    return made(root / "home")


@pytest.fixture
def sink(root: Path, stream: Stream) -> FileSink:
    return open_sink(stream, str(root / "sink"))


def check(stream: Stream, sink: FileSink) -> None:
    assert shown(Path(sink.uri)) == wanted(stream)


class TestPublishing:
    def test_an_epoch_is_invisible_until_it_is_published(
        self, stream: Stream, sink: FileSink
    ) -> None:
        with started(stream, sink) as run:
            snapshot = commit(run, sink, DATA, REJECTS)
            assert shown(Path(sink.uri)) == {}
            publish(stream, sink, snapshot)
            assert len(shown(Path(sink.uri))) == 2
            check(stream, sink)
            # As often as one likes.
            publish(stream, sink, snapshot)
            check(stream, sink)

    def test_what_the_next_start_finds_committed_it_publishes(
        self, stream: Stream, sink: FileSink
    ) -> None:
        with started(stream, sink) as run:
            commit(run, sink, DATA)
        assert shown(Path(sink.uri)) == {}
        with started(stream, sink):
            check(stream, sink)
        assert len(shown(Path(sink.uri))) == 1

    def test_epochs_without_output_have_no_directory(self, stream: Stream, sink: FileSink) -> None:
        with started(stream, sink) as run:
            for kinds in ((), (DATA,), (REJECTS,), ()):
                publish(stream, sink, commit(run, sink, *kinds))
        assert [kind.split("/")[0] for kind in sorted(shown(Path(sink.uri)))] == [DATA, REJECTS]
        check(stream, sink)

    def test_what_was_never_committed_is_never_published(
        self, stream: Stream, sink: FileSink
    ) -> None:
        with started(stream, sink):
            sink.stage(NONCE, write(sink, NONCE, {DATA: "x"}), REACH)
        write(sink, "1" * 32, {DATA: "y"})
        with started(stream, sink):
            assert shown(Path(sink.uri)) == {}
        assert not (Path(sink.uri) / "_sluicegate" / "attempts").exists()
        assert not list((Path(sink.uri) / "_sluicegate" / "staged").glob("*/*.data"))

    def test_dropped_is_gone(self, stream: Stream, sink: FileSink) -> None:
        sink.fence(SnapshotName(1, NONCE))
        sink.stage(NONCE, write(sink, NONCE, {DATA: "x"}), REACH)
        sink.drop(NONCE)
        assert not list(Path(sink.uri).rglob("*.parquet"))

    def test_a_file_that_is_not_as_its_task_left_it(self, stream: Stream, sink: FileSink) -> None:
        sink.fence(SnapshotName(1, NONCE))
        output = write(sink, NONCE, {DATA: "x"})
        (Path(sink.attempts(NONCE)) / "part-data.parquet").write_text("xx")
        with pytest.raises(OutputLost, match="changed after it was written"):
            sink.stage(NONCE, output, REACH)
        missing = Output({DATA: (File("part-none.parquet", 1, 1, ""),)})
        with pytest.raises(OutputLost):
            sink.stage(NONCE, missing, REACH)

    def test_where_a_file_is(self, stream: Stream, sink: FileSink) -> None:
        with started(stream, sink) as run:
            snapshot = commit(run, sink, DATA)
            assert snapshot.output
            [file] = read_output(stream, snapshot.output).files[DATA]
            assert sink.status(name_of(snapshot), DATA, file) == PENDING
            publish(stream, sink, snapshot)
            assert sink.status(name_of(snapshot), DATA, file, read=True) == PUBLISHED
        [path] = Path(sink.uri).rglob("part-data.parquet")
        path.write_bytes(path.read_bytes().swapcase())
        assert sink.status(name_of(snapshot), DATA, file) == PUBLISHED
        assert sink.status(name_of(snapshot), DATA, file, read=True) == "has different content"
        path.write_bytes(b"")
        assert "has 0 bytes" in sink.status(name_of(snapshot), DATA, file)
        path.unlink()
        assert sink.status(name_of(snapshot), DATA, file) == "is missing"


class TestRollback:
    def epochs(self, stream: Stream, sink: FileSink, count: int) -> list[Snapshot]:
        with started(stream, sink) as run:
            snapshots = []
            for _ in range(count):
                snapshots.append(commit(run, sink, DATA, REJECTS))
                publish(stream, sink, snapshots[-1])
        return snapshots

    def test_takes_output_back_with_the_next_start(self, stream: Stream, sink: FileSink) -> None:
        snapshots = self.epochs(stream, sink, 4)
        apply(stream, "rollback", to=snapshots[1].number)
        with started(stream, sink):
            check(stream, sink)
        assert len(shown(Path(sink.uri))) == 4

    def test_of_what_a_killed_job_published(self, stream: Stream, sink: FileSink) -> None:
        """No job settled since it began: its output is unpublished all the same."""
        self.epochs(stream, sink, 1)
        Publisher(stream, sink).settle()
        snapshots = self.epochs(stream, sink, 3)
        apply(stream, "rollback", to=snapshots[0].number)
        with started(stream, sink):
            check(stream, sink)
        assert len(shown(Path(sink.uri))) == 4

    def test_and_back_brings_it_back(self, stream: Stream, sink: FileSink) -> None:
        snapshots = self.epochs(stream, sink, 4)
        before = shown(Path(sink.uri))
        apply(stream, "rollback", to=snapshots[0].number)
        with started(stream, sink) as run:
            snapshot = commit(run, sink, DATA)
            publish(stream, sink, snapshot)
        assert len(shown(Path(sink.uri))) == 3
        apply(stream, "rollback", to=snapshots[-1].number)
        with started(stream, sink):
            check(stream, sink)
        assert shown(Path(sink.uri)) == before

    def test_before_an_epoch_is_published(self, stream: Stream, sink: FileSink) -> None:
        """It is not published by the run that committed it, and not lost either."""
        snapshots = self.epochs(stream, sink, 1)
        with started(stream, sink) as run:
            late = commit(run, sink, DATA)
            apply(stream, "rollback", to=snapshots[0].number, force=True)
            publish(stream, sink, late)
        check(stream, sink)
        with started(stream, sink):
            check(stream, sink)
        apply(stream, "rollback", to=late.number)
        with started(stream, sink):
            check(stream, sink)
        assert len(shown(Path(sink.uri))) == 3

    def test_when_it_is_not_known_what_was_settled(self, stream: Stream, sink: FileSink) -> None:
        snapshots = self.epochs(stream, sink, 3)
        for damage in (Path.unlink, lambda path: path.write_bytes(b"garbage")):
            apply(stream, "rollback", to=snapshots[0].number)
            damage(Path(sink.uri) / "_sluicegate" / "settled")
            with started(stream, sink):
                check(stream, sink)
            apply(stream, "rollback", to=snapshots[-1].number)
            with started(stream, sink):
                check(stream, sink)
            assert len(shown(Path(sink.uri))) == 6

    def test_what_others_put_there_stays(self, stream: Stream, sink: FileSink) -> None:
        snapshots = self.epochs(stream, sink, 2)
        foreign = Path(sink.uri) / DATA / "snapshot=7"
        foreign.mkdir()
        apply(stream, "rollback", to=snapshots[0].number)
        with started(stream, sink):
            assert foreign.exists()

    def test_output_that_is_nowhere_is_noticed(self, stream: Stream, sink: FileSink) -> None:
        with started(stream, sink) as run:
            snapshot = commit(run, sink, DATA)
        for staged in (Path(sink.uri) / "_sluicegate" / "staged").glob("*/*.data"):
            shutil.rmtree(staged)
        with pytest.raises(OutputLost, match=f"the data of snapshot {snapshot.number} are missing"):
            Publisher(stream, sink).settle()

    def test_a_start_that_dies_and_another_head(self, stream: Stream, sink: FileSink) -> None:
        """What it moved is found again, whichever way the head went in between."""
        snapshots = self.epochs(stream, sink, 4)
        ends = [snapshots[0].number, snapshots[-1].number]
        for there, back in (ends, reversed(ends)):
            for calls in range(9):
                with suppress(NothingToDo):
                    apply(stream, "rollback", to=back)
                with started(stream, sink):
                    check(stream, sink)
                apply(stream, "rollback", to=there)
                with suppress(Killed), started(stream, Dying(sink, calls).sink):
                    assert calls > 6
                apply(stream, "rollback", to=back)
                with started(stream, sink):
                    check(stream, sink)

    @pytest.mark.parametrize("seed", range(15))
    def test_whatever_happens(self, root: Path, stream: Stream, sink: FileSink, seed: int) -> None:
        """Jobs that end or die anywhere, rollbacks there and back, prunes, the trash emptied."""
        Hazards(root, stream, sink, random.Random(seed)).run(25)


class Killed(BaseException):
    """As SIGKILL: nothing gets a chance to tidy up."""


class Dying:
    """A sink that dies at a call that changes something."""

    def __init__(self, sink: FileSink, calls: int) -> None:
        self.left = calls
        self.sink = FileSink(LocalStorage(Path(sink.uri)))
        for name in ("move", "delete", "replace"):
            real = getattr(self.sink._storage, name)
            setattr(self.sink._storage, name, partial(self._call, real))

    def _call(self, real: Callable[..., Any], *words: Any, **more: Any) -> Any:
        if self.left == 0:
            raise Killed
        self.left -= 1
        return real(*words, **more)


class Hazards:
    """A stream to which things happen, and what must be published of it."""

    def __init__(self, root: Path, stream: Stream, sink: FileSink, chance: random.Random) -> None:
        self._stream, self._sink, self._chance = stream, sink, chance
        self._home = root / "home"
        self._committed: dict[int, tuple[Snapshot, Contents]] = {}

    def run(self, count: int) -> None:
        happenings = [self.job] * 4 + [self.dying_start] * 2
        happenings += [self.rollback] * 4 + [self.prune, self.empty, self.damage]
        for _ in range(count):
            self._chance.choice(happenings)()
        self.job()

    def check(self) -> None:
        head = self._stream.chain.head()
        wanted: Contents = {}
        for number, (_, contents) in self._committed.items():
            wanted |= contents if head.includes(number) else {}
        assert shown(Path(self._sink.uri)) == wanted

    def job(self) -> None:
        with started(self._stream, self._sink) as run:
            self.check()
            for _ in range(self._chance.randrange(4)):
                snapshot = self.commit(run)
                if self._chance.random() < 0.3:
                    return
                publish(self._stream, self._sink, snapshot)
                self.check()
            if self._chance.random() < 0.5:
                Publisher(self._stream, self._sink).settle()

    def commit(self, run: Run) -> Snapshot:
        if self._chance.random() < 0.2:
            nonce = f"{self._chance.getrandbits(128):032x}"
            self._sink.stage(nonce, write(self._sink, nonce, {DATA: "not committed"}), REACH)
        head = self._stream.chain.head()
        kinds = self._chance.choice([(), (DATA,), (REJECTS,), (DATA, REJECTS)])
        snapshot = commit(run, self._sink, *kinds)
        text = f"epoch {head.epoch + 1} from {offsets_of(head)}"
        contents = {
            f"{kind}/{directory_of(name_of(snapshot))}": f"{kind} of {text}" for kind in kinds
        }
        self._committed[snapshot.number] = (snapshot, contents)
        return snapshot

    def dying_start(self) -> None:
        dying = Dying(self._sink, self._chance.randrange(8))
        with suppress(Killed), started(self._stream, dying.sink):
            self.check()

    def rollback(self) -> None:
        head = self._stream.chain.head()
        numbers = range(head.floor, head.number + 1)
        with suppress(NothingToDo, NotRestorable):
            apply(self._stream, "rollback", to=self._chance.choice(numbers))

    def prune(self) -> None:
        head = self._stream.chain.head()
        with suppress(NothingToDo):
            apply(self._stream, "prune", to=self._chance.randrange(head.floor, head.number + 1))

    def empty(self) -> None:
        gc.empty(self._stream, self._sink, grace=0.0)

    def damage(self) -> None:
        """A snapshot is damaged, and discarded by a repair.

        Not that of the newest epoch: if it was not published either, two things went wrong at once.
        """
        head = self._stream.chain.head()
        newest = max(self._committed, default=-1)
        intact = [
            snapshot.number for snapshot in intact_snapshots(self._stream, head.floor, head.number)
        ]
        chosen = [number for number in intact[2:] if number != newest]
        if not chosen:
            return
        place = self._stream.storage.local_path(key_of(self._chance.choice(chosen)))
        assert place
        place.write_bytes(b"garbage")
        apply(self._stream, "repair")


class TestRepaired:
    """A repair that discarded snapshots continues with the rest, and so does the next start."""

    @pytest.mark.parametrize("what", ["snapshot", "list of files"])
    def test_of_an_epoch_in_the_middle(self, stream: Stream, sink: FileSink, what: str) -> None:
        with started(stream, sink) as run:
            snapshots = []
            for _ in range(4):
                snapshots.append(commit(run, sink, DATA, REJECTS))
                publish(stream, sink, snapshots[-1])
        before = shown(Path(sink.uri))
        assert snapshots[1].output
        key = key_of(snapshots[1].number) if what == "snapshot" else snapshots[1].output.key
        path = stream.storage.local_path(key)
        assert path
        path.write_bytes(b"garbage")
        apply(stream, "repair")
        for _ in range(2):
            with started(stream, sink):
                assert shown(Path(sink.uri)) == before
        # There and back, over the snapshot that is discarded.
        apply(stream, "rollback", to=snapshots[0].number)
        with started(stream, sink):
            assert len(shown(Path(sink.uri))) == 2
        apply(stream, "rollback", to=snapshots[3].number)
        with started(stream, sink):
            assert shown(Path(sink.uri)) == before

    def test_an_output_that_is_not_discarded_is_missed(
        self, stream: Stream, sink: FileSink
    ) -> None:
        with started(stream, sink) as run:
            snapshot = commit(run, sink, DATA)
        assert snapshot.output
        path = stream.storage.local_path(snapshot.output.key)
        assert path
        path.write_bytes(b"garbage")
        with pytest.raises(Corrupt):
            Publisher(stream, sink).settle()


class TestPrune:
    def test_keeps_an_epoch_that_is_not_published(self, stream: Stream, sink: FileSink) -> None:
        with started(stream, sink) as run:
            late = commit(run, sink, DATA)
        for _ in range(3):
            with StreamWriter(stream).claim():
                """A start that fails before it publishes."""
        apply(stream, "prune", to=stream.chain.head().number)
        assert stream.chain.head().floor == late.number
        with started(stream, sink):
            assert list(shown(Path(sink.uri))) == [f"{DATA}/{directory_of(name_of(late))}"]

    def test_whatever_was_appended_before_it(self, stream: Stream, sink: FileSink) -> None:
        """A plan that was made before the epoch is bounded by it all the same."""
        with started(stream, sink) as run:
            late = commit(run, sink, DATA)
            writer = StreamWriter(stream)
            gc.prune(writer, 10**6)
        assert stream.chain.head().floor == late.number

    def test_an_epoch_without_output_needs_nothing(self, stream: Stream, sink: FileSink) -> None:
        with started(stream, sink) as run:
            commit(run, sink)
        with StreamWriter(stream).claim():
            """One snapshot more."""
        apply(stream, "prune", to=10**6)
        head = stream.chain.head()
        assert head.floor == head.number - 1


def test_output_that_is_needed_again_is_no_rubbish(stream: Stream, sink: FileSink) -> None:
    """Rolled back before it was published, and restored before anything was started."""
    with started(stream, sink) as run:
        first = commit(run, sink, DATA)
        publish(stream, sink, first)
        late = commit(run, sink, DATA, REJECTS)
    apply(stream, "rollback", to=first.number)
    with started(stream, sink):
        check(stream, sink)
    apply(stream, "rollback", to=late.number)
    assert not gc.empty(stream, sink, grace=0.0)
    with started(stream, sink):
        check(stream, sink)
    assert len(shown(Path(sink.uri))) == 3


def test_a_run_that_was_superseded_clears_nothing(stream: Stream, sink: FileSink) -> None:
    publisher = Publisher(stream, sink)
    with started(stream, sink) as first, StreamWriter(stream).claim(force=True) as second:
        mine = Path(sink.attempts("a" * 32))
        with pytest.raises(SplitBrainCommit):
            publisher.begin(first)
        assert mine.exists()
        publisher.begin(second)
        assert not mine.exists()


class TestWhoseItIs:
    def test_it_is_kept(self, root: Path, stream: Stream) -> None:
        assert open_sink(stream, str(root / "x")).uri == open_sink(stream, str(root / "x")).uri

    def test_of_another_stream(self, root: Path, stream: Stream, sink: FileSink) -> None:
        other = made(root / "other")
        with pytest.raises(UsageError, match="is the sink of another stream"):
            open_sink(other, sink.uri)

    def test_without_a_name_it_is_the_streams_own(self, root: Path, stream: Stream) -> None:
        assert open_sink(stream, None).uri == str(root / "home" / NAME / "output")

    def test_lost(self, root: Path, stream: Stream, sink: FileSink) -> None:
        """An empty directory where output was may be a disk that is not mounted."""
        with started(stream, sink) as run:
            publish(stream, sink, commit(run, sink, DATA))
        shutil.rmtree(sink.uri)
        with pytest.raises(NotFound, match="which has written output"):
            open_sink(stream, sink.uri)
        Path(sink.uri).mkdir()
        with pytest.raises(NotFound, match="which has written output"):
            open_sink(stream, sink.uri)
        with pytest.raises(NotFound, match="which has written output"):
            open_sink(stream, str(root / "elsewhere"))

    def test_half_made(self, root: Path, stream: Stream) -> None:
        """The process that made it died before it was marked."""
        place = root / "half"
        (place / "_sluicegate").mkdir(parents=True)
        (place / "_sluicegate" / ".sg-0123456789abcdef.tmp").write_text("x")
        assert open_sink(stream, str(place)).uri == str(place)
        (root / "other" / "_sluicegate" / "staged").mkdir(parents=True)
        with pytest.raises(UsageError, match="is not empty and is not a Sluicegate sink"):
            open_sink(stream, str(root / "other"))

    def test_not_empty(self, root: Path, stream: Stream) -> None:
        (root / "full").mkdir()
        (root / "full" / "mine.txt").write_text("x")
        with pytest.raises(UsageError, match="is not empty and is not a Sluicegate sink"):
            open_sink(stream, str(root / "full"))

    def test_damaged(self, stream: Stream, sink: FileSink) -> None:
        (Path(sink.uri) / "_sluicegate" / "sink").write_bytes(b"x")
        with pytest.raises(Corrupt):
            open_sink(stream, sink.uri)


def test_lists_of_files_are_checked(stream: Stream) -> None:
    output = Output({DATA: (File("a", 1, 2, "d"),), REJECTS: ()})
    ref = stream.blobs.put(encode(output))
    assert read_output(stream, ref).files == {DATA: (File("a", 1, 2, "d"),)}
    assert (output.rows(DATA), output.rows(REJECTS), bool(Output({DATA: ()}))) == (2, 0, False)
    for wrong in ({DATA: [["a", 1]]}, {DATA: [["a", "x", 2, "d"]]}, {DATA: 5}):
        ref = stream.blobs.put(codec.encode(codec.Format("output", 1, 1000), wrong))
        with pytest.raises(Corrupt, match="does not list files"):
            read_output(stream, ref)


class TestKilledAtEveryCall:
    """Whatever call a job dies at, the next start publishes what the chain has, and all of it."""

    def act(self, storage: LocalStorage) -> None:
        """A start after a rollback, an epoch that is published, one that is not."""
        home = Path(storage.uri) / "home"
        stream = opened(home, storage._calls)
        sink = FileSink(LocalStorage(Path(storage.uri) / "sink", calls=storage._calls))
        with StreamWriter(stream).claim(app="job", run=RUN) as run:
            Publisher(stream, sink).begin(run)
            publish(stream, sink, commit(run, sink, DATA, REJECTS, nonce="a" * 32))
            commit(run, sink, DATA, nonce="b" * 32)

    def prepared(self, root: Path) -> None:
        stream = made(root / "home")
        sink = open_sink(stream, str(root / "sink"))
        with started(stream, sink) as run:
            snapshots = [commit(run, sink, DATA, REJECTS) for _ in range(3)]
            for snapshot in snapshots[:2]:
                publish(stream, sink, snapshot)
            sink.stage("c" * 32, write(sink, "c" * 32, {DATA: "never committed"}), REACH)
        apply(stream, "rollback", to=snapshots[0].number)

    def test_the_next_start_shows_what_was_committed(self, root: Path) -> None:
        (root / "template").mkdir()
        self.prepared(root / "template")

        def prepare(storage: LocalStorage) -> None:
            shutil.copytree(root / "template", storage.uri, dirs_exist_ok=True)

        calls = _run_cut(root / "all", prepare, self.act, 10**9, (Aftermath.KILL, 0)).calls
        # What a temporary file goes through changes nothing that others see.
        quiet = ("read", "stat", "list", "write", "fsync", "create", "unlink", "link temp")
        chosen = () if os.environ.get("SG_LAB") == "all" else quiet
        numbers = [n for n, call in enumerate(calls) if not call.startswith(chosen)]
        assert len(numbers) > 30
        for aftermath, seed in (
            (Aftermath.KILL, 0),
            (Aftermath.POWER_LOSS, 0),
            (Aftermath.TORN, 1),
        ):
            for number in (*numbers, len(calls)):
                cut = _run_cut(root / "cut", prepare, self.act, number, (aftermath, seed))
                self.check_next_start(cut.root)
                shutil.rmtree(cut.root)

    def check_next_start(self, root: Path) -> None:
        stream = opened(root / "home")
        sink = open_sink(stream, str(root / "sink"))
        with started(stream, sink) as run:
            check(stream, sink)
            publish(stream, sink, commit(run, sink, DATA))
            check(stream, sink)

    def test_what_is_published_survives_the_next_crash(self, root: Path) -> None:
        """After a power loss that follows at once, also what was only staged is there."""
        self.prepared(root)
        disk = Disk(root)
        calls = disk.process()
        stream = opened(root / "home", calls)
        sink = FileSink(LocalStorage(root / "sink", calls=calls))
        with started(stream, sink, RUN) as run:
            for _ in range(3):
                publish(stream, sink, commit(run, sink, DATA, REJECTS))
            commit(run, sink, DATA)
        disk.crash(Aftermath.POWER_LOSS)
        self.check_next_start(root)
        assert as_run(opened(root / "home"), RUN).snapshot.epoch == 8
