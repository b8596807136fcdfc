"""What epochs write: published with their link, withdrawn with it, and never lost in between."""

from __future__ import annotations

import os
import random
import shutil
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from sluicegate import codec
from sluicegate.chain.link import Link
from sluicegate.errors import Corrupt, NotFound, UsageError
from sluicegate.gate.gate import Gate
from sluicegate.gate.output import DATA, REJECTS, File, Output, encode, read_output
from sluicegate.gate.sink import PENDING, PUBLISHED, OutputLost, Sink, open_sink
from sluicegate.gate.stream import Stream
from sluicegate.storage import LocalStorage
from sluicegate.storage.faults import Aftermath, Disk, _run_cut
from tests.chain.streams import NAME, NothingToDo, apply, as_run, in_memory, made, opened
from tests.pipeline.sinks import seal, shown, started, wanted, write

RUN = "run"
NONCE = "0" * 32


@pytest.fixture
def root() -> Iterator[Path]:
    with in_memory() as path:
        yield path


@pytest.fixture
def stream(root: Path) -> Stream:
    return made(root / "home")


@pytest.fixture
def sink(root: Path, stream: Stream) -> Sink:
    return open_sink(stream, str(root / "sink"))


def check(stream: Stream, sink: Sink) -> None:
    assert shown(Path(sink.uri)) == wanted(stream)


class TestPublishing:
    def test_an_epoch_is_invisible_until_it_is_published(self, stream: Stream, sink: Sink) -> None:
        with started(stream, sink) as run:
            link = seal(run, sink, DATA, REJECTS)
            assert shown(Path(sink.uri)) == {}
            sink.publish(link)
            assert len(shown(Path(sink.uri))) == 2
            check(stream, sink)
            # As often as one likes.
            sink.publish(link)
            check(stream, sink)

    def test_what_the_next_start_finds_sealed_it_publishes(
        self, stream: Stream, sink: Sink
    ) -> None:
        with started(stream, sink) as run:
            seal(run, sink, DATA)
        assert shown(Path(sink.uri)) == {}
        with started(stream, sink):
            check(stream, sink)
        assert len(shown(Path(sink.uri))) == 1

    def test_epochs_without_output_have_no_directory(self, stream: Stream, sink: Sink) -> None:
        with started(stream, sink) as run:
            for kinds in ((), (DATA,), (REJECTS,), ()):
                sink.publish(seal(run, sink, *kinds))
        assert [kind.split("/")[0] for kind in sorted(shown(Path(sink.uri)))] == [DATA, REJECTS]
        check(stream, sink)

    def test_what_was_never_sealed_is_never_published(self, stream: Stream, sink: Sink) -> None:
        with started(stream, sink):
            sink.stage(NONCE, write(sink, NONCE, {DATA: "x"}))
        write(sink, "1" * 32, {DATA: "y"})
        with started(stream, sink):
            assert shown(Path(sink.uri)) == {}
        assert not (Path(sink.uri) / "_sluicegate" / "attempts").exists()
        assert list((Path(sink.uri) / "_sluicegate" / "staged").iterdir()) == []

    def test_dropped_is_gone(self, stream: Stream, sink: Sink) -> None:
        sink.stage(NONCE, write(sink, NONCE, {DATA: "x"}))
        sink.drop(NONCE)
        assert not list(Path(sink.uri).rglob("*.parquet"))

    def test_a_file_that_is_not_as_its_task_left_it(self, stream: Stream, sink: Sink) -> None:
        output = write(sink, NONCE, {DATA: "x"})
        (sink.attempts(NONCE) / "part-data.parquet").write_text("xx")
        with pytest.raises(OutputLost, match="is not as its task left it"):
            sink.stage(NONCE, output)
        missing = Output({DATA: (File("part-none.parquet", 1, 1, ""),)})
        with pytest.raises(OutputLost):
            sink.stage(NONCE, missing)

    def test_where_a_file_is(self, stream: Stream, sink: Sink) -> None:
        with started(stream, sink) as run:
            link = seal(run, sink, DATA)
            assert link.output
            [file] = read_output(stream, link.output).files[DATA]
            assert sink.standing(link, DATA, file) == PENDING
            sink.publish(link)
            assert sink.standing(link, DATA, file, read=True) == PUBLISHED
        [path] = Path(sink.uri).rglob("part-data.parquet")
        path.write_bytes(path.read_bytes().swapcase())
        assert sink.standing(link, DATA, file) == PUBLISHED
        assert sink.standing(link, DATA, file, read=True) == "has another content"
        path.write_bytes(b"")
        assert "has 0 bytes" in sink.standing(link, DATA, file)
        path.unlink()
        assert sink.standing(link, DATA, file) == "is missing"


