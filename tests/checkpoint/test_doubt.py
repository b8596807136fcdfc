"""Where a checkpoint does not say what happened, no repair pretends to know."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

from sluicegate import saved_plan
from sluicegate.checkpoint import edit
from sluicegate.checkpoint.journal import CheckpointJournal
from sluicegate.checkpoint.operations import relocate
from sluicegate.checkpoint.verify import verify
from sluicegate.errors import Drifted
from sluicegate.journal import Approval, Entry, review
from sluicegate.plan import Plan
from sluicegate.process import myself
from sluicegate.storage import open_storage
from tests.conftest import Sg

pytestmark = pytest.mark.usefixtures("no_writers")

ME = Approval(myself(), "a test")
Offsets = dict[int, list[str] | None]
REPAIR = {"operation": "repair", "read_data": False, "offsets": None, "query_id": None}


def topic(name: str, offset: int) -> str:
    return json.dumps({name: {"0": offset}}, separators=(",", ":"))


class Checkpoint:
    """Offsets (None: an empty file) and commits, as Spark lays them out."""

    def __init__(
        self, root: Path, offsets: dict[int, list[str] | None], commits: list[int]
    ) -> None:
        self.root = root
        for name in ("offsets", "commits"):
            (root / name).mkdir(parents=True)
        (root / "metadata").write_text('{"id":"34fae261-94bb-4005-833c-cd8c1866089c"}')
        for batch, lines in offsets.items():
            head = f'v1\n{{"batchWatermarkMs":0,"batchTimestampMs":{batch + 1}000,"conf":{{}}}}\n'
            (root / f"offsets/{batch}").write_text("" if lines is None else head + "\n".join(lines))
        for batch in commits:
            (root / f"commits/{batch}").write_text('v1\n{"nextBatchWatermarkMs":0}')

    def journal(self, sink: Path | None = None) -> CheckpointJournal:
        opened = open_storage(str(sink)) if sink else None
        return CheckpointJournal(open_storage(str(self.root)), sink=opened, writer_gone=True)

    def change(self, work: dict[str, Any], sink: Path | None = None) -> Plan:
        journal = self.journal(sink)
        plan = journal.plan(work)
        if plan.actions:
            journal.apply(plan, ME)
        return plan

    def end_of(self, batch: int) -> list[str]:
        return (self.root / f"offsets/{batch}").read_text().split("\n")[2:]

    def names(self, directory: str) -> list[str]:
        return sorted(n for n in os.listdir(self.root / directory) if not n.startswith("."))

    def errors(self, sink: Path | None = None) -> set[str]:
        opened = open_storage(str(sink), read_only=True) if sink else None
        found = verify(open_storage(str(self.root), read_only=True), opened)
        return {f.code for f in found if f.severity.value == "error"}


def test_where_a_batch_began_that_is_not_finished(tmp_path: Path) -> None:
    """Its end is not its beginning: what it was to read would be skipped."""
    made = Checkpoint(tmp_path, {7: [topic("t", 800)]}, [5, 6])
    plan = made.change(REPAIR)
    assert plan.choices
    assert made.names("offsets") == ["7"]


def test_a_batch_that_was_finished_with_unknown_offsets(tmp_path: Path) -> None:
    """Both files are empty after a power loss: twice repaired, it is still not planned again."""
    made = Checkpoint(tmp_path, {0: [topic("t", 1)], 1: [topic("t", 2)], 2: None}, [0, 1])
    (tmp_path / "commits/2").write_text("")
    for _ in range(2):
        assert made.change(REPAIR).choices
    assert made.names("offsets") == made.names("commits") == ["0", "1", "2"]


def test_offsets_that_are_given_go_to_their_own_source(tmp_path: Path) -> None:
    offsets: Offsets = {n: [topic("a", n + 1), topic("b", n + 1)] for n in range(2)}
    made = Checkpoint(tmp_path, {**offsets, 2: None}, [0, 1, 2])
    assert made.change(REPAIR | {"offsets": {"a": {"0": 3}}}).choices, "b is not said"
    made.change(REPAIR | {"offsets": {"a": {"0": 3}, "b": {"0": 4}, "c": {"0": 5}}})
    assert made.end_of(2) == [topic("a", 3), topic("b", 4)]


def test_the_only_batch_is_taken_away_and_put_back(tmp_path: Path) -> None:
    made = Checkpoint(tmp_path, {0: None}, [])
    made.change(REPAIR)
    assert made.names("offsets") == []
    journal = made.journal()
    journal.apply(journal.plan_undo(None), ME)
    assert made.names("offsets") == ["0"]


def test_a_reset_beside_a_batch_that_is_not_finished(tmp_path: Path) -> None:
    """The sink's log gets an entry for it, too; and the plan shows what is skipped."""
    offsets: Offsets = {n: [topic("t", 10 * n + 10)] for n in range(3)}
    made = Checkpoint(tmp_path / "c", offsets, [0, 1])
    sink = tmp_path / "sink"
    (sink / "_spark_metadata").mkdir(parents=True)
    for batch in range(2):
        (sink / f"_spark_metadata/{batch}").write_text("v1")
    assert not made.errors(sink)
    work = {"operation": "reset", "to": {"0": topic("t", 5)}, "note": "", "at": 9_999_000}
    plan = made.change(work, sink)
    assert any("are skipped" in line for line in plan.consequences)
    assert not made.errors(sink)
    # Before the reset it was where it was.
    times = [json.loads((made.root / f"offsets/{n}").read_text().split("\n")[1]) for n in (2, 3)]
    assert [each["batchTimestampMs"] for each in times] == [3000, 9_999_000]


