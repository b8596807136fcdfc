"""Runs cases, compares them with their records, and tells the differences."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from tests.net import records, tokens
from tests.net.case import Case
from tests.net.differences import CaseDifference, compare
from tests.net.running import run

TEXT_FAILS = True
"""Whether a difference in words alone fails the test. Relax it while messages are re-worded."""


@dataclass(frozen=True, slots=True)
class Report:
    """The differences of so many cases."""

    cases: int
    found: tuple[CaseDifference, ...]

    @property
    def fails(self) -> bool:
        """Whether there is a difference that counts."""
        return any(TEXT_FAILS or not each.is_text for each in self.found)

    def lines(self, most: int = 20) -> Iterator[str]:
        """For people: the counts, then the cases, those of substance first."""
        text = sum(each.is_text for each in self.found)
        substance = len(self.found) - text
        yield (
            f"{len(self.found)} of {self.cases} cases differ from their records: "
            f"{substance} in substance, {text} in text only"
        )
        ordered = sorted(self.found, key=lambda each: each.is_text)
        for each in ordered[:most]:
            yield from each.lines()
        if len(ordered) > most:
            areas = Counter(each.name.partition("/")[0] for each in ordered[most:])
            rest = ", ".join(f"{area} {count}" for area, count in sorted(areas.items()))
            yield f"… and {len(ordered) - most} more: {rest}"
        if self.found:
            yield "All of them: python -m tests.net.compare --only PATTERN"
            yield "If so it should be: name it in tests/net/ACCEPTED.md, then record it again with"
            yield "python -m tests.net.record --only PATTERN"


def differences(
    cases: Sequence[Case],
    *,
    jobs: int | None = None,
    ahead: float = 0.0,
    below: Path | None = None,
) -> Report:
    """Run cases and compare them with their records."""
    stable = records.stable()
    known = {
        name: record
        for area in sorted({case.area for case in cases})
        for name, record in records.load(area).items()
    }
    results = run(cases, jobs=jobs, ahead=ahead, below=below)
    compared = (
        compare(known.get(case.name), tokens.settled(results[case.name], stable)) for case in cases
    )
    return Report(len(cases), tuple(each for each in compared if each))
