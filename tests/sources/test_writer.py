"""Writing to a log: what was acknowledged stays, wherever the writer dies."""

from __future__ import annotations

import errno
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from sluicegate.errors import Fenced, Locked, NotFound, StorageFailed, UsageError
from sluicegate.sources.log.layout import MAX_RECORD
from sluicegate.sources.log.log import Log
from sluicegate.sources.log.writer import LogWriter, LogWriterStopped, Tail
from sluicegate.storage import LocalStorage
from tests.sources.logs import filled, forget, held, in_memory, lines
from tests.support.faults import Aftermath, Disk, Killed, cut_points

SMALL = 120


@pytest.fixture
def scratch() -> Iterator[Path]:
    forget()
    with in_memory() as path:
        yield path


@pytest.fixture
def root(scratch: Path) -> Path:
    Log.create(str(scratch / "log"))
    return scratch / "log"


def segments(root: Path) -> list[Path]:
    return sorted((root / "partition-0").glob("*.jsonl"))


class TestAppending:
    def test_offsets_continue(self, root: Path) -> None:
        with LogWriter(str(root)) as writer:
            assert writer.append(lines(0, 5)) == 5
            assert writer.append([]) == writer.end == 5
            assert writer.append(lines(5, 1)) == 6
        with LogWriter(str(root)) as writer:
            assert (writer.end, writer.append(lines(6, 2))) == (6, 8)
        assert held(Log.open(str(root))) == lines(0, 8)

    def test_a_full_segment_is_followed_by_another(self, root: Path) -> None:
        log = filled(root, 100, batch=3, segment_bytes=SMALL)
        sizes = [path.stat().st_size for path in segments(root)]
        assert len(sizes) > 10
        assert max(sizes) <= SMALL
        assert held(log) == lines(0, 100)
        # More than a segment in one call stays together, and the next begins another.
        with LogWriter(str(root), segment_bytes=SMALL) as writer:
            writer.append(lines(100, 50))
            writer.append(lines(150, 1))
        assert log.bases(0)[-2:] == [100, 150]
        assert held(log) == lines(0, 151)

    @pytest.mark.parametrize(
        "wrong", [[b"a\nb"], [b"\n"], [b"a", b""], [b"x" * MAX_RECORD], [b"a", b"b\n"]]
    )
    def test_what_is_no_record_is_refused_altogether(self, root: Path, wrong: list[bytes]) -> None:
        with LogWriter(str(root)) as writer:
            with pytest.raises(UsageError):
                writer.append([b"first", *wrong])
            assert writer.append([b"next"]) == 1
        assert held(Log.open(str(root))) == [b"next"]

    def test_a_torn_tail_is_cut_off_at_every_byte(self, root: Path) -> None:
        filled(root, 5)
        (path,) = segments(root)
        whole = path.read_bytes()
        half = lines(5, 1)[0]
        for cut in range(len(half) + 1):
            path.write_bytes(whole + half[:cut])
            forget()
            with LogWriter(str(root)) as writer:
                assert writer.append([b"after"]) == 6
            assert path.read_bytes() == whole + b"after\n"

    def test_complete_records_of_a_dead_writer_stay(self, root: Path) -> None:
        filled(root, 5)
        with segments(root)[0].open("ab") as stream:
            stream.write(b"unacknowledged\nhalf")
        with LogWriter(str(root)) as writer:
            assert (writer.end, writer.append([b"next"])) == (6, 7)
        assert held(Log.open(str(root)))[5:] == [b"unacknowledged", b"next"]

    def test_one_writer_at_a_time(self, root: Path) -> None:
        with LogWriter(str(root)) as writer:
            with pytest.raises(Locked, match="held by") as refused:
                LogWriter(str(root))
            assert "sluicegate locks list" in refused.value.hint
            writer.append(lines(0, 1))
        with pytest.raises(NotFound):
            LogWriter(str(root), 1)
        LogWriter(str(root)).close()

    def test_a_forked_child_does_not_write(self, root: Path) -> None:
        with LogWriter(str(root)) as writer:
            child = os.fork()
            if not child:
                try:
                    writer.append([b"child"])
                except Fenced:
                    os._exit(7)
                os._exit(1)
            assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7
            writer.append([b"parent"])
        assert held(Log.open(str(root))) == [b"parent"]

    def test_interference_stops_it(self, root: Path) -> None:
        with LogWriter(str(root)) as writer:
            writer.append([b"a"])
            with segments(root)[0].open("ab") as stream:
                stream.write(b"not locked\n")
            with pytest.raises(LogWriterStopped, match="another process"):
                writer.append([b"b"])
            with pytest.raises(LogWriterStopped, match="stopped"):
                writer.append([b"c"])
        with LogWriter(str(root)) as writer:
            segments(root)[0].rename(root / "elsewhere")
            with pytest.raises(LogWriterStopped):
                writer.append([b"d"])

    @pytest.mark.parametrize("code", [errno.ENOSPC, errno.EIO])
    @pytest.mark.parametrize("call", ["write first half", "write second half", "fsync file"])
    def test_a_write_that_failed_stops_it(self, root: Path, call: str, code: int) -> None:
        armed = False

        def fail(_at: int, made: str) -> None:
            if armed and made == call:
                raise OSError(code, os.strerror(code))

        process = Disk(root).process(fail)
        with LogWriter(str(root), calls=process) as writer:
            writer.append(lines(0, 3))
            armed = True
            with pytest.raises(StorageFailed):
                writer.append(lines(3, 3))
            armed = False
            with pytest.raises(LogWriterStopped):
                writer.append(lines(3, 3))
        with LogWriter(str(root)) as writer:
            end = writer.end
            assert 3 <= end <= 6
            writer.append(lines(end, 2))
        assert held(Log.open(str(root))) == lines(0, end + 2)


