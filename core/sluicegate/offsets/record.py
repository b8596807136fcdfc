"""The record of one commit: all positions of a consumer, and the name of its file.

A record is a frame of kind `offsets`; FORMAT.md has its fields. The file of a consumer is its
newest record; the records before it are kept beside it for a while.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, TypeVar

from sluicegate import codec
from sluicegate.errors import Corrupt, InvalidName, UsageError
from sluicegate.positions import Position, Positions
from sluicegate.process import Who
from sluicegate.storage import validate_name

FORMAT = codec.Format("offsets", version=1, max_body=64 * 1024 * 1024)
COMMIT = "commit"
N = TypeVar("N", int, float)
Times = Mapping[str, Mapping[int, float]]


@dataclass(frozen=True, slots=True)
class Fence:
    """The caller's own number of a commit, which only grows for one source: an epoch, a batch."""

    source: str
    number: int

    def __post_init__(self) -> None:
        if not isinstance(self.source, str) or not self.source or len(self.source) > 1024:
            raise UsageError(f"{self.source!a:.80} is not a source of fenced commits")
        if type(self.number) is not int or not 0 <= self.number < 2**63:
            raise UsageError(f"{self.number!a:.80} is not a number of a fenced commit")


@dataclass(frozen=True, slots=True)
class Change:
    """The part of a record that only operators' changes have: the reason, and the old positions.

    `before` has every position the change touched, None where there was none; undo restores them
    however many commits came since. For a restored file they are not known.
    """

    summary: str
    before: tuple[tuple[str, int, int | None], ...] | None
    reason: str | None = None
    undoes: str | None = None
    plan_digest: str | None = None
    planned_by: str | None = None


@dataclass(frozen=True, slots=True)
class Record:
    """The positions of a consumer after its commit number `sequence`."""

    consumer: str
    sequence: int
    at: float
    kind: str
    by: Who
    positions: Positions
    times: Times = field(default_factory=dict)
    fences: tuple[Fence, ...] = ()
    change: Change | None = None

    @property
    def id(self) -> str:
        """The id of this commit in history and undo."""
        return f"{self.consumer}@{self.sequence}"

    def committed_at(self, position: Position) -> float:
        """The time when a position was last committed."""
        return self.times[position.topic][position.partition]


def frozen(by_topic: dict[str, dict[int, N]]) -> Mapping[str, Mapping[int, N]]:
    """Read-only maps, because all callers that load a record share it."""
    return MappingProxyType({topic: MappingProxyType(each) for topic, each in by_topic.items()})


def encode(record: Record) -> bytes:
    """The file of a record."""
    return codec.encode(
        FORMAT,
        {
            "consumer": record.consumer,
            "sequence": record.sequence,
            "at": record.at,
            "kind": record.kind,
            "by": record.by.fields(),
            "positions": {
                topic: _columns(partitions, record.times[topic])
                for topic, partitions in record.positions.by_topic.items()
            },
            "fences": [[fence.source, fence.number] for fence in record.fences],
            "change": _change_fields(record.change) if record.change else None,
        },
    )


def decode(data: bytes, place: str, consumer: str) -> Record:
    """The record in a file of a consumer, or `Corrupt`."""
    fields = codec.decode(FORMAT, data, place)
    try:
        record = _record(fields)
    except (AttributeError, KeyError, TypeError, ValueError, UsageError) as e:
        raise Corrupt(f"{place}: not a record of positions: {e!r}", place=place) from e
    if record.consumer != consumer:
        raise Corrupt(
            f"{place} holds the positions of another consumer, {record.consumer!r}", place=place
        )
    return record


