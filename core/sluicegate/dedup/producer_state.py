"""What a producer knows of itself: one frame of kind `producer`, replaced as a whole.

Fields of the body, version 1:

    producer_id   text
    epoch         of the instance that wrote it
    window        how many sequences `was_issued` tells exactly, per partition
    partitions    three columns: partition, next sequence, end of the reserved range
    gaps          three columns: partition, first, end: skipped sequences inside the window
    acknowledged  three columns: partition, first, end: of messages that are in the segments
    segments      three columns: epoch, number, durable length
    growing       whether the last segment may hold more than that

Only segments named here count, and of those that do not grow only so many bytes.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from sluicegate import codec
from sluicegate.dedup.stamp import MAX_PARTITION, MAX_SEQUENCE, Stamp
from sluicegate.errors import Corrupt, UsageError

FORMAT = codec.Format("producer", version=1, max_body=64 * 1024 * 1024)
END = MAX_SEQUENCE + 1
"""What the next sequence of a partition is when all are used up."""
_LARGEST = 2**63


class Ranges:
    """A set of numbers as sorted disjoint half-open ranges, changed one range at a time.

    Unlike `dedup.intervals`, which is for millions in one go and loads numpy, this is for the few
    ranges of one producer, with a change for every message.
    """

    __slots__ = ("_ends", "_starts")

    def __init__(self) -> None:
        self._starts: list[int] = []
        self._ends: list[int] = []

    def __contains__(self, number: int) -> bool:
        at = bisect_right(self._starts, number) - 1
        return at >= 0 and number < self._ends[at]

    def __iter__(self) -> Iterator[tuple[int, int]]:
        return iter(list(zip(self._starts, self._ends, strict=True)))

    def add(self, first: int, end: int) -> None:
        """Put the numbers from `first` to before `end` in."""
        if first >= end:
            return
        low, high = bisect_left(self._ends, first), bisect_right(self._starts, end)
        if low < high:
            first, end = min(first, self._starts[low]), max(end, self._ends[high - 1])
        self._starts[low:high], self._ends[low:high] = [first], [end]

    def remove(self, first: int, end: int) -> None:
        """Take the numbers from `first` to before `end` out."""
        low, high = bisect_right(self._ends, first), bisect_left(self._starts, end)
        if low >= high or first >= end:
            return
        rest = [(self._starts[low], first), (end, self._ends[high - 1])]
        rest = [(start, stop) for start, stop in rest if start < stop]
        self._starts[low:high] = [start for start, _ in rest]
        self._ends[low:high] = [stop for _, stop in rest]


@dataclass(slots=True)
class Counter:
    """One partition: the next sequence, how far sequences are durably reserved, and what is not so.

    `gaps` were skipped and never issued; `acknowledged` are those the log is known to hold.
    """

    next: int = 0
    reserved: int = 0
    gaps: Ranges = field(default_factory=Ranges)
    acknowledged: Ranges = field(default_factory=Ranges)

    def skip_to(self, sequence: int) -> None:
        """Continue there; what lies between is never issued."""
        if sequence > self.next:
            self.gaps.add(self.next, sequence)
            self.next = sequence


@dataclass(frozen=True, slots=True, order=True)
class Declared:
    """A segment of the outbox, and how many of its bytes were durable."""

    epoch: int
    number: int
    length: int


@dataclass(slots=True)
class State:
    """Everything a producer must not forget."""

    producer_id: str
    epoch: int
    window: int
    counters: dict[int, Counter] = field(default_factory=dict)
    segments: list[Declared] = field(default_factory=list)
    growing: bool = False

    def encode(self, reserve: Mapping[int, int]) -> bytes:
        """The file, with the ends of ranges to reserve; a range never ends below the next."""
        order = sorted(self.counters)
        counters = [self.counters[each] for each in order]
        ends = [
            max(each.reserved, each.next, reserve.get(partition, 0))
            for partition, each in zip(order, counters, strict=True)
        ]
        for each in counters:
            each.gaps.remove(0, max(0, each.next - self.window))
        segments = [[each.epoch, each.number, each.length] for each in self.segments]
        return codec.encode(
            FORMAT,
            {
                "producer_id": self.producer_id,
                "epoch": self.epoch,
                "window": self.window,
                "partitions": [order, [each.next for each in counters], ends],
                "gaps": self._ranges(lambda each: each.gaps),
                "acknowledged": self._ranges(lambda each: each.acknowledged),
                "segments": _columns(segments),
                "growing": self.growing,
            },
        )

    def _ranges(self, chosen: Callable[[Counter], Ranges]) -> list[list[int]]:
        rows = [
            [partition, first, end]
            for partition in sorted(self.counters)
            for first, end in chosen(self.counters[partition])
        ]
        return _columns(rows)


def decode(data: bytes, place: str) -> State:
    """The state in a file, or `Corrupt`."""
    fields = codec.decode(FORMAT, data, place)
    try:
        return _state(fields)
    except (AttributeError, KeyError, TypeError, ValueError, UsageError) as e:
        raise Corrupt(f"{place}: not a producer's state: {e!r}", place=place) from e


def _state(fields: Any) -> State:
    producer_id = fields["producer_id"]
    if not isinstance(producer_id, str):
        raise TypeError("the producer's name is not a text")
    Stamp(producer_id, 0, 0).checked()
    state = State(producer_id, _whole(fields["epoch"]), _whole(fields["window"]))
    for partition, sequence, end in _rows(fields["partitions"]):
        if partition > MAX_PARTITION or partition in state.counters or sequence > end:
            raise ValueError(f"partition {partition} cannot be at {sequence} of {end}")
        state.counters[partition] = Counter(sequence, end)
    for partition, first, end in _rows(fields["gaps"]):
        state.counters[partition].gaps.add(first, end)
    for partition, first, end in _rows(fields["acknowledged"]):
        state.counters[partition].acknowledged.add(first, end)
    state.segments = [Declared(*row) for row in _rows(fields["segments"])]
    if sorted(set(state.segments)) != state.segments:
        raise ValueError("the segments are not in order")
    state.growing = fields["growing"] is True
    return state


def _columns(rows: list[list[int]]) -> list[list[int]]:
    """Rows of three as three lists: long lists of one kind are cheap to write."""
    return [[row[index] for row in rows] for index in range(3)]


def _rows(columns: Any) -> list[tuple[int, int, int]]:
    one, two, three = columns
    return [(_whole(a), _whole(b), _whole(c)) for a, b, c in zip(one, two, three, strict=True)]


def _whole(value: Any) -> int:
    if type(value) is not int or not 0 <= value <= _LARGEST:
        raise TypeError(f"{value!r} is not a whole number")
    return value
