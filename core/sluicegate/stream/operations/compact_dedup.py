"""Compaction of the dedup log: the same stamps in one segment, or fewer; and taking it back."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar

from sluicegate import units
from sluicegate.dedup import segment
from sluicegate.errors import Corrupt, Drifted
from sluicegate.journal import NothingToUndo
from sluicegate.plan import Action
from sluicegate.stream import segments
from sluicegate.stream.append import CompactDraft, Signature
from sluicegate.stream.operations.base import Inputs, Parts, StreamOperation, Workplace, silent
from sluicegate.stream.operations.compact import inputs_unchanged, oldest, unless_replaced
from sluicegate.stream.snapshot import Manifest, Snapshot, SnapshotDamaged
from sluicegate.stream.stream import Stream
from sluicegate.stream.writer import Gate


@dataclass(frozen=True, kw_only=True)
class CompactDedup(StreamOperation):
    """Merge the segments into one; with `before`, give up what did not grow since that time."""

    name: ClassVar = "compact-dedup"
    beside_a_job: ClassVar = True
    progress_title: ClassVar = "merging the dedup log"
    before: float | None = None
    inputs: Inputs | None = None

    def resolved(self, stream: Stream) -> CompactDedup:
        if self.inputs is not None:
            return self
        return replace(self, inputs=stream.chain.head().dedup.refs)

    def plan(self, at: Workplace) -> Parts:
        stream, head, inputs = at.stream, at.stream.chain.head(), self.inputs or ()
        needs = inputs_unchanged(head, "dedup", inputs)
        nothing = Parts(f"Compact the dedup log of {stream.name}", needs)
        if oldest(head.dedup, inputs) is None:
            return nothing
        done = self._merged(at)
        if len(inputs) == 1 and not done.given_up:
            return nothing
        old = units.size(sum(ref.size for ref in inputs))
        what = f"{len(inputs)} segments, {old}, to one of {units.size(len(done.data))}"
        actions = [Action("merge", "dedup log", what)]
        told = ["A job that runs is not disturbed."]
        if done.given_up:
            when = units.utc(self.before or 0.0)
            actions.append(Action("give up", "stamps", f"{done.given_up:,}, not seen since {when}"))
            told.append(
                "What arrives below the new floors can no longer be told from a duplicate: it goes "
                "to the rejects, with that reason."
            )
        else:
            told.insert(0, "It knows the same stamps before and after; that is proven first.")
        return replace(nothing, actions=actions, consequences=told)

    def append(
        self, at: Workplace, signature: Signature, details: Mapping[str, Any]
    ) -> Snapshot | None:
        return compact_dedup(at.gate, self._merged(at), signature, details)

    def _merged(self, at: Workplace) -> Compacted:
        """The segments as one; only once, since segments never change."""
        key = (self.before, self.inputs)
        if key not in at.merged:
            done = compacted(at.stream, self.inputs or (), self.before, at.on_progress)
            at.merged = {key: done}
        found = at.merged[key]
        assert isinstance(found, Compacted)
        return found

    @classmethod
    def inverse(cls, _stream: Stream, number: int, operation: str, *, force: bool) -> RestoreDedup:
        """What a compaction gave up by age is known again."""
        del force  # it runs beside a job
        return RestoreDedup(to=number, note=f"undo {operation}", undoes=operation)


@dataclass(frozen=True, kw_only=True)
class RestoreDedup(StreamOperation):
    """Take a compaction of the dedup log back; `to` is its snapshot."""

    name: ClassVar = "restore-dedup"
    beside_a_job: ClassVar = True
    progress_title: ClassVar = "restoring the dedup log"
    to: int

    @property
    def aim(self) -> str:
        return f"to snapshot {self.to}"

    def plan(self, at: Workplace) -> Parts:
        stream, head = at.stream, at.stream.chain.head()
        try:
            stream.chain.read(self.to - 1)
            made = stream.chain.read(self.to)
        except SnapshotDamaged as e:
            raise NothingToUndo(
                f"snapshot {self.to} cannot be undone: what was before it is not kept any more",
                hint=f"see what can be: {units.command('history', stream.uri)}",
            ) from e
        assert made.dedup.base
        if head.dedup.base != made.dedup.base:
            raise Drifted(f"the dedup log was compacted again since snapshot {self.to}")
        count = made.details.get("given_up", 0)
        actions = [Action("restore", "dedup log", f"{count:,} stamps are known again")]
        needs = inputs_unchanged(head, "dedup", (made.dedup.base,))
        told = ["What was seen since stays known. A job that runs is not disturbed."]
        return Parts(f"Restore the dedup log of {stream.name}", needs, actions, told)

    def append(
        self, at: Workplace, signature: Signature, details: Mapping[str, Any]
    ) -> Snapshot | None:
        return restore_dedup(at.gate, self.to, signature, details, at.on_progress)


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
) -> Snapshot | None:
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
) -> Snapshot | None:
    """Take a compaction back: what it gave up by age is known again, with what came since."""
    head = gate.head()
    was, made = gate.stream.chain.read(number - 1), gate.stream.chain.read(number)
    # What the job had committed beside the compaction is there as it was.
    inputs = was.dedup.refs[: len(was.dedup.refs) - len(made.dedup.deltas)]
    result = gate.stream.blobs.put(compacted(gate.stream, inputs, None, on_progress).data)
    draft = CompactDraft(Manifest(made.dedup.base), result, signature, details, "dedup")
    return gate.append(draft, head)
