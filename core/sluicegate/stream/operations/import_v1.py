"""Legacy checkpoint files (v1): import into and export from a stream."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from sluicegate import codec, units
from sluicegate.errors import Corrupt, SluicegateError, UnsupportedFormat
from sluicegate.legacy import v1
from sluicegate.plan import Action, Plan
from sluicegate.positions import Positions
from sluicegate.storage import open_beside
from sluicegate.storage.blobs import Ref
from sluicegate.stream.append import NewGenerationDraft, Signature
from sluicegate.stream.journal import Parts, StreamOperation, Workplace, moves, preconditions
from sluicegate.stream.snapshot import Kind, Manifest, Snapshot
from sluicegate.stream.stream import Stream

OPERATORS = codec.Format("operator", 1, 2**32 - 1)
_EVENTS = "events"


@dataclass(frozen=True, kw_only=True)
class ImportV1(StreamOperation):
    """Take over a v1 checkpoint; `data` is its file in base64, so that a plan can carry it."""

    name: ClassVar = "import"
    data: str

    @property
    def checkpoint(self) -> v1.V1Checkpoint:
        """The checkpoint that it carries."""
        try:
            data = base64.b64decode(self.data, validate=True)
        except binascii.Error as e:
            raise Corrupt("the plan does not hold the file to import") from e
        return v1.decode(data, "the file to import")

    def plan(self, at: Workplace) -> Parts:
        head, checkpoint = at.stream.chain.head(), self.checkpoint
        new = Positions({name: {0: offset} for name, offset in checkpoint.sources.items()})
        actions = moves(head.positions, new)
        actions.append(
            Action(
                "replace",
                "state",
                f"by {units.counted(len(checkpoint.operators), 'operator state')}",
            )
        )
        consequences = [
            f"The stream resumes after sequence {checkpoint.sequence}, the last one in the file.",
            "The current state of the stream is discarded.",
        ]
        needs = preconditions(head, force=self.force)
        return Parts(f"Import a checkpoint into {at.stream.name}", needs, actions, consequences)

    def append(
        self, at: Workplace, signature: Signature, details: Mapping[str, Any]
    ) -> Snapshot | None:
        content = {**content_from_v1(at.stream, self.checkpoint), "details": details}
        base = at.applied_on
        draft = NewGenerationDraft(Kind.IMPORT, content, self.force, signature, base, None)
        return at.writer.append(draft, base)


def content_from_v1(stream: Stream, checkpoint: v1.V1Checkpoint) -> dict[str, Any]:
    """The content of a snapshot from a v1 checkpoint; its operators become a blob."""
    return {
        "positions": Positions({name: {0: n} for name, n in checkpoint.sources.items()}).checked(),
        "sequence": checkpoint.sequence,
        "watermark_ns": checkpoint.watermark_ns,
        "counters": {_EVENTS: checkpoint.event_count},
        "state": Manifest(),
        "dedup": Manifest(),
        "operators": put_operators(stream, checkpoint.operators),
        "adopting": Positions({}),
        "fingerprints": {},
        "hooks": {},
        "ancestry": (),
    }


def to_v1(stream: Stream, snapshot: Snapshot) -> v1.V1Checkpoint:
    """A snapshot as a v1 checkpoint; refused if that would lose content."""
    if snapshot.state:
        raise UnsupportedFormat(
            f"snapshot {snapshot.number} has state per shard, which a v1 checkpoint cannot hold",
            hint="a v1 file holds operator states and one offset per source",
        )
    sources = {}
    for each in snapshot.positions:
        if each.partition != 0:
            raise UnsupportedFormat(
                f"{each.topic} has several partitions; a v1 checkpoint has one offset per source"
            )
        sources[each.topic] = each.offset
    return v1.V1Checkpoint(
        sequence=snapshot.sequence,
        watermark_ns=snapshot.watermark_ns or 0,
        event_count=snapshot.counters.get(_EVENTS, snapshot.sequence),
        operators=read_operators(stream, snapshot.operators),
        sources=sources,
    )


def plan_write_v1(place: str, checkpoint: v1.V1Checkpoint, number: int) -> Plan:
    """The plan to write a v1 file."""
    size = units.size(len(v1.encode(checkpoint)))
    what = f"snapshot {number}, sequence {checkpoint.sequence}, {size}"
    return Plan("Export a v1 checkpoint", (Action("write", place, what),))


def write_v1(place: str, checkpoint: v1.V1Checkpoint) -> None:
    """Write a new v1 file; an existing file is never overwritten."""
    beside, name = open_beside(place)
    if not beside.put_if_absent(name, v1.encode(checkpoint)):
        raise SluicegateError(
            f"{place} already exists; an export never overwrites a file",
            hint="name another file, or remove that one",
            place=place,
        )


def put_operators(stream: Stream, operators: dict[str, bytes]) -> Ref | None:
    """Operator states as a blob; None if there are none."""
    return stream.blobs.put(codec.encode(OPERATORS, operators)) if operators else None


def read_operators(stream: Stream, ref: Ref | None) -> dict[str, bytes]:
    """The operator states in a blob."""
    if ref is None:
        return {}
    fields = codec.decode(OPERATORS, stream.blobs.get(ref), ref.key)
    if not isinstance(fields, dict) or not all(isinstance(v, bytes) for v in fields.values()):
        raise Corrupt(f"{ref.key} does not hold operator states", place=ref.key)
    return fields
