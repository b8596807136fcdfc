"""Making a checkpoint, cut at every storage call: it is complete, or recognisably not."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from sluicegate.checkpoint.edit import NotComplete
from sluicegate.checkpoint.format.log import read_offsets
from sluicegate.checkpoint.journal import CheckpointJournal
from sluicegate.checkpoint.operations.relocate import (
    parse_offset,
    plan_relocate,
    plan_seed,
    relocate,
    write_copy,
    write_seed,
)
from sluicegate.checkpoint.verify import verify
from sluicegate.checkpoint.view import NextStart, look_at
from sluicegate.errors import Drifted, SluicegateError
from sluicegate.journal import Approval
from sluicegate.positions import Position, Positions
from sluicegate.process import myself
from sluicegate.storage import LocalStorage, open_storage
from tests.support.faults import Aftermath, Cut, cut_points

pytestmark = pytest.mark.usefixtures("no_writers")

ME = Approval(myself(), "a test")
QUERY = "6333c2b4-3922-44db-8ea9-726a16064721"
POSITIONS = Positions.of([Position("orders", 0, 12), Position("orders", 1, 9)])
BATCHES = 2
Tree = dict[str, bytes]
Act = Callable[[LocalStorage], object]


def write_source(root: Path) -> Path:
    """A checkpoint of a query over files, with the paths that a copy must rewrite."""
    texts = {"metadata": json.dumps({"id": QUERY})}
    for batch in range(BATCHES):
        head = f'v1\n{{"batchWatermarkMs":0,"batchTimestampMs":{batch},"conf":{{}}}}\n'
        entry = {"path": f"file:///in/{batch}.json", "timestamp": batch, "batchId": batch}
        texts[f"offsets/{batch}"] = head + json.dumps({"logOffset": batch})
        texts[f"commits/{batch}"] = 'v1\n{"nextBatchWatermarkMs":0}'
        texts[f"sources/0/{batch}"] = "v1\n" + json.dumps(entry)
    for key, text in texts.items():
        path = root / key
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return root


def tree(root: Path) -> Tree:
    return {
        str(path.relative_to(root)): path.read_bytes()
        for path in sorted(root.rglob("*"))
        if path.is_file() and "_sluicegate" not in path.parts and path.name[:4] != ".sg-"
    }


def copied(source: Path) -> Act:
    return lambda storage: write_copy(open_storage(str(source), read_only=True), storage, {})


def seeded(storage: LocalStorage) -> None:
    write_seed(storage, POSITIONS, QUERY)


def changed(source: Path, work: dict[str, object]) -> Act:
    journal = CheckpointJournal(open_storage(str(source), read_only=True), writer_gone=True)
    return lambda storage: journal.write_into(storage, journal.operation(work), ME)


ROLLBACK: dict[str, object] = {"operation": "rollback", "to": 0}
RESET: dict[str, object] = {"operation": "reset", "to": {"0": '{"logOffset":0}'}}


@pytest.mark.parametrize("name", ["seed", "relocate", "rollback --into", "reset --into"])
def test_cut_at_every_call(name: str, tmp_path: Path) -> None:
    source = write_source(tmp_path / "source")
    acts: dict[str, Act] = {
        "seed": seeded,
        "relocate": copied(source),
        "rollback --into": changed(source, ROLLBACK),
        "reset --into": changed(source, RESET),
    }
    before = tree(tmp_path / "source")
    after, plain = (_outcome(tmp_path / place, acts[what]) for place, what in _ends(name))
    stages: list[str] = []
    # A reset makes the same calls as a rollback, only more of them.
    endings = (Aftermath.KILL, *([] if name == "reset --into" else [Aftermath.POWER_LOSS]))
    for cut in cut_points(tmp_path / "cuts", lambda _: None, acts[name], endings):
        stages.append(_stage(cut, after, plain))
        assert tree(tmp_path / "source") == before, cut
        assert {path.name for path in source.iterdir()} == {*_tops(before)}, cut
    assert set(stages) == {"nothing", "a part", "complete"} | (
        {"half changed"} if "--into" in name else set()
    )
    # Most of the time there is something that could be taken for a checkpoint.
    assert stages.count("a part") > 20


def _ends(name: str) -> list[tuple[str, str]]:
    """What there is in the end, and after a change that was reverted."""
    return [("complete", name), ("plain", "relocate")]


def _tops(found: Tree) -> set[str]:
    return {key.partition("/")[0] for key in found}


def _outcome(root: Path, act: Act) -> Tree:
    root.mkdir()
    act(LocalStorage(root))
    return tree(root)


def _stage(cut: Cut, after: Tree, plain: Tree) -> str:
    """How far it came; whatever is wrong at that stage is an assertion."""
    found = tree(cut.root)
    if not found:
        assert not cut.acknowledged, cut
        return "nothing"
    storage = open_storage(str(cut.root))
    codes = [finding.code for finding in verify(storage) if finding.severity.value == "error"]
    if codes == ["SG-COPY-INCOMPLETE"]:
        assert not cut.acknowledged, cut
        _check_part(cut)
        return "a part"
    if codes == ["SG-CHANGE-INTERRUPTED"]:
        _check_half(cut, after, plain)
        return "half changed"
    assert codes == [], cut
    assert found == after, cut
    return "complete"


def _check_part(cut: Cut) -> None:
    """Spark cannot start from it, no command of ours makes it startable, and all say what to do."""
    newest = max(int(p.name) for p in (cut.root / "offsets").iterdir() if p.name.isdigit())
    text = (cut.root / "offsets" / str(newest)).read_text()
    assert text.startswith("sluicegate: this checkpoint is not complete; remove it"), cut
    assert f"rm -r {cut.root}" in text, cut
    storage = open_storage(str(cut.root))
    (finding,) = verify(storage)
    assert finding.repair.startswith(f"rm -r {cut.root}; "), cut
    journal = CheckpointJournal(storage, writer_gone=True)
    for work in ({"operation": "repair"}, ROLLBACK, RESET):
        with pytest.raises(NotComplete, match="making it was interrupted"):
            journal.plan(work)
    with pytest.raises(NotComplete):
        plan_relocate(storage, f"{cut.root}-other", {})
    with pytest.raises(SluicegateError, match="not empty") as caught:
        plan_seed(str(cut.root), POSITIONS, QUERY)
    assert caught.value.hint == f"making it was interrupted: rm -r {cut.root}"


def _check_half(cut: Cut, after: Tree, plain: Tree) -> None:
    for way, wanted in (("finish", after), ("back", plain)):
        root = cut.root.with_name(f"{cut.root.name}-{way}")
        shutil.copytree(cut.root, root)
        journal = CheckpointJournal(open_storage(str(root)), writer_gone=True)
        with pytest.raises(Drifted, match="was interrupted"):
            journal.plan(ROLLBACK)
        plan = journal.plan_finish() if way == "finish" else journal.plan_undo(None)
        assert plan
        journal.apply(plan, ME)
        assert tree(root) == wanted, (cut, way)
        shutil.rmtree(root)


class TestWhatIsNotCopied:
    def test_into_itself(self, tmp_path: Path) -> None:
        source = open_storage(str(write_source(tmp_path / "source")), read_only=True)
        (tmp_path / "link").symlink_to(tmp_path / "source")
        before = tree(tmp_path / "source")
        for place in ("source/new", "source/_sluicegate/copy", "link/new"):
            with pytest.raises(SluicegateError, match="is inside "):
                plan_relocate(source, str(tmp_path / place), {})
            with pytest.raises(SluicegateError, match="is inside "):
                relocate(source, str(tmp_path / place), {})
        assert tree(tmp_path / "source") == before

    def test_a_link(self, tmp_path: Path) -> None:
        root = write_source(tmp_path / "source")
        (root / "commits/1").rename(tmp_path / "elsewhere")
        (root / "commits/1").symlink_to(tmp_path / "elsewhere")
        with pytest.raises(SluicegateError, match="commits/1 is a link"):
            plan_relocate(open_storage(str(root), read_only=True), str(tmp_path / "new"), {})


class TestSeedOfOtherSources:
    def test_the_offset_is_written_as_its_source_writes_it(self, tmp_path: Path) -> None:
        start = parse_offset('{"next": 42}')
        plan = plan_seed(str(tmp_path / "new"), start, QUERY)
        assert plan.actions[1].detail == '{"next":42}'
        (tmp_path / "new").mkdir()
        write_seed(LocalStorage(tmp_path / "new"), start, QUERY)
        storage = open_storage(str(tmp_path / "new"))
        assert look_at(storage).next_start is NextStart.CLEAN
        assert read_offsets(storage, 0).offsets[0].text == '{"next":42}'
        assert verify(storage) == []

    @pytest.mark.parametrize(
        ("text", "message"),
        [
            ('{"logOffset":3}', "a file source cannot be seeded"),
            ("", "not valid JSON"),
            ("{}", "not an offset"),
            ("true", "not an offset"),
            ('"latest"', "not an offset"),
            ('{"next":NaN}', "not a number"),
        ],
    )
    def test_what_is_no_offset(self, text: str, message: str) -> None:
        with pytest.raises(SluicegateError, match=message):
            parse_offset(text)
