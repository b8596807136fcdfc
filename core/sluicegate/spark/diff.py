"""What differs between two points: of one checkpoint, or of two."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from sluicegate.errors import NotFound, SluicegateError
from sluicegate.positions import Positions
from sluicegate.spark.checkpoint import look_at, read_query_id
from sluicegate.spark.offset_log import OffsetEntry, read_offsets
from sluicegate.spark.operators import Operator, read_operator
from sluicegate.storage import Storage


@dataclass(frozen=True, slots=True)
class Difference:
    """One thing that is not the same; None where it is not there at all."""

    what: str
    left: str | None
    right: str | None


@dataclass(frozen=True, slots=True)
class Point:
    """A checkpoint as of one batch."""

    uri: str
    query_id: str | None
    entry: OffsetEntry
    operators: tuple[Operator, ...]


def read_point(storage: Storage, batch: int | None) -> Point:
    """A checkpoint at a batch, or at its newest."""
    look = look_at(storage)
    number = look.last_batch if batch is None else batch
    if number is None:
        raise NotFound(f"{storage.uri} has no batches yet", place=storage.uri)
    if number not in look.offsets.batches:
        kept = look.offsets.batches
        span = f"{kept[0]} to {kept[-1]}" if kept else "none"
        raise NotFound(
            f"{storage.uri} has no batch {number}; it has {span}",
            hint=f"sluicegate checkpoint list {storage.uri}",
            place=storage.uri,
        )
    return Point(
        storage.uri,
        _query_id(storage),
        read_offsets(storage, number),
        tuple(_operator(storage, operator) for operator in look.operators),
    )


def compare(left: Point, right: Point) -> Iterator[Difference]:
    """Offsets, watermark, confs, operators and partitions that differ, in this order."""
    yield from _if_different("query id", left.query_id, right.query_id)
    yield from _if_different("offset log version", left.entry.version, right.entry.version)
    yield from _compare_offsets(left.entry, right.entry)
    yield from _if_different("watermark_ms", left.entry.watermark_ms, right.entry.watermark_ms)
    yield from _compare_maps("conf", left.entry.conf, right.entry.conf)
    yield from _compare_maps("operator", _operators(left), _operators(right))


def _compare_offsets(left: OffsetEntry, right: OffsetEntry) -> Iterator[Difference]:
    ours = {offset.source: offset for offset in left.offsets}
    theirs = {offset.source: offset for offset in right.offsets}
    for source in sorted(ours.keys() | theirs.keys()):
        a, b = ours.get(source), theirs.get(source)
        first, second = (a.positions if a else None), (b.positions if b else None)
        if first is not None and second is not None:
            yield from _compare_maps(f"source {source}", _flat(first), _flat(second))
        else:
            yield from _if_different(
                f"source {source}", a.text if a else None, b.text if b else None
            )


def _flat(positions: Positions) -> dict[str, str]:
    return {f"{p.topic}[{p.partition}]": str(p.offset) for p in positions}


def _operators(point: Point) -> dict[str, str]:
    return {
        str(operator.id): f"{operator.name}: "
        + ", ".join(f"{store.name} × {store.partitions}" for store in operator.stores)
        for operator in point.operators
    }


def _compare_maps(
    what: str, left: Mapping[str, str], right: Mapping[str, str]
) -> Iterator[Difference]:
    for key in sorted(left.keys() | right.keys()):
        yield from _if_different(f"{what} {key}", left.get(key), right.get(key))


def _if_different(what: str, left: object, right: object) -> Iterator[Difference]:
    if left != right:
        yield Difference(
            what, None if left is None else str(left), None if right is None else str(right)
        )


def _operator(storage: Storage, operator: int) -> Operator:
    try:
        return read_operator(storage, operator)
    except SluicegateError:
        # Positions are worth showing even if an operator's description is damaged.
        return Operator(operator, None, ())


def _query_id(storage: Storage) -> str | None:
    try:
        return read_query_id(storage)
    except SluicegateError:
        return None
