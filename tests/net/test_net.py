"""Every command does on the fixed corpus what it did when it was recorded.

The suite runs a spread-out sample; `python -m tests.net.compare` runs all cases.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from itertools import groupby
from pathlib import Path

import pytest

from tests.net import corpus, records
from tests.net.case import Case, command_of
from tests.net.cases import all_cases, sample
from tests.net.differences import compare
from tests.net.report import differences

CHUNK = 700
"""Command lines in one test, so that several workers can share the net."""
_COMMAND = re.compile(r"^  (\S+)  +\S", re.MULTILINE)


def _chunks() -> Iterator[tuple[str, list[Case]]]:
    for area, found in groupby(sample(), key=lambda case: case.area):
        chunk: list[Case] = []
        number, steps = 1, 0
        for case in found:
            if chunk and steps + len(case.steps) > CHUNK:
                yield f"{area}-{number}", chunk
                chunk, number, steps = [], number + 1, 0
            chunk.append(case)
            steps += len(case.steps)
        yield f"{area}-{number}", chunk


_CHUNKS = dict(_chunks())


@pytest.mark.parametrize("chunk", _CHUNKS)
def test_commands_do_what_was_recorded(chunk: str) -> None:
    jobs = 1 if "PYTEST_XDIST_WORKER" in os.environ else None
    report = differences(_CHUNKS[chunk], jobs=jobs)
    if report.fails:
        pytest.fail("\n".join(report.lines()), pytrace=False)


def test_every_case_is_recorded_and_nothing_else() -> None:
    recorded = {name for area in records.areas() for name in records.load(area)}
    cases = {case.name for case in all_cases()}
    assert cases == recorded, "record what is new: python -m tests.net.record --only PATTERN"


def test_every_command_has_a_case_in_the_sample() -> None:
    commands = list(_commands())
    assert len(commands) > 30
    run = Counter(command_of(step.words, commands) for case in sample() for step in case.steps)
    assert [command for command in commands if not run[command]] == []


def test_every_member_has_a_case() -> None:
    used = {member for case in all_cases() for member in case.members}
    idle = {"files/made_by"}
    assert sorted({*corpus.members()} - used - idle) == []
    sampled = {_kind(member) for case in sample() for member in case.members}
    assert sorted({_kind(member) for member in used} - sampled) == []


def _kind(member: str) -> str:
    """What a member is, whatever version of Spark made it and whichever query was damaged."""
    return member.rpartition("!")[2] if "!" in member else member.rpartition("/")[2]


@pytest.mark.parametrize(
    ("path", "new", "shown"),
    [
        (("exit",), 3, "exit: 0 → 3"),
        (("out", "targets", 0, "kind"), "stream", 'targets[0].kind: "offset-store" → "stream"'),
        (("tree", "added"), ["x f644 00"], "tree: + x (added)"),
    ],
)
def test_a_difference_is_shown(path: tuple[str | int, ...], new: object, shown: str) -> None:
    record = records.load("stores")["stores/healthy: reading"]
    changed = _changed(record["steps"][0], path, new)
    found = compare(record, record | {"steps": [changed, *record["steps"][1:]]})
    assert found
    assert shown in "\n".join(found.lines())
    assert not found.is_text


def test_a_difference_in_words_is_known_to_be_one() -> None:
    record = records.load("stores")["stores/healthy: reading"]
    changed = _changed(record["steps"][0], ("out", "targets", 0, "why"), "it was found to be one")
    found = compare(record, record | {"steps": [changed, *record["steps"][1:]]})
    assert found
    assert found.is_text


def _changed(value: object, path: tuple[str | int, ...], new: object) -> object:
    """A copy of a value with another one at a path."""
    if not path:
        return new
    step, *rest = path
    if isinstance(value, list):
        assert isinstance(step, int)
        return [*value[:step], _changed(value[step], tuple(rest), new), *value[step + 1 :]]
    assert isinstance(value, dict)
    return value | {step: _changed(value.get(step), tuple(rest), new)}


def _commands(group: tuple[str, ...] = ()) -> Iterator[str]:
    """Every command, as the help pages list them."""
    script = Path(sys.executable).with_name("sluicegate")
    words = [str(script), *group, "--help"]
    page = subprocess.run(words, capture_output=True, text=True, check=True).stdout
    for name in _COMMAND.findall(page.partition("Commands:")[2].partition("\n\n")[0]):
        found = (*group, name)
        if not group and _is_group(script, name):
            yield from _commands(found)
        else:
            yield " ".join(found)


def _is_group(script: Path, name: str) -> bool:
    page = subprocess.run([str(script), name, "--help"], capture_output=True, text=True, check=True)
    return "Commands:" in page.stdout
