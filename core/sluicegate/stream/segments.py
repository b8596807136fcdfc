"""The dedup log of a stream: segments as blobs, a base and the segments added since."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from sluicegate.dedup import segment
from sluicegate.dedup.ledger import Ledger, ledger_of
from sluicegate.dedup.segment import Entries
from sluicegate.storage.blobs import Blobs, Ref
from sluicegate.stream.snapshot import MAX_DELTAS, Manifest

# A base this much larger than the added segments stays as it is: it is rarely written again.
_MUCH_LARGER = 4


def read(
    blobs: Blobs, refs: Iterable[Ref], on_read: Callable[[int], None] = lambda _bytes: None
) -> Ledger:
    """The ledger of all segments; `on_read` gets the number of bytes read so far."""
    parts, done = [], 0
    for ref in refs:
        parts.append(segment.decode(blobs.get(ref), ref.key))
        done += ref.size
        on_read(done)
    return ledger_of(*parts)


def put(blobs: Blobs, entries: Entries) -> Ref | None:
    """A segment as a blob; None if it would be empty."""
    return blobs.put(segment.encode(entries)) if len(entries) else None


def with_segment(blobs: Blobs, log: Manifest, added: Ref) -> Manifest:
    """A dedup log with one more segment; when there are many, the small ones become one."""
    deltas = (*log.deltas, added)
    if len(deltas) <= MAX_DELTAS:
        return Manifest(log.base, deltas)
    merged = put(blobs, read(blobs, deltas).entries())
    assert merged
    if log.base and log.base.size > _MUCH_LARGER * merged.size:
        return Manifest(log.base, (merged,))
    refs = (log.base, merged) if log.base else (merged,)
    return Manifest(put(blobs, read(blobs, refs).entries()))
