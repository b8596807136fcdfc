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
from sluicegate.stream.journal import Inputs, Parts, StreamOperation, Workplace, silent
from sluicegate.stream.snapshot import Manifest, Snapshot
from sluicegate.stream.state import shards_of
from sluicegate.stream.stream import Stream
from sluicegate.stream.writer import StreamWriter

What = Literal["state", "dedup"]


@dataclass(frozen=True, kw_only=True)
class CompactState(StreamOperation):
    """Merge the deltas of every shard; `inputs` are the manifests to merge, None: all."""

    name: ClassVar = "compact"
    online: ClassVar = True
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
        pieces = f"{units.counted(size.deltas, 'delta')} of {units.counted(size.shards, 'shard')}"
        count = f"{pieces}, {units.size(size.bytes)}"
        actions = [Action("merge", "state", f"{count}, to one delta per shard")]
        same = ["The state is the same before and after. A running job continues undisturbed."]
        return replace(nothing, actions=actions, consequences=same)

    def append(
        self, at: Workplace, signature: Signature, details: Mapping[str, Any]
    ) -> Snapshot | None:
        return compact(at.writer, signature, details, self.inputs, at.on_progress)


@dataclass(frozen=True, slots=True)
class Size:
    """The size of state."""

    shards: int
    deltas: int
    bytes: int


def size_of(stream: Stream, snapshot: Snapshot) -> Size:
    """How much state there is at a snapshot, and in how many pieces."""
    return _size(shards_of(stream, snapshot))


def size_of_inputs(stream: Stream, inputs: Inputs) -> Size:
    """The same for some of the manifests of the state."""
    with unless_replaced(stream, "state", inputs):
        return _size(_shards(stream, inputs))


def content(snapshot: Snapshot, what: What) -> Manifest:
    """The manifest that a compaction replaces, at a snapshot."""
    return snapshot.state if what == "state" else snapshot.dedup


def oldest(kept: Manifest, inputs: Inputs) -> Manifest | None:
    """The inputs as a part of a manifest; None unless it begins with them."""
    if not inputs or kept.refs[: len(inputs)] != inputs:
        return None
    return Manifest(kept.base, inputs[1:] if kept.base else inputs)


@contextmanager
def unless_replaced(stream: Stream, what: What, inputs: Inputs) -> Iterator[None]:
    """`Drifted` instead of damage, if another process replaced and collected the inputs."""
    try:
        yield
    except BlobDamaged as e:
        if oldest(content(stream.chain.head(), what), inputs):
            raise
        raise Drifted(
            f"another process replaced the {what} of {stream.name} while it was read"
        ) from e


def compact(
    writer: StreamWriter,
    signature: Signature | None = None,
    details: Mapping[str, Any] | None = None,
    inputs: Inputs | None = None,
    on_progress: Callable[[int, int], None] = silent,
) -> Snapshot | None:
    """Merge the deltas of every shard; None if others changed the state meanwhile, or nothing.

    Without `inputs`, all of the state. A running job continues while deltas are merged; only the
    snapshot can delay it.
    """
    head = writer.head()
    inputs = head.state.refs if inputs is None else inputs
    part = oldest(head.state, inputs)
    if part is None:
        return None
    try:
        before = size_of_inputs(writer.stream, inputs)
        if is_compact(before, inputs):
            return None
        with unless_replaced(writer.stream, "state", inputs):
            shards = _shards(writer.stream, inputs)
            result = manifest.compacted(writer.stream.blobs, shards, on_progress)
            after = _size(manifest.read(writer.stream.blobs, result))
    except Drifted:
        return None
    summary = {
        "summary": f"state: {units.counted(before.deltas, 'delta')} of {before.bytes} bytes → "
        f"{after.deltas} of {after.bytes}"
    }
    draft = CompactDraft(part, result, signature or Signature(), {**(details or {}), **summary})
    return writer.append(draft, head)


def is_compact(size: Size, inputs: Inputs) -> bool:
    """Whether nothing is left to merge."""
    return size.deltas == size.shards and len(inputs) <= 1


def _shards(stream: Stream, inputs: Inputs) -> Shards:
    return manifest.joined(manifest.read(stream.blobs, ref) for ref in inputs)


def _size(shards: Shards) -> Size:
    refs = [ref for refs in shards.values() for ref in refs]
    return Size(len(shards), len(refs), sum(ref.size for ref in refs))


def inputs_unchanged(head: Snapshot, what: What, inputs: Inputs) -> tuple[Precondition, ...]:
    """The preconditions of a compaction: its inputs are still the oldest of the stream."""
    found = content(head, what).refs[: len(inputs)]
    digest = digest_of("".join(ref.digest for ref in found).encode())[:16]
    name = "the state's oldest parts" if what == "state" else "the dedup log's oldest segments"
    return (
        Precondition("the stream", head.stream_id),
        Precondition(name, f"{len(found)}, {digest}"),
    )
