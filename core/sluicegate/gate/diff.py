"""What differs between two links, of one stream or of two."""

from __future__ import annotations

from collections.abc import Iterator

from sluicegate import units
from sluicegate.chain.link import Link
from sluicegate.gate.sealed import shards_of
from sluicegate.gate.stream import Stream
from sluicegate.spark.diff import Difference


def compare(ours: tuple[Stream, Link], theirs: tuple[Stream, Link]) -> Iterator[Difference]:
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
                f"{len(before_refs)} partials, {units.size(sum(r.size for r in before_refs))}",
                f"{len(after_refs)} partials, {units.size(sum(r.size for r in after_refs))}",
            )


def _facts(left: Link, right: Link) -> Iterator[tuple[str, object, object]]:
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
    yield "run that may seal", left.writer, right.writer
    yield "assignment version", left.version, right.version
    yield "operators", left.operators, right.operators
    for name in sorted({*left.pins, *right.pins}):
        yield f"pinned {name}", left.pins.get(name), right.pins.get(name)
