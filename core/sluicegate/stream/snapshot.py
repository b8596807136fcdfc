"""A snapshot: one entry of a chain; it describes the entire stream at that point.

A snapshot is a frame of kind `snapshot` (FORMAT.md). Its identity is the frame's checksum; the next
snapshot carries it as its parent. It stays small however long the stream runs: state and dedup log
are manifests (a base and a few deltas), and the ancestry is ranges of numbers.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from enum import Enum
from types import MappingProxyType
from typing import Any

from sluicegate import codec
from sluicegate.errors import Corrupt, UsageError
from sluicegate.positions import Position, Positions
from sluicegate.process import Who
from sluicegate.storage.blobs import Ref

Span = tuple[int, int]


def spans(numbers: Iterable[int]) -> list[Span]:
    """Numbers as ranges, ascending."""
    return merged((number, number) for number in numbers)


def merged(ranges: Iterable[Span]) -> list[Span]:
    """The same numbers in the fewest ranges, ascending."""
    found: list[Span] = []
    for first, last in sorted(ranges):
        if found and first <= found[-1][1] + 1:
            found[-1] = (found[-1][0], max(found[-1][1], last))
        else:
            found.append((first, last))
    return found


def without(span: Span, ranges: Iterable[Span]) -> Iterator[Span]:
    """The parts of a range outside of other ranges, ascending."""
    first, last = span
    for begin, end in merged(ranges):
        if end < first or begin > last:
            continue
        if first < begin:
            yield first, begin - 1
        first = end + 1
    if first <= last:
        yield first, last


def has(ranges: Iterable[Span], number: int) -> bool:
    """Whether a number is in one of the ranges."""
    return any(first <= number <= last for first, last in ranges)


def shown(ranges: Iterable[Span]) -> str:
    """For people: `3, 7-9`."""
    return ", ".join(str(first) if first == last else f"{first}-{last}" for first, last in ranges)


_LOOK = "nothing was changed; check it with: sluicegate checkpoint verify STREAM"


class ChainDamaged(Corrupt):
    """The chain is damaged or incomplete, so nothing may be appended to it."""

    default_hint = _LOOK


class SnapshotDamaged(ChainDamaged):
    """A snapshot is missing, unreadable, or not the one that belongs there."""


class ChainShort(ChainDamaged):
    """The chain ends before the newest snapshot that is known to have been durable."""


class HeadDamaged(ChainDamaged):
    """The HEAD hint is missing or unreadable, so the newest snapshot is not known."""


FORMAT = codec.Format("snapshot", 2, 16 * 1024 * 1024, oldest=2)
MAX_DELTAS = 16
_HEX = re.compile(r"[0-9a-f]{1,128}")
_NONCE = re.compile(r"[0-9a-f]{32}")
_U64 = range(2**64)
Fingerprints = Mapping[tuple[str, int], tuple[int, str]]
"""Topic and partition → the offset behind a record, and a digest of the record."""
Nothing: Mapping[str, Any] = MappingProxyType({})


class Kind(Enum):
    """How a snapshot changed the stream."""

    GENESIS = "genesis"
    CLAIM = "claim"
    EPOCH = "epoch"
    RESET = "reset"
    ROLLBACK = "rollback"
    REBALANCE = "rebalance"
    COMPACT = "compact"
    PRUNE = "prune"
    REPAIR = "repair"
    IMPORT = "import"


@dataclass(frozen=True, slots=True)
class Manifest:
    """References to the blobs of something: a base, and the deltas since, oldest first."""

    base: Ref | None = None
    deltas: tuple[Ref, ...] = ()

    @property
    def refs(self) -> tuple[Ref, ...]:
        """All of them, oldest first."""
        return (*([self.base] if self.base else []), *self.deltas)

    def __bool__(self) -> bool:
        return self.base is not None or bool(self.deltas)


@dataclass(frozen=True, slots=True)
class Snapshot:
    """The stream after something happened to it.

    `changed` is the number of the newest snapshot before this one that is not an epoch, so that the
    history need not read the epochs. `ancestry` are the numbers whose epochs are part of the
    stream; epochs that were rolled back are not. `sequence` counts the events included, `epoch` the
    epochs ever committed; `state_delta`, `stamps` and `output` are what an epoch changed, saw and
    wrote. `digest` is set for snapshots that were read or written.

    Empty so far, and kept from one snapshot to the next: `topics` (identity of each), `window`
    (index of random ids), `packs` (files that hold many blobs), `hooks` (how far each has got) and
    `disowned` (number and nonce of epochs that were published and rolled back).

    `adopting` is set after a repair that keeps output of which the chain knows nothing: up to these
    positions events are applied, but not published. `fingerprints` are the last record that was
    read of each partition: the offset behind it, and a digest. Both are absent where empty.
    """

    stream: str
    stream_id: str
    number: int
    kind: Kind
    parent: str | None
    generation: int
    writer: str | None
    nonce: str
    by: Who
    created_at: float
    app: str | None = None
    reason: str | None = None
    sequence: int = 0
    epoch: int = 0
    positions: Positions = Positions({})  # noqa: RUF009 - a frozen value
    watermark_ns: int | None = None
    counters: Mapping[str, int] = field(default_factory=dict)
    version: int = 0
    floor: int = 0
    changed: int | None = None
    ancestry: tuple[Span, ...] = ()
    state: Manifest = Manifest()
    dedup: Manifest = Manifest()
    state_delta: Ref | None = None
    stamps: Ref | None = None
    output: Ref | None = None
    assignment: Ref | None = None
    operators: Ref | None = None
    topics: Mapping[str, str] = field(default_factory=dict)
    window: Manifest = Manifest()
    packs: tuple[Ref, ...] = ()
    hooks: Mapping[str, Any] = field(default_factory=dict)
    disowned: tuple[tuple[int, str], ...] = ()
    adopting: Positions = Positions({})  # noqa: RUF009 - a frozen value
    fingerprints: Fingerprints = field(default_factory=dict)
    pins: Mapping[str, Any] = field(default_factory=dict)
    details: Mapping[str, Any] = field(default_factory=dict)
    digest: str = field(default="", compare=False)

    @property
    def refs(self) -> tuple[Ref, ...]:
        """The blobs it refers to itself; manifests refer to more."""
        single = (self.state_delta, self.stamps, self.output, self.assignment, self.operators)
        manifests = (*self.state.refs, *self.dedup.refs, *self.window.refs)
        return (*manifests, *self.packs, *(ref for ref in single if ref))

    def includes(self, number: int) -> bool:
        """Whether the epoch of a snapshot is part of the stream at this point."""
        return any(first <= number <= last for first, last in self.ancestry)


def key_of(number: int) -> str:
    """Where a snapshot lies in its stream."""
    return f"chain/{number:020d}.snapshot"


def extended(ancestry: tuple[Span, ...], number: int) -> tuple[Span, ...]:
    """The ancestry with one more number, which is above all others."""
    if ancestry and ancestry[-1][1] == number - 1:
        return (*ancestry[:-1], (ancestry[-1][0], number))
    return (*ancestry, (number, number))


def encode(snapshot: Snapshot) -> bytes:
    """The bytes of a snapshot, the same for equal snapshots."""
    return codec.encode(FORMAT, _fields(snapshot))


def digest_of(data: bytes) -> str:
    """The identity of a snapshot from its bytes."""
    return data[32:64].hex()


def decode(data: bytes, place: str) -> Snapshot:
    """The snapshot in a frame, or `SnapshotDamaged`; a newer format is `UnsupportedFormat`."""
    try:
        fields = codec.decode(FORMAT, data, place)
        return replace(_snapshot(fields), digest=digest_of(data))
    except Corrupt as e:
        raise SnapshotDamaged(e.message, place=place) from e
    except (AttributeError, KeyError, TypeError, ValueError, UsageError) as e:
        raise SnapshotDamaged(
            f"{place}: its fields are not those of a snapshot: {e!r}", place=place
        ) from e


def _fields(snapshot: Snapshot) -> dict[str, Any]:
    return {
        "stream": snapshot.stream,
        "stream_id": snapshot.stream_id,
        "number": snapshot.number,
        "kind": snapshot.kind.value,
        "parent": snapshot.parent,
        "generation": snapshot.generation,
        "writer": snapshot.writer,
        "nonce": snapshot.nonce,
        "by": snapshot.by.fields(),
        "created_at": float(snapshot.created_at),
        "app": snapshot.app,
        "reason": snapshot.reason,
        "sequence": snapshot.sequence,
        "epoch": snapshot.epoch,
        "positions": _from_positions(snapshot.positions),
        "watermark_ns": snapshot.watermark_ns,
        "counters": dict(snapshot.counters),
        "version": snapshot.version,
        "floor": snapshot.floor,
        "changed": snapshot.changed,
        "ancestry": [list(span) for span in snapshot.ancestry],
        "state": _from_manifest(snapshot.state),
        "dedup": _from_manifest(snapshot.dedup),
        "state_delta": snapshot.state_delta.fields() if snapshot.state_delta else None,
        "stamps": snapshot.stamps.fields() if snapshot.stamps else None,
        "output": snapshot.output.fields() if snapshot.output else None,
        "assignment": snapshot.assignment.fields() if snapshot.assignment else None,
        "operators": snapshot.operators.fields() if snapshot.operators else None,
        "topics": dict(snapshot.topics),
        "window": _from_manifest(snapshot.window),
        "packs": [ref.fields() for ref in snapshot.packs],
        "hooks": dict(snapshot.hooks),
        "disowned": [list(each) for each in snapshot.disowned],
        "pins": dict(snapshot.pins),
        "details": dict(snapshot.details),
        **_later_fields(snapshot),
    }


def _later_fields(snapshot: Snapshot) -> dict[str, Any]:
    """The fields that are absent where empty, so that older snapshots have the same bytes."""
    fields: dict[str, Any] = {}
    if snapshot.adopting:
        fields["adopting"] = _from_positions(snapshot.adopting)
    if snapshot.fingerprints:
        known = sorted(snapshot.fingerprints.items())
        fields["fingerprints"] = [[*place, *mark] for place, mark in known]
    return fields


def _snapshot(fields: Mapping[str, Any]) -> Snapshot:
    if not isinstance(fields, dict) or len(fields.keys() - _LATER) != _FIELD_COUNT:
        raise ValueError("not the keys of a snapshot")
    who = Who.from_fields(fields["by"])
    if who is None:
        raise ValueError("by")
    created_at = fields["created_at"]
    if not isinstance(created_at, float) or not math.isfinite(created_at):
        raise ValueError("created_at")
    return Snapshot(
        stream=_text(fields["stream"]),
        stream_id=_text(fields["stream_id"]),
        number=_number(fields["number"]),
        kind=Kind(fields["kind"]),
        parent=None if fields["parent"] is None else _hex(fields["parent"], _HEX),
        generation=_number(fields["generation"]),
        writer=_text_or_none(fields["writer"]),
        nonce=_hex(fields["nonce"], _NONCE),
        by=who,
        created_at=created_at,
        app=_text_or_none(fields["app"]),
        reason=_text_or_none(fields["reason"]),
        sequence=_number(fields["sequence"]),
        epoch=_number(fields["epoch"]),
        positions=_to_positions(fields["positions"]),
        watermark_ns=None if fields["watermark_ns"] is None else _number(fields["watermark_ns"]),
        counters={_text(name): _number(n) for name, n in fields["counters"].items()},
        version=_number(fields["version"]),
        floor=_number(fields["floor"]),
        changed=None if fields["changed"] is None else _number(fields["changed"]),
        ancestry=_to_ancestry(fields["ancestry"]),
        state=_to_manifest(fields["state"]),
        dedup=_to_manifest(fields["dedup"]),
        state_delta=_ref_or_none(fields["state_delta"]),
        stamps=_ref_or_none(fields["stamps"]),
        output=_ref_or_none(fields["output"]),
        assignment=_ref_or_none(fields["assignment"]),
        operators=_ref_or_none(fields["operators"]),
        topics={_text(topic): _text(identity) for topic, identity in fields["topics"].items()},
        window=_to_manifest(fields["window"]),
        packs=tuple(Ref.from_fields(each) for each in fields["packs"]),
        hooks=_map(fields["hooks"]),
        disowned=tuple((_number(n), _hex(nonce, _NONCE)) for n, nonce in fields["disowned"]),
        adopting=_to_positions(fields.get("adopting", {})),
        fingerprints={
            (_text(topic), _number(partition)): (_number(offset), _hex(digest, _HEX))
            for topic, partition, offset, digest in fields.get("fingerprints", ())
        },
        pins=_map(fields["pins"]),
        details=_map(fields["details"]),
    )


_FIELD_COUNT = 35
_LATER = {"adopting", "fingerprints"}


def _from_positions(positions: Positions) -> dict[str, list[list[int]]]:
    """Topic → partitions and offsets, as two lists: half the size of a map of texts."""
    return {
        topic: [sorted(partitions), [partitions[p] for p in sorted(partitions)]]
        for topic, partitions in positions.by_topic.items()
    }


def _to_positions(fields: Mapping[str, Any]) -> Positions:
    return Positions.of(
        Position(topic, partition, offset)
        for topic, (partitions, offsets) in fields.items()
        for partition, offset in zip(partitions, offsets, strict=True)
    )


def _from_manifest(manifest: Manifest) -> list[Any]:
    base = manifest.base.fields() if manifest.base else None
    return [base, [ref.fields() for ref in manifest.deltas]]


def _to_manifest(fields: Any) -> Manifest:
    base, deltas = fields
    if len(deltas) > MAX_DELTAS:
        raise ValueError(f"a manifest has {len(deltas)} deltas; {MAX_DELTAS} are allowed")
    return Manifest(_ref_or_none(base), tuple(Ref.from_fields(each) for each in deltas))


def _to_ancestry(fields: Any) -> tuple[Span, ...]:
    ancestry = tuple((_number(first), _number(last)) for first, last in fields)
    edges = [edge for span in ancestry for edge in span]
    if edges != sorted(edges):
        raise ValueError("the ancestry is not in order")
    return ancestry


def _ref_or_none(fields: Any) -> Ref | None:
    return None if fields is None else Ref.from_fields(fields)


def _number(value: Any) -> int:
    if type(value) is not int or value not in _U64:
        raise ValueError(f"{value!a:.40} is not a count")
    return value


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise TypeError(f"{value!a:.40} is not a text")
    return value


def _text_or_none(value: Any) -> str | None:
    return None if value is None else _text(value)


def _hex(value: Any, form: re.Pattern[str]) -> str:
    if not form.fullmatch(_text(value)):
        raise ValueError(f"{value!a:.40} is not hexadecimal")
    return str(value)


def _map(value: Any) -> Mapping[str, Any]:
    if not isinstance(value, dict):
        raise TypeError(f"{value!a:.40} is not a map")
    return value
