"""Changing real checkpoints: rollback, repair, reset; undone byte for byte, cut at every call."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from sluicegate.checkpoint import edit
from sluicegate.checkpoint.file_edits import Place
from sluicegate.checkpoint.format.log import read_offsets
from sluicegate.checkpoint.journal import CheckpointJournal
from sluicegate.checkpoint.operations.relocate import plan_relocate, plan_seed, relocate, seed
from sluicegate.checkpoint.operations.repair import Repair, diagnose
from sluicegate.checkpoint.operations.reset import wanted_offsets
from sluicegate.checkpoint.operations.rollback import batch_at
from sluicegate.checkpoint.verify import verify
from sluicegate.checkpoint.view import NextStart, look_at
from sluicegate.errors import Drifted, NotFound, SluicegateError
from sluicegate.findings import Severity
from sluicegate.journal import Approval
from sluicegate.plan import Plan
from sluicegate.positions import Position, Positions
from sluicegate.process import myself
from sluicegate.reset import ResetRefused, ResetSpec, Scenario, TimeNotKnown
from sluicegate.storage import LocalStorage, Storage, open_storage
from tests.checkpoint.damage import DAMAGES, Damage, Inapplicable, Made
from tests.lab.recipes import RECIPES
from tests.support.faults import Aftermath, Cut, cut_points

pytestmark = pytest.mark.usefixtures("no_writers")

ME = Approval(myself(), "a test")
CASES = [(damage, recipe) for damage in DAMAGES for recipe in damage.recipes]
Tree = dict[str, bytes]

# Damage without a lossless fix: only the operator can choose, or only a backup helps.
NO_FIX = {
    "SG-STATE-MISSING",
    "SG-STATE-CORRUPT",
    "SG-METADATA-MISSING",
    "SG-METADATA-DAMAGED",
    "SG-OFFSETS-MISSING",
    "SG-SINK-MISSING-FILE",
    "SG-SINK-AHEAD",
}


def copied(lab: Path, recipe: str, tmp_path: Path) -> Made:
    if not (lab / recipe).is_dir():
        pytest.skip("not made by this Spark")
    shutil.copytree(lab / recipe, tmp_path / recipe, symlinks=True)
    return Made(tmp_path / recipe)


def tree(root: Path) -> Tree:
    """Every file of a directory but Sluicegate's own; unfinished ones Spark does not look at."""
    return {
        str(path.relative_to(root)): path.read_bytes()
        for path in sorted(root.rglob("*"))
        if path.is_file() and "_sluicegate" not in path.parts and path.name[:4] != ".sg-"
    }


def opened(made: Made) -> tuple[Storage, Storage | None, CheckpointJournal]:
    storage = open_storage(str(made.checkpoint))
    sink = open_storage(str(made.sink)) if made.sink else None
    return storage, sink, CheckpointJournal(storage, sink=sink, writer_gone=True)


def errors(storage: Storage, sink: Storage | None, *, read_data: bool = False) -> set[str]:
    found = verify(storage, sink, read_data=read_data)
    return {finding.code for finding in found if finding.severity is Severity.ERROR}


def apply(journal: CheckpointJournal, plan: Plan) -> str:
    return journal.apply(plan, ME).id


