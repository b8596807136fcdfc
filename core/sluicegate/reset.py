"""Planning a reset: where positions move, and the consequences. Pure; it knows no target.

The caller passes what is known: the current positions, the range that each partition still holds
(from a broker or log), and the positions at past times (from a checkpoint's offset log or a
store's versions). A scenario that needs more is refused, and the error names the source of it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import Generic, TypeVar

from sluicegate import units
from sluicegate.errors import NotFound, UsageError
from sluicegate.plan import Action
from sluicegate.positions import MAX_OFFSET, Positions

Partition = tuple[str, int]
_SHOW = "see the positions with: sluicegate offsets show TARGET"


class ResetRefused(UsageError):
    """A reset that cannot be planned: out of range, or it needs facts that are not known here."""

    default_hint = _SHOW


class Scenario(Enum):
    """Where positions move to: the option's name without its dashes."""

    EARLIEST = "to-earliest"
    LATEST = "to-latest"
    CURRENT = "to-current"
    OFFSET = "to-offset"
    SHIFT = "shift-by"
    MOMENT = "to-datetime"
    FILE = "from-file"


@dataclass(frozen=True, slots=True)
class Scope:
    """Which partitions: topic → partitions, None for all of the topic's; no topics at all: all."""

    topics: Mapping[str, frozenset[int] | None] | None = None

    def has(self, topic: str, partition: int) -> bool:
        """Whether a partition is in scope."""
        if self.topics is None:
            return True
        partitions = self.topics.get(topic, frozenset())
        return partitions is None or partition in partitions


@dataclass(frozen=True, slots=True)
class ResetSpec:
    """One scenario with its value, for a scope; `clamp` allows the edge of the range instead."""

    scenario: Scenario
    scope: Scope = Scope()
    number: int = 0
    moment_ms: int = 0
    positions: Positions | None = None
    clamp: bool = False

    def __str__(self) -> str:
        match self.scenario:
            case Scenario.OFFSET:
                return f"{self.scenario.value} {self.number}"
            case Scenario.SHIFT:
                return f"{self.scenario.value} {self.number:+d}"
            case Scenario.MOMENT:
                return f"{self.scenario.value} {units.utc(self.moment_ms / 1000)}"
        return str(self.scenario.value)


@dataclass(frozen=True, slots=True)
class Range:
    """The range of a partition: from the oldest offset to the next that will be written."""

    earliest: int
    latest: int


T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Point(Generic[T]):
    """The value at a past time, and its origin (`batch 41`).

    `gap_after`: the next value is no longer known, so the point is not valid for later times.
    """

    at_ms: int
    value: T
    what: str
    gap_after: bool = False


class TimeNotKnown(ResetRefused):
    """A time before, after or between the known points."""


class Timeline(Generic[T]):
    """The lookup by time, for every kind of target.

    Points come newest first, and only as many as needed are read. `checkpoint list` of `place`,
    if there is one, shows them all.
    """

    def __init__(self, points: Iterable[Point[T]], place: str | None = None) -> None:
        self._points = points
        self._place = place

    def at(self, moment_ms: int, *, clamp: bool | None = None) -> Point[T]:
        """The newest point that is not after a moment, or `TimeNotKnown`.

        With `clamp` a time outside means the nearest; None where there is no such option.
        """
        wanted, oldest = units.utc(moment_ms / 1000), None
        for point in self._points:
            if oldest is None and moment_ms > point.at_ms and not clamp:
                raise self._refusal(
                    f"{wanted} is after the newest known point: {_shown(point)}",
                    "name an earlier time" + _or_clamp(clamp, "use the newest"),
                )
            if point.at_ms <= moment_ms:
                if point.gap_after and moment_ms > point.at_ms and not clamp:
                    raise self._refusal(
                        f"the position at {wanted} is not known: no record is kept between "
                        f"{_shown(point)}, and later ones",
                        "name a time that is kept" + _or_clamp(clamp, f"use {point.what}"),
                    )
                return point
            oldest = point
        if oldest is None:
            raise TimeNotKnown(f"the position at {wanted} is not known: no record is kept")
        if clamp:
            return oldest
        raise self._refusal(
            f"{wanted} is before the oldest known point: {_shown(oldest)}",
            "name a later time" + _or_clamp(clamp, "use the oldest"),
        )

    def _refusal(self, message: str, hint: str) -> TimeNotKnown:
        if self._place is not None:
            hint += f"; see them with: {units.command('checkpoint', 'list', self._place)}"
        return TimeNotKnown(message, hint=hint, place=self._place)


def _shown(point: Point[T]) -> str:
    return f"{point.what}, {units.utc(point.at_ms / 1000)}"


def _or_clamp(clamp: bool | None, does: str) -> str:
    return "" if clamp is None else f", or add --clamp to {does}"


@dataclass(frozen=True, slots=True)
class Known:
    """Known facts beside the positions; `ranges_from` names the source of the ranges."""

    ranges: Mapping[Partition, Range] = field(default_factory=dict)
    past: Sequence[Point[Positions]] = ()  # oldest first
    ranges_from: str = "the broker or log"
    past_from: str = "a history"


@dataclass(frozen=True, slots=True)
class Move:
    """One partition: its old and new offset; `clamped` if the new one is only the edge."""

    topic: str
    partition: int
    old: int
    new: int
    clamped: bool = False

    @property
    def delta(self) -> int:
        """Forward is positive."""
        return self.new - self.old


SKIP = "skip"
_SHOWN = 3


