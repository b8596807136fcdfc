"""Every scenario on every version of Spark: `python -m tests.lab.mended_table [VERSION …]`.

Writes docs/endings.md; fails if any query does not come out as it must.
"""

from __future__ import annotations

import json
import sys
import tempfile
from pathlib import Path

from tests.lab.endings import Ending, cases, copy_place, made, play_out
from tests.lab.environments import ROOT, VERSIONS
from tests.lab.mended import SCENARIOS, Mended, Untried, prepared
from tests.spark.damage import Inapplicable

PAGE = ROOT / "docs" / "endings.md"
KEPT = ROOT / "build" / "lab" / "endings-results.json"
HEAD = """# Mended queries

Real queries of each version of Spark are stopped, damaged and repaired, rolled back, reset, moved
or seeded anew, and then started again twice, each time in a new JVM and with more input: what a bad
repair leaves in the state may be loaded by the second start only. The output is compared with that
of a run that nobody interrupted. A cell tells on how many queries it was tried and came out as it
must; `-` means that this version has no such query, or that nothing can be done about the damage
but to restore a backup. `make lab` makes this page.

"""

Results = dict[str, dict[str, list[int]]]


def main(versions: list[str]) -> int:
    """Run everything, write the page, and give 1 if anything was not as expected."""
    results: Results = json.loads(KEPT.read_text()) if KEPT.exists() else {}
    wrong: list[str] = []
    for version in versions or VERSIONS:
        results[version] = _try_all(version, wrong)
        KEPT.write_text(json.dumps(results, indent=1))
    PAGE.write_text(HEAD + _table(results))
    print("\n".join(wrong))
    return 1 if wrong else 0


def _try_all(version: str, wrong: list[str]) -> dict[str, list[int]]:
    """Scenario → how many came out right, of how many."""
    lab = made(version)
    counts: dict[str, list[int]] = {}
    with tempfile.TemporaryDirectory(prefix="mended-") as scratch:
        tried: list[tuple[Mended, Ending]] = []
        for number, scenario in enumerate(SCENARIOS):
            if scenario.case not in cases(version):
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
            told = f"{len(outcome.missing)} missing, {len(outcome.extra)} extra, {outcome.errors}"
            wrong.append(f"{version}: {scenario.name}, {scenario.case}: {told}")
    return counts


def _table(results: Results) -> str:
    versions = [version for version in VERSIONS if version in results]
    lines = [
        "| what was done | how it comes out | " + " | ".join(f"Spark {v}" for v in versions) + " |",
        "|---" * (len(versions) + 2) + "|",
    ]
    for name in dict.fromkeys(f"{s.name} | {s.comes_out}" for s in SCENARIOS):
        counts = [results[version].get(name) for version in versions]
        if any(counts):
            cells = [f"{count[0]} of {count[1]}" if count else "-" for count in counts]
            lines.append(f"| {name} | " + " | ".join(cells) + " |")
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