def prepare(storage: LocalStorage) -> None:
    filled(Path(storage.uri) / "log", 12, batch=4, segment_bytes=SMALL)


def _log(storage: LocalStorage) -> str:
    return f"{storage.uri}/log"


def create(storage: LocalStorage) -> None:
    Log.create(_log(storage), 2, calls=storage._calls)


def append(storage: LocalStorage) -> None:
    with LogWriter(_log(storage), segment_bytes=10**6, calls=storage._calls) as writer:
        writer.append(lines(12, 4))


def roll(storage: LocalStorage) -> None:
    with LogWriter(_log(storage), segment_bytes=SMALL, calls=storage._calls) as writer:
        writer.append(lines(12, 4))


def trim(storage: LocalStorage) -> None:
    Log.open(_log(storage), calls=storage._calls).trim(0, 100)


def torn(storage: LocalStorage) -> None:
    prepare(storage)
    with segments(Path(_log(storage)))[-1].open("ab") as stream:
        stream.write(b"half a rec")


def check_created(root: str, acknowledged: bool) -> None:
    try:
        log = Log.open(root)
    except NotFound:
        assert not acknowledged
        log = Log.create(root, 2)
    assert log.partitions() == [0, 1]
    assert sum(log.end(p) for p in log.partitions()) == 0


def check_appended(root: str, acknowledged: bool) -> None:
    log = Log.open(root)
    found = held(log)
    assert found == lines(0, len(found))
    assert 12 <= len(found) <= 16
    assert len(found) == 16 or not acknowledged
    with LogWriter(root, segment_bytes=SMALL) as writer:
        writer.append(lines(len(found), 3))
    assert held(log) == lines(0, len(found) + 3)


def check_trimmed(root: str, acknowledged: bool) -> None:
    log = Log.open(root)
    first = log.bases(0)[0]
    assert held(log) == lines(first, 12 - first)
    assert len(log.bases(0)) == 1 or not acknowledged


Act = Callable[[LocalStorage], None]


@pytest.mark.parametrize(
    ("before", "act", "check"),
    [
        (lambda _: None, create, check_created),
        (prepare, append, check_appended),
        (torn, append, check_appended),
        (prepare, roll, check_appended),
        (torn, roll, check_appended),
        (prepare, trim, check_trimmed),
    ],
    ids=["create", "append", "append-torn", "roll", "roll-torn", "trim"],
)
def test_killed_at_every_call(
    scratch: Path, before: Act, act: Act, check: Callable[[str, bool], None]
) -> None:
    """Records that were not fsynced are lost, or some of them: the log is intact and continues."""
    cuts = 0
    for cut in cut_points(scratch, before, act):
        forget()
        cuts += 1
        try:
            check(f"{cut.root}/log", cut.acknowledged)
        except Exception as e:
            e.add_note(str(cut))
            raise
        forget()
    assert cuts > 20


@pytest.mark.parametrize("call", ["fsync file", "fsync directory"])
@pytest.mark.parametrize("opens", [True, False])
def test_what_a_dead_writer_did_not_fsync_is_built_on_only_when_it_is_durable(
    scratch: Path, call: str, opens: bool
) -> None:
    """A writer dies before an fsync, another appends behind it and gets an acknowledgement.

    The other one opens the log only then, or had it open and gets its turn.
    """

    def twice(storage: LocalStorage) -> None:
        log = Log.open(_log(storage))
        disk = storage._calls._disk  # type: ignore[attr-defined]
        second = Tail(log, 0, SMALL, storage._calls)
        if not opens:
            second.refresh()

        named = call == "fsync file"

        def die(_at: int, made: str) -> None:
            nonlocal named
            # The name of a segment is what the directory's fsync is for.
            named |= made.startswith("link")
            if named and made == call:
                raise Killed

        first = Tail(log, 0, SMALL if call == "fsync directory" else 10**6, None)
        first.refresh()
        first._calls = disk.process(die)
        first._storage = LocalStorage(Path(log.uri), calls=first._calls)
        with pytest.raises(Killed):
            first.append(lines(12, 4))
        second.refresh()
        second.append(lines(second.end, 20 - second.end))
        second.close()

    for cut in cut_points(scratch, prepare, twice, (Aftermath.POWER_LOSS, Aftermath.TORN)):
        forget()
        log = Log.open(f"{cut.root}/log")
        try:
            assert held(log) == lines(0, log.end(0))
            assert log.end(0) == 20 or not cut.acknowledged
        except Exception as e:
            e.add_note(str(cut))
            raise
        forget()


