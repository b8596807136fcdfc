"""The commands on shards: what they print, their exit codes, what they change."""

from __future__ import annotations

import json
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from sluicegate.shards.assignment import Assignment
from sluicegate.shards.routing import shard_of
from sluicegate.stream.operations.rebalance import assignment_at
from sluicegate.stream.stream import Stream
from sluicegate.stream.writer import StreamWriter
from sluicegate_cli import shell
from tests.cli.terminal import Terminal
from tests.conftest import Sg
from tests.shards.test_files import KAFKA
from tests.shards.test_streams import begun
from tests.stream.streams import commit, errors_of, work

NODES = ("node-1", "node-2", "node-3")
Result = subprocess.CompletedProcess[str]


@pytest.fixture
def sg(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Iterator[Sg]:
    """The command in this process, since a process for each of them would take a minute."""
    monkeypatch.chdir(tmp_path)
    handler = signal.getsignal(signal.SIGTERM)

    def run(*words: str) -> Result:
        capsys.readouterr()
        code = shell.run(["sluicegate", *words])
        out, err = capsys.readouterr()
        return subprocess.CompletedProcess(words, code, out, err)

    yield run
    signal.signal(signal.SIGTERM, handler)


@pytest.fixture
def stream(tmp_path: Path) -> Stream:
    return begun(tmp_path / ".sluicegate", epochs=2, shards=16)


@pytest.fixture
def joined(stream: Stream, sg: Sg) -> Stream:
    assert done(sg, "join", "clicks", *NODES)
    return stream


def now(stream: Stream) -> Assignment:
    return assignment_at(stream, stream.chain.head())


def done(sg: Sg, *words: str) -> dict[str, Any]:
    return document(sg, *words, "--yes")


def document(sg: Sg, *words: str) -> dict[str, Any]:
    result = sg("shards", *words, "--json")
    assert (result.returncode, result.stderr) == (0, ""), result.stderr
    found = json.loads(result.stdout)
    assert isinstance(found, dict)
    return found


def refused(sg: Sg, *words: str) -> tuple[int, str]:
    result = sg("shards", *words)
    assert result.stdout == ""
    return result.returncode, result.stderr


def test_a_stream_without_nodes(stream: Stream, sg: Sg) -> None:
    assert document(sg, "show")["nodes"] == {}
    code, text = Terminal("shards", "show", cwd=Path(stream.uri).parents[1]).finish_plain()
    assert code == 0
    assert "No node owns a shard: Spark distributes the work" in text
    assert "sluicegate shards join clicks NODE..." in text
    assert (
        sg("shards", "locate", "clicks", "x").stdout
        == f"key\tshard\tnode\nx\t{shard_of('x', 16)}\t-\n"
    )
    code, error = refused(sg, "rebalance", "--dry-run")
    assert code == 10
    assert error == (
        "sluicegate: error: there is no node to own the shards\n"
        "  next: add one with: sluicegate shards join STREAM NODE\n"
    )


def test_show_in_a_pipe(joined: Stream, sg: Sg) -> None:
    result = sg("shards", "show")
    assert result.stdout == (
        "assignment of\t.sluicegate/clicks\n"
        "version\t1\n"
        "shards\t16\n"
        "nodes\t3\n"
        "imbalance\t12.5 %\n"
        "so far\t3 joins, 0 leaves, 0 installs\n"
        "\n"
        "node\tcapacity\tload\tabove its share\tshards\n"
        "node-1\t1\t6\t12.5 %\t0-5\n"
        "node-2\t1\t5\t-6.2 %\t6-10\n"
        "node-3\t1\t5\t-6.2 %\t11-15\n"
    )


def test_show_on_a_terminal_has_bars(joined: Stream, sg: Sg) -> None:
    cwd = Path(joined.uri).parents[1]
    code, text = Terminal("shards", "show", "clicks", cwd=cwd).finish_plain()
    assert code == 0
    assert "node-1         1  6 shards  12.5 %           ████████████████  0-5" in text
    assert "node-2         1  5 shards  -6.2 %           █████████████     6-10" in text
    _, text = Terminal("shards", "show", "clicks", "--weights", "keys", cwd=cwd).finish_plain()
    assert "node-1         1  10 keys  200.0 %" in text


def test_the_dry_run_says_it_all_and_changes_nothing(joined: Stream, sg: Sg) -> None:
    before = joined.chain.head()
    result = sg("shards", "join", "clicks", "node-4", "--dry-run")
    assert result.returncode == 0
    assert result.stdout == (
        "action\tplace\told\tnew\tdelta\tdetail\n"
        "join\tnode node-4\t-\t-\t-\tcapacity 1\n"
        "move\tshard 4\tnode-1\tnode-4\t-\tno state yet\n"
        "move\tshard 5\tnode-1\tnode-4\t-\tno state yet\n"
        "move\tshard 10\tnode-2\tnode-4\t-\tno state yet\n"
        "move\tshard 15\tnode-3\tnode-4\t-\tno state yet\n"
        "load\tnode node-1\t6\t4\t-2\tits share is 4 shards\n"
        "load\tnode node-2\t5\t4\t-1\tits share is 4 shards\n"
        "load\tnode node-3\t5\t4\t-1\tits share is 4 shards\n"
        "load\tnode node-4\t0\t4\t4\tits share is 4 shards\n"
        "\n"
        "Asked for: join node-4.\n"
        "4 of 16 shards move to another node; no plan with fewer moves achieves this balance.\n"
        "The most loaded node will be 0.0 % above its share; now it is 12.5 %.\n"
        "A running job continues: its current epoch is routed again by version 2 of the "
        "assignment before it commits, and so are all later ones.\n"
        "No state is copied: it is in the home. A node is a group of shards that Spark processes "
        "in one task; this starts no machine.\n"
    )
    assert joined.chain.head() == before


def test_the_cost_of_a_move_is_its_state(joined: Stream, sg: Sg) -> None:
    moves = [
        a
        for a in document(sg, "leave", "clicks", "node-1", "-n")["actions"]
        if a["action"] == "move"
    ]
    assert len(moves) == 6
    assert moves[0]["place"] == "shard 0"
    assert moves[0]["detail"].endswith("KiB of state")
    assert moves[5]["detail"] == "no state yet"


def test_join_leave_and_undo(joined: Stream, sg: Sg) -> None:
    first = now(joined)
    plan = done(sg, "join", "clicks", "node-4", "--capacity", "2")
    assert plan["applied"]
    assert now(joined).nodes["node-4"] == 2
    done(sg, "leave", "clicks", "node-4")
    assert now(joined).loads().tolist() == first.loads().tolist()
    assert sg("undo", "clicks", "--yes").returncode == 0
    assert now(joined).nodes["node-4"] == 2
    assert now(joined).version == 4
    history = json.loads(sg("history", "clicks", "--json").stdout)["entries"]
    assert [e["undo"] for e in history[:3]] == ["yes", "undone by clicks@7", "yes"]
    assert history[1]["summary"] == "leave node-4: 6 of 16 shards moved"
    assert errors_of(joined) == []


def test_a_saved_plan_stays_valid_while_the_job_runs(joined: Stream, sg: Sg) -> None:
    words = ("shards", "rebalance", "clicks", "--weights", "keys", "--max-imbalance", "60%")
    assert sg(*words, "--plan-out", "p.json").returncode == 0
    work(joined, 2)
    assert sg("apply", "p.json", "--yes").returncode == 0
    after = now(joined)
    assert after.version == 2
    again = sg("apply", "p.json", "--yes")
    assert (again.returncode, "Already applied" in again.stderr) == (0, True)
    assert now(joined) == after
    assert sg("shards", "join", "clicks", "x", "--plan-out", "q.json").returncode == 0
    done(sg, "join", "clicks", "y")
    result = sg("apply", "q.json", "--yes")
    assert (result.returncode, "version of the assignment was 2, is 3" in result.stderr) == (
        5,
        True,
    )


def test_a_running_job_is_no_obstacle(joined: Stream, sg: Sg) -> None:
    with StreamWriter(joined).claim(app="job") as run:
        done(sg, "join", "clicks", "node-4")
        run.refresh()
        assert commit(run).version == 2


def test_membership_is_checked(joined: Stream, sg: Sg) -> None:
    code, error = refused(sg, "join", "clicks", "node-1", "-y")
    assert (code, "node-1 has already joined" in error) == (2, True)
    code, error = refused(sg, "leave", "clicks", "nobody", "-y")
    assert (code, "there is no node nobody" in error) == (10, True)
    code, error = refused(sg, "leave", "clicks", *NODES, "-y")
    assert (code, "no node would be left to own the 16 shards" in error) == (2, True)
    assert now(joined).version == 1
    assert done(sg, "join", "clicks", "node-1", "--idempotent")["actions"] == []
    assert done(sg, "leave", "clicks", "nobody", "--idempotent")["actions"] == []
    assert now(joined).version == 1
    shown = done(sg, "leave", "clicks", *NODES, "--force")["consequences"]
    assert "16 of 16 shards lose their node." in shown
    assert (dict(now(joined).nodes), now(joined).version) == ({}, 2)


def test_limits_of_a_rebalance(joined: Stream, sg: Sg) -> None:
    assert done(sg, "rebalance")["actions"] == []
    plan = document(sg, "join", "clicks", "node-4", "--max-moves", "1", "-n")
    assert sum(a["action"] == "move" for a in plan["actions"]) == 1
    assert (
        "1 of 16 shards moves to another node; full balance would need at least 4."
        in plan["consequences"]
    )
    code, error = refused(sg, "leave", "clicks", "node-1", "--max-moves", "2", "-n")
    assert (code, "6 shards need a new owner" in error) == (2, True)
    resized = document(sg, "rebalance", "--capacity", "node-1=2", "-n")["actions"]
    assert resized[0] == {
        "action": "resize",
        "place": "node node-1",
        "old": 1,
        "new": 2,
        "delta": 1,
        "detail": "capacity",
    }
    for words in (["--max-imbalance", "5"], ["--max-imbalance", "x"], ["--capacity", "node-1"]):
        assert refused(sg, "rebalance", *words, "-n")[0] == 2


def test_weights(joined: Stream, sg: Sg, tmp_path: Path) -> None:
    assert sg("shards", "weights", "--limit", "3").stdout.startswith(
        "shard\tnode\tkeys\tbytes\nshard 0\tnode-1\t5\t"
    )
    assert sum(document(sg, "weights")["weights"]["keys"]) == 10
    (tmp_path / "w.csv").write_text("shard,weight\n0,4\n1,4\n2,4\n15,4\n")
    assert document(sg, "weights", "--weights", "w.csv")["weights"]["weight"][15] == 4
    plan = document(sg, "rebalance", "--weights", "w.csv", "--max-imbalance", "50%", "-n")
    assert [a["place"] for a in plan["actions"] if a["action"] == "move"] == ["shard 2"]
    assert (
        "1 of 16 shards moves to another node; no plan with fewer moves achieves this balance."
        in plan["consequences"]
    )
    heavy = document(sg, "rebalance", "--weights", "w.csv", "--max-imbalance", "10%", "-n")
    assert any("cannot be reached" in c or "at least" in c for c in heavy["consequences"])
    code, error = refused(sg, "rebalance", "--weights", "missing.csv", "-n")
    assert (code, "missing.csv does not exist" in error) == (10, True)


def test_locate(joined: Stream, sg: Sg) -> None:
    found = document(sg, "locate", "clicks", "alice", "bob")["keys"]
    assert [(k["key"], k["shard"]) for k in found] == [
        (k, shard_of(k, 16)) for k in ("alice", "bob")
    ]
    assert [k["node"] for k in found] == [now(joined).owner(k) for k in ("alice", "bob")]


def test_installs(joined: Stream, sg: Sg, tmp_path: Path) -> None:
    shown = document(sg, "show")
    (tmp_path / "a.json").write_text(json.dumps(shown))
    code, error = refused(sg, "rebalance", "--from-file", "a.json", "-y")
    assert (code, "it has version 1, but the assignment is already at 1" in error) == (13, True)
    shown |= {"owners": ["z"] * 16, "nodes": {"z": 4}, "assignment_version": 2}
    (tmp_path / "a.json").write_text(json.dumps(shown))
    done(sg, "rebalance", "--from-file", "a.json")
    assert (dict(now(joined).nodes), now(joined).version) == ({"z": 4}, 2)
    assert document(sg, "show")["counters"] == {"joins": 4, "leaves": 3, "installs": 1}
    (tmp_path / "b.json").write_text('["z", "z"]')
    code, error = refused(sg, "rebalance", "--from-file", "b.json", "-y")
    assert (code, "it assigns 2 shards, but there are 16" in error) == (2, True)


class TestFiles:
    @pytest.fixture
    def kafka(self, tmp_path: Path) -> Path:
        path = tmp_path / "k.json"
        path.write_text(json.dumps(KAFKA))
        return path

    def test_of_kafka(self, kafka: Path, sg: Sg) -> None:
        before = kafka.read_text()
        plan = done(sg, "join", "k.json", "4")
        assert plan["undo"] == f"sluicegate undo {kafka} --op k.json@1"
        assert document(sg, "show", "k.json")["loads"] == {"1": 2, "2": 1, "3": 1, "4": 1}
        assert json.loads(sg("history", "k.json", "--json").stdout)["entries"][0]["undo"] == "yes"
        assert sg("undo", "k.json", "--yes").returncode == 0
        assert kafka.read_text() == before
        code, error = refused(sg, "locate", "k.json", "x")
        assert (code, "is for Kafka" in error) == (14, True)

    def test_a_saved_plan(self, kafka: Path, sg: Sg) -> None:
        assert sg("shards", "rebalance", "k.json", "--plan-out", "p.json").returncode == 0
        assert sg("apply", "p.json", "--yes").returncode == 0
        after = kafka.read_text()
        again = sg("apply", "p.json", "--yes")
        assert (again.returncode, "Already applied" in again.stderr) == (0, True)
        assert kafka.read_text() == after

    def test_an_output(self, kafka: Path, sg: Sg, tmp_path: Path) -> None:
        before = kafka.read_text()
        done(sg, "rebalance", "k.json", "--max-moves", "1", "--output", "step.json")
        assert kafka.read_text() == before
        assert document(sg, "show", "step.json")["loads"] == {"1": 3, "2": 1, "3": 1}
        assert sg("shards", "rebalance", "k.json", "--output", "step.json", "-y").returncode == 1

    def test_without_a_word_nothing_is_changed(self, kafka: Path, sg: Sg) -> None:
        before = kafka.read_text()
        assert sg("shards", "rebalance", "k.json").returncode == 4
        assert kafka.read_text() == before

    def test_what_only_streams_or_files_can_do(self, stream: Stream, kafka: Path, sg: Sg) -> None:
        code, error = refused(sg, "join", "clicks", "a", "--output", "x.json", "-y")
        assert (code, "--output applies to assignment files only" in error) == (2, True)
        code, error = refused(sg, "weights", "k.json")
        assert (code, "an assignment file has no weights" in error) == (2, True)
