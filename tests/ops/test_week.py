"""A simulated week: whatever is committed, disk use and snapshots stay bounded and nothing is lost.

`SG_LAB=all` runs 10,000 epochs, one a minute, and maintenance every 15 minutes; else everything is
slower, and it is some days.
"""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

from sluicegate.config import Maintain
from sluicegate.stream.stream import Stream
from tests.ops.week import Clock, Week, temporary
from tests.stream.streams import check, in_memory

ALL = os.environ.get("SG_LAB") == "all"
HOUR, DAY = 3600.0, 86400.0
# Epochs, seconds from one to the next, and from one maintenance to the next; what is kept.
SHAPE = (10_000, 7 * DAY / 10_000, HOUR / 4, DAY, 100)
SMALL = (300, HOUR / 3, 5 * HOUR, 20 * HOUR, 30)


def test_a_week(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    clock = Clock(time.time())
    monkeypatch.setattr(time, "time", clock)
    epochs, spacing, cron, keep, keep_snapshots = SHAPE if ALL else SMALL
    policy = Maintain(keep=keep, keep_snapshots=keep_snapshots)
    with in_memory() as root:
        week = Week(root / "home", clock, policy, epochs, spacing, cron)
        stream = week.run()
        if ALL:
            with capsys.disabled():
                print(report(week))
        check(stream)
        assert {p.name for p in (root / "sink" / "data").iterdir()} == week.published()
        bounded(week, keep)
        tidy(root, stream)


def bounded(week: Week, keep: float) -> None:
    """Once there is something to prune, no more is left than the policy keeps."""
    # A tenth is left for the next time; jobs and operators add snapshots of their own.
    most = 1.1 * (keep / week.spacing) * 1.15 + week.policy.keep_snapshots
    settled = [size for size in week.sizes if size.snapshots > 0][len(week.sizes) // 3 :]
    assert max(size.snapshots for size in settled) <= most
    early, late = settled[: len(settled) // 2], settled[len(settled) // 2 :]
    assert max(size.bytes for size in late) <= 1.25 * max(size.bytes for size in early)
    assert max(size.blobs for size in late) <= 1.25 * max(size.blobs for size in early)
    assert max(size.snapshot_bytes for size in week.sizes) < 8192
    for step in ("compact dedup log", "compact state", "prune", "collect"):
        assert week.outcomes[step, "done"], f"{step} was never needed"


def tidy(root: Path, stream: Stream) -> None:
    """Files that jobs left more than a day ago are removed: reverted for good, or unfinished.

    Reverted output stays only as long as a kept snapshot can restore it.
    """
    place = root / "home" / "clicks"
    head = stream.chain.head()
    kept = [stream.chain.read(number) for number in range(head.floor, head.number + 1)]
    for path in (root / "sink" / "_sluicegate" / "trash").rglob("snapshot=*"):
        number = int(path.name.removeprefix("snapshot=").split("-")[0])
        assert any(snapshot.includes(number) for snapshot in kept), path
    assert len(list((place / "locks").iterdir())) < 80
    assert temporary(root) == []


def report(week: Week) -> str:
    first, last = week.sizes[len(week.sizes) // 3], week.sizes[-1]
    biggest = max(size.snapshot_bytes for size in week.sizes)
    done = {name: count for (name, how), count in week.outcomes.items() if how == "done"}
    return (
        f"\n{week.epochs} epochs, {week.claims} claims, {week.rollbacks} rollbacks, "
        f"{len(week.sizes)} runs: {done}\n"
        f"after a third: {first}\nin the end:    {last}\nlargest snapshot: {biggest} bytes"
    )