class TestRollback:
    @pytest.mark.parametrize("recipe", [r.name for r in RECIPES])
    def test_everything_agrees_afterwards_and_undo_restores_every_byte(
        self, lab: Path, recipe: str, tmp_path: Path
    ) -> None:
        made = copied(lab, recipe, tmp_path)
        storage, sink, journal = opened(made)
        before = tree(made.root)
        batches = look_at(storage).offsets.batches
        gone_back = 0
        for batch in batches[-4:-1]:
            try:
                plan = journal.plan({"operation": "rollback", "to": batch})
            except NotFound as e:
                assert "the oldest possible batch is" in e.hint
                continue
            apply(journal, plan)
            look = look_at(storage)
            assert (look.last_batch, look.last_commit) == (batch, batch)
            assert look.next_start is NextStart.CLEAN
            assert errors(storage, sink, read_data=True) == set()
            apply(journal, journal.plan_undo(None))
            assert tree(made.root) == before
            gone_back += 1
        assert gone_back, "the test must have tried something"

    def test_to_the_newest_batch_removes_only_state_above_it(
        self, lab: Path, tmp_path: Path
    ) -> None:
        made = copied(lab, "agg-hdfs", tmp_path)
        storage, sink, journal = opened(made)
        newest = look_at(storage).last_batch
        assert newest is not None
        partition = made.checkpoint / "state" / "0" / "0"
        stray = partition / f"{newest + 2}.delta"
        stray.write_bytes((partition / f"{newest + 1}.delta").read_bytes())
        plan = journal.plan({"operation": "rollback", "to": newest})
        assert plan.consequences[0].startswith(f"The query resumes after batch {newest}, ")
        assert not any("again" in each for each in plan.consequences)
        apply(journal, plan)
        assert not stray.exists()
        assert errors(storage, sink, read_data=True) == set()

    def test_a_batch_that_is_not_there(self, lab: Path, tmp_path: Path) -> None:
        _, _, journal = opened(copied(lab, "agg-hdfs", tmp_path))
        with pytest.raises(NotFound, match="the log has no batch") as caught:
            journal.plan({"operation": "rollback", "to": 77})
        assert "the oldest possible batch is 0, the newest 13" in caught.value.hint

    def test_by_time(self, lab: Path, tmp_path: Path) -> None:
        made = copied(lab, "agg-hdfs", tmp_path)
        storage, _, _ = opened(made)
        times = {batch: read_offsets(storage, batch).timestamp_ms for batch in (5, 6, 7, 13)}
        assert batch_at(storage, times[6]) == 6
        assert batch_at(storage, times[6] - 1) == 5
        with pytest.raises(TimeNotKnown, match="after the newest known point: batch 13, "):
            batch_at(storage, times[13] + 1)
        (made.checkpoint / "offsets/6").write_text("v1\n{")
        # Where it was between 5 and 7 is not known any more; before and after it is.
        assert batch_at(storage, times[5]) == 5
        assert batch_at(storage, times[7]) == 7
        with pytest.raises(TimeNotKnown, match="no record is kept between batch 5, "):
            batch_at(storage, times[6])

    def test_state_that_does_not_decode_is_no_rollback_target(
        self, lab: Path, tmp_path: Path
    ) -> None:
        made = copied(lab, "agg-hdfs", tmp_path)
        path = made.checkpoint / "state/0/0/11.delta"
        path.write_bytes(path.read_bytes()[:30])
        _, _, journal = opened(made)
        with pytest.raises(NotFound, match="state does not load"):
            journal.plan({"operation": "rollback", "to": 10})

    def test_a_job_that_ran_since_forbids_undo(self, lab: Path, tmp_path: Path) -> None:
        made = copied(lab, "stateless-parquet", tmp_path)
        storage, _, journal = opened(made)
        apply(journal, journal.plan({"operation": "rollback", "to": 8}))
        for log in ("offsets", "commits"):
            text = (made.checkpoint / log / "8").read_text()
            (made.checkpoint / log / "9").write_text(text)
        assert look_at(storage).last_batch == 9
        with pytest.raises(Drifted, match="the job has run since"):
            journal.plan_undo(None)

    def test_a_log_below_a_cleaned_up_compact_file_is_rebuilt(
        self, lab: Path, tmp_path: Path
    ) -> None:
        """Spark removes what a compact file repeats after ten minutes."""
        made = copied(lab, "stateless-compact3", tmp_path)
        log = made.checkpoint / "sources" / "0"
        complete = {path.name: path.read_text() for path in log.iterdir() if path.name[0] != "."}
        newest = max(int(n.removesuffix(".compact")) for n in complete if n.endswith(".compact"))
        for name in complete:
            if int(name.removesuffix(".compact")) < newest:
                (log / name).unlink()
        storage = open_storage(str(made.checkpoint))
        journal = CheckpointJournal(storage, writer_gone=True)
        apply(journal, journal.plan({"operation": "rollback", "to": newest - 2}))
        offset = read_offsets(storage, newest - 2).offsets[0].number
        assert offset is not None
        left = {path.name: path.read_text() for path in log.iterdir() if path.name[0] != "."}
        assert list(left) == [f"{offset}.compact"], "right whatever interval the query has"
        entries = [json.loads(line)["batchId"] for line in left.popitem()[1].split("\n")[1:]]
        assert entries == list(range(offset + 1))
        assert errors(storage, None) == set()

    def test_a_sink_log_that_was_cleaned_up_cannot_be_cut(self, lab: Path, tmp_path: Path) -> None:
        made = copied(lab, "stateless-compact3", tmp_path)
        assert made.sink
        log = made.sink / "_spark_metadata"
        for path in log.iterdir():
            number = path.name.removesuffix(".compact")
            if number.isdigit() and int(number) < 11:
                path.unlink()
        _, _, journal = opened(made)
        with pytest.raises(NotFound, match="Spark has cleaned it up"):
            journal.plan({"operation": "rollback", "to": 6})


