"""Counts the journey of a command through the product: files entered, functions, switches.

    python bench/journey.py [--switches] checkpoint verify DIR
    python bench/journey.py --table [FILE]

A switch is a call into another file than the call before it. Counting begins when the command's own
`run` is called; constructors, comprehensions and lambdas do not count, nor what a module does while
it is imported, nor the files of `_EVERYWHERE`, which everything uses. `--switches` prints every
switch. `--table` measures some journeys on small targets of tests/formats and writes them to
docs/results/journeys.md.

Depends on `sluicegate_cli.shell.run` and the names of the package directories only, so that the
same tool measures the code before and after it was cut differently.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from types import FrameType

ROOT = Path(__file__).resolve().parents[1]
PAGE = ROOT / "docs" / "results" / "journeys.md"
_PACKAGES = (("/sluicegate_cli/", "cli:"), ("/sluicegate/", ""))
_COMMANDS = "cli:commands/"
_NO_FUNCTIONS = {"<module>", "<lambda>", "<genexpr>", "<listcomp>", "<dictcomp>", "__init__"}
_EVERYWHERE = {"errors.py", "units.py"}


@dataclass(frozen=True, slots=True)
class Journey:
    """What a command did: its exit code, the files in the order they were entered, the rest."""

    code: int
    files: list[str]
    functions: int
    switches: list[tuple[str, str]]

    def __str__(self) -> str:
        return (
            f"exit {self.code}: {len(self.files)} files, {self.functions} functions, "
            f"{len(self.switches)} switches"
        )


@dataclass(slots=True)
class Tracer:
    """Python's profile function, which sees every call of the main thread."""

    began: bool = False
    importing: int = 0
    file: str | None = None
    functions: set[tuple[str, str]] = field(default_factory=set)
    switches: list[tuple[str, str]] = field(default_factory=list)

    def __call__(self, frame: FrameType, event: str, _argument: object) -> None:
        name = frame.f_code.co_name
        if name == "<module>":
            self.importing += {"call": 1, "return": -1}.get(event, 0)
        if event != "call" or self.importing:
            return
        file = _file_of(frame.f_code.co_filename)
        if file is None:
            return
        self.began = self.began or (file.startswith(_COMMANDS) and name == "run")
        # What begins with a capital letter is the body of a class.
        if not self.began or name in _NO_FUNCTIONS or name[0].isupper():
            return
        if file not in _EVERYWHERE:
            self.functions.add((file, name))
        if file != self.file:
            self.file = file
            self.switches.append((file, name))

    def journey(self, code: int) -> Journey:
        """What was seen, once the command has ended with this code."""
        switches = [each for each in self.switches if each[0] not in _EVERYWHERE]
        files = list(dict.fromkeys(file for file, _ in switches))
        return Journey(code, files, len(self.functions), switches)


def _file_of(path: str) -> str | None:
    """A file of the product by its place in its package; None for all others."""
    for mark, prefix in _PACKAGES:
        if mark in path:
            return prefix + path.rpartition(mark)[2]
    return None


def travel(words: Sequence[str]) -> Journey:
    """Run a command in this process and watch it."""
    from sluicegate_cli.shell import run

    tracer = Tracer()
    sys.setprofile(tracer)
    try:
        code = run(["sluicegate", *words])
    finally:
        sys.setprofile(None)
    return tracer.journey(code)


@dataclass(frozen=True, slots=True)
class Measured:
    """A journey of the table: a tree of tests/formats or tests/net, and the command in it."""

    title: str
    archive: str
    tree: str
    words: tuple[str, ...]


_WHEN = "2026-03-01T10:20:00Z"
_SKIPPING = ("--topic", "log", "--to-datetime", _WHEN, "--skip-seen", "--yes")
_STORE = ("--consumer", "invoices", "--to-datetime", "2025-11-18T05:00:00Z", "--yes")
MEASURED = (
    Measured("a", "checkpoints", "stateless", ("checkpoint", "verify", "checkpoint")),
    Measured(
        "b", "checkpoints", "stateless/damaged", ("checkpoint", "repair", "checkpoint", "--yes")
    ),
    Measured("c", "net", "streams/home", ("offsets", "reset", "clicks", *_SKIPPING)),
    Measured("d", "installation", "installation", ("offsets", "reset", "billing", *_STORE)),
    # One target of each kind; `--all` would take targets that are missing.
    Measured("f", "net", "streams/home", ("maintain", "clicks", "billing", "orders")),
)


def measure(wanted: Measured) -> Journey:
    """A journey on a fresh copy of its target, in a process that sees no other processes.

    A command that changes a checkpoint looks at all of them, and its journey would grow with them.
    """
    sys.path.insert(0, str(ROOT))
    from tests.drive import apart_from_others
    from tests.formats.archive import opened
    from tests.net import corpus

    with tempfile.TemporaryDirectory() as place:
        if wanted.archive == "net":
            # Its members are made for a path of this length.
            padding = "x" * (len(corpus.PLACE) - len(place) - 1)
            root = corpus.place(wanted.tree, Path(place).resolve() / padding)
        else:
            root = opened(wanted.archive).unpack(wanted.tree, Path(place).resolve() / "target")
        counts = Path(place, "counts")
        subprocess.run(
            [*apart_from_others(), sys.executable, __file__, "--counts", counts, *wanted.words],
            cwd=root,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            check=True,
        )
        found = json.loads(counts.read_text())
    return Journey(**found)


def page(found: Sequence[tuple[Measured, Journey]]) -> str:
    """The journeys as a page."""
    rows = [
        f"| {each.title} `{' '.join(each.words)}` | {len(journey.files)} | {journey.functions} | "
        f"{len(journey.switches):,} |"
        for each, journey in found
    ]
    return "\n".join(
        [
            "# Journeys",
            "",
            "How far a command travels through the product: files entered, functions called, and",
            "switches from one file to another. Measured by `make journeys` (`bench/journey.py`)",
            "on the small targets of `tests/formats`. Fewer files is better: a reader has to open",
            "them to follow the command.",
            "",
            "| journey | files | functions | switches |",
            "|---|---|---|---|",
            *rows,
            "",
        ]
    )


def write_table(place: Path) -> int:
    """Measure all journeys and write the page; 1 if a command failed."""
    found = [(each, measure(each)) for each in MEASURED]
    for each, journey in found:
        print(f"{each.title}: {journey}")
    if any(journey.code for _, journey in found):
        return 1
    place.parent.mkdir(parents=True, exist_ok=True)
    place.write_text(page(found))
    return 0


def main(words: list[str]) -> int:
    """Count one journey, or make the table."""
    match words:
        case ["--table", *places]:
            return write_table(Path(places[0]) if places else PAGE)
        case ["--counts", place, *rest]:
            Path(place).write_text(json.dumps(asdict(travel(rest))))
            return 0
        case ["--switches", *rest]:
            journey = travel(rest)
            lines = [f"    {file} {name}" for file, name in journey.switches]
            print("\n".join([*lines, str(journey)]), file=sys.stderr)
        case _:
            journey = travel(words)
            print(journey, " > ".join(journey.files), sep="\n", file=sys.stderr)
    return journey.code


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
