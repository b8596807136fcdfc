"""README and docs are true: their commands are run, in order, and print what is said there.

After a change of what a command prints, `SG_TOUR=write pytest tests/docs/test_tour.py` writes what
is printed now into the pages; read the difference before it is committed.
"""

from __future__ import annotations

import os
import re
from pathlib import Path

import pytest

from sluicegate_cli import table
from tests.docs.tour import PAGES, Step, Story, agree, rewritten, run, stories, write
from tests.docs.tour_scenes import FOR_GOOD, NOT_PLAYED, SCENES, Scene
from tests.docs.tour_world import ROOT, World, world

WRITES = os.environ.get("SG_TOUR") == "write"


_LINK = re.compile(r"\]\((?!https?:)([^)#\s]*)(?:#([^)\s]+))?\)")


def read(page: str) -> list[Story]:
    return stories((ROOT / page).read_text(encoding="utf-8").split("\n"))


def play(world: World, scene: Scene, story: Story) -> list[tuple[Step, list[str]]]:
    """Every step of a story with what it printed here."""
    scene.made(world)
    played = []
    for step in story.steps:
        for beginning, happens in scene.before.items():
            if step.command.startswith(beginning):
                happens(world)
        played.append((step, run(world, step)))
    return played


@pytest.mark.parametrize("page", PAGES)
def test_every_story_has_a_scene(page: str) -> None:
    played = {story.heading for story in read(page)} - NOT_PLAYED.get(page, set())
    assert played == {heading for place, heading in SCENES if place == page}
    for story in read(page):
        assert all(table.is_known(step.command) for step in story.steps), story.heading
        if story.heading in NOT_PLAYED.get(page, ()):
            assert not any(step.printed for step in story.steps), story.heading


@pytest.mark.parametrize(("page", "heading"), SCENES)
def test_story(page: str, heading: str, lab: Path) -> None:
    scene = SCENES[page, heading]
    [story] = [story for story in read(page) if story.heading == heading]
    with world(scene.now, lab) as here:
        played = play(here, scene, story)
        if WRITES:
            changes = {(s.start, s.end): rewritten(here, s.printed, new) for s, new in played}
            write(ROOT / page, changes)
            return
        for step, printed in played:
            told = "\n".join(printed)
            assert agree(here, step.printed, printed), f"{step.command}\nprints:\n{told}"


@pytest.mark.parametrize(("page", "heading"), sorted(SCENES.keys() - FOR_GOOD))
def test_what_a_story_changes_is_undone(page: str, heading: str) -> None:
    [story] = [story for story in read(page) if story.heading == heading]
    commands = [step.command for step in story.steps]
    changes = [step for step in story.steps if "Done: " in "".join(step.printed)]
    assert not changes or any(command.startswith("sluicegate undo") for command in commands)


def test_links_lead_somewhere() -> None:
    for page in (*PAGES, "CONTRIBUTING.md", "ARCHITECTURE.md"):
        text = (ROOT / page).read_text(encoding="utf-8")
        for place, anchor in _LINK.findall(text):
            target = (ROOT / page).parent / place if place else ROOT / page
            assert target.exists(), f"{page}: {place}"
            if anchor:
                assert anchor in _anchors(target), f"{page}: {place}#{anchor}"


def _anchors(page: Path) -> set[str]:
    headings = re.findall(r"^#+ (.*)$", page.read_text(encoding="utf-8"), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", each).lower().replace(" ", "-") for each in headings}


def test_what_differs_is_noticed(tmp_path: Path) -> None:
    here = World(tmp_path, "2026-11-16T14:40:00Z", tmp_path)
    printed = ["batch 9, 12 s ago", "", "planned at 2026-11-16T13:51:07Z", "pid 17", "last"]
    for wanted in (
        ("batch 9, 3 h 2 min ago", "planned at  2026-11-16T13:51:07Z", "pid 4711", "last"),
        ("batch 9, 1 s ago", "…", "last"),
        ("…",),
    ):
        assert agree(here, wanted, printed)
        assert rewritten(here, wanted, printed) == list(wanted)
    other: tuple[str, ...]
    for other in (
        ("batch 8, 12 s ago", "…"),
        ("batch 9, 12 s ago", "planned at 2026-11-16T13:51:08Z", "…"),
        ("…", "pid 17"),
        ("last",),
        (),
    ):
        assert not agree(here, other, printed)
    assert rewritten(here, ("batch 8", "…", "last"), printed) == [printed[0], "…", "last"]
    assert agree(here, ("until 2026-11-17T14:40:09Z",), ["until 2026-11-17T14:40:02Z"])


def test_the_readers_machine(tmp_path: Path) -> None:
    here = World(tmp_path, "2026-11-16T14:40:00Z", tmp_path)
    line = "audit /data/orders --since 2026-11-16T14:00:00Z > out/data/x"
    real = here.real(line)
    assert f"audit {tmp_path}/data/orders --since " in real
    assert real.endswith("> out/data/x")
    assert here.told(real) == line