@pytest.mark.parametrize(("damage", "recipe"), CASES, ids=[f"{d.name}-{r}" for d, r in CASES])
def test_repair(lab: Path, damage: Damage, recipe: str, tmp_path: Path) -> None:
    """Lossless fixes are applied, other findings have choices, and undo restores every byte."""
    made = copied(lab, recipe, tmp_path)
    try:
        damage.change(made)
    except Inapplicable as e:
        pytest.skip(str(e))
    storage, sink, journal = opened(made)
    work = {"operation": "repair", "read_data": damage.read_data}
    found = errors(storage, sink, read_data=damage.read_data)
    if "SG-CHECKPOINT-UNREADABLE" in found:
        with pytest.raises(SluicegateError):
            journal.plan(work)
        return
    before = tree(made.root)
    plan = journal.plan(work)
    roots = {Place.CHECKPOINT: storage} | ({Place.SINK: sink} if sink else {})
    unfixed = {d.finding.code for d in diagnose(roots, Repair.from_work(work)) if d.fix is None}
    assert {choice.about for choice in plan.choices} == unfixed
    if "SG-OFFSETS-BEHIND-COMMIT" in found:
        # What is ahead of the missing offsets follows from it.
        found -= {"SG-STATE-AHEAD", "SG-SOURCE-LOG-AHEAD"}
    if not plan.actions:
        assert unfixed >= found
        return
    apply(journal, plan)
    left = errors(storage, sink, read_data=damage.read_data)
    # Cutting a source's log back shows what the sink has beyond it.
    assert left <= unfixed | ({"SG-SINK-AHEAD"} if damage.name.startswith("trap A") else set())
    apply(journal, journal.plan_undo(None))
    assert tree(made.root) == before


@pytest.mark.parametrize("code", sorted(NO_FIX))
def test_what_has_no_lossless_mend_is_not_touched(code: str, lab: Path, tmp_path: Path) -> None:
    for damage in DAMAGES:
        if damage.codes == (code,) and (lab / damage.recipes[0]).is_dir():
            made = copied(lab, damage.recipes[0], tmp_path)
            damage.change(made)
            _, _, journal = opened(made)
            plan = journal.plan({"operation": "repair", "read_data": damage.read_data})
            assert code not in {action.place for action in plan.actions}
            assert code in {choice.about for choice in plan.choices}
            return
    pytest.skip("no such damage with this Spark")


class TestRepairWithWhatTheOperatorKnows:
    def test_metadata(self, lab: Path, tmp_path: Path) -> None:
        made = copied(lab, "agg-hdfs", tmp_path)
        original = (made.checkpoint / "metadata").read_text()
        (made.checkpoint / "metadata").unlink()
        storage, sink, journal = opened(made)
        work = {"operation": "repair", "query_id": json.loads(original)["id"]}
        apply(journal, journal.plan(work))
        assert (made.checkpoint / "metadata").read_text() == original
        assert errors(storage, sink) == set()

    def test_kafka_offsets_of_a_committed_batch(self, tmp_path: Path) -> None:
        root = tmp_path / "c"
        for batch in range(3):
            head = f'v1\n{{"batchWatermarkMs":0,"batchTimestampMs":{batch},"conf":{{}}}}\n'
            texts = {
                "offsets": head + f'{{"orders":{{"0":{batch * 10}}}}}',
                "commits": 'v1\n{"nextBatchWatermarkMs":0}',
            }
            for log, text in texts.items():
                (root / log).mkdir(parents=True, exist_ok=True)
                (root / log / str(batch)).write_text(text)
        (root / "metadata").write_text('{"id":"6333c2b4-3922-44db-8ea9-726a16064721"}')
        lost = (root / "offsets/2").read_text()
        (root / "offsets/2").write_text("")
        journal = CheckpointJournal(open_storage(str(root)), writer_gone=True)
        plan = journal.plan({"operation": "repair"})
        assert not plan.actions
        assert "--offsets FILE" in plan.choices[0].command
        work = {"operation": "repair", "offsets": {"orders": {"0": 20}}}
        apply(journal, journal.plan(work))
        assert (root / "offsets/2").read_text() == lost.replace(
            '"batchTimestampMs":2', '"batchTimestampMs":1'
        )


