"""The status of a stream, and the differences between two snapshots."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from sluicegate import units
from sluicegate.report import Difference
from sluicegate.storage.blobs import Ref
from sluicegate.stream.operations.compact import Size, size_of
from sluicegate.stream.operations.import_v1 import read_operators
from sluicegate.stream.snapshot import Snapshot
from sluicegate.stream.state import shards_of
from sluicegate.stream.stream import Stream
from sluicegate.stream.writer import StreamWriter


@dataclass(frozen=True, slots=True)
class StreamSummary:
    """Everything that the head of a stream shows."""

    uri: str
    head: Snapshot
    living: str | None
    state: Size
    operators: dict[str, int]

    @property
    def kept(self) -> int:
        """How many snapshots are kept."""
        return self.head.number - self.head.floor + 1


def inspect(stream: Stream, number: int | None = None) -> StreamSummary:
    """The stream at its head, or at an older snapshot."""
    head = stream.chain.head()
    stream.chain.check_home(head)
    snapshot = head if number is None else stream.chain.named(number)
    operators = {n: len(state) for n, state in read_operators(stream, snapshot.operators).items()}
    return StreamSummary(
        stream.uri,
        snapshot,
        StreamWriter(stream).living_writer(head),
        size_of(stream, snapshot),
        operators,
    )


def recent(stream: Stream, last: int) -> list[Snapshot | str]:
    """The newest snapshots, oldest first; for a damaged one, the problem."""
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
    """The differences, the most important first."""
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
                _deltas_text(before_refs),
                _deltas_text(after_refs),
            )


def _deltas_text(refs: Sequence[Ref]) -> str:
    return f"{units.counted(len(refs), 'delta')}, {units.size(sum(ref.size for ref in refs))}"


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
    yield "current writer", left.writer, right.writer
    yield "assignment version", left.version, right.version
    yield "operators", left.operators, right.operators
    for name in sorted({*left.pins, *right.pins}):
        yield f"fixed setting {name}", left.pins.get(name), right.pins.get(name)
