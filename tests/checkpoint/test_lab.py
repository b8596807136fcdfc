"""Verify on real checkpoints: every damage found with its code, no alarm on any healthy one."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from sluicegate.checkpoint.inspect import inspect
from sluicegate.checkpoint.verify import verify
from sluicegate.checkpoint.view import NextStart
from sluicegate.findings import Finding, Severity
from sluicegate.storage import open_storage
from tests.checkpoint.damage import DAMAGES, Damage, Inapplicable, Made
from tests.lab.recipes import RECIPES

CASES = [(damage, recipe) for damage in DAMAGES for recipe in damage.recipes]


def copied(lab: Path, recipe: str, tmp_path: Path) -> Made:
    shutil.copytree(lab / recipe, tmp_path / recipe, symlinks=True)
    return Made(tmp_path / recipe)


def verified(made: Made, *, read_data: bool = False) -> list[Finding]:
    sink = open_storage(str(made.sink), read_only=True) if made.sink else None
    storage = open_storage(str(made.checkpoint), read_only=True)
    return verify(storage, sink, read_data=read_data)


def errors(found: list[Finding]) -> set[str]:
    return {f.code for f in found if f.severity is Severity.ERROR}


@pytest.mark.parametrize("recipe", [r.name for r in RECIPES])
def test_healthy(lab: Path, recipe: str) -> None:
    if not (lab / recipe).is_dir():
        pytest.skip("not made by this Spark")
    assert errors(verified(Made(lab / recipe), read_data=True)) == set()


@pytest.mark.parametrize("recipe", [r.name for r in RECIPES])
def test_a_moved_copy_is_at_most_a_warning(lab: Path, recipe: str, tmp_path: Path) -> None:
    if not (lab / recipe).is_dir():
        pytest.skip("not made by this Spark")
    made = copied(lab, recipe, tmp_path)
    found = verified(made)
    assert errors(found) == set()
    has_paths = recipe.startswith(("tws", "join-v")) or made.sink is not None
    assert ("SG-PATHS-MOVED" in {f.code for f in found}) is has_paths


@pytest.mark.parametrize(("damage", "recipe"), CASES, ids=[f"{d.name}-{r}" for d, r in CASES])
def test_damage(lab: Path, damage: Damage, recipe: str, tmp_path: Path) -> None:
    if not (lab / recipe).is_dir():
        pytest.skip("not made by this Spark")
    made = copied(lab, recipe, tmp_path)
    try:
        damage.change(made)
    except Inapplicable as e:
        pytest.skip(str(e))
    found = verified(made, read_data=damage.read_data)
    codes = errors(found)
    assert set(damage.codes) <= codes
    if damage.exact:
        assert codes == set(damage.codes)
    assert set(damage.also) <= {f.code for f in found}
    if "SG-CHECKPOINT-UNREADABLE" not in codes:
        # Looking at damage must not raise either.
        inspect(open_storage(str(made.checkpoint), read_only=True))


@pytest.mark.parametrize("recipe", [r.name for r in RECIPES])
def test_inspect_agrees_with_spark(lab: Path, recipe: str) -> None:
    if not (lab / recipe).is_dir():
        pytest.skip("not made by this Spark")
    expect = json.loads((lab / recipe / "expect.json").read_text())
    summary = inspect(open_storage(str(lab / recipe / "checkpoint"), read_only=True))
    assert summary.query_id == expect["query_id"]
    uncommitted = expect["uncommitted_batch"]
    assert summary.next_start is (NextStart.CLEAN if uncommitted is None else NextStart.REPLAY)
    if recipe == "stateless-async":
        # What the query reported last had not reached the log when it was stopped.
        assert summary.last_commit is not None
        assert summary.last_commit <= expect["last_batch"]
        return
    assert summary.last_commit == expect["last_batch"]
    assert summary.offsets
    assert summary.offsets.partitions == expect["shuffle_partitions"]
    assert summary.problems == ()
    last = next(b for b in expect["batches"] if b["batch"] == summary.last_commit)
    if uncommitted is None:
        said = [end if isinstance(end, str) else json.dumps(end) for _, end in last["sources"]]
        assert sorted(_normal(o.text) for o in summary.offsets.offsets) == sorted(
            _normal(text) for text in said
        )
    stateful = {s.operator for s in summary.stores}
    assert len(stateful) == len(last["operators"])


def _normal(text: str | None) -> str:
    return json.dumps(json.loads(text)) if text else ""