class TestReset:
    def spec(self, number: int) -> ResetSpec:
        return ResetSpec(Scenario.OFFSET, number=number)

    def test_without_state_batch_numbers_are_not_used_again(
        self, lab: Path, tmp_path: Path
    ) -> None:
        made = copied(lab, "stateless-parquet", tmp_path)
        storage, sink, journal = opened(made)
        before, last = tree(made.root), look_at(storage).last_batch
        assert last is not None
        work = {"operation": "reset", "to": wanted_offsets(storage, self.spec(5))}
        apply(journal, journal.plan(work))
        look = look_at(storage)
        assert (look.last_batch, look.next_start) == (last + 2, NextStart.CLEAN)
        assert read_offsets(storage, last + 2).offsets[0].number == 4
        assert errors(storage, sink) == set()
        apply(journal, journal.plan_undo(None))
        assert tree(made.root) == before

    def test_with_state_it_is_a_rollback(self, lab: Path, tmp_path: Path) -> None:
        made = copied(lab, "agg-hdfs", tmp_path)
        storage, sink, journal = opened(made)
        work = {"operation": "reset", "to": wanted_offsets(storage, self.spec(5))}
        plan = journal.plan(work)
        assert "rolls back" in plan.title.lower() or "roll back" in plan.title.lower()
        apply(journal, plan)
        look = look_at(storage)
        assert look.last_batch is not None
        assert read_offsets(storage, look.last_batch).offsets[0].number == 4
        assert errors(storage, sink, read_data=True) == set()

    def test_state_is_not_moved_forward(self, lab: Path, tmp_path: Path) -> None:
        made = copied(lab, "agg-hdfs", tmp_path)
        _, _, journal = opened(made)
        with pytest.raises(ResetRefused, match="cannot be moved forward"):
            journal.plan({"operation": "reset", "to": {"0": '{"logOffset":99}'}})

    def test_a_time_is_looked_up_in_the_offset_log(self, lab: Path, tmp_path: Path) -> None:
        made = copied(lab, "stateless-python", tmp_path)
        storage, _, _ = opened(made)
        entry = read_offsets(storage, 6)
        spec = ResetSpec(Scenario.MOMENT, moment_ms=entry.timestamp_ms)
        assert wanted_offsets(storage, spec) == {"0": entry.offsets[0].text}


class TestFresh:
    def test_a_seed_starts_at_the_given_offsets(self, tmp_path: Path) -> None:
        positions = Positions.of([Position("orders", 0, 12), Position("orders", 1, 9)])
        target = str(tmp_path / "new")
        assert plan_seed(target, positions, "x").actions
        seed(target, positions, "6333c2b4-3922-44db-8ea9-726a16064721")
        storage = open_storage(target)
        assert look_at(storage).next_start is NextStart.CLEAN
        assert read_offsets(storage, 0).offsets[0].positions == positions
        assert errors(storage, None) == set()
        with pytest.raises(SluicegateError, match="not empty"):
            plan_seed(target, positions, "x")

    @pytest.mark.parametrize("recipe", [r.name for r in RECIPES])
    def test_a_relocated_copy_verifies_and_does_not_refer_back(
        self, lab: Path, recipe: str, tmp_path: Path
    ) -> None:
        made = copied(lab, recipe, tmp_path)
        # As if it had been made here: then nothing of it points elsewhere.
        origin = open_storage(str(made.checkpoint), read_only=True)
        moves = {str(lab / recipe / "checkpoint"): str(tmp_path / "a")}
        first = relocate(origin, str(tmp_path / "a"), moves)
        before = tree(tmp_path / "a")
        assert plan_relocate(first, str(tmp_path / "b"), {}).actions
        second = relocate(first, str(tmp_path / "b"), {})
        assert tree(tmp_path / "a") == before
        assert errors(second, None, read_data=True) == set()
        codes = {finding.code for finding in verify(second)}
        assert "SG-PATHS-MOVED" not in codes
        assert sorted(tree(tmp_path / "b")) == sorted(before)


def _work(name: str) -> Callable[[Storage], dict[str, object]]:
    def rollback(_: Storage) -> dict[str, object]:
        return {"operation": "rollback", "to": 8}

    def reset(storage: Storage) -> dict[str, object]:
        spec = ResetSpec(Scenario.OFFSET, number=5)
        return {"operation": "reset", "to": wanted_offsets(storage, spec)}

    def repair(_: Storage) -> dict[str, object]:
        return {"operation": "repair"}

    return {"rollback": rollback, "reset": reset, "repair": repair}[name]


