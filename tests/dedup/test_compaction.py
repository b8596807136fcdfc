"""Compaction beside a job: an approved plan holds while its inputs are there, and only then."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from sluicegate.errors import Corrupt, Drifted, Locked
from sluicegate.journal import Approval
from sluicegate.process import myself
from sluicegate.storage.blobs import BlobDamaged, Ref
from sluicegate.stream.dedup_log import ledger_at
from sluicegate.stream.gc import sweep
from sluicegate.stream.journal import StreamJournal, operation_class
from sluicegate.stream.operations.compact import compact
from sluicegate.stream.stream import Stream
from sluicegate.stream.writer import StreamWriter
from tests.cli.terminal import Terminal
from tests.conftest import Sg
from tests.stream import streams
from tests.stream.streams import NAME

REPOSITORY = Path(__file__).parents[2]

COMMANDS = {"compact": ("state", "compact"), "compact-dedup": ("dedup", "compact")}
both = pytest.mark.parametrize("operation", COMMANDS)


@pytest.fixture
def stream(tmp_path: Path) -> Stream:
    return streams.made(tmp_path / ".sluicegate", epochs=4, dedup=True)


class Job:
    """A job in a process of its own, which commits on request."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self._process = process

    def commit(self, epochs: int) -> None:
        assert self._process.stdin
        assert self._process.stdout
        for _ in range(epochs):
            self._process.stdin.write("commit\n")
            self._process.stdin.flush()
            assert self._process.stdout.readline() == "committed\n"


