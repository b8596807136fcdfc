"""Compaction of state: the same content in one partial per shard."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Literal

from sluicegate.errors import Drifted
from sluicegate.state import manifest
from sluicegate.state.manifest import Shards
from sluicegate.storage.blobs import BlobDamaged, Ref
from sluicegate.stream.append import CompactDraft, Signature
from sluicegate.stream.snapshot import Link, Manifest
from sluicegate.stream.state import shards_of
from sluicegate.stream.stream import Stream
from sluicegate.stream.writer import Gate

Inputs = tuple[Ref, ...]
What = Literal["state", "dedup"]


def silent(_done: int, _of: int) -> None:
    """Progress that nobody wants to see."""


@dataclass(frozen=True, slots=True)
class Size:
    """What state consists of."""

    shards: int
    partials: int
    bytes: int


def size_of(stream: Stream, link: Link) -> Size:
    """How much state there is at a link, and in how many pieces."""
    return _size(shards_of(stream, link))


def size_of_inputs(stream: Stream, inputs: Inputs) -> Size:
    """The same for some of the manifests that state consists of."""
    with unless_replaced(stream, "state", inputs):
        return _size(_shards(stream, inputs))


def content(link: Link, what: What) -> Manifest:
    """What a compaction is about, at a link."""
    return link.state if what == "state" else link.dedup


def oldest(kept: Manifest, inputs: Inputs) -> Manifest | None:
    """The inputs as a part of a manifest; None unless they are what it begins with."""
    if not inputs or kept.refs[: len(inputs)] != inputs:
        return None
    return Manifest(kept.base, inputs[1:] if kept.base else inputs)


@contextmanager
def unless_replaced(stream: Stream, what: What, inputs: Inputs) -> Iterator[None]:
    """`Drifted` instead of damage, if somebody replaced and collected what is read here."""
    try:
        yield
    except BlobDamaged as e:
        if oldest(content(stream.chain.head(), what), inputs):
            raise
        raise Drifted(
            f"somebody else replaced what {stream.name} consisted of, while it was read"
        ) from e


def compact(
    gate: Gate,
    signature: Signature | None = None,
    details: Mapping[str, Any] | None = None,
    inputs: Inputs | None = None,
    on_progress: Callable[[int, int], None] = silent,
) -> Link | None:
    """Merge the partials of every shard; None if others changed the state meanwhile, or nothing.

    Without `inputs`, all of the state. The merging is done beside a running job; only the link is
    in its way.
    """
    head = gate.head()
    inputs = head.state.refs if inputs is None else inputs
    part = oldest(head.state, inputs)
    if part is None:
        return None
    try:
        before = size_of_inputs(gate.stream, inputs)
        if is_compact(before, inputs):
            return None
        with unless_replaced(gate.stream, "state", inputs):
            shards = _shards(gate.stream, inputs)
            result = manifest.compacted(gate.stream.blobs, shards, on_progress)
            after = _size(manifest.read(gate.stream.blobs, result))
    except Drifted:
        return None
    told = {
        "summary": f"state: {before.partials} partials of {before.bytes} bytes → "
        f"{after.partials} of {after.bytes}"
    }
    draft = CompactDraft(part, result, signature or Signature(), {**(details or {}), **told})
    return gate.append(draft, head)


def is_compact(size: Size, inputs: Inputs) -> bool:
    """Whether nothing is left to merge."""
    return size.partials == size.shards and len(inputs) <= 1


def _shards(stream: Stream, inputs: Inputs) -> Shards:
    return manifest.joined(manifest.read(stream.blobs, ref) for ref in inputs)


def _size(shards: Shards) -> Size:
    refs = [ref for refs in shards.values() for ref in refs]
    return Size(len(shards), len(refs), sum(ref.size for ref in refs))
