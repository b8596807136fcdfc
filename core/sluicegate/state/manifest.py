"""Manifests of state: shard → the deltas it consists of, oldest first, as a blob.

A delta is the change of one epoch; a base is everything up to some point. Folding puts deltas into
a base, and merges the deltas of a shard when there are many.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping

from sluicegate import codec
from sluicegate.errors import Corrupt
from sluicegate.state import delta
from sluicegate.state.delta import Table
from sluicegate.storage.blobs import BlobDamaged, Blobs, Ref

FORMAT = codec.Format("state", 1, 256 * 1024 * 1024)
MAX_DELTAS = 8

Shards = Mapping[int, tuple[Ref, ...]]


def encode(shards: Shards) -> bytes:
    """The blob of a manifest."""
    fields = {str(shard): [ref.fields() for ref in refs] for shard, refs in shards.items()}
    return codec.encode(FORMAT, fields)


def decode(data: bytes, place: str) -> Shards:
    """The manifest in a blob, or `Corrupt`."""
    fields = codec.decode(FORMAT, data, place)
    try:
        return {
            int(shard): tuple(Ref.from_fields(each) for each in refs)
            for shard, refs in fields.items()
        }
    except (AttributeError, TypeError, ValueError) as e:
        raise Corrupt(f"{place} is not a manifest of state: {e!r}", place=place) from e


def read(blobs: Blobs, ref: Ref) -> Shards:
    """The manifest that a reference leads to."""
    return decode(blobs.get(ref), ref.key)


def refs_in(blobs: Blobs, ref: Ref) -> Iterator[Ref]:
    """The references in a manifest."""
    for refs in read(blobs, ref).values():
        yield from refs


def joined(manifests: Iterable[Shards]) -> dict[int, tuple[Ref, ...]]:
    """Manifests one after the other, as one."""
    shards: dict[int, tuple[Ref, ...]] = {}
    for manifest in manifests:
        for shard, refs in manifest.items():
            shards[shard] = (*shards.get(shard, ()), *refs)
    return shards


def fold(blobs: Blobs, base: Ref | None, deltas: Iterable[Ref]) -> Ref:
    """A base with the content of a base and deltas; shards with many deltas are merged.

    First only the new deltas are merged, so that the large old deltas are rarely written again.
    """
    old = read(blobs, base) if base else {}
    new = joined(read(blobs, delta) for delta in deltas)
    folded = dict(old)
    for shard, refs in new.items():
        complete = not old.get(shard)
        added = (merge(blobs, refs, complete=complete),) if len(refs) > 1 else refs
        together = (*old.get(shard, ()), *added)
        if len(together) > MAX_DELTAS:
            together = (merge(blobs, together, complete=True),)
        folded[shard] = together
    return blobs.put(encode(folded))


def compacted(
    blobs: Blobs,
    shards: Shards,
    on_progress: Callable[[int, int], None] = lambda _done, _of: None,
) -> Ref:
    """A base with one delta per shard; progress is in bytes of deltas."""
    merged = {}
    done, total = 0, sum(ref.size for refs in shards.values() for ref in refs)
    for shard, refs in shards.items():
        merged[shard] = (merge(blobs, refs, complete=True),) if len(refs) > 1 else refs
        done += sum(ref.size for ref in refs)
        on_progress(done, total)
    return blobs.put(encode(merged))


def merge(blobs: Blobs, refs: Iterable[Ref], *, complete: bool) -> Ref:
    """Several deltas as one."""
    tables = [_table(blobs, ref) for ref in refs]
    return blobs.put(delta.encode(delta.merge(tables, complete=complete)))


def contents(blobs: Blobs, refs: Iterable[Ref]) -> Table | None:
    """The state that deltas give; None if there are none."""
    tables = [_table(blobs, ref) for ref in refs]
    return delta.merge(tables, complete=True) if tables else None


def _table(blobs: Blobs, ref: Ref) -> Table:
    try:
        return delta.decode(blobs.get(ref), ref.key)
    except delta.DeltaInvalid as e:
        raise BlobDamaged(e.message, place=ref.key) from e
