"""A link: one entry of a chain, which describes the whole stream at that point; and ranges of them.

A link is a frame of kind `link` (FORMAT.md). Its identity is the frame's checksum; the next link
carries it as its parent. It stays small however long the stream runs: state and dedup log are
manifests (a base and a few deltas), and the lineage is ranges of numbers.
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
    """What is left of a range, ascending."""
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


_LOOK = "nothing was changed; see what is wrong with: sluicegate checkpoint verify STREAM"


class ChainDamaged(Corrupt):
    """The chain is not whole, so nothing may be built on it."""

    default_hint = _LOOK


class LinkDamaged(ChainDamaged):
    """A link is missing, unreadable, or not the one that belongs there."""


class ChainShort(ChainDamaged):
    """The chain ends before the newest link that is known to have been durable."""


class HeadDamaged(ChainDamaged):
    """The HEAD hint is missing or unreadable, so what the newest link was is not known."""


FORMAT = codec.Format("link", 1, 16 * 1024 * 1024)
MAX_DELTAS = 16
_HEX = re.compile(r"[0-9a-f]{1,128}")
_NONCE = re.compile(r"[0-9a-f]{32}")
_U64 = range(2**64)
Nothing: Mapping[str, Any] = MappingProxyType({})


class Kind(Enum):
    """What a link did to the stream."""

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
    """References to what something consists of: a base, and what was added since, oldest first."""

    base: Ref | None = None
    deltas: tuple[Ref, ...] = ()

    @property
    def refs(self) -> tuple[Ref, ...]:
        """All of them, oldest first."""
        return (*([self.base] if self.base else []), *self.deltas)

    def __bool__(self) -> bool:
        return self.base is not None or bool(self.deltas)


@dataclass(frozen=True, slots=True)
class Link:
    """The stream after something happened to it.

    `changed` is the number of the newest link before this one that is not an epoch, so that the
    history need not read the epochs. `lineage` are the numbers whose epochs are part of the
    stream; what was rolled back is not. `sequence` counts the events included, `epoch` the epochs
    ever sealed; `partials`, `stamps` and `output` are what an epoch changed, saw and wrote.
    `digest` is known of links that were read or written.
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
    lineage: tuple[Span, ...] = ()
    state: Manifest = Manifest()
    dedup: Manifest = Manifest()
    partials: Ref | None = None
    stamps: Ref | None = None
    output: Ref | None = None
    assignment: Ref | None = None
    operators: Ref | None = None
    pins: Mapping[str, Any] = field(default_factory=dict)
    details: Mapping[str, Any] = field(default_factory=dict)
    digest: str = field(default="", compare=False)

    @property
    def refs(self) -> tuple[Ref, ...]:
        """The blobs it refers to itself; manifests refer to more."""
        single = (self.partials, self.stamps, self.output, self.assignment, self.operators)
        return (*self.state.refs, *self.dedup.refs, *(ref for ref in single if ref))

    def includes(self, number: int) -> bool:
        """Whether the epoch of a link is part of the stream at this point."""
        return any(first <= number <= last for first, last in self.lineage)


def key_of(number: int) -> str:
    """Where a link lies in its stream."""
    return f"chain/{number:020d}.link"


def extended(lineage: tuple[Span, ...], number: int) -> tuple[Span, ...]:
    """The lineage with one more number, which is above all others."""
    if lineage and lineage[-1][1] == number - 1:
        return (*lineage[:-1], (lineage[-1][0], number))
    return (*lineage, (number, number))


def encode(link: Link) -> bytes:
    """The bytes of a link, the same for equal links."""
    return codec.encode(FORMAT, _fields(link))


def digest_of(data: bytes) -> str:
    """The identity of a link from its bytes."""
    return data[32:64].hex()


def decode(data: bytes, place: str) -> Link:
    """The link in a frame, or `LinkDamaged`; a newer format is `UnsupportedFormat`."""
    try:
        fields = codec.decode(FORMAT, data, place)
        return replace(_link(fields), digest=digest_of(data))
    except Corrupt as e:
        raise LinkDamaged(e.message, place=place) from e
    except (AttributeError, KeyError, TypeError, ValueError, UsageError) as e:
        raise LinkDamaged(f"{place}: its fields are not those of a link: {e!r}", place=place) from e


def _fields(link: Link) -> dict[str, Any]:
    return {
        "stream": link.stream,
        "stream_id": link.stream_id,
        "number": link.number,
        "kind": link.kind.value,
        "parent": link.parent,
        "generation": link.generation,
        "writer": link.writer,
        "nonce": link.nonce,
        "by": link.by.fields(),
        "created_at": float(link.created_at),
        "app": link.app,
        "reason": link.reason,
        "sequence": link.sequence,
        "epoch": link.epoch,
        "positions": _from_positions(link.positions),
        "watermark_ns": link.watermark_ns,
        "counters": dict(link.counters),
        "version": link.version,
        "floor": link.floor,
        "changed": link.changed,
        "lineage": [list(span) for span in link.lineage],
        "state": _from_manifest(link.state),
        "dedup": _from_manifest(link.dedup),
        "partials": link.partials.fields() if link.partials else None,
        "stamps": link.stamps.fields() if link.stamps else None,
        "output": link.output.fields() if link.output else None,
        "assignment": link.assignment.fields() if link.assignment else None,
        "operators": link.operators.fields() if link.operators else None,
        "pins": dict(link.pins),
        "details": dict(link.details),
    }


def _link(fields: Mapping[str, Any]) -> Link:
    if not isinstance(fields, dict) or len(fields) != _FIELD_COUNT:
        raise ValueError("not the keys of a link")
    who = Who.from_fields(fields["by"])
    if who is None:
        raise ValueError("by")
    created_at = fields["created_at"]
    if not isinstance(created_at, float) or not math.isfinite(created_at):
        raise ValueError("created_at")
    return Link(
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
        lineage=_to_lineage(fields["lineage"]),
        state=_to_manifest(fields["state"]),
        dedup=_to_manifest(fields["dedup"]),
        partials=_ref_or_none(fields["partials"]),
        stamps=_ref_or_none(fields["stamps"]),
        output=_ref_or_none(fields["output"]),
        assignment=_ref_or_none(fields["assignment"]),
        operators=_ref_or_none(fields["operators"]),
        pins=_map(fields["pins"]),
        details=_map(fields["details"]),
    )


_FIELD_COUNT = 30


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


def _to_lineage(fields: Any) -> tuple[Span, ...]:
    lineage = tuple((_number(first), _number(last)) for first, last in fields)
    edges = [edge for span in lineage for edge in span]
    if edges != sorted(edges):
        raise ValueError("the lineage is not in order")
    return lineage


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
