"""Compaction of the dedup log: the same stamps, or fewer, in one segment; and its undo."""

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
from sluicegate.stream.journal import Inputs, Parts, StreamOperation, Workplace, silent
from sluicegate.stream.operations.compact import inputs_unchanged, oldest, unless_replaced
from sluicegate.stream.snapshot import Manifest, Snapshot, SnapshotDamaged
from sluicegate.stream.stream import Stream
from sluicegate.stream.writer import StreamWriter


@dataclass(frozen=True, kw_only=True)
class CompactDedup(StreamOperation):
    """Merge the segments into one; with `before`, drop stamps of keys idle since that time."""

    name: ClassVar = "compact-dedup"
    online: ClassVar = True
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
        if len(inputs) == 1 and not done.dropped:
            return nothing
        old = units.size(sum(ref.size for ref in inputs))
        count, size = units.counted(len(inputs), "segment"), units.size(len(done.data))
        actions = [Action("merge", "dedup log", f"{count}, {old}, to one of {size}")]
        consequences = ["A running job continues undisturbed."]
        if done.dropped:
            when = units.utc(self.before or 0.0)
            actions.append(Action("drop", "stamps", f"{done.dropped:,}, not seen since {when}"))
            consequences.append(
                "Events below the new retention floors are rejected, because they may be "
                "duplicates."
            )
        else:
            consequences.insert(
                0, "The stamps are the same before and after; this is verified before the swap."
            )
        return replace(nothing, actions=actions, consequences=consequences)

    def append(
        self, at: Workplace, signature: Signature, details: Mapping[str, Any]
    ) -> Snapshot | None:
        return compact_dedup(at.writer, self._merged(at), signature, details)

    def _merged(self, at: Workplace) -> Compacted:
        """The segments as one; merged only once, since segments never change."""
        key = (self.before, self.inputs)
        if key not in at.merged:
            done = compacted(at.stream, self.inputs or (), self.before, at.on_progress)
            at.merged = {key: done}
        found = at.merged[key]
        assert isinstance(found, Compacted)
        return found

    @classmethod
    def inverse(cls, _stream: Stream, number: int, operation: str, *, force: bool) -> RestoreDedup:
        """Restore the stamps that a compaction dropped by age."""
        del force  # it needs no force: jobs keep running
        return RestoreDedup(to=number, note=f"undo {operation}", undoes=operation)


@dataclass(frozen=True, kw_only=True)
class RestoreDedup(StreamOperation):
    """Undo a compaction of the dedup log; `to` is its snapshot."""

    name: ClassVar = "restore-dedup"
    online: ClassVar = True
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
                f"snapshot {self.to} cannot be undone: the snapshot before it is pruned",
                hint=f"see what can be undone: {units.command('history', stream.uri)}",
            ) from e
        assert made.dedup.base
        if head.dedup.base != made.dedup.base:
            raise Drifted(f"the dedup log was compacted again since snapshot {self.to}")
        count = made.details.get("dropped", 0)
        actions = [Action("restore", "dedup log", f"{units.counted(count, 'stamp')} restored")]
        needs = inputs_unchanged(head, "dedup", (made.dedup.base,))
        kept = ["Stamps seen since then are kept. A running job continues undisturbed."]
        return Parts(f"Restore the dedup log of {stream.name}", needs, actions, kept)

    def append(
        self, at: Workplace, signature: Signature, details: Mapping[str, Any]
    ) -> Snapshot | None:
        return restore_dedup(at.writer, self.to, signature, details, at.on_progress)


@dataclass(frozen=True, slots=True)
class Compacted:
    """Segments merged into one, verified, and how many stamps were dropped by age."""

    inputs: Inputs
    data: bytes
    dropped: int


def compacted(
    stream: Stream,
    inputs: Inputs,
    before: float | None,
    on_progress: Callable[[int, int], None] = silent,
) -> Compacted:
    """Merge segments into one; with `before`, drop stamps of keys idle since that time.

    Nothing is stored. Progress is in bytes, for reading, merging and verifying each.
    """
    size = sum(ref.size for ref in inputs)
    with unless_replaced(stream, "dedup", inputs):
        ledger = segments.read(stream.blobs, inputs, lambda read: on_progress(read, 3 * size))
    dropped = 0 if before is None else ledger.expire(round(before * 1000))
    entries = ledger.entries()
    data = segment.encode(entries)
    on_progress(2 * size, 3 * size)
    if not segment.decode(data, "the compacted log").same_stamps(entries):
        raise Corrupt("the compacted dedup log does not have the same stamps; nothing was changed")
    on_progress(3 * size, 3 * size)
    return Compacted(inputs, data, dropped)


def compact_dedup(
    writer: StreamWriter, done: Compacted, signature: Signature, details: Mapping[str, Any]
) -> Snapshot | None:
    """Replace segments by one that has them all; None if another process replaced them."""
    head = writer.head()
    part = oldest(head.dedup, done.inputs)
    if part is None:
        return None
    old = units.size(sum(ref.size for ref in done.inputs))
    segments_text = units.counted(len(done.inputs), "segment")
    summary = f"dedup log: {segments_text}, {old} → {units.size(len(done.data))}"
    summary += f"; dropped {units.counted(done.dropped, 'stamp')} by age" if done.dropped else ""
    fields = {**details, "summary": summary, "dropped": done.dropped}
    result = writer.stream.blobs.put(done.data)
    return writer.append(CompactDraft(part, result, signature, fields, "dedup"), head)


def restore_dedup(
    writer: StreamWriter,
    number: int,
    signature: Signature,
    details: Mapping[str, Any],
    on_progress: Callable[[int, int], None] = silent,
) -> Snapshot | None:
    """Undo a compaction: restore the stamps that it dropped, and keep those seen since."""
    head = writer.head()
    was, made = writer.stream.chain.read(number - 1), writer.stream.chain.read(number)
    # The segments that the job committed during the compaction are there unchanged.
    inputs = was.dedup.refs[: len(was.dedup.refs) - len(made.dedup.deltas)]
    result = writer.stream.blobs.put(compacted(writer.stream, inputs, None, on_progress).data)
    draft = CompactDraft(Manifest(made.dedup.base), result, signature, details, "dedup")
    return writer.append(draft, head)
