"""What callers hand to a producer, checked before anything is written."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass

from sluicegate.dedup.stamp import Stamp, StampInvalid
from sluicegate.errors import UsageError

LogHolds = Mapping[int, int | Iterable[int]]
"""Per partition what a log holds of a producer: the highest sequence, or all of them."""


@dataclass(frozen=True, slots=True)
class Present:
    """The sequences of one partition that a log is known to hold, and the highest (-1 for none)."""

    sequences: Collection[int]
    highest: int

    def ranges(self) -> Iterator[tuple[int, int]]:
        """The same as half-open ranges."""
        if isinstance(self.sequences, range) and self.sequences.step == 1:
            yield self.sequences.start, self.sequences.stop
        else:
            yield from ((each, each + 1) for each in self.sequences)


def present(partition: int, held: int | Iterable[int]) -> Present:
    """What a log holds of a partition, or `StampInvalid`."""
    if isinstance(held, int):
        _check(partition, held)
        return Present((held,), held)
    sequences: Collection[int]
    if isinstance(held, range) and held.step == 1:
        # Not looked at one by one: a log may hold billions.
        sequences, ends = held, [held[0], held[-1]] if held else []
    else:
        try:
            sequences = frozenset(held)
        except TypeError as e:
            raise StampInvalid(f"{held!a:.80} are not sequences") from e
        ends = list(sequences)
    for each in ends:
        _check(partition, each)
    _check(partition, 0)
    return Present(sequences, max(ends, default=-1))


def check_own(stamp: Stamp, producer_id: str) -> None:
    """Refuse what is not a stamp of this producer."""
    if not isinstance(stamp, Stamp) or not isinstance(stamp.producer_id, str):
        raise StampInvalid(f"{stamp!a:.80} is not a stamp")
    _check(stamp.partition, stamp.sequence, stamp.producer_id)
    if stamp.producer_id != producer_id:
        raise UsageError(
            f"the stamp is of another producer, {stamp.producer_id!a:.80}",
            hint=f"this one is {producer_id!a:.80}",
        )


def check_messages(messages: Iterable[tuple[int, bytes]]) -> list[tuple[int, bytes]]:
    """The messages as a list, or `UsageError` for what cannot be stamped."""
    wanted = []
    for partition, payload in messages:
        if not isinstance(payload, bytes | bytearray | memoryview):
            raise UsageError(f"a payload is {type(payload).__name__}", hint="give it as bytes")
        # Kept as it is now: what the caller does to a buffer later must not change the message.
        wanted.append((partition, bytes(payload)))
    for partition in {partition for partition, _ in wanted}:
        _check(partition, 0)
    return wanted


def _check(partition: int, sequence: int, producer_id: str = "") -> None:
    if type(partition) is not int or type(sequence) is not int:
        raise StampInvalid(f"{partition!a:.40} and {sequence!a:.40} are not whole numbers")
    Stamp(producer_id, partition, sequence).checked()
