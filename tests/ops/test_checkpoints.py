"""The maintenance of Spark checkpoints: what is looked at, and the backups of old operations."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from sluicegate.checkpoint import journal, maintenance
from sluicegate.checkpoint.edit_log import old_backups
from sluicegate.checkpoint.journal import CheckpointJournal
from sluicegate.checkpoint.maintenance import CheckpointMaintenance
from sluicegate.checkpoint.rules.state_data import Portion
from sluicegate.checkpoint.writers import LOCK
from sluicegate.config import Maintain
from sluicegate.findings import Severity
from sluicegate.journal import Approval, NothingToUndo
from sluicegate.liveness import Evidence
from sluicegate.locks import FileLock
from sluicegate.maintenance import Outcome, Steps
from sluicegate.process import myself
from sluicegate.storage import open_storage
from tests.ops.places import make_checkpoint
from tests.ops.week import terms

LONG_AGO = Maintain(keep=0.0, idle=1e9)


@pytest.fixture
def checkpoint(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A checkpoint of a rate-like source, as Spark lays one out, without a writer."""
    monkeypatch.setattr(journal, "refuse_living", lambda *_args, **_options: Evidence(()))
    root = tmp_path / "checkpoint"
    make_checkpoint(root, range(5))
    return root


def run(root: Path, policy: Maintain = LONG_AGO, only: str = "") -> Steps:
    storage = open_storage(str(root), read_only=bool(only))
    return CheckpointMaintenance(storage, None, terms(policy, only=only), "orders").run()


def outcome(steps: Steps, name: str) -> Outcome:
    return next(step.outcome for step in steps.done if step.name == name)


def test_a_healthy_one_is_only_looked_at(checkpoint: Path) -> None:
    before = {p: p.read_bytes() for p in checkpoint.rglob("*") if p.is_file()}
    assert run(checkpoint).findings == []
    after = {p: p.read_bytes() for p in checkpoint.rglob("*") if p.is_file()}
    assert {p: after[p] for p in before} == before
    assert {p.name for p in after.keys() - before.keys()} == {"maintain"}


@pytest.mark.parametrize("how", ["dry_run", "read_only"])
def test_who_only_looks_leaves_no_trace(checkpoint: Path, how: str) -> None:
    run(checkpoint, only=how)
    assert not (checkpoint / "_sluicegate").exists()


def test_logs_that_are_not_cleared_away(checkpoint: Path) -> None:
    make_checkpoint(checkpoint, range(150))
    assert run(checkpoint).findings == []
    make_checkpoint(checkpoint, range(250))
    found = run(checkpoint).findings
    assert [f.code for f in found] == ["SG-MAINTAIN-LOG-GROWTH"] * 2
    assert "250 entries, 150 at the last look" in found[0].detail
    assert run(checkpoint).findings == [], "no longer growing"
    make_checkpoint(checkpoint, range(1100))
    run(checkpoint)
    assert len(run(checkpoint).findings) == 2, "far too many, whether they grow or not"


def test_a_job_that_died_unnoticed(checkpoint: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    make_checkpoint(checkpoint, range(5), planned=time.time() - 7200)
    policy = Maintain(idle=3600.0)
    assert run(checkpoint, policy).findings == [], "its files are young, so it may be alive"
    real = time.time
    monkeypatch.setattr(time, "time", lambda: real() + 600)
    [finding] = run(checkpoint, policy).findings
    assert (finding.code, finding.severity) == ("SG-MAINTAIN-IDLE", Severity.WARNING)
    assert run(checkpoint, Maintain(idle=1e9)).findings == []


class TestBackups:
    def changed(self, checkpoint: Path) -> CheckpointJournal:
        """An operation that can be undone."""
        kept = CheckpointJournal(open_storage(str(checkpoint)), writer_gone=True)
        plan = kept.plan({"operation": "rollback", "to": 2})
        kept.apply(plan, Approval(myself(), "a test"))
        assert kept.history()[0].undo == "yes"
        return kept

    def test_of_old_operations_go_and_the_history_says_so(self, checkpoint: Path) -> None:
        kept = self.changed(checkpoint)
        steps = run(checkpoint)
        assert outcome(steps, "prune backups") is Outcome.DONE
        [entry] = kept.history()
        assert (entry.id, entry.undo) == ("op-1", "no: its backups were removed")
        with pytest.raises(NothingToUndo, match="backups were removed"):
            kept.plan_undo("op-1")
        assert not (checkpoint / "_sluicegate" / f"{1:020d}").exists()
        assert outcome(run(checkpoint), "prune backups") is Outcome.NOTHING

    def test_of_young_ones_stay(self, checkpoint: Path) -> None:
        kept = self.changed(checkpoint)
        run(checkpoint, Maintain())
        assert kept.history()[0].undo == "yes"

    def test_of_an_unfinished_one_stay(self, checkpoint: Path) -> None:
        self.changed(checkpoint)
        base = checkpoint / "_sluicegate" / f"{1:020d}"
        (checkpoint / "offsets" / "5").write_text("sluicegate: op-1 (rollback) was interrupted")
        base.with_suffix(".done").unlink()
        assert old_backups(open_storage(str(checkpoint)), time.time() + 60) == []
        steps = run(checkpoint)
        assert [f.code for f in steps.findings] == ["SG-CHANGE-INTERRUPTED"]
        assert base.is_dir()

    def test_stay_while_another_process_uses_the_checkpoint(self, checkpoint: Path) -> None:
        kept = self.changed(checkpoint)
        with FileLock(checkpoint / LOCK).hold():
            steps = run(checkpoint)
        assert outcome(steps, "prune backups") is Outcome.SKIPPED
        assert steps.findings == []
        assert kept.history()[0].undo == "yes"

    def test_what_an_interrupted_prune_left_goes_with_the_next(self, checkpoint: Path) -> None:
        self.changed(checkpoint)
        (checkpoint / "_sluicegate" / f"{1:020d}.pruned").write_text("")
        assert outcome(run(checkpoint), "prune backups") is Outcome.DONE
        assert not (checkpoint / "_sluicegate" / f"{1:020d}").exists()


class TestPortions:
    def read(self, portion: Portion) -> list[str]:
        return [key for key in ("state/a", "state/b", "state/c", "state/d") if portion.wants(key)]

    def test_go_on_where_the_last_one_ended(self) -> None:
        first = Portion(lambda: True)
        assert self.read(first) == ["state/a"]
        assert first.was_cut
        last = Portion(lambda: False, first.after)
        assert self.read(last) == ["state/b", "state/c", "state/d"]
        assert not last.was_cut

    def test_what_was_damaged_is_read_again(self) -> None:
        portion = Portion(lambda: True, "state/b", frozenset({"state/a", "state/d"}))
        assert self.read(portion) == ["state/a", "state/c", "state/d"]
        assert (portion.after, portion.was_cut) == ("state/c", True)


@pytest.mark.parametrize("content", [b"", b"not a frame", b"\x89SLG\r\n\x1a\n" + bytes(90)])
def test_a_damaged_memory_is_none(checkpoint: Path, content: bytes) -> None:
    run(checkpoint)
    (checkpoint / maintenance.MEMORY).write_bytes(content)
    assert maintenance.recall(open_storage(str(checkpoint))) == maintenance.Memory()
    assert run(checkpoint).findings == []
