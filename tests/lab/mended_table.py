"""Every scenario on every version of Spark: `python -m tests.lab.mended_table [VERSION …]`.

Writes docs/results/endings.md; fails if any query does not end as expected. `--only NAME …` tries
the scenarios of these names and keeps the results of the others.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from pathlib import Path

from tests.checkpoint.damage import Inapplicable
from tests.lab.endings import Ending, cases, copy_place, made, play_out
from tests.lab.environments import ROOT, VERSIONS
from tests.lab.mended import SCENARIOS, Mended, Untried, prepared
from tests.lab.submitted import GOES_ON, SUBMIT, submit_twice

PAGE = ROOT / "docs" / "results" / "endings.md"
KEPT = ROOT / "build" / "lab" / "endings-results.json"
HEAD = """# Repaired queries

The lab stops real queries of each version of Spark, damages their checkpoints, and then repairs,
rolls back, resets, relocates or seeds them. It starts each query again twice, each time in a new
JVM and with more input, because some damage in the state is loaded only by the second start. It
compares the output with that of a run without interruption. A cell shows on how many queries this
was tried, and how many ended as expected; `-` means that this version has no such query, or that
only a backup helps against the damage. `make lab PART=repairs` makes this page.

"""

_SHOWN = 300
Results = dict[str, dict[str, list[int]]]


def main(versions: list[str], only: list[str]) -> int:
    """Run everything, write the page, and give 1 if anything was not as expected."""
    results: Results = json.loads(KEPT.read_text()) if KEPT.exists() else {}
    wrong: list[str] = []
    for version in versions or VERSIONS:
        known = results.get(version, {}) if only else {}
        results[version] = known | _try_all(version, only, wrong)
        KEPT.write_text(json.dumps(results, indent=1))
    PAGE.write_text(HEAD + _table(results))
    print("\n".join(wrong))
    return 1 if wrong else 0


def _try_all(version: str, only: list[str], wrong: list[str]) -> dict[str, list[int]]:
    """Scenario → how many came out right, of how many."""
    counts = _submit(version, wrong) if not only or SUBMIT in only else {}
    lab = made(version)
    with tempfile.TemporaryDirectory(prefix="mended-") as scratch:
        tried: list[tuple[Mended, Ending]] = []
        for number, scenario in enumerate(SCENARIOS):
            if scenario.case not in cases(version) or (only and scenario.name not in only):
                continue
            place = copy_place(lab / scenario.case, Path(scratch) / str(number) / scenario.case)
            try:
                tried.append((scenario, prepared(scenario, place)))
            except (Untried, Inapplicable):
                continue
        outcomes = play_out(version, [ending for _, ending in tried])
    for (scenario, _), outcome in zip(tried, outcomes, strict=True):
        count = counts.setdefault(f"{scenario.name} | {scenario.comes_out}", [0, 0])
        count[0] += scenario.holds(outcome)
        count[1] += 1
        if not scenario.holds(outcome):
            causes = [error[:_SHOWN] for error in outcome.errors]
            told = f"{len(outcome.missing)} missing, {len(outcome.extra)} extra, {causes}"
            wrong.append(f"{version}: {scenario.name}, {scenario.case}: {told}")
    return counts


def _submit(version: str, wrong: list[str]) -> dict[str, list[int]]:
    """The same for an application that keeps its positions in an offset store."""
    with tempfile.TemporaryDirectory(prefix="submitted-") as scratch:
        faults = submit_twice(version, Path(scratch))
    wrong += [f"{version}: {SUBMIT}: {fault}" for fault in faults]
    return {f"{SUBMIT} | {GOES_ON}": [0 if faults else 1, 1]}


def _table(results: Results) -> str:
    versions = [version for version in VERSIONS if version in results]
    lines = [
        "| what was done | how it comes out | " + " | ".join(f"Spark {v}" for v in versions) + " |",
        "|---" * (len(versions) + 2) + "|",
    ]
    names = [*(f"{s.name} | {s.comes_out}" for s in SCENARIOS), f"{SUBMIT} | {GOES_ON}"]
    for name in dict.fromkeys(names):
        counts = [results[version].get(name) for version in versions]
        if any(counts):
            cells = [f"{count[0]} of {count[1]}" if count else "-" for count in counts]
            lines.append(f"| {name} | " + " | ".join(cells) + " |")
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("versions", nargs="*")
    parser.add_argument("--only", metavar="NAME", nargs="+", default=[])
    given = parser.parse_args()
    sys.exit(main(given.versions, given.only))
