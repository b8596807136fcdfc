"""What a stream does, from its table in the configuration, and what its source holds."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from sluicegate.config import NamedStream
from sluicegate.errors import ConfigInvalid, NotFound
from sluicegate.positions import Positions
from sluicegate.reset import Partition, Range
from sluicegate.sources.log.log import incarnation_of, needs_broker, source_range
from sluicegate.state.aggregates import Aggregate, Value, parse
from sluicegate.stream.snapshot import Snapshot

TYPES = ("string", "long", "double", "boolean")
_STAMP = ("string", "long", "long")


@dataclass(frozen=True, slots=True)
class Description:
    """The job of one stream: the columns of its records by type, and what it does with them.

    `deduplicates` is false only to measure the cost of dropping duplicates.
    """

    columns: Mapping[str, str]
    stamp: tuple[str, ...]
    key: str | None
    aggregates: tuple[Aggregate, ...]
    shards: int
    writes_rows: bool
    fails_on_reject: bool
    deduplicates: bool = True

    @property
    def values(self) -> tuple[Value, ...]:
        """The columns of its deltas."""
        return tuple(value for each in self.aggregates for value in each.values)

    @property
    def state_types(self) -> Mapping[str, str]:
        """The types of the columns that state is made of, which can never change."""
        return {value.column: self.columns[value.column] for value in self.values}


def describe(stream: NamedStream) -> Description:
    """The job that a table describes, or `ConfigInvalid` with the key that is wrong."""
    where = f"streams.{stream.name}"
    columns = dict(stream.columns)
    for name, kind in zip(stream.stamp, _STAMP, strict=False):
        _give(columns, name, kind, f"{where}.stamp")
    if len(set(stream.stamp)) != len(stream.stamp):
        raise ConfigInvalid(f"{where}.stamp names a column twice: {', '.join(stream.stamp)}")
    if stream.key:
        _give(columns, stream.key, "string", f"{where}.key")
    elif stream.aggregates:
        raise ConfigInvalid(f"{where} has aggregates, but no key to keep them by")
    for name, kind in columns.items():
        _check(where, name, kind)
    _refuse_alike(where, columns)
    return Description(
        columns=columns,
        stamp=stream.stamp,
        key=stream.key,
        aggregates=parse(stream.aggregates, columns),
        shards=stream.shards,
        writes_rows=stream.sink is not None,
        fails_on_reject=stream.on_reject == "fail",
    )


def _check(where: str, name: str, kind: str) -> None:
    if kind not in TYPES:
        raise ConfigInvalid(f"{where}.columns.{name} = {kind!r} must be one of: {', '.join(TYPES)}")
    if name.startswith("_"):
        raise ConfigInvalid(
            f"{where}: {name!r} begins with an underscore, which is reserved for added columns",
            hint="choose another name; columns that are not named are ignored",
        )


def _refuse_alike(where: str, columns: Mapping[str, str]) -> None:
    """Refuse names that differ in case only: Spark treats them as one."""
    known: dict[str, str] = {}
    for name in columns:
        other = known.setdefault(name.lower(), name)
        if other != name:
            raise ConfigInvalid(f"{where}: Spark treats {other!r} and {name!r} as the same column")


def _give(columns: dict[str, str], name: str, kind: str, where: str) -> None:
    """A column that is needed has a type that cannot be chosen."""
    if columns.setdefault(name, kind) != kind:
        raise ConfigInvalid(f"{where}: column {name!r} must be a {kind}, not a {columns[name]}")


INCARNATION = "incarnation"


def pins_of(stream: NamedStream) -> dict[str, Any]:
    """The settings in a stream's table that can never change."""
    return {
        "source": stream.source,
        "stamp": list(stream.stamp),
        "key": stream.key,
        "shards": stream.shards,
        "aggregates": dict(stream.aggregates),
        "types": dict(describe(stream).state_types),
    }


def first_pins(stream: NamedStream) -> dict[str, Any]:
    """The settings that are fixed when a stream begins: its table, and which log it reads."""
    incarnation = incarnation_of(stream.source)
    return pins_of(stream) | ({INCARNATION: incarnation} if incarnation else {})


def pins_now(stream: NamedStream, pinned: Mapping[str, Any]) -> dict[str, Any]:
    """Table and source as they are now, to compare with the fixed settings."""
    if INCARNATION not in pinned:
        return pins_of(stream)
    return pins_of(stream) | {INCARNATION: incarnation_of(stream.source)}


def range_of(snapshot: Snapshot) -> tuple[Positions, Positions]:
    """The oldest and the next offsets of a stream's log; `NotFound` without a source."""
    source = snapshot.pins.get("source")
    if not isinstance(source, str) or not source:
        raise NotFound(
            f"the stream {snapshot.stream} has no source: it was imported from a legacy checkpoint",
            hint="inspect it with: sluicegate checkpoint inspect STREAM",
        )
    return source_range(source, snapshot.pins.get(INCARNATION))


def ranges_of(snapshot: Snapshot, *, needed: bool) -> Mapping[Partition, Range]:
    """The offsets that each partition of the source holds; empty where unknown, unless `needed`."""
    source = snapshot.pins.get("source")
    if not isinstance(source, str) or not source or needs_broker(source):
        return {}
    try:
        earliest, latest = range_of(snapshot)
    except NotFound:
        if needed:
            raise
        return {}
    return {
        (p.topic, p.partition): Range(p.offset, latest.get(p.topic, p.partition) or p.offset)
        for p in earliest
    }
