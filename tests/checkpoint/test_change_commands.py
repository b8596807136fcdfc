"""The commands that change Spark checkpoints, as an operator types them."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest

from sluicegate.checkpoint.view import look_at
from sluicegate.storage import open_storage
from tests.checkpoint.test_change import tree
from tests.cli.terminal import Terminal
from tests.conftest import Sg

SCRIPT = Path(sys.executable).with_name("sluicegate")


def age(root: Path) -> None:
    """Let all files be an hour old, as after the end of a job."""
    then = time.time() - 3600
    for path in root.rglob("*"):
        os.utime(path, (then, then))


@pytest.fixture
def orders(lab: Path, tmp_path: Path) -> Path:
    """A copy of a checkpoint with state and a file sink, under the name `orders`."""
    shutil.copytree(lab / "agg-hdfs", tmp_path / "x")
    age(tmp_path / "x")
    text = '[targets.orders]\ncheckpoint = "x/checkpoint"\nsink = "x/out"\n'
    (tmp_path / "sluicegate.toml").write_text(text)
    return tmp_path / "x" / "checkpoint"


def newest(checkpoint: Path) -> int | None:
    return look_at(open_storage(str(checkpoint))).last_batch


def test_a_rollback_takes_the_sink_from_the_configuration(sg: Sg, orders: Path) -> None:
    result = sg("checkpoint", "rollback", "orders", "--to", "9", "--yes", "--json")
    assert result.returncode == 0, result.stderr
    document = json.loads(result.stdout)
    assert document["applied"] is True
    assert document["operation"]["id"] == "op-1"
    assert document["undo"] == "sluicegate undo orders --op op-1"
    assert any("sink:" in action["place"] for action in document["actions"])
    assert newest(orders) == 9
    assert sg("checkpoint", "verify", "orders").returncode == 0


def test_undo_restores_every_byte(sg: Sg, orders: Path) -> None:
    before = tree(orders.parent)
    assert sg("checkpoint", "rollback", "orders", "--to", "9", "--yes").returncode == 0
    assert tree(orders.parent) != before
    result = sg("undo", "orders", "--yes")
    assert result.returncode == 0, result.stderr
    assert tree(orders.parent) == before
    history = json.loads(sg("history", "orders", "--json").stdout)["entries"]
    assert [(e["id"], e["kind"], e["undo"]) for e in history] == [
        ("op-2", "undo", "yes"),
        ("op-1", "rollback", "undone by op-2"),
    ]


def test_young_files_are_refused_unless_the_operator_knows(sg: Sg, orders: Path) -> None:
    # As a rename into the directory leaves it.
    for path in (orders / "offsets" / "13", orders / "offsets"):
        os.utime(path)
    before = tree(orders)
    words = ("checkpoint", "rollback", "orders", "--to", "9", "--yes")
    refused = sg(*words)
    assert refused.returncode == 11
    assert "newest write: offsets/13" in refused.stderr
    assert "--writer-gone" in refused.stderr
    assert tree(orders) == before
    assert sg(*words, "--writer-gone").returncode == 0


def test_a_dry_run_writes_nothing_at_all(sg: Sg, orders: Path) -> None:
    before = {p: p.stat().st_mtime_ns for p in orders.rglob("*")}
    result = sg("checkpoint", "rollback", "orders", "--to", "9", "--dry-run")
    assert result.returncode == 0
    assert "remove\toffsets/ above 9\t8 files" in result.stdout
    assert {p: p.stat().st_mtime_ns for p in orders.rglob("*")} == before


def test_a_plan_is_applied_elsewhere_and_only_once(sg: Sg, orders: Path, tmp_path: Path) -> None:
    saved = sg("checkpoint", "rollback", "orders", "--to", "9", "--plan-out", "p.json")
    assert saved.returncode == 0, saved.stderr
    elsewhere = tmp_path / "elsewhere"
    shutil.copytree(tmp_path, elsewhere, ignore=shutil.ignore_patterns("elsewhere"))
    age(elsewhere / "x")
    result = sg("apply", "p.json", "--yes", cwd=elsewhere)
    assert result.returncode == 5, "the files there are others, by their times"
    assert sg("apply", "p.json", "--yes").returncode == 0
    again = sg("apply", "p.json", "--yes")
    assert again.returncode == 0
    assert "Already applied" in again.stderr
    assert newest(orders) == 9


def test_a_target_that_moved_on_is_drift(sg: Sg, orders: Path) -> None:
    assert (
        sg("checkpoint", "rollback", "orders", "--to", "9", "--plan-out", "p.json").returncode == 0
    )
    for log in ("offsets", "commits"):
        shutil.copy(orders / log / "13", orders / log / "14")
    age(orders)
    result = sg("apply", "p.json", "--yes")
    assert result.returncode == 5
    assert "the newest batch was 13, is 14" in result.stderr


def test_repair_shows_choices_and_gives_3(sg: Sg, orders: Path) -> None:
    (orders / "state/0/0/14.delta").unlink()
    result = sg("checkpoint", "repair", "orders", "--json", "--yes")
    assert result.returncode == 3
    (choice,) = json.loads(result.stdout)["choices"]
    assert choice["about"] == "SG-STATE-MISSING"
    assert choice["command"].startswith("sluicegate checkpoint rollback ")
    assert choice["cost"]


def test_repair_on_a_terminal(orders: Path, tmp_path: Path) -> None:
    (orders / "offsets" / "13").write_text("")
    age(orders)
    terminal = Terminal("checkpoint", "repair", "orders", cwd=tmp_path)
    terminal.answer("Proceed? [y/N] ", "y")
    code, text = terminal.finish_plain()
    assert code == 0
    assert "Done: op-1. Undo it with: sluicegate undo orders --op op-1" in text


def test_killed_half_way_it_can_be_finished_or_reverted(orders: Path, sg: Sg) -> None:
    """A real SIGKILL, at a moment that chance chooses; whatever is left can go both ways."""
    before = tree(orders.parent)
    ways: set[str] = set()
    for moment in range(8):
        process = subprocess.Popen(
            [SCRIPT, "checkpoint", "rollback", "orders", "--to", "6", "--yes", "--writer-gone"],
            cwd=orders.parent.parent,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        deadline = time.monotonic() + 30
        begun = orders / "_sluicegate" / ("0" * 19 + ("1" if moment < 4 else "1.begun"))
        while not begun.exists() and time.monotonic() < deadline:
            time.sleep(0.001)
        time.sleep(0.01 * (moment % 4))
        process.kill()
        process.wait()
        found = json.loads(sg("checkpoint", "verify", "orders", "--json").stdout)["findings"]
        codes = {finding["code"] for finding in found}
        if "SG-CHANGE-INTERRUPTED" in codes:
            ways.add("interrupted")
            assert sg("checkpoint", "rollback", "orders", "--to", "5", "--yes").returncode == 5
            assert sg("undo", "orders", "--yes", "--writer-gone").returncode == 0
        elif newest(orders) == 6:
            ways.add("done")
            assert sg("undo", "orders", "--yes", "--writer-gone").returncode == 0
        assert tree(orders.parent) == before
        shutil.rmtree(orders / "_sluicegate")
        shutil.rmtree(orders.parent / "out" / "_sluicegate", ignore_errors=True)
    assert ways, "at least one kill must have come after the beginning"


def test_reset_of_a_checkpoint(sg: Sg, lab: Path, tmp_path: Path) -> None:
    shutil.copytree(lab / "stateless-parquet", tmp_path / "x")
    age(tmp_path / "x")
    words = ("offsets", "reset", "x/checkpoint", "--sink", "x/out", "--to-offset", "5")
    result = sg(*words, "--yes")
    assert result.returncode == 0, result.stderr
    assert "rewind\tsource-0[0]\t12\t5\t-7" in result.stdout
    assert newest(tmp_path / "x" / "checkpoint") == 13
    assert sg("checkpoint", "verify", "x/checkpoint", "--sink", "x/out").returncode == 0
    assert sg("offsets", "reset", "x/checkpoint", "--to-offset", "99", "--yes").returncode == 2


def test_into_leaves_the_original_alone(sg: Sg, orders: Path, tmp_path: Path) -> None:
    before = tree(orders)
    words = ("checkpoint", "rollback", "orders", "--to", "9", "--into", "copy", "--yes")
    result = sg(*words)
    assert result.returncode == 0, result.stderr
    assert "Set checkpointLocation to copy" in result.stderr
    assert tree(orders) == before
    assert newest(tmp_path / "copy") == 9


def test_seed_and_relocate(sg: Sg, orders: Path, tmp_path: Path) -> None:
    (tmp_path / "o.csv").write_text("orders,0,12\norders,1,9\n")
    assert sg("checkpoint", "seed", "new", "--offsets", "o.csv", "--yes").returncode == 0
    shown = json.loads(sg("offsets", "export", "./new", "--json").stdout)
    assert shown["positions"] == {"orders": {"0": 12, "1": 9}}
    assert sg("checkpoint", "seed", "new", "--offsets", "o.csv", "--yes").returncode == 1
    result = sg("checkpoint", "relocate", "orders", "there", "--yes")
    assert result.returncode == 0, result.stderr
    kept = {name for name in tree(orders) if not name.startswith("sources/0/.")}
    assert tree(tmp_path / "there").keys() == kept, "checksums of rewritten files do not go along"


def test_seed_of_a_source_that_is_not_kafka(sg: Sg, tmp_path: Path) -> None:
    words = ("checkpoint", "seed", "new", "--source-offset", '{"next": 42}')
    result = sg(*words, "--yes")
    assert result.returncode == 0, result.stderr
    assert (tmp_path / "new/offsets/0").read_text().endswith('\n{"next":42}')
    assert sg("checkpoint", "verify", "./new").returncode == 0


def test_an_interrupted_copy_is_reported(sg: Sg, orders: Path, tmp_path: Path) -> None:
    assert sg("checkpoint", "relocate", "orders", "there", "--yes").returncode == 0
    text = "sluicegate: this checkpoint is not complete; remove it and make it again: rm -r x; y"
    (tmp_path / "there/offsets/14").write_text(text)
    age(tmp_path / "there")
    found = json.loads(sg("checkpoint", "verify", "./there", "--json").stdout)["findings"]
    assert [(each["code"], each["repair"]) for each in found] == [
        ("SG-COPY-INCOMPLETE", "rm -r x; y")
    ]
    for words in (("repair",), ("rollback", "--to", "9")):
        result = sg("checkpoint", words[0], "./there", *words[1:], "--yes")
        assert result.returncode == 5
        assert "make it again with: rm -r x; y" in result.stderr


def test_a_job_that_runs_is_not_copied(sg: Sg, orders: Path, tmp_path: Path) -> None:
    with (orders / "offsets/13").open("a"):
        held = sg("checkpoint", "relocate", "orders", "there", "--yes")
    assert held.returncode == 11
    assert "a job is writing to it" in held.stderr
    assert not (tmp_path / "there").exists()


@pytest.mark.parametrize(
    "words",
    [
        ("checkpoint", "seed", "new"),
        ("checkpoint", "seed", "new", "--offsets", "x", "--source-offset", "1"),
        ("checkpoint", "seed", "new", "--source-offset", '{"logOffset":1}'),
        ("checkpoint", "rollback", "orders"),
        ("checkpoint", "rollback", "orders", "--to", "1", "--to-datetime", "2026-01-01T00:00:00Z"),
        ("checkpoint", "repair", "orders", "--query-id", "abc"),
        ("checkpoint", "relocate", "orders", "there", "--map", "a=b"),
        ("offsets", "reset", "orders", "--to-offset", "1", "--consumer", "x"),
    ],
)
def test_what_cannot_be_understood(sg: Sg, orders: Path, words: tuple[str, ...]) -> None:
    result = sg(*words, "--yes")
    assert result.returncode == 2, result.stderr
    assert "unexpected" not in result.stderr
