"""Stories of README and docs as scripts: commands, what they print, and how that is compared.

A block of `console` is a prompt for each command, with what it prints below. `…` on a line of its
own stands for any number of lines. `Proceed? [y/N] y` is typed. What differs from run to run is
made equal by `_VARYING`; how many blanks divide columns, and empty lines, do not matter.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import pexpect

from tests.docs.tour_world import ROOT, World, seconds

PAGES = ("README.md", *sorted(str(path.relative_to(ROOT)) for path in ROOT.glob("docs/**/*.md")))
PROMPT = "$ "
COLUMNS = 100
QUESTION = "Proceed? [y/N] "
SKIP = "…"
_COLOUR = re.compile(r"\x1b\[[0-9;?]*[a-zA-Z]")
_TIME = re.compile(r"\b\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ")
# Spark may be at work for other tests on this machine.
_OTHERS = re.compile(r"note: .*: it runs a streaming query, and nothing shows which")
_VARYING = (
    (re.compile(r"\b\d{8}T\d{6}Z-[0-9a-f]+"), "<run>"),
    (re.compile(r"\b[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}\b"), "<uuid>"),
    (re.compile(r"\b[0-9a-f]{16,}\b"), "<digest>"),
    (re.compile(r"\bpid \d+"), "pid <pid>"),
    (re.compile(r"\b\d+(?:\.\d+)? (?:d|h|min|ms|s)\b(?: \d+ (?:h|min|s)\b)?"), "<span>"),
    # Other versions of Spark keep other state files, of other sizes.
    (re.compile(r"\b\d+(?:\.\d+)? (?:B|KiB|MiB)\b"), "<size>"),
    (re.compile(r"\b\d+ files\b"), "<n> files"),
)


@dataclass(frozen=True, slots=True)
class Step:
    """A command, what the README says it prints, and the lines of the README where that stands."""

    command: str
    printed: tuple[str, ...]
    start: int
    end: int

    @property
    def replies(self) -> list[str]:
        """What the reader types, one for each question."""
        return [line.removeprefix(QUESTION) for line in self.printed if line.startswith(QUESTION)]


@dataclass(frozen=True, slots=True)
class Story:
    """A heading, and the commands below it in order."""

    heading: str
    steps: tuple[Step, ...]


def stories(lines: list[str]) -> list[Story]:
    """Every part of a page that has commands: from a heading to the next one of any level."""
    headings = [n for n in range(len(lines)) if lines[n].startswith(("# ", "## ", "### "))]
    # A comment in a block of code is no heading.
    headings = [n for n in headings if sum(x.startswith("```") for x in lines[:n]) % 2 == 0]
    spans = zip(headings, [*headings[1:], len(lines)], strict=True)
    found = [
        Story(lines[first].lstrip("# "), tuple(_steps(lines, first, last))) for first, last in spans
    ]
    return [story for story in found if story.steps]


def _steps(lines: list[str], first: int, last: int) -> Iterator[Step]:
    inside, at = False, first
    while at < last:
        line = lines[at]
        at += 1
        if line.startswith("```"):
            inside = line == "```console"
        if not inside or not line.startswith(PROMPT):
            continue
        command = line.removeprefix(PROMPT)
        while command.endswith("\\"):
            command = command.removesuffix("\\") + lines[at].strip()
            at += 1
        start = at
        while not lines[at].startswith((PROMPT, "```")):
            at += 1
        yield Step(command, tuple(lines[start:at]), start, at)


def run(world: World, step: Step) -> list[str]:
    """What a command prints on a terminal of this world, as the reader would see it."""
    kept = {k: v for k, v in os.environ.items() if not k.startswith("SG_") and k != "COLUMNS"}
    path = f"{Path(sys.executable).parent}:{kept['PATH']}"
    process = pexpect.spawn(
        "/bin/bash",
        ["-c", world.real(step.command)],
        cwd=str(world.work),
        env=kept | {"TERM": "xterm", "NO_COLOR": "1", "PATH": path, "LC_ALL": "C.UTF-8"},
        dimensions=(60, COLUMNS),
        timeout=180,
        encoding="utf-8",
    )
    process.delaybeforesend = None
    text = ""
    replies = iter(step.replies)
    while process.expect_exact([QUESTION, pexpect.EOF]) == 0:
        text += str(process.before) + QUESTION
        # Who is asked more than the README says answers nothing.
        process.sendline(next(replies, ""))
    text += str(process.before)
    process.close()
    plain = world.told(_COLOUR.sub("", text.replace("\r\n", "\n")))
    printed = [line.rstrip() for line in plain.split("\n") if not _OTHERS.match(line)]
    while printed and not printed[-1]:
        printed.pop()
    return printed


def agree(world: World, wanted: tuple[str, ...], printed: list[str]) -> bool:
    """Whether the README says what was printed, but for what differs from run to run."""
    pattern = "".join(
        r"(?:.*\n)*?" if line == SKIP else re.escape(_settled(world, line)) + r"\n"
        for line in wanted
        if line
    )
    text = "".join(f"{_settled(world, line)}\n" for line in printed if line)
    return re.fullmatch(pattern, text) is not None


def _settled(world: World, line: str) -> str:
    """A line without what differs from run to run: times since the story began, ids, sizes."""
    for pattern, name in _VARYING:
        line = pattern.sub(name, line)
    began = seconds(world.now)
    line = _TIME.sub(lambda at: at[0] if seconds(at[0]) < began else "<later>", line)
    return re.sub(r"\s+", " ", line).strip()


def rewritten(world: World, wanted: tuple[str, ...], printed: list[str]) -> list[str]:
    """What the README should say: its own lines where they hold, else what was printed.

    Where it leaves lines out, as many are kept before and after as it has.
    """
    if agree(world, wanted, printed):
        return list(wanted)
    if wanted.count(SKIP) != 1:
        return printed
    at = wanted.index(SKIP)
    tail = len(wanted) - at - 1
    return [*printed[:at], SKIP, *(printed[-tail:] if tail else [])]


def write(path: Path, changes: Mapping[tuple[int, int], list[str]]) -> None:
    """Put other lines into a file, in place of those between these numbers."""
    lines = path.read_text(encoding="utf-8").split("\n")
    for (start, end), new in sorted(changes.items(), reverse=True):
        lines[start:end] = new
    path.write_text("\n".join(lines), encoding="utf-8")