class LogMachine(RuleBasedStateMachine):
    """A log against a list, with crashes in the middle of everything."""

    def __init__(self) -> None:
        super().__init__()
        self.place = in_memory()
        self.scratch = self.place.__enter__()
        self.root = self.scratch / "log"
        Log.create(str(self.root))
        self.certain, self.possible, self.first = 0, 0, 0
        self.doom: tuple[int, Aftermath, int] | None = None
        self.writer: LogWriter | None = None
        self.boot()

    def boot(self) -> None:
        forget()
        self.disk = Disk(self.scratch)
        self.left = -1
        self.process = self.disk.process(self.on_call)

    def on_call(self, _at: int, _call: str) -> None:
        if self.left == 0:
            raise Killed
        self.left -= 1

    def close(self) -> None:
        if self.writer:
            self.writer.close()
            self.writer = None

    def crash(self, aftermath: Aftermath, seed: int) -> None:
        self.close()
        self.disk.crash(aftermath, seed)
        self.boot()
        log = Log.open(str(self.root))
        found = held(log)
        self.first = log.bases(0)[0]
        end = self.first + len(found)
        assert found == lines(self.first, len(found))
        assert self.certain <= end <= self.possible
        self.certain = self.possible = end

    def doing(self, act: Callable[[], None]) -> None:
        """Do something, and die in the middle if that is due."""
        doom, self.doom = self.doom, None
        self.left = doom[0] if doom else -1
        try:
            act()
        except Killed:
            assert doom
            self.crash(doom[1], doom[2])
        self.left = -1

    @rule(calls=st.integers(0, 20), how=st.sampled_from(Aftermath), seed=st.integers(0, 99))
    def die_next_time(self, calls: int, how: Aftermath, seed: int) -> None:
        self.doom = calls, how, seed

    @rule(count=st.integers(1, 9), size=st.integers(1, 300))
    def append(self, count: int, size: int) -> None:
        def act() -> None:
            if self.writer is None:
                self.writer = LogWriter(str(self.root), segment_bytes=size, calls=self.process)
            self.possible = self.certain + count
            assert self.writer.append(lines(self.certain, count)) == self.possible
            self.certain = self.possible

        self.doing(act)

    @rule()
    def reopen(self) -> None:
        self.close()

    @rule(back=st.integers(-5, 40))
    def trim(self, back: int) -> None:
        def act() -> None:
            before = max(0, self.certain - back)
            log = Log.open(str(self.root), calls=self.process)
            first = log.trim(0, before)
            assert self.first <= first <= max(before, self.first)
            self.first = first

        self.doing(act)

    @rule(how=st.sampled_from(Aftermath), seed=st.integers(0, 99))
    def power_off(self, how: Aftermath, seed: int) -> None:
        self.crash(how, seed)

    @invariant()
    def holds_what_was_acknowledged(self) -> None:
        log = Log.open(str(self.root))
        assert (log.bases(0)[0], log.end(0)) == (self.first, self.certain)
        assert held(log) == lines(self.first, self.certain - self.first)

    def teardown(self) -> None:
        self.close()
        self.place.__exit__(None, None, None)


TestLogMachine = LogMachine.TestCase
TestLogMachine.settings = settings(
    max_examples=60, stateful_step_count=20, suppress_health_check=list(HealthCheck)
)


def test_reading_needs_neither_numpy_nor_arrow(root: Path) -> None:
    """Commands look at logs, too, and must start fast."""
    filled(root, 20)
    code = (
        "import sys; from sluicegate.sources.log.log import Log; log = Log.open(sys.argv[1]);"
        "assert sum(p.count for p in log.read(0, 0, log.end(0))) == 20;"
        "print({'numpy', 'pyarrow', 'portalocker', 'typer'} & set(sys.modules))"
    )
    answer = subprocess.run(
        [sys.executable, "-c", code, str(root)], capture_output=True, text=True, check=True
    )
    assert answer.stdout == "set()\n"