class TestRollback:
    def epochs(self, stream: Stream, sink: Sink, count: int) -> list[Link]:
        with started(stream, sink) as run:
            links = []
            for _ in range(count):
                links.append(seal(run, sink, DATA, REJECTS))
                sink.publish(links[-1])
        return links

    def test_takes_output_back_with_the_next_start(self, stream: Stream, sink: Sink) -> None:
        links = self.epochs(stream, sink, 4)
        apply(stream, "rollback", to=links[1].number)
        with started(stream, sink):
            check(stream, sink)
        assert len(shown(Path(sink.uri))) == 4

    def test_of_what_a_killed_job_published(self, stream: Stream, sink: Sink) -> None:
        """Nobody settled since it began: what it published is withdrawn all the same."""
        self.epochs(stream, sink, 1)
        sink.settle()
        links = self.epochs(stream, sink, 3)
        apply(stream, "rollback", to=links[0].number)
        with started(stream, sink):
            check(stream, sink)
        assert len(shown(Path(sink.uri))) == 4

    def test_and_back_brings_it_back(self, stream: Stream, sink: Sink) -> None:
        links = self.epochs(stream, sink, 4)
        before = shown(Path(sink.uri))
        apply(stream, "rollback", to=links[0].number)
        with started(stream, sink) as run:
            link = seal(run, sink, DATA)
            sink.publish(link)
        assert len(shown(Path(sink.uri))) == 3
        apply(stream, "rollback", to=links[-1].number)
        with started(stream, sink):
            check(stream, sink)
        assert shown(Path(sink.uri)) == before

    def test_before_an_epoch_is_published(self, stream: Stream, sink: Sink) -> None:
        """It is not published by whoever sealed it, and not lost either."""
        links = self.epochs(stream, sink, 1)
        with started(stream, sink) as run:
            late = seal(run, sink, DATA)
            apply(stream, "rollback", to=links[0].number, force=True)
            sink.publish(late)
        check(stream, sink)
        with started(stream, sink):
            check(stream, sink)
        apply(stream, "rollback", to=late.number)
        with started(stream, sink):
            check(stream, sink)
        assert len(shown(Path(sink.uri))) == 3

    def test_when_nobody_knows_what_was_settled(self, stream: Stream, sink: Sink) -> None:
        links = self.epochs(stream, sink, 3)
        for damage in (Path.unlink, lambda path: path.write_bytes(b"garbage")):
            apply(stream, "rollback", to=links[0].number)
            damage(Path(sink.uri) / "_sluicegate" / "settled")
            with started(stream, sink):
                check(stream, sink)
            apply(stream, "rollback", to=links[-1].number)
            with started(stream, sink):
                check(stream, sink)
            assert len(shown(Path(sink.uri))) == 6

    def test_what_others_put_there_stays(self, stream: Stream, sink: Sink) -> None:
        links = self.epochs(stream, sink, 2)
        foreign = Path(sink.uri) / DATA / "link=7"
        foreign.mkdir()
        apply(stream, "rollback", to=links[0].number)
        with started(stream, sink):
            assert foreign.exists()

    def test_output_that_is_nowhere_is_noticed(self, stream: Stream, sink: Sink) -> None:
        with started(stream, sink) as run:
            link = seal(run, sink, DATA)
        shutil.rmtree(Path(sink.uri) / "_sluicegate" / "staged")
        with pytest.raises(OutputLost, match=f"the data of link {link.number} are not there"):
            sink.settle()

    @pytest.mark.parametrize("seed", range(6))
    def test_whatever_happens(self, stream: Stream, sink: Sink, seed: int) -> None:
        """Jobs that end or die anywhere, rollbacks there and back, prunes."""
        chance = random.Random(seed)
        links: list[Link] = []
        for _ in range(12):
            with started(stream, sink) as run:
                check(stream, sink)
                for _ in range(chance.randrange(4)):
                    kinds = chance.choice([(), (DATA,), (REJECTS,), (DATA, REJECTS)])
                    links.append(seal(run, sink, *kinds))
                    if chance.random() < 0.2:
                        break
                    sink.publish(links[-1])
                    check(stream, sink)
                else:
                    if chance.random() < 0.5:
                        sink.settle()
            if chance.random() < 0.2:
                sink.stage(f"{seed:032x}", write(sink, f"{seed:032x}", {DATA: "not sealed"}))
                sink.drop(f"{seed:032x}")
            if links and chance.random() < 0.6:
                with suppress(NothingToDo):
                    apply(stream, "rollback", to=chance.choice(links).number)
        with started(stream, sink):
            check(stream, sink)