def _record(fields: Any) -> Record:
    who = Who.from_fields(fields["by"])
    if who is None:
        raise ValueError("no committer")
    positions: dict[str, dict[int, int]] = {}
    times: dict[str, dict[int, float]] = {}
    for topic, (partitions, offsets, at) in fields["positions"].items():
        if not all(isinstance(column, list) for column in (partitions, offsets, at)):
            raise TypeError(f"the columns of {topic!r} are not lists")
        if not partitions or sorted(set(map(_integer, partitions))) != partitions:
            raise ValueError(f"the partitions of {topic!r} are not in order")
        positions[topic] = dict(zip(partitions, map(_integer, offsets), strict=True))
        times[topic] = dict(zip(partitions, map(_time, at), strict=True))
    change = fields["change"]
    return Record(
        consumer=_text(fields["consumer"]),
        sequence=_integer(fields["sequence"]),
        at=_time(fields["at"]),
        kind=_text(fields["kind"]),
        by=who,
        positions=Positions(frozen(positions)).checked(),
        times=frozen(times),
        fences=tuple(
            Fence(_text(source), _integer(number)) for source, number in _listed(fields["fences"])
        ),
        change=_change(change) if change is not None else None,
    )


def _columns(partitions: Mapping[int, int], times: Mapping[int, float]) -> list[list[Any]]:
    """Partitions, offsets and times as three lists: long lists of one kind are cheap to write."""
    order = sorted(partitions)
    return [order, [partitions[each] for each in order], [times[each] for each in order]]


def _change_fields(change: Change) -> dict[str, Any]:
    return {
        "summary": change.summary,
        "before": None if change.before is None else [list(each) for each in change.before],
        "reason": change.reason,
        "undoes": change.undoes,
        "plan_digest": change.plan_digest,
        "planned_by": change.planned_by,
    }


def _change(fields: Any) -> Change:
    optional = ("reason", "undoes", "plan_digest", "planned_by")
    before = fields["before"]
    return Change(
        summary=_text(fields["summary"]),
        before=None if before is None else tuple(_before(*each) for each in _listed(before)),
        **{name: None if fields[name] is None else _text(fields[name]) for name in optional},
    )


def _listed(value: Any) -> list[Any]:
    """A list, unchanged; an empty text or mapping would look like an empty list."""
    if not isinstance(value, list):
        raise TypeError(f"{type(value).__name__} is not a list")
    return value


def _before(topic: Any, partition: Any, offset: Any) -> tuple[str, int, int | None]:
    return _text(topic), _integer(partition), None if offset is None else _integer(offset)


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise TypeError(f"{value!r} is not a text")
    return value


def _integer(value: Any) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or value < 0:
        raise TypeError(f"{value!r} is not an integer from 0")
    return value


def _time(value: Any) -> float:
    if not isinstance(value, float) or not math.isfinite(value) or value < 0:
        raise TypeError(f"{value!r} is not a time")
    return value


SUFFIX = ".offsets"
_KEPT = re.compile(r"(?P<consumer>.+)\.(?P<sequence>\d{20})\.(?P<kind>version|change)", re.ASCII)


@dataclass(frozen=True, slots=True, order=True)
class Kept:
    """An older record that is kept, by its number and file name."""

    sequence: int
    name: str


def sort_names(names: Iterable[str]) -> dict[str, list[Kept]]:
    """Every consumer that has a file, with its kept records, oldest first."""
    found: dict[str, list[Kept]] = {}
    for name in names:
        if match := _KEPT.fullmatch(name):
            kept = Kept(int(match["sequence"]), name)
            found.setdefault(match["consumer"], []).append(kept)
        elif name.endswith(SUFFIX):
            found.setdefault(name.removesuffix(SUFFIX), [])
    return {name: sorted(kept) for name, kept in found.items() if _is_name(name)}


def kept_name(record: Record, *, other: bool = False) -> str:
    """The file name of a kept record; `other`: as if it were of the other kind."""
    kind = "version" if (record.kind == COMMIT) is not other else "change"
    return f"{record.consumer}.{record.sequence:020d}.{kind}"


def _is_name(name: str) -> bool:
    try:
        validate_name(name)
    except InvalidName:
        return False
    return True
