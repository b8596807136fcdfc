"""Compaction of state: the same content in one partial per shard."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from sluicegate.chain.link import Link
from sluicegate.gate.drafts import CompactDraft, Signature
from sluicegate.gate.gate import Gate
from sluicegate.gate.sealed import shards_of
from sluicegate.gate.stream import Stream
from sluicegate.state import manifest
from sluicegate.state.manifest import Shards


@dataclass(frozen=True, slots=True)
class Size:
    """What state consists of."""

    shards: int
    partials: int
    bytes: int


def size_of(stream: Stream, link: Link) -> Size:
    """How much state there is at a link, and in how many pieces."""
    return _size(shards_of(stream, link))


def compact(
    gate: Gate, signature: Signature | None = None, details: Mapping[str, Any] | None = None
) -> Link | None:
    """Merge the partials of every shard; None if others changed the state meanwhile, or nothing.

    The merging is done beside a running job; only the link is in its way.
    """
    head = gate.head()
    before = size_of(gate.stream, head)
    if before.partials == before.shards and not head.state.deltas:
        return None
    result = manifest.compacted(gate.stream.blobs, shards_of(gate.stream, head))
    after = _size(manifest.read(gate.stream.blobs, result))
    told = {
        "summary": f"state: {before.partials} partials of {before.bytes} bytes → "
        f"{after.partials} of {after.bytes}"
    }
    draft = CompactDraft(head.state, result, signature or Signature(), {**(details or {}), **told})
    return gate.append(draft, head)


def _size(shards: Shards) -> Size:
    refs = [ref for refs in shards.values() for ref in refs]
    return Size(len(shards), len(refs), sum(ref.size for ref in refs))
