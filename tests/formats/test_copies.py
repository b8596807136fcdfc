"""Checkpoints that f37eb7e was making when it was interrupted: seed, relocate, `--into`.

What is not complete is never taken for a checkpoint, whichever release looks at it, and the command
that made it makes it again. A copy that was complete and half changed ends either way.
"""

from __future__ import annotations

import re
import shutil
from pathlib import Path

import pytest

from tests.drive import Driver
from tests.formats.archive import Tree, files_of, opened

ARCHIVE = opened("copies")
CUTS = [
    pytest.param(name, cut["tree"], cut["state"], id=f"{name} {cut['call']}: {cut['state']}")
    for name, case in ARCHIVE.cases.items()
    for cut in case["cuts"]
]
FOUND_PROBLEMS, DRIFTED, NOT_KNOWN = 3, 5, 14
CHANCE = re.compile(rb'(?<="batchTimestampMs":)\d+|(?<=^{"id":")[-0-9a-f]{36}')


def words(name: str, root: Path) -> list[str]:
    command = (word.replace("{root}", str(root)) for word in ARCHIVE.cases[name]["command"])
    return [*command, "--yes", "--json"]


def finished(name: str, root: Path) -> Tree:
    return ARCHIVE.tree(ARCHIVE.cases[name]["finished"], root)


def timeless(found: Tree) -> Tree:
    """Files without what is new each time: the time of a reset, the query id of a seed."""
    return {key: CHANCE.sub(b"", data) for key, data in found.items()}


def errors(run: Driver, root: Path) -> list[dict[str, str]]:
    done = run("checkpoint", "verify", f"{root}/new", "--json", cwd=root)
    found = [each for each in done.document["findings"] if each["severity"] == "error"]
    assert done.code == (FOUND_PROBLEMS if found else 0)
    return found


def make_again(run: Driver, name: str, root: Path) -> None:
    """The command that made it makes it again, and leaves the source as it was."""
    done = run(*words(name, root), cwd=root)
    assert done.code == 0, done.stderr
    found, wanted = files_of(root), finished(name, root)
    assert timeless(found) == timeless(wanted)
    assert errors(run, root) == []


def test_every_stage_is_among_the_cuts() -> None:
    """An archive that lost its interrupted trees would make all other tests pass."""
    stages = {name: {cut["state"] for cut in case["cuts"]} for name, case in ARCHIVE.cases.items()}
    assert stages["seed"] >= {"nothing", "a part", "done"}
    assert stages["relocate"] >= {"nothing", "a part", "done"}
    for name in ("rollback --into", "reset --into"):
        assert stages[name] == {"nothing", "a part", "half way", "done"}


@pytest.mark.parametrize(("name", "tree", "state"), CUTS)
def test_an_interrupted_copy(run: Driver, place: Path, name: str, tree: str, state: str) -> None:
    root = ARCHIVE.unpack(tree, place / "root")
    check = {"nothing": _nothing, "a part": _part, "half way": _half_way, "done": _done}[state]
    check(run, name, tree, root)


def _nothing(run: Driver, name: str, _tree: str, root: Path) -> None:
    """No file of a checkpoint is there; at most a directory and a temporary file."""
    if (root / "new").exists() and any((root / "new").iterdir()):
        assert run(*words(name, root), cwd=root).code != 0
        shutil.rmtree(root / "new")
    make_again(run, name, root)


def _part(run: Driver, name: str, _tree: str, root: Path) -> None:
    if not any((root / "new" / name).exists() for name in ("metadata", "commits")):
        # f37eb7e does not recognise a directory with nothing but a barrier; it must not start.
        done = run("checkpoint", "verify", f"{root}/new", "--json", cwd=root)
        assert done.code in (FOUND_PROBLEMS, NOT_KNOWN)
        shutil.rmtree(root / "new")
        make_again(run, name, root)
        return
    before = files_of(root)
    (finding,) = errors(run, root)
    assert finding["code"] == "SG-COPY-INCOMPLETE"
    assert finding["repair"].startswith(f"rm -r {root}/new; ")
    new = f"{root}/new"
    for other in (
        ("checkpoint", "repair", new),
        ("checkpoint", "rollback", new, "--to", "0"),
        ("checkpoint", "relocate", new, f"{root}/other"),
    ):
        refused = run(*other, "--yes", "--json", cwd=root)
        assert refused.code == DRIFTED, refused.stdout + refused.stderr
        assert f"rm -r {new}" in refused.error["hint"]
    refused = run(*words(name, root), cwd=root)
    assert refused.code != 0
    assert f"rm -r {new}" in refused.error["hint"]
    assert files_of(root) == before, "a refusal changed something"
    shutil.rmtree(new)
    make_again(run, name, root)


def _half_way(run: Driver, name: str, tree: str, root: Path) -> None:
    """The copy was complete, so that it can be finished, or be the plain copy that it was."""
    assert [each["code"] for each in errors(run, root)] == ["SG-CHANGE-INTERRUPTED"]
    assert run("undo", f"{root}/new", "--yes", "--json", cwd=root).code == 0
    assert files_of(root) == finished("relocate", root)
    again = ARCHIVE.unpack(tree, root.with_name("again"))
    assert run("checkpoint", "repair", f"{again}/new", "--yes", "--json", cwd=again).code == 0
    assert files_of(again) == finished(name, again)
    assert errors(run, again) == []


def _done(run: Driver, name: str, _tree: str, root: Path) -> None:
    assert files_of(root) == finished(name, root)
    assert errors(run, root) == []
