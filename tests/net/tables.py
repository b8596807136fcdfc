"""The command lines of the cases, from the text files in tests/net/commands.

A file has sections that begin with `== name`. A line is a command line without `sluicegate` and
`--json`; indented lines below it are later steps on the same copy. ` < TEXT` at the end is standard
input, in which `\\n` ends a line. `$ ` before a line leaves `--json` out, for what is printed as
data. `@{N:a.b}` is a field of the document that step N has printed.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path

from tests.net.case import Case, Step

HERE = Path(__file__).parent / "commands"

Steps = tuple[Step, ...]


@cache
def sections(name: str) -> Mapping[str, tuple[Steps, ...]]:
    """The sections of a file: for each of their lines, the steps that belong together."""
    found: dict[str, list[list[Step]]] = {}
    section: list[list[Step]] = []
    for line in (HERE / f"{name}.txt").read_text().splitlines():
        if line.startswith("== "):
            section = found.setdefault(line.removeprefix("== "), [])
        elif line.startswith(" "):
            section[-1].append(step(line.strip()))
        elif line:
            section.append([step(line)])
    return {title: tuple(tuple(steps) for steps in rows) for title, rows in found.items()}


def step(line: str) -> Step:
    """A step from its line."""
    command, _, given = line.partition(" < ")
    words = shlex.split(command.removeprefix("$ "))
    return Step(tuple(words), given.replace("\\n", "\n"), command.startswith("$ "))


def together(rows: tuple[Steps, ...]) -> Steps:
    """All rows of a section on one copy: for commands that change nothing."""
    return tuple(each for steps in rows for each in steps)


def one_each(title: str, member: str, rows: tuple[Steps, ...], **fill: str) -> Iterator[Case]:
    """A case for each row of a section; `fill` puts words in place of `{name}`."""
    count: dict[str, int] = {}
    for steps in rows:
        filled = with_words(steps, **fill)
        name = f"{title}: {' '.join(filled[0].words)}"
        count[name] = count.get(name, 0) + 1
        again = f" #{count[name]}" if count[name] > 1 else ""
        yield Case(f"{name}{again}", (member,), filled)


def with_words(steps: Steps, **fill: str) -> Steps:
    """Steps with words in place of `{name}`; a word that is nothing but an empty one goes."""
    return tuple(
        Step(
            tuple(word for old in each.words for word in _filled(old, fill)),
            each.stdin,
            each.plain,
        )
        for each in steps
    )


def _filled(word: str, fill: Mapping[str, str]) -> Iterator[str]:
    # `{sink}` stands for two words, or for none.
    if word[1:-1] in fill and word == f"{{{word[1:-1]}}}":
        yield from fill[word[1:-1]].split()
        return
    for name, text in fill.items():
        word = word.replace(f"{{{name}}}", text)
    yield word
