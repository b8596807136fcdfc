"""The offset store: consumer → positions, with a sequence on every commit.

Every change is an `Update` that is decided under the consumer's lock, looking at the newest
record; so save, compare-and-set, delete and an operator's reset are one mechanism, and a store only
has to implement `update`, `load` and `list`.
"""

from __future__ import annotations

import time
from abc import abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Protocol, TypeVar

from sluicegate.errors import Fenced
from sluicegate.offsets.record import COMMIT, Change, Fence, Record, frozen
from sluicegate.positions import Position, Positions
from sluicegate.who import myself

Partition = tuple[str, int]
_FENCES = 64
V = TypeVar("V")


class StaleCommit(Fenced):
    """A commit came too late: another one was made in between, or its number is an older one."""

    default_hint = "load the position again and decide anew; see: sluicegate history STORE"


@dataclass(frozen=True, slots=True)
class Update:
    """What to change about a consumer; positions that are not mentioned stay."""

    put: Positions = field(default_factory=lambda: Positions({}))
    remove: frozenset[Partition] = frozenset()
    kind: str = COMMIT
    fence: Fence | None = None
    change: Change | None = None


@dataclass(frozen=True, slots=True)
class HookFailure:
    """A hook that failed after a commit; the commit stands."""

    hook: str
    error: str


@dataclass(frozen=True, slots=True)
class Commit:
    """What a call did: the newest record, the one before, and hooks that failed afterwards.

    `record is previous` when there was nothing to write.
    """

    record: Record | None
    previous: Record | None
    update: Update = field(default_factory=Update)
    hook_failures: tuple[HookFailure, ...] = ()


Decide = Callable[[Record | None], Update | None]


class OffsetStore(Protocol):
    """Where consumers keep their positions."""

    @abstractmethod
    def load(self, consumer: str) -> Record | None:
        """The last durable commit of a consumer; None if it has no positions."""

    @abstractmethod
    def list(self) -> list[str]:
        """The consumers that have positions, by name."""

    @abstractmethod
    def update(self, consumer: str, decide: Decide) -> Commit:
        """Change a consumer under its lock; `decide` sees the newest record, deleted or not."""

    def save(
        self,
        consumer: str,
        position: Position,
        *,
        expect: int | None = None,
        fence: Fence | None = None,
    ) -> Commit:
        """Commit one position; see `save_many`."""
        return self.save_many(consumer, Positions.of([position]), expect=expect, fence=fence)

    def save_many(
        self,
        consumer: str,
        positions: Positions,
        *,
        expect: int | None = None,
        fence: Fence | None = None,
    ) -> Commit:
        """Commit positions, all of them or none; they may go backwards.

        `expect` is compare-and-set: the sequence that was loaded, 0 for a consumer without
        positions; if it is no longer that, `StaleCommit`. `fence` is the caller's own number: an
        older one than the last of the same source is `StaleCommit`, the same one again with the
        same positions has been done already. The last 64 sources are remembered.
        """
        checked = positions.checked()

        def decide(current: Record | None) -> Update | None:
            _check_expected(current, consumer, expect)
            if not len(checked) or _is_repeated(current, checked, fence):
                return None
            return Update(put=checked, fence=fence)

        return self.update(consumer, decide)

    def delete(
        self,
        consumer: str,
        partitions: frozenset[Partition] | None = None,
        *,
        expect: int | None = None,
    ) -> Commit:
        """Forget positions, by default all; forgetting what is not there is done already."""

        def decide(current: Record | None) -> Update | None:
            _check_expected(current, consumer, expect)
            there = frozenset((p.topic, p.partition) for p in current.positions) if current else ()
            gone = frozenset(there) if partitions is None else partitions.intersection(there)
            return Update(remove=gone, kind="delete") if gone else None

        return self.update(consumer, decide)


def successor(consumer: str, previous: Record | None, update: Update, *, after: int = 0) -> Record:
    """The record that an update makes of the one before; numbered above `after`, too."""
    # A clock that was set back must not make history run backwards.
    now = max(time.time(), previous.at if previous else 0.0)
    positions: dict[str, dict[int, int]] = {}
    times: dict[str, dict[int, float]] = {}
    if previous:
        positions = {topic: dict(each) for topic, each in previous.positions.by_topic.items()}
        times = {topic: dict(each) for topic, each in previous.times.items()}
    for topic, partition in update.remove:
        _forget(positions, topic, partition)
        _forget(times, topic, partition)
    for topic, offsets in update.put.by_topic.items():
        positions.setdefault(topic, {}).update(offsets)
        times.setdefault(topic, {}).update(dict.fromkeys(offsets, now))
    return Record(
        consumer=consumer,
        sequence=max(after, previous.sequence if previous else 0) + 1,
        at=now,
        kind=update.kind,
        by=myself(),
        positions=Positions(frozen(positions)),
        times=frozen(times),
        fences=_fences(previous, update.fence),
        change=update.change,
    )


def _forget(by_topic: dict[str, dict[int, V]], topic: str, partition: int) -> None:
    of_topic = by_topic.get(topic, {})
    of_topic.pop(partition, None)
    if not of_topic:
        by_topic.pop(topic, None)


def _fences(previous: Record | None, fence: Fence | None) -> tuple[Fence, ...]:
    """The last number of each source, newest last; of very many sources the oldest go."""
    known = previous.fences if previous else ()
    if fence is None:
        return known
    return (*(each for each in known if each.source != fence.source), fence)[-_FENCES:]


def _check_expected(current: Record | None, consumer: str, expect: int | None) -> None:
    sequence = current.sequence if current and len(current.positions) else 0
    if expect is not None and expect != sequence:
        raise StaleCommit(
            f"consumer {consumer} is at sequence {sequence}, not {expect}"
            + (f": {current.by} committed in between" if current else "")
        )


def _is_repeated(current: Record | None, positions: Positions, fence: Fence | None) -> bool:
    """Whether a fenced commit was made before; `StaleCommit` if it is an older one."""
    known = current.fences if current else ()
    last = next((each for each in known if fence and each.source == fence.source), None)
    if not current or not fence or not last:
        return False
    held = (current.positions.get(each.topic, each.partition) == each.offset for each in positions)
    if fence.number > last.number:
        return False
    if fence.number == last.number and all(held):
        return True
    raise StaleCommit(
        f"consumer {current.consumer} has number {last.number} of {last.source} already; number "
        f"{fence.number} came too late"
    )
