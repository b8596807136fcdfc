"""Where a stream stands, and what differs between two of its snapshots."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from sluicegate import units
from sluicegate.report import Difference
from sluicegate.stream.operations.compact import Size, size_of
from sluicegate.stream.operations.import_v1 import read_operators
from sluicegate.stream.snapshot import Snapshot
from sluicegate.stream.state import shards_of
from sluicegate.stream.stream import Stream
from sluicegate.stream.writer import Gate


@dataclass(frozen=True, slots=True)
class StreamSummary:
    """Everything about a stream that one look at its head tells."""

    uri: str
    head: Snapshot
    living: str | None
    state: Size
    operators: dict[str, int]

    @property
    def kept(self) -> int:
        """How many snapshots there are to go back to."""
        return self.head.number - self.head.floor + 1


def inspect(stream: Stream, number: int | None = None) -> StreamSummary:
    """The stream at its head, or at an older snapshot."""
    head = stream.chain.head()
    stream.chain.check_home(head)
    snapshot = head if number is None else stream.chain.read(number)
    operators = {n: len(state) for n, state in read_operators(stream, snapshot.operators).items()}
    return StreamSummary(
        stream.uri, snapshot, Gate(stream).living_writer(head), size_of(stream, snapshot), operators
    )


def recent(stream: Stream, last: int) -> list[Snapshot | str]:
    """The newest snapshots, oldest first; of a damaged one, what is wrong with it."""
    from sluicegate.errors import Corrupt

    head = stream.chain.head()
    found: list[Snapshot | str] = []
    for number in range(max(head.floor, head.number - last + 1), head.number + 1):
        try:
            found.append(stream.chain.read(number))
        except Corrupt as e:
            found.append(f"{number}: {e.message}")
    return found


def compare(ours: tuple[Stream, Snapshot], theirs: tuple[Stream, Snapshot]) -> Iterator[Difference]:
    """The differences, the most telling first."""
    (left_stream, left), (right_stream, right) = ours, theirs
    for what, before, after in _facts(left, right):
        if before != after:
            yield Difference(what, str(before), str(after))
    one, other = shards_of(left_stream, left), shards_of(right_stream, right)
    for shard in sorted(one.keys() | other.keys()):
        before_refs, after_refs = one.get(shard, ()), other.get(shard, ())
        if before_refs != after_refs:
            yield Difference(
                f"state of shard {shard}",
                f"{len(before_refs)} deltas, {units.size(sum(r.size for r in before_refs))}",
                f"{len(after_refs)} deltas, {units.size(sum(r.size for r in after_refs))}",
            )


def _facts(left: Snapshot, right: Snapshot) -> Iterator[tuple[str, object, object]]:
    both = sorted({(p.topic, p.partition) for p in (*left.positions, *right.positions)})
    for topic, partition in both:
        yield (
            f"{topic}[{partition}]",
            left.positions.get(topic, partition),
            right.positions.get(topic, partition),
        )
    yield "events included", left.sequence, right.sequence
    yield "watermark", left.watermark_ns, right.watermark_ns
    for name in sorted({*left.counters, *right.counters}):
        yield f"counter {name}", left.counters.get(name, 0), right.counters.get(name, 0)
    yield "generation", left.generation, right.generation
    yield "run that may commit", left.writer, right.writer
    yield "assignment version", left.version, right.version
    yield "operators", left.operators, right.operators
    for name in sorted({*left.pins, *right.pins}):
        yield f"pinned {name}", left.pins.get(name), right.pins.get(name)
