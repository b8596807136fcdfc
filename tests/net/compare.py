"""Shows what the commands do now that they did not do when they were recorded.

    python -m tests.net.compare [--only PATTERN] [--sample] [--all] [--ahead SECONDS] [--jobs N]

PATTERN is a part of a case's name, or a glob with `*`. `--sample` runs what the test suite runs,
`--all` shows every difference instead of the first 20. Exit code 1 if anything differs.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Sequence
from fnmatch import fnmatchcase
from pathlib import Path

from tests.net.case import Case
from tests.net.cases import all_cases, sample
from tests.net.report import differences


def chosen(pattern: str | None, cases: Sequence[Case]) -> list[Case]:
    """The cases whose name has the pattern in it."""
    if not pattern:
        return list(cases)
    glob = pattern if "*" in pattern else f"*{pattern}*"
    return [case for case in cases if fnmatchcase(case.name, glob)]


def main() -> int:
    """Compare, and tell the differences."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", metavar="PATTERN")
    parser.add_argument("--sample", action="store_true")
    parser.add_argument("--all", action="store_true")
    parser.add_argument("--ahead", type=float, default=0.0)
    parser.add_argument("--below", type=Path)
    parser.add_argument("--jobs", type=int)
    asked = parser.parse_args()
    cases = chosen(asked.only, sample() if asked.sample else all_cases())
    if not cases:
        parser.error(f"no case has {asked.only!r} in its name")
    began = time.monotonic()
    report = differences(cases, jobs=asked.jobs, ahead=asked.ahead, below=asked.below)
    for line in report.lines(most=len(cases) if asked.all else 20):
        print(line)
    steps = sum(len(case.steps) for case in cases)
    took = time.monotonic() - began
    print(f"{len(cases)} cases, {steps} command lines, {took:.0f} s", file=sys.stderr)
    return 1 if report.found else 0


if __name__ == "__main__":
    sys.exit(main())
