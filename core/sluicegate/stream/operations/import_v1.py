"""Checkpoints of the reference design (v1 files) in and out of a stream."""

from __future__ import annotations

from typing import Any

from sluicegate import codec, units
from sluicegate.errors import Corrupt, SluicegateError, UnsupportedFormat
from sluicegate.legacy import v1
from sluicegate.plan import Action, Plan
from sluicegate.positions import Positions
from sluicegate.storage import open_beside
from sluicegate.storage.blobs import Ref
from sluicegate.stream.snapshot import Link, Manifest
from sluicegate.stream.stream import Stream

OPERATORS = codec.Format("operator", 1, 2**32 - 1)
_EVENTS = "events"


def content_from_v1(stream: Stream, checkpoint: v1.V1Checkpoint) -> dict[str, Any]:
    """What a link holds after a v1 checkpoint was taken over; its operators become a blob."""
    return {
        "positions": Positions({name: {0: n} for name, n in checkpoint.sources.items()}).checked(),
        "sequence": checkpoint.sequence,
        "watermark_ns": checkpoint.watermark_ns,
        "counters": {_EVENTS: checkpoint.event_count},
        "state": Manifest(),
        "dedup": Manifest(),
        "operators": put_operators(stream, checkpoint.operators),
        "lineage": (),
    }


def to_v1(stream: Stream, link: Link) -> v1.V1Checkpoint:
    """A link as a v1 checkpoint; refused if that would leave something out."""
    if link.state:
        raise UnsupportedFormat(
            f"link {link.number} has state per shard, which a v1 checkpoint cannot hold",
            hint="a v1 file holds operator states and one offset per source",
        )
    sources = {}
    for each in link.positions:
        if each.partition != 0:
            raise UnsupportedFormat(
                f"{each.topic} has several partitions; a v1 checkpoint has one offset per source"
            )
        sources[each.topic] = each.offset
    return v1.V1Checkpoint(
        sequence=link.sequence,
        watermark_ns=link.watermark_ns or 0,
        event_count=link.counters.get(_EVENTS, link.sequence),
        operators=read_operators(stream, link.operators),
        sources=sources,
    )


def plan_write_v1(place: str, checkpoint: v1.V1Checkpoint, number: int) -> Plan:
    """What writing a v1 file does."""
    size = units.size(len(v1.encode(checkpoint)))
    what = f"link {number}, sequence {checkpoint.sequence}, {size}"
    return Plan("Export a v1 checkpoint", (Action("write", place, what),))


def write_v1(place: str, checkpoint: v1.V1Checkpoint) -> None:
    """Write a new v1 file; an existing file is never overwritten."""
    beside, name = open_beside(place)
    if not beside.put_if_absent(name, v1.encode(checkpoint)):
        raise SluicegateError(
            f"{place} exists already; an export never overwrites a file",
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