@contextmanager
def running_job(stream: Stream) -> Iterator[Job]:
    command = "import sys; from tests.dedup import test_compaction as t; t.be_a_job(sys.argv[1])"
    home = str(Path(stream.uri).parent)
    with subprocess.Popen(
        [sys.executable, "-c", command, home],
        cwd=REPOSITORY,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        yield Job(process)
        process.communicate()
    assert process.returncode == 0, "nothing disturbed it"


def be_a_job(home: str) -> None:
    with StreamWriter(streams.opened(Path(home))).claim(app="job") as job:
        for _ in sys.stdin:
            streams.commit(job)
            print("committed", flush=True)


def content(stream: Stream, operation: str) -> tuple[Ref, ...]:
    head = stream.chain.head()
    return (head.state if operation == "compact" else head.dedup).refs


def intact(stream: Stream) -> None:
    """Nothing is damaged, and state and dedup log know every event once."""
    assert streams.errors_of(stream) == []
    head = stream.chain.head()
    streams.check_counted(stream, head)
    ledger = ledger_at(stream, head)
    assert ledger.stamps == head.sequence + 1, "one was there before"


class TestSavedPlans:
    def saved(self, sg: Sg, operation: str, *options: str) -> None:
        result = sg(*COMMANDS[operation], NAME, "--plan-out", "plan.json", *options)
        assert result.returncode == 0, result.stderr

    @both
    def test_it_holds_while_the_job_commits(self, sg: Sg, stream: Stream, operation: str) -> None:
        with running_job(stream) as job:
            job.commit(1)
            inputs = content(stream, operation)
            self.saved(sg, operation)
            job.commit(3)
            result = sg("apply", "plan.json", "--yes")
            assert result.returncode == 0, result.stderr
            merged = content(stream, operation)
            assert len(merged) == 1 + 3, "what was committed since stays as it is"
            assert not set(merged) & set(inputs)
            job.commit(1)
            again = sg("apply", "plan.json", "--yes")
            assert (again.returncode, "Already applied" in again.stderr) == (0, True)
        intact(stream)

    @both
    def test_it_drifts_when_the_job_has_folded_its_inputs(
        self, sg: Sg, stream: Stream, operation: str
    ) -> None:
        with running_job(stream) as job:
            self.saved(sg, operation)
            job.commit(17)
            before = stream.chain.head()
            result = sg("apply", "plan.json", "--yes")
            assert result.returncode == 5
            assert "oldest" in result.stderr
            assert stream.chain.head() == before
        intact(stream)

    @both
    def test_and_when_others_have_compacted_first(
        self, sg: Sg, stream: Stream, operation: str
    ) -> None:
        self.saved(sg, operation)
        assert sg(*COMMANDS[operation], NAME, "--yes").returncode == 0
        assert sg("apply", "plan.json", "--yes").returncode == 5
        intact(stream)

    def test_retention_discards_what_was_approved_and_can_be_undone(
        self, sg: Sg, stream: Stream
    ) -> None:
        # The stamps of this source have no age: all of them are old.
        known = stream.chain.head().sequence + 1
        with running_job(stream) as job:
            self.saved(sg, "compact-dedup", "--retain", "1d")
            job.commit(2)
            assert sg("apply", "plan.json", "--yes").returncode == 0
            assert stream.chain.head().details["dropped"] == known
            assert ledger_at(stream, stream.chain.head()).stamps == 2 * 2 * streams.STEP
            job.commit(1)
            assert sg("undo", NAME, "--yes").returncode == 0
        intact(stream)

    def test_the_plan_names_its_inputs(self, sg: Sg, stream: Stream, tmp_path: Path) -> None:
        self.saved(sg, "compact-dedup")
        work = json.loads((tmp_path / "plan.json").read_text())["work"]
        assert work["inputs"] == [
            [ref.digest, ref.size] for ref in content(stream, "compact-dedup")
        ]

    @pytest.mark.parametrize("inputs", ["all", [1], [["x"]], [["x", "1"]], [[1, 1]], {}])
    def test_inputs_that_are_none(self, inputs: object) -> None:
        work = streams.operation_of("compact-dedup").to_work() | {"inputs": inputs}
        with pytest.raises(Corrupt):
            operation_class("compact-dedup").from_work(work)


class TestProgress:
    @both
    def test_it_is_shown_on_a_terminal_only(
        self, sg: Sg, stream: Stream, tmp_path: Path, operation: str
    ) -> None:
        assert "merging" not in sg(*COMMANDS[operation], NAME, "--yes").stderr
        streams.work(stream, 2)
        code, text = Terminal(*COMMANDS[operation], NAME, "--yes", cwd=tmp_path).finish()
        assert (code, "merging" in text, "100%" in text) == (0, True, True)

    def test_also_when_a_plan_is_applied_or_undone(
        self, sg: Sg, stream: Stream, tmp_path: Path
    ) -> None:
        options = ("--retain", "1d", "--plan-out", "plan.json")
        assert sg("dedup", "compact", NAME, *options).returncode == 0
        for command in (("apply", "plan.json"), ("undo", NAME)):
            code, text = Terminal(*command, "--yes", cwd=tmp_path).finish()
            assert (code, "100%" in text) == (0, True)


@contextmanager
def replaced_before_read(stream: Stream, number: int) -> Iterator[list[int]]:
    """Another process compacts, prunes and collects before a blob is read for the n-th time."""
    other = streams.opened(Path(stream.uri).parent, timeout=0.01)
    real, reads = stream.blobs.get, [0]

    def get(ref: Ref) -> bytes:
        reads[0] += 1
        if reads[0] == number:
            # No process collects while a snapshot is appended.
            with suppress(Locked):
                for operation in COMMANDS:
                    streams.apply(other, operation)
                streams.apply(other, "prune", to=other.chain.head().number)
                sweep(other, grace=-1)
        return real(ref)

    stream.blobs.get = get  # type: ignore[method-assign]
    try:
        yield reads
    finally:
        stream.blobs.get = real  # type: ignore[method-assign]


def interrupted(root: Path) -> Iterator[Stream]:
    """A stream again and again, with others who come before each of the blobs is read."""
    for number in range(1, 60):
        stream = streams.made(root / str(number), epochs=2, dedup=True)
        with replaced_before_read(stream, number) as reads:
            yield stream
        intact(stream)
        if reads[0] < number:
            return
    raise AssertionError("it reads without end")


class TestRaces:
    @both
    def test_a_plan_is_made_of_what_is_there(self, tmp_path: Path, operation: str) -> None:
        for stream in interrupted(tmp_path):
            found = StreamJournal(stream).propose(streams.operation_of(operation))
            kept = content(stream, operation)
            assert not found.actions or found.work["inputs"] == [[r.digest, r.size] for r in kept]

    @both
    def test_applying_one_reports_drift(self, tmp_path: Path, operation: str) -> None:
        outcomes = []
        for stream in interrupted(tmp_path):
            # Planned by another process: what was merged for it is not at hand here.
            other = StreamJournal(streams.opened(Path(stream.uri).parent))
            plan = other.propose(streams.operation_of(operation))
            try:
                StreamJournal(stream).apply(plan, Approval(myself()))
                outcomes.append("done")
            except Drifted:
                outcomes.append("drifted")
        assert outcomes[0] == "drifted"
        assert outcomes[-1] == "done", "no other process came"

    def test_the_library_shows_that_there_is_nothing_to_do(self, tmp_path: Path) -> None:
        found = [compact(StreamWriter(stream)) for stream in interrupted(tmp_path)]
        assert found[0] is None
        assert found[-1], "no other process came"

    @both
    def test_damage_is_damage(self, stream: Stream, operation: str) -> None:
        stream.storage.delete(content(stream, operation)[0].key)
        with pytest.raises(BlobDamaged):
            StreamJournal(stream).propose(streams.operation_of(operation))