def moving(topic: str, partition: int, old: int | None, new: int | None) -> Action:
    """The action that moves one position, and its consequence."""
    place = f"{topic}[{partition}]"
    if new is None:
        return Action("forget", place, "removes the position", old, new)
    if old is None:
        return Action("set", place, "had no position", old, new)
    if new < old:
        return Action("rewind", place, f"re-reads {units.events(old - new)}", old, new)
    return Action(SKIP, place, f"skips {units.events(new - old)}", old, new)


def moves_text(actions: Sequence[Action]) -> str:
    """The moves as a line of the history; empty if there are none."""
    moved = [f"{a.place} {_worth(a.old)} → {_worth(a.new)}" for a in actions[:_SHOWN]]
    more = f" and {len(actions) - _SHOWN} more" if len(actions) > _SHOWN else ""
    return ", ".join(moved) + more


def _worth(value: int | str | None) -> str:
    return "none" if value is None else str(value)


def plan_reset(positions: Positions, known: Known, spec: ResetSpec) -> list[Move]:
    """Every partition in scope with its new position, also if it does not move."""
    check_scope(positions, spec.scope)
    aims = _aims(positions, known, spec)
    moves = []
    for each in positions:
        if not spec.scope.has(each.topic, each.partition):
            continue
        aim = aims.get((each.topic, each.partition))
        if aim is None:
            continue
        limits = known.ranges.get((each.topic, each.partition))
        new = _within(each.topic, each.partition, aim, limits, clamp=spec.clamp)
        moves.append(Move(each.topic, each.partition, each.offset, new, clamped=new != aim))
    return moves


def check_scope(positions: Positions, scope: Scope) -> None:
    """Refuse an unknown topic or partition: it is a typing error, not an empty reset."""
    for topic, partitions in (scope.topics or {}).items():
        present = positions.by_topic.get(topic)
        if present is None:
            known = ", ".join(sorted(positions.by_topic)) or "none"
            raise NotFound(f"there is no topic {topic!r}; known topics: {known}", hint=_SHOW)
        missing = sorted((partitions or frozenset()) - present.keys())
        if missing:
            raise NotFound(f"topic {topic!r} has no partition {missing[0]}", hint=_SHOW)


def _aims(positions: Positions, known: Known, spec: ResetSpec) -> dict[Partition, int]:
    """The wanted offset of each partition, before any range check."""
    inside = [
        (p.topic, p.partition, p.offset) for p in positions if spec.scope.has(p.topic, p.partition)
    ]
    match spec.scenario:
        case Scenario.CURRENT:
            return {(t, p): offset for t, p, offset in inside}
        case Scenario.OFFSET:
            return {(t, p): spec.number for t, p, _ in inside}
        case Scenario.SHIFT:
            return {(t, p): offset + spec.number for t, p, offset in inside}
        case Scenario.FILE:
            return _from_file(positions, spec)
        case Scenario.MOMENT:
            point = _point_at(known, spec)
            return _positions_at(point, [(t, p) for t, p, _ in inside])
        case Scenario.EARLIEST | Scenario.LATEST:
            return {(t, p): _edge(t, p, known, spec.scenario) for t, p, _ in inside}


def _edge(topic: str, partition: int, known: Known, scenario: Scenario) -> int:
    limits = known.ranges.get((topic, partition))
    if limits is None:
        end = "oldest offset" if scenario is Scenario.EARLIEST else "end"
        raise ResetRefused(
            f"--{scenario.value} needs the {end} of {topic}[{partition}], which only "
            f"{known.ranges_from} knows",
            hint="look up the offsets there, and use --from-file FILE or --to-offset N",
        )
    return limits.earliest if scenario is Scenario.EARLIEST else limits.latest


def _from_file(positions: Positions, spec: ResetSpec) -> dict[Partition, int]:
    assert spec.positions is not None
    aims = {}
    for each in spec.positions:
        if positions.get(each.topic, each.partition) is None:
            raise NotFound(
                f"the file has {each.topic}[{each.partition}], which the target does not have",
                hint="add partitions with: sluicegate offsets import",
            )
        aims[each.topic, each.partition] = each.offset
    return aims


def _point_at(known: Known, spec: ResetSpec) -> Point[Positions]:
    """The newest point that is not after the moment."""
    if not known.past:
        raise ResetRefused(
            f"--{spec.scenario.value} needs the positions at that time, but there is no "
            f"{known.past_from}"
        )
    return Timeline(reversed(known.past)).at(spec.moment_ms, clamp=spec.clamp)


def _positions_at(point: Point[Positions], wanted: list[Partition]) -> dict[Partition, int]:
    aims = {}
    for topic, partition in wanted:
        offset = point.value.get(topic, partition)
        if offset is None:
            raise ResetRefused(
                f"{topic}[{partition}] had no position yet at {point.what}",
                hint="exclude it with --topic, or set its offset with --to-offset",
            )
        aims[topic, partition] = offset
    return aims


def _within(topic: str, partition: int, aim: int, limits: Range | None, *, clamp: bool) -> int:
    """The wanted offset if it is in range; else the edge, if that is allowed."""
    low, high = (limits.earliest, limits.latest) if limits else (0, MAX_OFFSET)
    if low <= aim <= high:
        return aim
    edge = low if aim < low else high
    if clamp:
        return edge
    raise ResetRefused(
        f"{topic}[{partition}] cannot go to {aim}: it holds {low} to {high}"
        if limits
        else f"{topic}[{partition}] cannot go to {aim}: offsets are from 0 to 2^63-1",
        hint="choose another offset, or add --clamp to use the edge of the range",
    )
