"""Ranges of link numbers, both ends included; a lost chain can be millions of numbers long."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

Span = tuple[int, int]


def spans(numbers: Iterable[int]) -> list[Span]:
    """Numbers as ranges, ascending."""
    return merged((number, number) for number in numbers)


def merged(ranges: Iterable[Span]) -> list[Span]:
    """The same numbers in the fewest ranges, ascending."""
    found: list[Span] = []
    for first, last in sorted(ranges):
        if found and first <= found[-1][1] + 1:
            found[-1] = (found[-1][0], max(found[-1][1], last))
        else:
            found.append((first, last))
    return found


def without(span: Span, ranges: Iterable[Span]) -> Iterator[Span]:
    """What is left of a range, ascending."""
    first, last = span
    for begin, end in merged(ranges):
        if end < first or begin > last:
            continue
        if first < begin:
            yield first, begin - 1
        first = end + 1
    if first <= last:
        yield first, last


def has(ranges: Iterable[Span], number: int) -> bool:
    """Whether a number is in one of the ranges."""
    return any(first <= number <= last for first, last in ranges)


def shown(ranges: Iterable[Span]) -> str:
    """For people: `3, 7-9`."""
    return ", ".join(str(first) if first == last else f"{first}-{last}" for first, last in ranges)
