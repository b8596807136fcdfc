"""Looking keys up in the state of a stream."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from sluicegate.chain.link import Link
from sluicegate.gate.rebalance import shard_count
from sluicegate.gate.sealed import shards_of
from sluicegate.gate.stream import Stream
from sluicegate.shards.routing import shard_of
from sluicegate.state import aggregates, manifest
from sluicegate.state.aggregates import Aggregate


@dataclass(frozen=True, slots=True)
class Found:
    """One key: its shard, and its values; none if the stream has not seen it."""

    key: str
    shard: int
    values: dict[str, Any] | None


def aggregates_of(link: Link) -> tuple[Aggregate, ...]:
    """The aggregates that a stream keeps, as they were pinned when it began."""
    wanted = link.pins.get("aggregates") or {}
    return aggregates.parse(wanted, link.pins.get("types") or {})


def look_up(stream: Stream, link: Link, keys: Sequence[str]) -> list[Found]:
    """The values of keys, in the order they were asked for."""
    count = shard_count(link)
    places = {key: shard_of(key, count) for key in keys}
    refs = shards_of(stream, link)
    known = aggregates_of(link)
    values: dict[str, dict[str, Any]] = {}
    for shard in sorted(set(places.values())):
        table = manifest.contents(stream.blobs, refs.get(shard, ()))
        if table is not None:
            wanted = [key for key in keys if places[key] == shard]
            values |= {row.pop("key"): row for row in aggregates.rows(table, known, wanted)}
    return [Found(key, places[key], values.get(key)) for key in keys]


def scan(stream: Stream, link: Link, shard: int | None = None) -> Iterator[Found]:
    """Every key with its values, shard by shard."""
    known = aggregates_of(link)
    for number, refs in sorted(shards_of(stream, link).items()):
        if shard in (None, number) and (table := manifest.contents(stream.blobs, refs)):
            for row in aggregates.rows(table, known):
                yield Found(row.pop("key"), number, row)
