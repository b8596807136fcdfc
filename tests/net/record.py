"""Records what the commands do now, as what they have to do from now on.

    python -m tests.net.record [--only PATTERN] [--missing] [--jobs N] [--disk]

Every case runs twice: here and now, and then in another directory, with the clock days ahead and,
where this may be arranged, on a host of another name. `--disk` lets the second run be on disk,
which takes longer: there, directories list their files in another order. `--missing` records only
what has no record yet. A case that does not come out the same is not recorded: something volatile
in it is not masked.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from tests.net import records, tokens
from tests.net.cases import all_cases
from tests.net.compare import chosen
from tests.net.differences import CaseDifference, compare
from tests.net.report import Report
from tests.net.running import ROOT, run

_AHEAD = 400_000.0
_OTHER_HOST = "elsewhere"


def main() -> int:
    """Record the chosen cases; 1 if some of them are volatile."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", metavar="PATTERN")
    parser.add_argument("--jobs", type=int)
    parser.add_argument("--disk", action="store_true")
    parser.add_argument("--missing", action="store_true")
    asked = parser.parse_args()
    cases = chosen(asked.only, all_cases())
    if asked.missing:
        known = {name for area in records.areas() for name in records.load(area)}
        cases = [case for case in cases if case.name not in known]
    if not cases:
        parser.error("there is no such case")
    commit = recorded_commit()
    stable = set(records.stable())
    results: dict[str, Any] = {}
    volatile: list[CaseDifference] = []
    for area in sorted({case.area for case in cases}):
        mine = [case for case in cases if case.area == area]
        first = run(mine, jobs=asked.jobs)
        with tempfile.TemporaryDirectory(prefix="n", dir=_other_directory(asked.disk)) as other:
            second = run(mine, jobs=asked.jobs, ahead=_AHEAD, below=Path(other), host=_OTHER_HOST)
        common = _seen(first.values()) & _seen(second.values())
        stable |= common
        for case in mine:
            one, two = (tokens.settled(each[case.name], stable) for each in (first, second))
            if found := compare(one, two):
                volatile.append(found)
            else:
                results[case.name] = first[case.name]
        print(f"{area}: {len(mine)} cases, {len(common)} stable ids", flush=True)
    records.save_stable(stable)
    _save(results, stable, commit)
    print("\n".join(Report(len(cases), tuple(volatile)).lines()) if volatile else "all recorded")
    return 1 if volatile else 0


def recorded_commit() -> str:
    """The newest commit that changed the product; marked if there are changes since."""
    newest = _git("log", "-1", "--format=%h", "--", "core", "cli")
    return f"{newest} and changes" if _git("status", "--porcelain", "core", "cli") else newest


def _save(results: Mapping[str, Any], stable: set[str], commit: str) -> None:
    """Write every area that has a new record; records of cases that are gone go, too."""
    cases = {case.name for case in all_cases()}
    for area in sorted({name.partition("/")[0] for name in results}):
        kept = {name: record for name, record in records.load(area).items() if name in cases}
        for name, result in results.items():
            if name.partition("/")[0] == area:
                kept[name] = tokens.settled(result, stable) | {"commit": commit}
        size = records.save(area, kept.values())
        print(f"{area}: {len(kept)} records, {size / 1024:.0f} KiB", flush=True)


def _seen(results: Iterable[Mapping[str, Any]]) -> set[str]:
    return set().union(*(tokens.seen(dict(result)) for result in results))


def _other_directory(on_disk: bool) -> str | None:
    """Where the second run is: in memory like the first, which is fast, or on disk."""
    memory = Path("/dev/shm")
    return "/var/tmp" if on_disk else str(memory) if os.access(memory, os.W_OK) else None


def _git(*words: str) -> str:
    done = subprocess.run(["git", *words], cwd=ROOT, capture_output=True, text=True, check=True)
    return done.stdout.strip()


if __name__ == "__main__":
    sys.exit(main())