@pytest.mark.parametrize("stage", ["not begun", "half way", "reverted"])
def test_a_saved_plan_that_was_not_carried_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, stage: str
) -> None:
    """It is not reported as applied."""
    offsets: Offsets = {n: [topic("t", 10 * n + 10)] for n in range(3)}
    made = Checkpoint(tmp_path / "c", offsets, [0, 1, 2])
    plan = made.journal().plan({"operation": "rollback", "to": 1})
    saved = saved_plan.save(plan, str(tmp_path / "plan.json"), None, 3600)
    approval = Approval(myself(), plan_digest=saved.digest)
    journal = made.journal()
    found = review(journal, saved)
    assert isinstance(found, Plan)

    def killed(*_: Any, **__: Any) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        step = "_raise_barrier" if stage == "not begun" else "_put_in_place"
        patch.setattr(edit, step, killed)
        with pytest.raises(KeyboardInterrupt):
            journal.apply(found, approval)
    if stage == "not begun":
        again = review(made.journal(), saved)
        assert isinstance(again, Plan)
        made.journal().apply(again, approval)
        assert isinstance(review(made.journal(), saved), Entry)
        return
    if stage == "reverted":
        journal = made.journal()
        journal.apply(journal.plan_undo(None), ME)
    with pytest.raises(Drifted, match=r"reverted|interrupted"):
        review(made.journal(), saved)
    if stage == "half way":
        # A copy of it could be neither finished nor reverted.
        with pytest.raises(Drifted, match="was interrupted"):
            relocate.plan_relocate(open_storage(str(made.root)), str(tmp_path / "copy"), {})


def test_what_keeps_spark_from_a_torn_checkpoint_is_not_repaired_away(tmp_path: Path) -> None:
    # Also where its content would be known: the batch after it was read.
    made = Checkpoint(tmp_path, {0: [topic("t", 1)], 1: None, 2: [topic("t", 3)]}, [0, 1, 2])
    barrier = "sluicegate: op-1 (rollback) was interrupted\n"
    (tmp_path / "offsets/1").write_text(barrier)
    plan = made.change(REPAIR)
    assert ["remove this copy" in choice.what for choice in plan.choices] == [True]
    assert (tmp_path / "offsets/1").read_text() == barrier


def test_a_saved_plan_remembers_the_sink_it_was_given(sg: Sg, tmp_path: Path) -> None:
    offsets: Offsets = {n: [topic("t", 10 * n + 10)] for n in range(3)}
    made = Checkpoint(tmp_path / "c", offsets, [0, 1, 2])
    log = tmp_path / "sink" / "_spark_metadata"
    log.mkdir(parents=True)
    for batch in range(3):
        (log / str(batch)).write_text("v1")
    words = ("checkpoint", "rollback", str(made.root), "--to", "1", "--sink", "sink")
    assert sg(*words, "--plan-out", "plan.json").returncode == 0
    result = sg("apply", "plan.json", "--yes", "--writer-gone")
    assert (result.returncode, made.names("offsets")) == (0, ["0", "1"]), result.stderr
    assert not made.errors(tmp_path / "sink")
