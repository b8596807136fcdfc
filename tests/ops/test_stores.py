"""The maintenance of offset stores."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from sluicegate.config import Maintain
from sluicegate.maintenance import Outcome, Steps
from sluicegate.offsets import LockFileOffsetStore
from sluicegate.offsets.maintenance import StoreMaintenance
from sluicegate.positions import Position
from sluicegate.storage import open_storage
from tests.ops.week import Clock, terms

DAY = 86400.0


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock(time.time())
    monkeypatch.setattr(time, "time", clock)
    return clock


@pytest.fixture
def store(tmp_path: Path) -> LockFileOffsetStore:
    return LockFileOffsetStore.create(str(tmp_path / "store"))


def run(store: LockFileOffsetStore, only: str = "") -> Steps:
    storage = open_storage(store.uri, read_only=bool(only))
    return StoreMaintenance(storage, terms(Maintain(keep=7 * DAY), only=only)).run()


def commit(store: LockFileOffsetStore, clock: Clock, days: int) -> None:
    """One commit a day."""
    for _ in range(days):
        store.save("billing", Position("orders", 0, round(clock.now)))
        clock.now += DAY


def numbers(store: LockFileOffsetStore) -> list[int]:
    return [each.sequence for each in store.kept("billing")]


def test_old_versions_go(store: LockFileOffsetStore, clock: Clock) -> None:
    commit(store, clock, 10)
    assert numbers(store) == list(range(1, 11))
    clock.now += 2.5 * DAY
    steps = run(store)
    assert [step.outcome for step in steps.done[:2]] == [Outcome.DONE, Outcome.DONE]
    assert numbers(store) == [7, 8, 9, 10]
    assert run(store).done[1].outcome is Outcome.NOTHING


def test_the_newest_two_stay_however_old(store: LockFileOffsetStore, clock: Clock) -> None:
    commit(store, clock, 5)
    position = store.load("billing")
    clock.now += 100 * DAY
    run(store)
    assert numbers(store) == [4, 5]
    assert store.load("billing") == position


def test_of_a_damaged_consumer_everything_stays(store: LockFileOffsetStore, clock: Clock) -> None:
    commit(store, clock, 5)
    clock.now += 100 * DAY
    (Path(store.uri) / "billing.offsets").write_bytes(b"damaged")
    steps = run(store)
    assert [f.code for f in steps.findings] == ["SG-STORE-DAMAGED"]
    assert steps.done[1].outcome is Outcome.SKIPPED
    assert numbers(store) == [1, 2, 3, 4, 5]


def test_a_consumer_that_commits_is_not_waited_for(
    store: LockFileOffsetStore, clock: Clock
) -> None:
    commit(store, clock, 5)
    clock.now += 100 * DAY
    with store.lock("billing").hold():
        steps = run(store)
    assert steps.done[1].outcome is Outcome.SKIPPED
    assert steps.findings == []
    assert numbers(store) == [1, 2, 3, 4, 5]


def test_what_a_killed_writer_left_goes_after_a_day(
    store: LockFileOffsetStore, clock: Clock
) -> None:
    commit(store, clock, 1)
    left = Path(store.uri) / ".sg-0123456789abcdef.tmp"
    left.write_bytes(b"half a rec")
    clock.now = left.stat().st_mtime + DAY / 2
    run(store)
    assert left.exists()
    clock.now += DAY
    run(store)
    assert not left.exists()


@pytest.mark.parametrize("how", ["dry_run", "read_only"])
def test_who_only_looks_changes_nothing(store: LockFileOffsetStore, clock: Clock, how: str) -> None:
    commit(store, clock, 5)
    clock.now += 100 * DAY
    run(store, only=how)
    assert numbers(store) == [1, 2, 3, 4, 5]
