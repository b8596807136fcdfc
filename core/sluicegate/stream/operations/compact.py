"""Compaction of state: the same content in one delta per shard."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Literal

from sluicegate import units
from sluicegate.codec import digest_of
from sluicegate.errors import Drifted
from sluicegate.plan import Action, Precondition
from sluicegate.state import manifest
from sluicegate.state.manifest import Shards
from sluicegate.storage.blobs import BlobDamaged
from sluicegate.stream.append import CompactDraft, Signature
from sluicegate.stream.operations.base import Inputs, Parts, StreamOperation, Workplace, silent
from sluicegate.stream.snapshot import Manifest, Snapshot
from sluicegate.stream.state import shards_of
from sluicegate.stream.stream import Stream
from sluicegate.stream.writer import Gate

What = Literal["state", "dedup"]


@dataclass(frozen=True, kw_only=True)
class CompactState(StreamOperation):
    """Merge the deltas of every shard; `inputs` is what is merged, None: all there is."""

    name: ClassVar = "compact"
    beside_a_job: ClassVar = True
    progress_title: ClassVar = "merging the state"
    inputs: Inputs | None = None

    def resolved(self, stream: Stream) -> CompactState:
        if self.inputs is not None:
            return self
        return replace(self, inputs=stream.chain.head().state.refs)

    def plan(self, at: Workplace) -> Parts:
        stream, head, inputs = at.stream, at.stream.chain.head(), self.inputs or ()
        needs = inputs_unchanged(head, "state", inputs)
        nothing = Parts(f"Compact the state of {stream.name}", needs)
        if oldest(head.state, inputs) is None:
            return nothing
        size = size_of_inputs(stream, inputs)
        if is_compact(size, inputs):
            return nothing
        count = f"{size.deltas} deltas of {size.shards} shards, {units.size(size.bytes)}"
        actions = [Action("merge", "state", f"{count}, to one delta per shard")]
        told = ["The state is the same before and after. A job that runs is not disturbed."]
        return replace(nothing, actions=actions, consequences=told)

    def append(
        self, at: Workplace, signature: Signature, details: Mapping[str, Any]
    ) -> Snapshot | None:
        return compact(at.gate, signature, details, self.inputs, at.on_progress)


@dataclass(frozen=True, slots=True)
class Size:
    """What state consists of."""

    shards: int
    deltas: int
    bytes: int


def size_of(stream: Stream, snapshot: Snapshot) -> Size:
    """How much state there is at a snapshot, and in how many pieces."""
    return _size(shards_of(stream, snapshot))


def size_of_inputs(stream: Stream, inputs: Inputs) -> Size:
    """The same for some of the manifests that state consists of."""
    with unless_replaced(stream, "state", inputs):
        return _size(_shards(stream, inputs))


def content(snapshot: Snapshot, what: What) -> Manifest:
    """What a compaction is about, at a snapshot."""
    return snapshot.state if what == "state" else snapshot.dedup


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
) -> Snapshot | None:
    """Merge the deltas of every shard; None if others changed the state meanwhile, or nothing.

    Without `inputs`, all of the state. The merging is done beside a running job; only the snapshot
    is in its way.
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
        "summary": f"state: {before.deltas} deltas of {before.bytes} bytes → "
        f"{after.deltas} of {after.bytes}"
    }
    draft = CompactDraft(part, result, signature or Signature(), {**(details or {}), **told})
    return gate.append(draft, head)


def is_compact(size: Size, inputs: Inputs) -> bool:
    """Whether nothing is left to merge."""
    return size.deltas == size.shards and len(inputs) <= 1


def _shards(stream: Stream, inputs: Inputs) -> Shards:
    return manifest.joined(manifest.read(stream.blobs, ref) for ref in inputs)


def _size(shards: Shards) -> Size:
    refs = [ref for refs in shards.values() for ref in refs]
    return Size(len(shards), len(refs), sum(ref.size for ref in refs))


def inputs_unchanged(head: Snapshot, what: What, inputs: Inputs) -> tuple[Precondition, ...]:
    """What a compaction depends on: its inputs are still what the stream begins with."""
    found = content(head, what).refs[: len(inputs)]
    digest = digest_of("".join(ref.digest for ref in found).encode())[:16]
    name = "the state's oldest parts" if what == "state" else "the dedup log's oldest segments"
    return (
        Precondition("the stream", head.stream_id),
        Precondition(name, f"{len(found)}, {digest}"),
    )
