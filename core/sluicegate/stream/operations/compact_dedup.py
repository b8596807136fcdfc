"""Compaction of the dedup log: the same stamps in one segment, or fewer; and taking it back."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from sluicegate import units
from sluicegate.dedup import segment
from sluicegate.errors import Corrupt
from sluicegate.stream import segments
from sluicegate.stream.append import CompactDraft, Signature
from sluicegate.stream.operations.compact import Inputs, oldest, silent, unless_replaced
from sluicegate.stream.snapshot import Link, Manifest
from sluicegate.stream.stream import Stream
from sluicegate.stream.writer import Gate


@dataclass(frozen=True, slots=True)
class Compacted:
    """Segments as one, proven to know the same, and what was given up by age."""

    inputs: Inputs
    data: bytes
    given_up: int


def compacted(
    stream: Stream,
    inputs: Inputs,
    before: float | None,
    on_progress: Callable[[int, int], None] = silent,
) -> Compacted:
    """Merge segments into one; with `before`, give up what did not grow since that time.

    Nothing is stored. Progress is in bytes, for reading, merging and proving each.
    """
    size = sum(ref.size for ref in inputs)
    with unless_replaced(stream, "dedup", inputs):
        ledger = segments.read(stream.blobs, inputs, lambda read: on_progress(read, 3 * size))
    given_up = 0 if before is None else ledger.expire(round(before * 1000))
    entries = ledger.entries()
    data = segment.encode(entries)
    on_progress(2 * size, 3 * size)
    if not segment.decode(data, "the compacted log").same_stamps(entries):
        raise Corrupt("the compacted dedup log would not know the same; nothing was changed")
    on_progress(3 * size, 3 * size)
    return Compacted(inputs, data, given_up)


def compact_dedup(
    gate: Gate, done: Compacted, signature: Signature, details: Mapping[str, Any]
) -> Link | None:
    """Put one segment in the place of those it was made of; None if somebody replaced them."""
    head = gate.head()
    part = oldest(head.dedup, done.inputs)
    if part is None:
        return None
    old = units.size(sum(ref.size for ref in done.inputs))
    told = f"dedup log: {len(done.inputs)} segments, {old} → {units.size(len(done.data))}"
    told += f"; gave up {done.given_up:,} stamps by age" if done.given_up else ""
    fields = {**details, "summary": told, "given_up": done.given_up}
    result = gate.stream.blobs.put(done.data)
    return gate.append(CompactDraft(part, result, signature, fields, "dedup"), head)


def restore_dedup(
    gate: Gate,
    number: int,
    signature: Signature,
    details: Mapping[str, Any],
    on_progress: Callable[[int, int], None] = silent,
) -> Link | None:
    """Take a compaction back: what it gave up by age is known again, with what came since."""
    head = gate.head()
    was, made = gate.stream.chain.read(number - 1), gate.stream.chain.read(number)
    # What the job had sealed beside the compaction is there as it was.
    inputs = was.dedup.refs[: len(was.dedup.refs) - len(made.dedup.deltas)]
    result = gate.stream.blobs.put(compacted(gate.stream, inputs, None, on_progress).data)
    draft = CompactDraft(Manifest(made.dedup.base), result, signature, details, "dedup")
    return gate.append(draft, head)
