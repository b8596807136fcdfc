"""Spark checkpoints that f37eb7e has edited: finished, undone, or interrupted at each of its steps.

A later release must end what an earlier one left in somebody's checkpoint, both ways, byte by byte.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.drive import Done, Driver
from tests.formats.archive import Tree, files_of, opened

ARCHIVE = opened("checkpoints")
INTERRUPTED = "SG-CHANGE-INTERRUPTED"
TIME = re.compile(rb'(?<="batchTimestampMs":)\d+')
FOUND_PROBLEMS, DRIFTED, NOT_FOUND = 3, 5, 10


@dataclass(frozen=True, slots=True)
class Cut:
    """An interrupted edit: its tree, and the trees that undo and repair must lead to."""

    name: str
    case: str
    tree: str
    state: str
    before: str
    after: str
    command: tuple[str, ...]

    @property
    def is_interrupted(self) -> bool:
        return self.state in ("half way", "half back")


def cuts() -> Iterator[Cut]:
    """Every interrupted tree of the archive."""
    for name, case in ARCHIVE.cases.items():
        ends = {
            "cuts": (case["original"], case["finished"], tuple(case["command"])),
            "undo cuts": (case["finished"], case["undone"], ("undo", "{root}/checkpoint")),
            "back cuts": (case["original"], case["finished"], ("undo", "{root}/checkpoint")),
        }
        for kind, (before, after, command) in ends.items():
            for number, cut in enumerate(case.get(kind, [])):
                words = f"{kind}-{number} {cut['call']}, {cut['aftermath']}: {cut['state']}"
                yield Cut(
                    f"{name} {words}", name, cut["tree"], cut["state"], before, after, command
                )


CUTS = tuple(cuts())
CASES = tuple(ARCHIVE.cases)


def checkpoint(root: Path) -> str:
    return f"{root}/checkpoint"


def typed(command: tuple[str, ...] | list[str], root: Path) -> list[str]:
    return [*(word.replace("{root}", str(root)) for word in command), "--yes", "--json"]


def codes(run: Driver, root: Path) -> tuple[int, list[str]]:
    """The exit code of verify and the codes of its errors."""
    done = run("checkpoint", "verify", checkpoint(root), "--json", cwd=root)
    found = [each["code"] for each in done.document["findings"] if each["severity"] == "error"]
    return done.code, found


def succeeded(done: Done) -> dict[str, Any]:
    assert done.code == 0, done.stderr
    return done.document


def history(run: Driver, root: Path) -> list[tuple[str, str, str]]:
    """Operations, newest first: id, kind, and whether it can be undone."""
    entries = succeeded(run("history", checkpoint(root), "--json", cwd=root))["entries"]
    return [(each["id"], each["kind"], each["undo"]) for each in entries]


def original(name: str, root: Path) -> Tree:
    return ARCHIVE.tree(ARCHIVE.cases[name]["original"], root)


def finished(name: str, root: Path) -> Tree:
    return ARCHIVE.tree(ARCHIVE.cases[name]["finished"], root)


def timeless(found: Tree) -> Tree:
    """Files without the time of a batch: a reset that is typed again writes its own time."""
    return {key: TIME.sub(b"", data) for key, data in found.items()}


def test_every_step_of_an_edit_is_among_the_cuts() -> None:
    """An archive that lost its interrupted trees would make all other tests pass."""
    states = {(cut.case, cut.state) for cut in CUTS}
    for case in ("stateless/rollback", "stateless/reset", "stateless/repair", "dedup/reset"):
        assert {
            (case, "nothing"),
            (case, "not begun"),
            (case, "half way"),
            (case, "done"),
        } <= states
    assert {("aggregation/rollback", "half back"), ("lineage/rollback", "half way")} <= states
    assert sum(cut.is_interrupted for cut in CUTS) > 100


@pytest.mark.parametrize("cut", [c for c in CUTS if c.is_interrupted], ids=lambda cut: cut.name)
def test_an_interrupted_edit_is_found_and_ends_either_way(
    run: Driver, place: Path, cut: Cut
) -> None:
    root = ARCHIVE.unpack(cut.tree, place / "back")
    before = files_of(root)
    assert codes(run, root) == (FOUND_PROBLEMS, [INTERRUPTED])
    other = _other(cut, place)
    refused = run(*typed(other, root), cwd=root)
    assert refused.code == DRIFTED, refused.stdout + refused.stderr
    assert "sluicegate undo" in refused.error["hint"]
    assert files_of(root) == before, "a refusal changed something"
    succeeded(run("undo", checkpoint(root), "--yes", "--json", cwd=root))
    assert files_of(root) == ARCHIVE.tree(cut.before, root)
    on = ARCHIVE.unpack(cut.tree, place / "on")
    succeeded(run("checkpoint", "repair", checkpoint(on), "--yes", "--json", cwd=on))
    end = cut.before if cut.state == "half back" else cut.after
    assert files_of(on) == ARCHIVE.tree(end, on)
    assert INTERRUPTED not in codes(run, on)[1]


def _other(cut: Cut, place: Path) -> tuple[str, ...]:
    """One of the commands that must not touch, or copy, what is changed half way."""
    others = (
        ("checkpoint", "rollback", "{root}/checkpoint", "--to", "3"),
        ("offsets", "reset", "{root}/checkpoint", "--to-offset", "3"),
        ("checkpoint", "rollback", "{root}/checkpoint", "--to-datetime", "2020-01-01T00:00:00Z"),
        ("checkpoint", "relocate", "{root}/checkpoint", f"{place}/copy"),
        ("checkpoint", "rollback", "{root}/checkpoint", "--to", "3", "--into", f"{place}/copy"),
    )
    return others[sum(cut.tree.encode()) % len(others)]


@pytest.mark.parametrize("cut", [c for c in CUTS if not c.is_interrupted], ids=lambda cut: cut.name)
def test_an_edit_that_did_not_begin_or_was_over_is_no_finding(
    run: Driver, place: Path, cut: Cut
) -> None:
    root = ARCHIVE.unpack(cut.tree, place / "root")
    assert INTERRUPTED not in codes(run, root)[1]
    over = cut.state.endswith(("done/done", "taken back")) or (
        cut.state == "done" and cut.before == ARCHIVE.cases[cut.case]["original"]
    )
    if cut.state == "taken back":
        assert files_of(root) == original(cut.case, root)
        return
    assert files_of(root) == ARCHIVE.tree(cut.after if over else cut.before, root)
    words = ("undo", "{root}/checkpoint") if over else cut.command
    if not cut.state.endswith("done/done"):
        succeeded(run(*typed(words, root), cwd=root))
        wanted = ARCHIVE.tree(cut.before if over else cut.after, root)
        assert timeless(files_of(root)) == timeless(wanted)


@pytest.mark.parametrize("name", CASES)
class TestWhole:
    def test_a_finished_edit_is_undone_byte_by_byte(
        self, run: Driver, place: Path, name: str
    ) -> None:
        case = ARCHIVE.cases[name]
        root = ARCHIVE.unpack(case["finished"], place / "root")
        assert codes(run, root)[1] == []
        kind = name.partition("/")[2]
        assert history(run, root) == [("op-1", kind, "yes")]
        succeeded(run("undo", checkpoint(root), "--yes", "--json", cwd=root))
        assert files_of(root) == original(name, root)
        assert files_of(root) != finished(name, root)
        assert history(run, root) == [
            ("op-2", "undo", "yes"),
            ("op-1", kind, "undone by op-2"),
        ]

    def test_an_undone_edit_is_done_again(self, run: Driver, place: Path, name: str) -> None:
        case = ARCHIVE.cases[name]
        kind = name.partition("/")[2]
        root = ARCHIVE.unpack(case["undone"], place / "root")
        assert files_of(root) == original(name, root)
        assert [entry[:2] for entry in history(run, root)] == [("op-2", "undo"), ("op-1", kind)]
        assert run("undo", checkpoint(root), "--yes", "--json", cwd=root).code == NOT_FOUND
        succeeded(run("undo", checkpoint(root), "--op", "op-2", "--yes", "--json", cwd=root))
        assert files_of(root) == finished(name, root)
        assert codes(run, root)[1] == []

    def test_an_edit_that_was_interrupted_and_undone_is_history(
        self, run: Driver, place: Path, name: str
    ) -> None:
        case = ARCHIVE.cases[name]
        if "taken back" not in case:
            pytest.skip("this edit was not interrupted")
        root = ARCHIVE.unpack(case["taken back"], place / "root")
        assert files_of(root) == original(name, root)
        ((operation, kind, undo),) = history(run, root)
        assert (operation, kind, undo[:2]) == ("op-1", name.partition("/")[2], "no")
        assert run("undo", checkpoint(root), "--yes", "--json", cwd=root).code == NOT_FOUND
        succeeded(run(*typed(case["command"], root), cwd=root))
        assert timeless(files_of(root)) == timeless(finished(name, root))