class TestWhoseItIs:
    def test_it_is_kept(self, root: Path, stream: Stream) -> None:
        assert open_sink(stream, str(root / "x")).uri == open_sink(stream, str(root / "x")).uri

    def test_of_another_stream(self, root: Path, stream: Stream, sink: Sink) -> None:
        other = made(root / "other")
        with pytest.raises(UsageError, match="is the sink of another stream"):
            open_sink(other, sink.uri)

    def test_without_a_name_it_is_the_streams_own(self, root: Path, stream: Stream) -> None:
        assert open_sink(stream, None).uri == str(root / "home" / NAME / "output")

    def test_lost(self, root: Path, stream: Stream, sink: Sink) -> None:
        """An empty directory where output was may be a disk that is not mounted."""
        with started(stream, sink) as run:
            sink.publish(seal(run, sink, DATA))
        shutil.rmtree(sink.uri)
        with pytest.raises(NotFound, match="which has written output"):
            open_sink(stream, sink.uri)
        Path(sink.uri).mkdir()
        with pytest.raises(NotFound, match="which has written output"):
            open_sink(stream, sink.uri)
        with pytest.raises(NotFound, match="which has written output"):
            open_sink(stream, str(root / "elsewhere"))

    def test_not_empty(self, root: Path, stream: Stream) -> None:
        (root / "full").mkdir()
        (root / "full" / "mine.txt").write_text("x")
        with pytest.raises(UsageError, match="holds something that is not a sink's"):
            open_sink(stream, str(root / "full"))

    def test_damaged(self, stream: Stream, sink: Sink) -> None:
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
    """Whatever call a job dies at, the next start shows what the chain says, and all of it."""

    def act(self, storage: LocalStorage) -> None:
        """A start after a rollback, an epoch that is published, one that is not."""
        home = Path(storage.uri) / "home"
        stream = opened(home, storage._calls)
        sink = Sink(LocalStorage(Path(storage.uri) / "sink", calls=storage._calls), stream)
        with Gate(stream).claim(app="job", run=RUN) as run:
            sink.settle()
            sink.clear()
            sink.publish(seal(run, sink, DATA, REJECTS, nonce="a" * 32))
            seal(run, sink, DATA, nonce="b" * 32)

    def prepared(self, root: Path) -> None:
        stream = made(root / "home")
        sink = open_sink(stream, str(root / "sink"))
        with started(stream, sink) as run:
            links = [seal(run, sink, DATA, REJECTS) for _ in range(3)]
            for link in links[:2]:
                sink.publish(link)
            sink.stage("c" * 32, write(sink, "c" * 32, {DATA: "never sealed"}))
        apply(stream, "rollback", to=links[0].number)

    def test_the_next_start_shows_what_was_sealed(self, root: Path) -> None:
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
            sink.publish(seal(run, sink, DATA))
            check(stream, sink)

    def test_what_is_published_survives_the_next_crash(self, root: Path) -> None:
        """After a power loss that follows at once, also what was only staged is there."""
        self.prepared(root)
        disk = Disk(root)
        calls = disk.process()
        stream = opened(root / "home", calls)
        sink = Sink(LocalStorage(root / "sink", calls=calls), stream)
        with started(stream, sink, RUN) as run:
            for _ in range(3):
                sink.publish(seal(run, sink, DATA, REJECTS))
            seal(run, sink, DATA)
        disk.crash(Aftermath.POWER_LOSS)
        self.check_next_start(root)
        assert as_run(opened(root / "home"), RUN).link.epoch == 8
