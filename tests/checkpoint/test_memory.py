"""A Spark checkpoint where there are no paths: everything works as on local files."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from sluicegate.checkpoint.inspect import inspect
from sluicegate.checkpoint.journal import CheckpointJournal
from sluicegate.checkpoint.verify import verify
from sluicegate.checkpoint.view import NextStart, look_at
from sluicegate.errors import NotFound, StorageFailed
from sluicegate.journal import Approval
from sluicegate.process import myself
from sluicegate.storage import Storage, open_storage
from tests import tree
from tests.checkpoint.damage import DAMAGES, Damage, Inapplicable, Made
from tests.lab.recipes import RECIPES
from tests.support.memory import MemoryStorage

pytestmark = pytest.mark.usefixtures("no_writers")

ME = Approval(myself(), "a test")
CASES = [(damage, recipe) for damage in DAMAGES for recipe in damage.recipes]


def made_of(lab: Path, recipe: str) -> Made:
    if not (lab / recipe).is_dir():
        pytest.skip("not made by this Spark")
    return Made(lab / recipe)


class Elsewhere:
    """A checkpoint and its sink in memory."""

    def __init__(self, made: Made) -> None:
        self.storage = MemoryStorage.of(made.checkpoint, "memory://lake/checkpoint")
        self.sink = MemoryStorage.of(made.sink, "memory://lake/out") if made.sink else None
        self.journal = CheckpointJournal(self.storage, sink=self.sink, writer_gone=True)

    def files(self) -> list[dict[str, bytes]]:
        """What is there, but for Sluicegate's own."""
        both = (self.storage.content(), self.sink.content() if self.sink else {})
        return [{name: e for name, e in one.items() if "_sluicegate" not in name} for one in both]


def codes(storage: Storage, sink: Storage | None, *, read_data: bool = True) -> list[str]:
    found = verify(storage, sink, read_data=read_data)
    # It lies elsewhere than where it was made; and it has no temporary files.
    elsewhere = {"SG-PATHS-MOVED", "SG-TEMPORARY-FILES"}
    return sorted(f.code for f in found if f.code not in elsewhere)


@pytest.mark.parametrize("recipe", [recipe.name for recipe in RECIPES])
class TestEveryKind:
    def test_inspect_and_verify(self, lab: Path, recipe: str) -> None:
        made = made_of(lab, recipe)
        there = Elsewhere(made)
        here = open_storage(str(made.checkpoint), read_only=True)
        ours, theirs = inspect(here), inspect(there.storage)
        assert (ours.query_id, ours.sources, ours.operators) == (
            theirs.query_id,
            theirs.sources,
            theirs.operators,
        )
        sink = open_storage(str(made.sink), read_only=True) if made.sink else None
        assert codes(there.storage, there.sink) == codes(here, sink)

    def test_rollback_and_undo(self, lab: Path, recipe: str) -> None:
        there = Elsewhere(made_of(lab, recipe))
        before = there.files()
        gone_back = 0
        for batch in look_at(there.storage).offsets.batches[-4:-1]:
            try:
                plan = there.journal.plan({"operation": "rollback", "to": batch})
            except NotFound:
                continue
            there.journal.apply(plan, ME)
            assert look_at(there.storage).last_batch == batch
            assert look_at(there.storage).next_start is NextStart.CLEAN
            there.journal.apply(there.journal.plan_undo(None), ME)
            assert there.files() == before
            gone_back += 1
        assert gone_back, "the test must have tried something"


@pytest.mark.parametrize(
    ("damage", "recipe"), CASES, ids=[f"{damage.name}-{recipe}" for damage, recipe in CASES]
)
def test_repair(lab: Path, damage: Damage, recipe: str, tmp_path: Path) -> None:
    made_of(lab, recipe)
    shutil.copytree(lab / recipe, tmp_path / recipe, symlinks=True)
    made = Made(tmp_path / recipe)
    try:
        damage.change(made)
    except Inapplicable:
        pytest.skip("not here")
    if any(entry.shape != "file" for entry in tree.load(made.root).values()):
        pytest.skip("only directories have such entries")
    there = Elsewhere(made)
    here = open_storage(str(made.checkpoint))
    sink = open_storage(str(made.sink)) if made.sink else None
    local = CheckpointJournal(here, sink=sink, writer_gone=True)
    work = {"operation": "repair", "read_data": True}
    try:
        ours = local.plan(work)
    except StorageFailed:
        pytest.skip("only directories have such entries")
    theirs = there.journal.plan(work)
    assert [a.verb for a in ours.actions] == [a.verb for a in theirs.actions]
    assert [c.what for c in ours.choices] == [c.what for c in theirs.choices]
    if not theirs.actions:
        return
    before = there.files()
    local.apply(ours, ME)
    there.journal.apply(theirs, ME)
    assert codes(there.storage, there.sink) == codes(here, sink)
    names = [name for name in tree.load(made.checkpoint) if "_sluicegate" not in name]
    assert sorted(there.files()[0]) == sorted(names)
    there.journal.apply(there.journal.plan_undo(None), ME)
    assert there.files() == before
