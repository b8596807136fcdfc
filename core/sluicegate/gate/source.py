"""What the source of a stream holds, and whether it still is the one the stream began on."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from sluicegate.chain.link import Link
from sluicegate.config import NamedStream
from sluicegate.errors import NotFound
from sluicegate.gate.description import describe
from sluicegate.log.source import incarnation_of, needs_broker, source_range
from sluicegate.positions import Positions
from sluicegate.reset import Partition, Range

INCARNATION = "incarnation"


def pins_of(stream: NamedStream) -> dict[str, Any]:
    """What a stream's table says that may never change."""
    return {
        "source": stream.source,
        "stamp": list(stream.stamp),
        "key": stream.key,
        "shards": stream.shards,
        "aggregates": dict(stream.aggregates),
        "types": dict(describe(stream).state_types),
    }


def first_pins(stream: NamedStream) -> dict[str, Any]:
    """What is pinned when a stream begins: its table, and which log it reads."""
    incarnation = incarnation_of(stream.source)
    return pins_of(stream) | ({INCARNATION: incarnation} if incarnation else {})


def pins_now(stream: NamedStream, pinned: Mapping[str, Any]) -> dict[str, Any]:
    """What table and source say now, to compare with what was pinned when the stream began."""
    if INCARNATION not in pinned:
        return pins_of(stream)
    return pins_of(stream) | {INCARNATION: incarnation_of(stream.source)}


def range_of(link: Link) -> tuple[Positions, Positions]:
    """The oldest and the next offsets of the log that a stream reads; refused for what is none."""
    source = link.pins.get("source")
    if not isinstance(source, str) or not source:
        raise NotFound(
            f"the stream {link.stream} has no source: it began from a file, not from a table",
            hint="see what it is with: sluicegate checkpoint inspect STREAM",
        )
    return source_range(source, link.pins.get(INCARNATION))


def ranges_of(link: Link, *, needed: bool) -> Mapping[Partition, Range]:
    """What each partition of the source holds; empty, unless `needed`, where that is not known."""
    source = link.pins.get("source")
    if not isinstance(source, str) or not source or needs_broker(source):
        return {}
    try:
        earliest, latest = range_of(link)
    except NotFound:
        if needed:
            raise
        return {}
    return {
        (p.topic, p.partition): Range(p.offset, latest.get(p.topic, p.partition) or p.offset)
        for p in earliest
    }
