"""Measuring two things side by side: ours and its peer, in turns, in one run."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

Work = Callable[[], object]


@dataclass(frozen=True, slots=True)
class Bar:
    """What the ratio of ours to the peer should be: of times `at most`, of rates `at least`."""

    kind: Literal["time at most", "rate at least"]
    limit: float

    def ratio(self, ours: float, peer: float) -> float:
        return ours / peer if self.kind == "time at most" else peer / ours

    def met(self, ratio: float) -> bool:
        return ratio <= self.limit if self.kind == "time at most" else ratio >= self.limit

    def __str__(self) -> str:
        return f"{'≤' if self.kind == 'time at most' else '≥'} {self.limit:.3g}"


@dataclass(frozen=True, slots=True)
class Row:
    """One measured comparison; times are medians in seconds, memory is a peak in bytes."""

    name: str
    ours: float
    peer: float
    ratio: float
    bar: str
    ok: bool
    unit: Literal["seconds", "bytes"] = "seconds"


def compare(name: str, ours: Work, peer: Work, bar: Bar, rounds: int = 21) -> Row:
    """Run both in turns, after one warm-up each, and compare the medians."""
    mine, theirs = [], []
    ours(), peer()
    for _ in range(rounds):
        mine.append(_seconds(ours))
        theirs.append(_seconds(peer))
    my_time, their_time = statistics.median(mine), statistics.median(theirs)
    ratio = bar.ratio(my_time, their_time)
    return Row(name, my_time, their_time, ratio, str(bar), bar.met(ratio))


def _seconds(work: Work) -> float:
    started = time.perf_counter()
    work()
    return time.perf_counter() - started
