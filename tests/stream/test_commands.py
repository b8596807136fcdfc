"""The commands on gated streams: what they print, their exit codes, what they change."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from sluicegate.legacy.v1 import V1Checkpoint, encode
from sluicegate.sources.log.log import Log
from sluicegate.sources.log.writer import LogWriter
from sluicegate.stream.snapshot import key_of
from sluicegate.stream.stream import Stream, open_stream
from sluicegate.stream.writer import StreamWriter
from tests.conftest import Sg
from tests.stream.streams import NAME, check, errors_of, made, offsets_of, state_at, state_of, work

V1 = V1Checkpoint(42, 1_794_800_000_000_000_000, 1000, {"agg": b"\x00one", "join": b""}, {"in": 7})


@pytest.fixture
def stream(tmp_path: Path) -> Stream:
    """A stream of six epochs in the default home: snapshots 0 to 7."""
    return made(tmp_path / ".sluicegate", epochs=6)


@pytest.fixture
def v1_file(tmp_path: Path) -> Path:
    path = tmp_path / "checkpoint-42.bin"
    path.write_bytes(encode(V1))
    return path


def intact(stream: Stream) -> dict[int, int]:
    """The position of a stream in which nothing is damaged, lost or counted twice."""
    assert errors_of(stream) == []
    head = stream.chain.head()
    offsets = offsets_of(head)
    assert state_at(stream, head) == state_of({p: range(end) for p, end in offsets.items()})
    return offsets


def document(sg: Sg, *arguments: str, code: int = 0) -> dict[str, object]:
    result = sg(*arguments, "--json")
    assert (result.returncode, result.stderr) == (code, ""), result.stderr
    found = json.loads(result.stdout)
    assert isinstance(found, dict)
    return found


@contextmanager
def running_job(stream: Stream) -> Iterator[subprocess.Popen[str]]:
    """A real process that has claimed the stream and waits; it commits on request."""
    job = textwrap.dedent("""
        import sys
        from pathlib import Path
        from sluicegate.errors import SluicegateError
        from sluicegate.stream.writer import StreamWriter
        from tests.stream.streams import opened, commit
        with StreamWriter(opened(Path(sys.argv[1]))).claim(app="job.py") as run:
            print("claimed", flush=True)
            for _ in sys.stdin:
                try:
                    print("committed", commit(run).number, flush=True)
                except SluicegateError as e:
                    print(type(e).__name__, e, flush=True)
    """)
    root = Path(stream.uri).parent
    process = subprocess.Popen(
        [sys.executable, "-c", job, str(root)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        cwd=Path(__file__).parents[2],
        env=os.environ | {"PYTHONPATH": str(Path(__file__).parents[2])},
    )
    with process:
        assert process.stdout
        assert process.stdout.readline() == "claimed\n"
        try:
            yield process
        finally:
            process.kill()


def commit_now(job: subprocess.Popen[str]) -> str:
    assert job.stdin
    assert job.stdout
    job.stdin.write("go\n")
    job.stdin.flush()
    return job.stdout.readline().strip()


class TestLooking:
    def test_the_only_stream_need_not_be_named(self, sg: Sg, stream: Stream) -> None:
        found = document(sg, "checkpoint", "inspect")
        head = stream.chain.head()
        assert (found["snapshot"], found["digest"]) == (7, head.digest)
        assert found["positions"] == {"events": {"0": 18, "1": 18}}
        assert found["writer_alive"] is None
        assert found["snapshots_kept"] == 8

    def test_an_older_snapshot(self, sg: Sg, stream: Stream) -> None:
        assert document(sg, "checkpoint", "inspect", NAME, "--snapshot", "4")["sequence"] == 18
        for words in (("inspect", NAME, "--snapshot", "99"), ("diff", f"{NAME}@4", f"{NAME}@99")):
            result = sg("checkpoint", *words)
            assert result.returncode == 10
            assert "there is no snapshot 99 yet; the newest is 7" in result.stderr
        Path(stream.uri, key_of(3)).unlink()
        result = sg("checkpoint", "inspect", NAME, "--snapshot", "3")
        assert result.returncode == 12
        assert f"sluicegate checkpoint verify {stream.uri}" in result.stderr

    def test_with_several_streams_one_must_be_named(self, sg: Sg, stream: Stream) -> None:
        shutil.copytree(stream.uri, Path(stream.uri).with_name("other"))
        result = sg("checkpoint", "inspect")
        assert result.returncode == 2
        assert "there are several: clicks, other" in result.stderr

    def test_list(self, sg: Sg, stream: Stream) -> None:
        found = document(sg, "checkpoint", "list", NAME, "--last", "3")
        assert [snapshot["snapshot"] for snapshot in found["snapshots"]] == [5, 6, 7]  # type: ignore[attr-defined]
        lines = sg("checkpoint", "list", NAME).stdout.splitlines()
        assert lines[0].split("\t")[:4] == ["snapshot", "made", "kind", "events"]
        assert [line.split("\t")[2] for line in lines[1:4]] == ["genesis", "claim", "epoch"]

    def test_a_damaged_snapshot_is_listed_as_such(self, sg: Sg, stream: Stream) -> None:
        Path(stream.uri, key_of(3)).write_bytes(b"")
        lines = sg("checkpoint", "list", NAME).stdout.splitlines()
        assert lines[4].split("\t")[2] == "damaged"
        assert len(lines) == 9

    def test_diff(self, sg: Sg, stream: Stream) -> None:
        found = document(sg, "checkpoint", "diff", f"{NAME}@3", f"{NAME}@4")
        differences = {each["what"]: (each["left"], each["right"]) for each in found["differences"]}  # type: ignore[attr-defined]
        assert differences["events[0]"] == ("6", "9")
        assert differences["events included"] == ("12", "18")
        assert "state of shard 0" in differences
        assert document(sg, "checkpoint", "diff", NAME, NAME)["differences"] == []

    def test_offsets(self, sg: Sg, stream: Stream) -> None:
        assert document(sg, "offsets", "show", NAME)["positions"] == {"events": {"0": 18, "1": 18}}
        result = sg("offsets", "export", NAME, "--batch", "2", "--format", "csv")
        assert result.stdout == "events,0,3\nevents,1,3\n"

    def test_state(self, sg: Sg, stream: Stream) -> None:
        found = document(sg, "state", "show", NAME)
        shards = found["shards"]
        assert isinstance(shards, list)
        assert sum(each["keys"] for each in shards) == len(state_at(stream, stream.chain.head()))
        assert [each["deltas"] for each in shards] == [6, 6]
        one = document(sg, "state", "show", NAME, "--shard", "1", "--snapshot", "2")["shards"]
        assert [(each["shard"], each["deltas"]) for each in one] == [(1, 1)]  # type: ignore[attr-defined]

    def test_status(self, sg: Sg, stream: Stream) -> None:
        found = document(sg, "status")["targets"][0]  # type: ignore[index]
        assert (found["target"], found["kind"], found["state"]) == (NAME, "stream", "ok")
        assert found["summary"] == "snapshot 7, generation 1, 36 events; no job is running"

    def test_looking_writes_nothing(self, sg: Sg, stream: Stream) -> None:
        root = Path(stream.uri)
        before = {path: path.stat().st_mtime_ns for path in root.rglob("*")}
        for command in ("inspect", "list", "verify"):
            assert sg("checkpoint", command, NAME).returncode == 0
        assert sg("history", NAME).returncode == 0
        assert sg("checkpoint", "rollback", NAME, "--to", "3", "--dry-run").returncode == 0
        assert {path: path.stat().st_mtime_ns for path in root.rglob("*")} == before


class TestVerify:
    def test_intact(self, sg: Sg, stream: Stream) -> None:
        found = document(sg, "checkpoint", "verify", NAME, "--read-data")
        assert (found["snapshots"], found["complete"], found["findings"]) == (8, True, [])
        assert found["read_blobs"] == found["blobs"]

    def test_parts_and_time(self, sg: Sg, stream: Stream) -> None:
        parts = [
            document(sg, "checkpoint", "verify", NAME, "--read-data-subset", f"{n}/3")
            for n in (1, 2, 3)
        ]
        assert sum(int(str(p["read_blobs"])) for p in parts) == parts[0]["blobs"]
        found = document(sg, "checkpoint", "verify", NAME, "--max-duration", "10min")
        assert (found["complete"], found["read_blobs"]) == (True, found["blobs"])
        assert sg("checkpoint", "verify", NAME, "--max-duration", "soon").returncode == 2

    def test_damage_is_found_and_named_with_its_repair(self, sg: Sg, stream: Stream) -> None:
        Path(stream.uri, key_of(7)).unlink()
        found = document(sg, "checkpoint", "verify", NAME, code=3)
        codes = {each["code"]: each["repair"] for each in found["findings"]}  # type: ignore[attr-defined]
        assert set(codes) == {"SG-CHAIN-SHORT", "SG-CHAIN-SNAPSHOT-DAMAGED"}
        assert set(codes.values()) == {f"sluicegate checkpoint repair {stream.uri}"}
        assert sg("status").returncode == 3

    @pytest.mark.parametrize("text", ["0/3", "4/3", "x", "0%", "101%", "3/"])
    def test_a_subset_that_is_none(self, sg: Sg, stream: Stream, text: str) -> None:
        result = sg("checkpoint", "verify", NAME, "--read-data-subset", text)
        assert (result.returncode, "is not a subset" in result.stderr) == (2, True)


class TestChanging:
    def test_rollback_history_and_undo(self, sg: Sg, stream: Stream) -> None:
        result = sg("checkpoint", "rollback", NAME, "--to", "4", "--yes", "--reason", "bad deploy")
        assert result.returncode == 0
        assert "Done: clicks@8. Undo it with: sluicegate undo" in result.stderr
        assert offsets_of(check(stream)) == {0: 9, 1: 9}
        entries = document(sg, "history", NAME)["entries"]
        newest = entries[0]  # type: ignore[index]
        assert (newest["kind"], newest["reason"], newest["undo"]) == (
            "rollback",
            "bad deploy",
            "yes",
        )
        assert newest["summary"].startswith("events[0] 18 → 9")
        work(stream, 1)
        result = sg("undo", NAME, "--dry-run")
        assert "Discards 6 events committed since snapshot 4" in result.stdout
        assert "Restores 18 events" in result.stdout
        assert sg("undo", NAME, "--yes").returncode == 0
        assert offsets_of(check(stream)) == {0: 18, 1: 18}
        assert sg("undo", NAME, "--yes").returncode == 10

    def test_rollback_by_time(self, sg: Sg, stream: Stream) -> None:
        result = sg("checkpoint", "rollback", NAME, "--to-datetime", "2001-01-01T00:00:00Z", "-y")
        assert result.returncode == 2
        assert "is before the oldest known point: snapshot 0, 2" in result.stderr
        result = sg("checkpoint", "rollback", NAME, "--to-datetime", "2100-01-01T00:00:00Z", "-y")
        assert result.returncode == 2
        assert "is after the newest known point: snapshot 7, 2" in result.stderr
        assert stream.chain.head().number == 7

    def test_a_snapshot_that_is_not_there(self, sg: Sg, stream: Stream) -> None:
        assert sg("checkpoint", "prune", NAME, "--keep", "3", "-y").returncode == 0
        result = sg("checkpoint", "rollback", NAME, "--to", "2", "-y")
        assert result.returncode == 2
        assert "the oldest available is 5" in result.stderr
        assert (
            "there is no snapshot 99 yet" in sg("checkpoint", "rollback", "--to", "99", "-y").stderr
        )

    def test_no_snapshot_is_left_to_go_back_to(self, sg: Sg, stream: Stream) -> None:
        assert sg("checkpoint", "prune", NAME, "--keep", "3", "-y").returncode == 0
        stream.storage.delete_all("blobs")
        result = sg("checkpoint", "rollback", NAME, "--to", "2", "-y")
        assert result.returncode == 2
        assert "snapshot 2 was pruned; none is available" in result.stderr

    def test_a_living_job_is_refused_with_the_evidence(self, sg: Sg, stream: Stream) -> None:
        with running_job(stream) as job:
            assert commit_now(job) == "committed 9"
            result = sg("checkpoint", "rollback", NAME, "--to", "4", "--yes")
            assert result.returncode == 11
            assert f"pid {job.pid}" in result.stderr
            assert stream.chain.head().number == 9
            assert "a job is running" in sg("status", NAME).stdout
            result = sg("checkpoint", "rollback", NAME, "--to", "4", "--yes", "--force")
            assert result.returncode == 0
            assert commit_now(job).startswith("StaleGeneration")
            assert commit_now(job).startswith("StaleGeneration")
        assert offsets_of(check(stream)) == {0: 9, 1: 9}

    def test_breaking_fences_the_job_off(self, sg: Sg, stream: Stream) -> None:
        with running_job(stream) as job:
            result = sg("locks", "break", NAME, "--yes")
            assert result.returncode == 0
            assert f"pid {job.pid}" in result.stdout
            assert commit_now(job).startswith("SplitBrainCommit")
        assert sg("locks", "break", NAME, "--dry-run").stdout == "", "nothing to do"
        work(stream, 1)
        check(stream)

    def test_prune(self, sg: Sg, stream: Stream) -> None:
        assert sg("checkpoint", "prune", NAME).returncode == 2
        result = sg("checkpoint", "prune", NAME, "--keep-within", "1h", "--yes")
        assert (result.returncode, stream.chain.head().number) == (0, 7), "all are younger"
        assert sg("checkpoint", "prune", NAME, "--keep", "2", "--yes").returncode == 0
        head = check(stream)
        assert (head.kind.value, head.floor) == ("prune", 6)
        result = sg("checkpoint", "inspect", NAME, "--snapshot", "2")
        assert result.returncode == 10
        assert "snapshot 2 was pruned; the oldest kept one is 6" in result.stderr
        assert stream.chain.numbers() == [6, 7, 8]

    def test_compact(self, sg: Sg, stream: Stream) -> None:
        before = state_at(stream, stream.chain.head())
        assert "12 deltas of 2 shards" in sg("state", "compact", NAME, "-n").stdout
        assert sg("state", "compact", NAME, "-y").returncode == 0
        assert state_at(stream, check(stream)) == before
        assert stream.chain.head().state.deltas == ()
        assert sg("state", "compact", NAME, "-y").returncode == 0
        assert stream.chain.head().number == 8, "nothing to do"

    def test_repair(self, sg: Sg, stream: Stream) -> None:
        Path(stream.uri, key_of(7)).write_bytes(b"rubbish")
        assert sg("checkpoint", "inspect", NAME).returncode == 12
        with pytest.raises(Exception, match="does not start like"):
            StreamWriter(stream).head()
        result = sg("checkpoint", "repair", NAME, "--yes")
        assert result.returncode == 0
        assert "The stream is rolled back to snapshot 6" in result.stdout
        assert "Done: clicks@8.\n" in result.stderr, "no undo: what was there is damaged"
        assert intact(stream) == {0: 15, 1: 15}
        work(stream, 2)
        assert intact(stream) == {0: 21, 1: 21}
        assert sg("checkpoint", "repair", NAME, "--yes").stdout == "", "nothing to do"

    def test_options_of_other_targets_are_refused(self, sg: Sg, stream: Stream) -> None:
        for arguments in (
            ("checkpoint", "rollback", NAME, "--to", "1", "--into", "x"),
            ("checkpoint", "repair", NAME, "--query-id", "x"),
            ("offsets", "show", NAME, "--consumer", "x"),
            ("offsets", "reset", NAME, "--to-current", "--consumer", "x"),
        ):
            assert sg(*arguments, "-n" if "show" not in arguments else "--json").returncode == 2


class TestReset:
    def test_a_choice_is_needed(self, sg: Sg, stream: Stream) -> None:
        for both in ((), ("--skip-seen", "--reprocess")):
            result = sg("offsets", "reset", NAME, "--shift-by", "-3", "--yes", *both)
            assert result.returncode == 2
            assert "exactly one of --skip-seen and --reprocess" in result.stderr

    def test_without_a_dedup_log_nothing_can_be_skipped(self, sg: Sg, stream: Stream) -> None:
        result = sg("offsets", "reset", NAME, "--shift-by", "-3", "--skip-seen", "--yes")
        assert result.returncode == 2
        assert "keeps no dedup log" in result.stderr
        assert "--reprocess" in result.stderr

    def test_with_one_positions_move_and_state_stays(self, sg: Sg, tmp_path: Path) -> None:
        stream = made(tmp_path / ".sluicegate", epochs=6, dedup=True)
        before = state_at(stream, stream.chain.head())
        result = sg("offsets", "reset", NAME, "--shift-by", "-3", "--skip-seen", "--yes")
        assert result.returncode == 0
        assert "Reads 6 events again. Events in the dedup log are dropped" in result.stdout
        head = check(stream)
        assert offsets_of(head) == {0: 15, 1: 15}
        assert (head.kind.value, head.generation) == ("reset", 2)
        assert state_at(stream, head) == before

    def test_reprocess_is_a_rollback(self, sg: Sg, stream: Stream) -> None:
        result = sg("offsets", "reset", NAME, "--to-offset", "10", "--reprocess", "--yes")
        assert result.returncode == 0
        head = check(stream)
        assert (head.kind.value, offsets_of(head)) == ("rollback", {0: 9, 1: 9})
        result = sg("offsets", "reset", NAME, "--to-earliest", "--reprocess", "--yes")
        assert result.returncode == 2
        assert "which only the source knows" in result.stderr


class TestPlans:
    def test_a_saved_plan_is_applied_once_and_refused_when_it_drifted(
        self, sg: Sg, stream: Stream, tmp_path: Path
    ) -> None:
        for name in ("one.json", "two.json"):
            saved = sg("checkpoint", "rollback", NAME, "--to", "5", "--plan-out", name)
            assert saved.returncode == 0
        assert stream.chain.head().number == 7
        # It may be applied where the stream lies elsewhere, as long as it is the same one.
        assert sg("apply", "one.json", "--yes").returncode == 0
        assert stream.chain.head().number == 8
        again = sg("apply", "one.json", "--yes")
        assert (again.returncode, "Already applied, as clicks@8" in again.stderr) == (0, True)
        drifted = sg("apply", "two.json", "--yes")
        assert drifted.returncode == 5
        assert "the generation was 1, is 2" in drifted.stderr
        assert stream.chain.head().number == 8

    def test_a_forced_plan_holds_while_the_job_continues(self, sg: Sg, stream: Stream) -> None:
        with running_job(stream) as job:
            plan = ("checkpoint", "rollback", NAME, "--to", "5", "--force")
            assert sg(*plan, "--plan-out", "plan.json").returncode == 0
            assert commit_now(job) == "committed 9"
            assert sg("apply", "plan.json", "--yes").returncode == 0
            assert commit_now(job).startswith("StaleGeneration")
        assert offsets_of(check(stream)) == {0: 12, 1: 12}

    def test_policies_are_obeyed(self, sg: Sg, stream: Stream, tmp_path: Path) -> None:
        (tmp_path / "sluicegate.toml").write_text("read_only = true\n")
        for arguments in (
            ("checkpoint", "rollback", NAME, "--to", "3"),
            ("checkpoint", "prune", NAME, "--keep", "1"),
            ("state", "compact", NAME),
            ("locks", "break", NAME),
        ):
            assert sg(*arguments, "--yes").returncode == 4
        assert stream.chain.head().number == 7


class TestBeginning:
    TABLE = '[streams.orders]\nsource = "log"\nkey = "user"\nshards = 4\n'

    @pytest.fixture(autouse=True)
    def log(self, request: pytest.FixtureRequest, tmp_path: Path) -> None:
        if "missing" not in request.node.name:
            Log.create(str(tmp_path / "log"), 2, "orders")
            with LogWriter(str(tmp_path / "log"), 0) as writer:
                writer.append([b"{}"] * 12)

    def test_a_stream_is_begun_at_resolved_positions(self, sg: Sg, tmp_path: Path) -> None:
        assert sg("init", "--yes").returncode == 0
        (tmp_path / "sluicegate.toml").write_text(self.TABLE)
        (tmp_path / "start.json").write_text('{"orders":{"0":12,"1":0}}')
        begin = ("init", "--stream", "orders", "--offsets", "start.json", "--yes")
        assert sg(*begin).returncode == 0
        found = document(sg, "checkpoint", "inspect")
        assert found["positions"] == {"orders": {"0": 12, "1": 0}}
        assert found["pins"]["shards"] == 4  # type: ignore[index]
        again = sg(*begin)
        assert (again.returncode, "already has a chain" in again.stderr) == (2, True)

    def test_a_stream_that_was_lost_is_not_begun_again(self, sg: Sg, tmp_path: Path) -> None:
        assert sg("init", "--yes").returncode == 0
        (tmp_path / "sluicegate.toml").write_text(self.TABLE)
        (tmp_path / "start.json").write_text('{"orders":{"0":0}}')
        begin = ("init", "--stream", "orders", "--offsets", "start.json", "--yes")
        assert sg(*begin).returncode == 0
        directory = tmp_path / ".sluicegate" / "orders"
        directory.rename(tmp_path / "not-mounted")
        for arguments in (begin, ("checkpoint", "inspect", "orders")):
            result = sg(*arguments)
            assert result.returncode == 12
            assert "the home remembers one" in result.stderr
        assert not directory.exists(), "a refusal makes nothing"
        found = document(sg, "status", code=3)["targets"][0]  # type: ignore[index]
        assert found["state"] == "error"

    def test_what_is_missing_is_said(self, sg: Sg, tmp_path: Path) -> None:
        assert sg("init", "--yes").returncode == 0
        assert sg("init", "--stream", "orders", "--yes").returncode == 10
        (tmp_path / "sluicegate.toml").write_text(self.TABLE)
        refused = sg("init", "--stream", "orders", "--yes")
        assert (refused.returncode, "--offsets FILE" in refused.stderr) == (10, True)


class TestV1:
    def test_inspect_and_verify(self, sg: Sg, v1_file: Path) -> None:
        found = document(sg, "checkpoint", "inspect", str(v1_file))
        assert (found["sequence"], found["sources"]) == (42, {"in": 7})
        assert found["operators"] == {"agg": 4, "join": 0}
        assert sg("checkpoint", "verify", str(v1_file)).returncode == 0

    def test_every_cut_names_the_byte(self, sg: Sg, v1_file: Path) -> None:
        v1_file.write_bytes(v1_file.read_bytes()[:-3])
        assert sg("checkpoint", "inspect", str(v1_file)).returncode == 14
        result = sg("checkpoint", "verify", str(v1_file), "--as", "v1-checkpoint")
        assert result.returncode == 12
        assert "byte" in result.stderr

    def test_a_stream_begun_with_it_exports_the_same_bytes(
        self, sg: Sg, v1_file: Path, tmp_path: Path
    ) -> None:
        assert sg("init", "--yes").returncode == 0
        assert sg("checkpoint", "import", str(v1_file), "old", "--yes").returncode == 0
        stream = open_stream(str(tmp_path / ".sluicegate" / "old"), read_only=True)
        head = stream.chain.head()
        assert (head.sequence, head.watermark_ns) == (42, V1.watermark_ns)
        assert sg("checkpoint", "export", "old", "again.bin", "--yes").returncode == 0
        assert (tmp_path / "again.bin").read_bytes() == v1_file.read_bytes()
        taken = sg("checkpoint", "export", "old", "again.bin", "--yes")
        assert (taken.returncode, "never overwrites" in taken.stderr) == (1, True)

    def test_into_a_stream_that_exists_with_undo(
        self, sg: Sg, stream: Stream, v1_file: Path
    ) -> None:
        assert sg("checkpoint", "import", str(v1_file), NAME, "--yes").returncode == 0
        head = stream.chain.head()
        assert (head.kind.value, head.sequence, head.generation) == ("import", 42, 2)
        assert sg("checkpoint", "verify", NAME, "--read-data").returncode == 0
        assert sg("undo", NAME, "--yes").returncode == 0
        assert intact(stream) == {0: 18, 1: 18}

    def test_an_export_leaves_nothing_out(self, sg: Sg, stream: Stream) -> None:
        result = sg("checkpoint", "export", NAME, "x.bin", "--yes")
        assert (result.returncode, "state per shard" in result.stderr) == (14, True)
