"""The lines of the product that the tests reach: `python -m tests.coverage [--record]`.

Runs all tests, in their own processes and in those they start (only what is killed leaves nothing),
and compares the share of lines with the one recorded in docs/results/coverage.md: it may not fall.
"""

from __future__ import annotations

import argparse
import json
import re
import subprocess
import sys
import tempfile
from collections import defaultdict
from pathlib import Path

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs" / "results" / "coverage.md"
# Which lines a test of kills and races reaches is a matter of luck, but only to this extent.
TOLERANCE = 0.2
HEAD = """# Line coverage

The lines of `core/` and `cli/` that `make test` reaches, also in processes that the tests start.
`make coverage` measures it and fails if the share of `core/` falls; `python -m tests.coverage
--record` writes this page.

"""
_CONFIG = """
[run]
source_pkgs = sluicegate, sluicegate_cli
parallel = true
sigterm = true
patch = subprocess, _exit
concurrency = thread, multiprocessing
data_file = {place}/data
disable_warnings = no-data-collected, module-not-imported, module-not-measured
"""

# What the measuring itself would change: imported modules, the handler of SIGTERM.
_NOT_MEASURED = (
    "tests/cli/test_startup.py::test_version_imports_next_to_nothing",
    "tests/test_suite.py::test_signals_that_were_ignored_work_again",
)
_SOME_FAILED = 1


def measure(pytest: list[str]) -> dict[str, tuple[int, int]]:
    """Run the tests; return the lines reached and the lines there are, by package."""
    with tempfile.TemporaryDirectory(prefix="coverage-") as place:
        config = Path(place, "config")
        config.write_text(_CONFIG.format(place=place))
        tool = [sys.executable, "-m", "coverage"]
        rc = ["--rcfile", str(config)]
        left_out = [word for test in _NOT_MEASURED for word in ("--deselect", test)]
        words = [*tool, "run", *rc, "-m", "pytest", *left_out, *pytest]
        if subprocess.run(words, cwd=ROOT, check=False).returncode == _SOME_FAILED:
            print("tests failed: what they did not reach is missing here")
        subprocess.run([*tool, "combine", "--quiet", *rc], cwd=ROOT, check=True)
        report = Path(place, "report.json")
        subprocess.run([*tool, "json", "--quiet", *rc, "-o", str(report)], cwd=ROOT, check=True)
        files = json.loads(report.read_text())["files"]
    lines: dict[str, tuple[int, int]] = defaultdict(lambda: (0, 0))
    for name, found in files.items():
        summary, package = found["summary"], _package(name)
        reached, there = lines[package]
        lines[package] = (
            reached + summary["covered_lines"],
            there + summary["num_statements"],
        )
    return dict(lines)


def _package(name: str) -> str:
    """Return the package of a file, two levels deep: `core/sluicegate/spark`."""
    return "/".join(Path(name).parent.parts[:3])


def share(lines: dict[str, tuple[int, int]], top: str) -> float:
    """Return how many percent of the lines below a directory are reached."""
    own = [counts for package, counts in lines.items() if package.startswith(top)]
    return 100 * sum(reached for reached, _ in own) / sum(there for _, there in own)


def write(lines: dict[str, tuple[int, int]]) -> None:
    """Write the page."""
    rows = [f"| {top} | {share(lines, top):.1f} |" for top in ("core", "cli", *sorted(lines))]
    PAGE.parent.mkdir(parents=True, exist_ok=True)
    PAGE.write_text(HEAD + "\n".join(["| package | % |", "|---|--:|", *rows]) + "\n")


def recorded() -> float:
    """Return the share of `core/` that was recorded; 0 if none was."""
    if not PAGE.is_file():
        return 0.0
    found = re.search(r"^\| core \| ([0-9.]+) \|$", PAGE.read_text(), re.MULTILINE)
    assert found, f"{PAGE} has no line for core"
    return float(found[1])


def main(arguments: list[str]) -> int:
    """Measure, and record or compare."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--record", action="store_true")
    asked, more = parser.parse_known_args(arguments)
    lines = measure(more or ["--quiet", "--numprocesses", "auto", "--dist", "worksteal"])
    print(f"core {share(lines, 'core'):.1f} %, cli {share(lines, 'cli'):.1f} %")
    if asked.record:
        write(lines)
        return 0
    before = recorded()
    if share(lines, "core") < before - TOLERANCE:
        print(f"core was {before} %: tests are missing")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
