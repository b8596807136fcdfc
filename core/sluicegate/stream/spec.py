"""What a stream does, from its table in the configuration, and what its source holds."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from sluicegate.config import NamedStream
from sluicegate.errors import ConfigInvalid, Corrupt, NotFound, SluicegateError
from sluicegate.findings import Finding, Severity, rule
from sluicegate.positions import Positions
from sluicegate.reset import Partition, Range
from sluicegate.sources.base import (
    Source,
    incarnation_of,
    needs_broker,
    open_source,
    source_range,
)
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
    fails_on_overflow: bool = True
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
        fails_on_overflow=stream.on_overflow == "fail",
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


SOURCE_CHANGED = rule(
    "SG-SOURCE-CHANGED",
    Severity.ERROR,
    "the source no longer holds the records that were read",
    "At the offset of the last record that was read, the source has another record, or it ends "
    "before that offset: it was restored from a backup, or lost records and was written to again. "
    "Some of its present records were never read, and some that were applied are gone, so no job "
    "starts. Restore the source. If its present records are right, move the stream back to where "
    "they differ: `sluicegate offsets reset --skip-seen` applies those that it has not seen.",
)


class SourceChanged(Corrupt):
    """The source has other records than those that were read."""

    default_hint = (
        "restore the source; or move the stream to where its records differ, with: sluicegate "
        "offsets reset STREAM --skip-seen"
    )


def refuse_changed(source: Source, head: Snapshot) -> None:
    """`SourceChanged` if the last records that were read are not there any more."""
    for finding in changed_records(source, head):
        raise SourceChanged(f"{finding.rule.title}: {finding.detail}", place=source.uri)


def changed_records(source: Source, head: Snapshot) -> Iterator[Finding]:
    """What the source has in the place of records that were read; trimmed ones are not known."""
    latest = source.latest()
    for (topic, partition), (end, known) in sorted(head.fingerprints.items()):
        place = f"{source.uri}, {topic}[{partition}]"
        last = latest.get(topic, partition) or 0
        if last < end:
            detail = f"{topic}[{partition}] ends at {last:,}, but was read up to {end:,}"
            yield SOURCE_CHANGED.at(place, detail)
        elif source.fingerprint(topic, partition, end) not in (None, known):
            detail = f"{topic}[{partition}] has another record at {end - 1:,} than the one read"
            yield SOURCE_CHANGED.at(place, detail)


def source_findings(head: Snapshot) -> list[Finding]:
    """What is wrong with the source of a stream, if it can be asked."""
    uri = head.pins.get("source")
    if not head.fingerprints or not isinstance(uri, str):
        return []
    try:
        return list(changed_records(open_source(uri, head.pins.get(INCARNATION)), head))
    except SluicegateError:
        # Not here, or not reachable: the job's start and `offsets lag` report that.
        return []


class RecordsLost(NotFound):
    """The source no longer holds records that would be read again."""

    default_hint = (
        "choose a later snapshot, or restore the source; with --unchecked it is not asked, and the "
        "job cannot start before it holds them"
    )


def refuse_lost(head: Snapshot, aim: Positions) -> None:
    """`RecordsLost` if the source does not hold what would be read again from older positions."""
    source = head.pins.get("source")
    if not isinstance(source, str) or not source or needs_broker(source):
        return
    again = [p for p in aim if p.offset < (head.positions.get(p.topic, p.partition) or 0)]
    if not again:
        return
    try:
        earliest, _ = range_of(head)
    except SluicegateError as e:
        raise RecordsLost(f"it is not known whether the source holds them: {e.message}") from e
    for each in again:
        first = earliest.get(each.topic, each.partition)
        if first is None or first > each.offset:
            held = "no records" if first is None else f"records from {first:,} on"
            raise RecordsLost(
                f"{each.topic}[{each.partition}] would be read again from {each.offset:,}, but "
                f"{source} holds {held}",
                place=source,
            )


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