@pytest.mark.parametrize("name", ["rollback", "reset", "repair"])
def test_cut_at_every_call(lab: Path, name: str, tmp_path: Path) -> None:
    """Spark refuses to start, or sees the checkpoint before or after; it can be continued."""
    template = copied(lab, "stateless-named", tmp_path / "template").checkpoint
    if name == "repair":
        (template / "offsets/10").unlink()
        (template / "commits/11").write_text("")
    # Fewer files, so that there are fewer calls to cut at.
    for hidden in template.rglob(".*.crc"):
        hidden.unlink()

    def prepare(storage: LocalStorage) -> None:
        root = storage.local_path()
        assert root
        shutil.copytree(template, root, dirs_exist_ok=True)

    def act(storage: LocalStorage) -> None:
        journal = CheckpointJournal(storage, writer_gone=True)
        journal.apply(journal.plan(_work(name)(storage)), ME)

    before = tree(template)
    after = None
    half_way = 0
    for cut in cut_points(tmp_path / "cuts", prepare, act, (Aftermath.KILL, Aftermath.POWER_LOSS)):
        if after is None:
            after = _outcome(tmp_path / "complete", prepare, act)
        half_way += _check_cut(cut, before, after, tmp_path)
    assert half_way > 10, "most cuts are in the middle"


def test_an_undo_cut_at_every_call(lab: Path, tmp_path: Path) -> None:
    """Of an interrupted edit: until the last file is back, Spark refuses, and undo is resumed."""
    template = copied(lab, "stateless-named", tmp_path / "template").checkpoint
    # Fewer files, so that there are fewer calls to cut at.
    for hidden in template.rglob(".*.crc"):
        hidden.unlink()
    before = tree(template)
    half = _interrupted(template, tmp_path)

    def prepare(storage: LocalStorage) -> None:
        root = storage.local_path()
        assert root
        shutil.copytree(half, root, dirs_exist_ok=True)

    def act(storage: LocalStorage) -> None:
        journal = CheckpointJournal(storage, writer_gone=True)
        journal.apply(journal.plan_undo(None), ME)

    half_back = 0
    for cut in cut_points(tmp_path / "undo", prepare, act, (Aftermath.KILL, Aftermath.POWER_LOSS)):
        stuck = edit.interrupted({Place.CHECKPOINT: LocalStorage(cut.root)})
        if stuck is None:
            assert tree(cut.root) == before, f"Spark could start: {cut}"
        elif stuck.progress is edit.Progress.HALF_REVERTED:
            half_back += 1
            act(LocalStorage(cut.root))
            assert tree(cut.root) == before, cut
    assert half_back > 5, "some cuts are in the middle"


def _interrupted(template: Path, tmp_path: Path) -> Path:
    """A copy in which a rollback was killed after it had removed some files."""

    def prepare(storage: LocalStorage) -> None:
        root = storage.local_path()
        assert root
        shutil.copytree(template, root, dirs_exist_ok=True)

    def act(storage: LocalStorage) -> None:
        journal = CheckpointJournal(storage, writer_gone=True)
        last = look_at(storage).last_batch
        assert last is not None
        journal.apply(journal.plan({"operation": "rollback", "to": last - 1}), ME)

    for cut in cut_points(tmp_path / "first", prepare, act, (Aftermath.KILL,)):
        if len(tree(template).keys() - tree(cut.root).keys()) == 2:
            shutil.copytree(cut.root, tmp_path / "half")
            return tmp_path / "half"
    raise AssertionError("the rollback removes fewer than two files")


def _outcome(
    root: Path, prepare: Callable[[LocalStorage], None], act: Callable[[LocalStorage], None]
) -> Tree:
    root.mkdir()
    prepare(LocalStorage(root))
    act(LocalStorage(root))
    return tree(root)


def _check_cut(cut: Cut, before: Tree, after: Tree, tmp_path: Path) -> bool:
    found = tree(cut.root)
    storage = LocalStorage(cut.root)
    stuck = edit.interrupted({Place.CHECKPOINT: storage})
    if stuck is None:
        assert found in (before, after), cut
        assert found == after or not cut.acknowledged, cut
        return False
    newest = max(int(p.name) for p in (cut.root / "offsets").iterdir() if p.name.isdigit())
    text = (cut.root / "offsets" / str(newest)).read_text()
    assert text.startswith("sluicegate: op-1"), f"Spark could start: {cut}"
    assert [f.code for f in verify(storage)] == ["SG-CHANGE-INTERRUPTED"]
    for way, wanted in (("finish", after), ("back", before)):
        copy = tmp_path / way
        shutil.rmtree(copy, ignore_errors=True)
        shutil.copytree(cut.root, copy)
        journal = CheckpointJournal(open_storage(str(copy)), writer_gone=True)
        with pytest.raises(Drifted, match="was interrupted"):
            journal.plan({"operation": "rollback", "to": 5})
        plan = journal.plan_finish() if way == "finish" else journal.plan_undo(None)
        assert plan is not None
        journal.apply(plan, ME)
        assert tree(copy) == wanted, (cut, way)
    return True
