"""Batches of stamps for examples: all names, numbers and orders that there can be."""

from __future__ import annotations

from collections.abc import Sequence

from hypothesis import strategies as some

from sluicegate.dedup.stamp import MAX_SEQUENCE, Stamp, Stamps

TOP = MAX_SEQUENCE
PRODUCERS = ["", "a", "a/b", "a/b/c", "a/rejected", "zürich", "日本", "x" * 65536]
Key = tuple[int | str, int]
Row = tuple[int | str, int, int]

# By their place, because one of them is too long to be shown.
producers = some.integers(0, len(PRODUCERS) - 1)
partitions = some.sampled_from([0, 1, 7, 2**31 - 1])
sequences = some.one_of(
    some.integers(0, 40),
    some.integers(TOP - 40, TOP),
    some.integers(0, TOP),
    some.sampled_from([0, 1, TOP - 1, TOP]),
)
runs = some.tuples(some.integers(0, 30), some.integers(1, 12)).map(
    lambda run: list(range(run[0], run[0] + run[1]))
)
rows = some.tuples(producers, partitions, sequences)
batches = some.one_of(
    some.lists(rows, max_size=60),
    some.builds(
        lambda p, q, numbers, back: [(p, q, n) for n in (reversed(numbers) if back else numbers)],
        producers,
        partitions,
        runs,
        some.booleans(),
    ),
)


def stamps(batch: Sequence[Row]) -> Stamps:
    named = [(PRODUCERS[p] if isinstance(p, int) else p, q, n) for p, q, n in batch]
    return Stamps.from_stamps([Stamp(*row) for row in named])
