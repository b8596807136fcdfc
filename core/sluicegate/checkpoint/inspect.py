"""The content of a checkpoint: summary, batches, positions, and comparison of two."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import TypeVar

from sluicegate.checkpoint.format.log import (
    CommitEntry,
    LogSize,
    OffsetEntry,
    OffsetKind,
    SourceOffset,
    measure,
    read_commit,
    read_offsets,
)
from sluicegate.checkpoint.format.operators import Operator, read_operator
from sluicegate.checkpoint.stores import StateStore, find_stores, store_bytes
from sluicegate.checkpoint.view import SOURCES, Look, NextStart, look_at, read_query_id
from sluicegate.errors import NotFound, SluicegateError, UnsupportedFormat
from sluicegate.positions import Positions
from sluicegate.report import Difference
from sluicegate.storage import Storage
from sluicegate.units import command


@dataclass(frozen=True, slots=True)
class Batch:
    """One batch; `events` is None where the offsets do not count events."""

    number: int
    planned_ms: int | None
    committed: bool
    events: int | None
    offsets: tuple[SourceOffset, ...]
    problem: str | None = None


def read_batches(look: Look, last: int | None = None) -> Iterator[Batch]:
    """The batches that have offsets, oldest first; only the newest `last` if given."""
    numbers = look.offsets.batches
    shown = numbers if last is None else numbers[-last:] if last else ()
    committed = set(look.commits.batches)
    before = _read(look, shown[0] - 1)[0] if shown and shown[0] - 1 in numbers else None
    for number in shown:
        entry, problem = _read(look, number)
        follows = before is not None and before.batch == number - 1
        yield Batch(
            number,
            entry.timestamp_ms if entry else None,
            number in committed,
            events_between(before, entry) if follows else None,
            entry.offsets if entry else (),
            problem,
        )
        before = entry


def events_between(before: OffsetEntry | None, after: OffsetEntry | None) -> int | None:
    """How many events lie between two entries, if every source counts in positions."""
    if before is None or after is None:
        return None
    starts = {offset.source: offset.positions for offset in before.offsets}
    total = 0
    for offset in after.offsets:
        start, end = starts.get(offset.source), offset.positions
        if start is None or end is None:
            return None
        for position in end:
            began = start.get(position.topic, position.partition)
            # The log does not show where a new partition began, or what a rewind means.
            if began is None or position.offset < began:
                return None
            total += position.offset - began
    return total


def _read(look: Look, number: int) -> tuple[OffsetEntry | None, str | None]:
    try:
        return read_offsets(look.storage, number), None
    except SluicegateError as e:
        return None, e.message


T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class SourceSummary:
    """The position of one source; `log` is the size of a file source's own log."""

    offset: SourceOffset
    log: LogSize | None


@dataclass(frozen=True, slots=True)
class StoreSummary:
    """One store of one partition: its files' versions and size."""

    operator: int
    partition: int
    store: str
    provider: str | None
    format: int
    oldest: int | None
    newest: int | None
    bytes: int


@dataclass(frozen=True, slots=True)
class Summary:
    """Everything known about a checkpoint; `problems` are the parts that could not be read."""

    uri: str
    query_id: str | None
    next_start: NextStart
    last_batch: int | None
    last_commit: int | None
    offsets: OffsetEntry | None
    commit: CommitEntry | None
    sources: tuple[SourceSummary, ...]
    operators: tuple[Operator, ...]
    stores: tuple[StoreSummary, ...]
    batches: int
    oldest_batch: int | None
    oldest_rollback: int | None
    problems: tuple[str, ...]

    @property
    def watermark_ms(self) -> int | None:
        """The watermark the next batch starts with."""
        if self.commit is not None and self.next_start is NextStart.CLEAN:
            return self.commit.next_watermark_ms
        return self.offsets.watermark_ms if self.offsets else None

    @property
    def conf(self) -> Mapping[str, str]:
        """Settings that a restart takes from here, overriding the session's."""
        return self.offsets.conf if self.offsets else {}


def inspect(storage: Storage) -> Summary:
    """Read a checkpoint; damage is reported, not raised."""
    look = look_at(storage)
    problems: list[str] = []
    stores = find_stores(look)
    offsets = _try(problems, lambda: _newest_offsets(look))
    commit = _try(problems, lambda: _newest_commit(look))
    # Names alone may look clean, but the next start has to read these two.
    readable = not problems
    return Summary(
        uri=storage.uri,
        query_id=_try(problems, lambda: read_query_id(storage)),
        next_start=look.next_start if readable else NextStart.BROKEN,
        last_batch=look.last_batch,
        last_commit=look.last_commit,
        offsets=offsets,
        commit=commit,
        sources=tuple(
            _source(look, each, problems) for each in (offsets.offsets if offsets else ())
        ),
        operators=tuple(_operator(storage, op, problems) for op in look.operators),
        stores=tuple(_store(storage, store) for store in stores),
        batches=len(look.offsets.batches),
        oldest_batch=look.offsets.batches[0] if look.offsets.batches else None,
        oldest_rollback=oldest_rollback(look, stores),
        problems=tuple(problems),
    )


def oldest_rollback(look: Look, stores: list[StateStore]) -> int | None:
    """The oldest batch a rollback can go to: planned after another, committed, and its state loads.

    Checked by name only; a gap in between ends the search.
    """
    planned = set(look.offsets.batches)
    # Spark also needs the offsets of the batch before the one it starts from.
    both = sorted(
        (b for b in planned.intersection(look.commits.batches) if b == 0 or b - 1 in planned),
        reverse=True,
    )
    if not stores:
        return both[-1] if both else None
    loadable = {store.directory: frozenset(store.versions.loadable) for store in stores}
    oldest = None
    for batch in both:
        lacking = [store for store in stores if batch + 1 not in loadable[store.directory]]
        # After a repartition some stores are younger, or were left behind.
        if lacking and any(store.partition < _partitions(look, batch) for store in lacking):
            break
        oldest = batch
    return oldest


def _partitions(look: Look, batch: int) -> int:
    try:
        found = read_offsets(look.storage, batch).partitions
    except SluicegateError:
        found = None
    return sys.maxsize if found is None else found


def _operator(storage: Storage, operator: int, problems: list[str]) -> Operator:
    found = _try(problems, lambda: read_operator(storage, operator))
    return found or Operator(operator, None, ())


def _newest_offsets(look: Look) -> OffsetEntry | None:
    return None if look.last_batch is None else read_offsets(look.storage, look.last_batch)


def _newest_commit(look: Look) -> CommitEntry | None:
    return None if look.last_commit is None else read_commit(look.storage, look.last_commit)


def _source(look: Look, offset: SourceOffset, problems: list[str]) -> SourceSummary:
    listing = look.sources.get(offset.source)
    if offset.kind is not OffsetKind.FILE or listing is None:
        return SourceSummary(offset, None)
    directory = f"{SOURCES}/{offset.source}"
    size = _try(problems, lambda: measure(look.storage, directory, listing))
    return SourceSummary(offset, size)


def _store(storage: Storage, store: StateStore) -> StoreSummary:
    versions = store.versions
    return StoreSummary(
        operator=store.operator,
        partition=store.partition,
        store=store.name,
        provider=versions.provider.value if versions.provider else None,
        format=versions.format,
        oldest=versions.oldest,
        newest=versions.newest,
        bytes=store_bytes(storage, store),
    )


def _try(problems: list[str], read: Callable[[], T]) -> T | None:
    try:
        return read()
    except SluicegateError as e:
        problems.append(e.message)
        return None


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
            hint=command("checkpoint", "list", storage.uri),
            place=storage.uri,
        )
    return Point(
        storage.uri,
        _query_id(storage),
        read_offsets(storage, number),
        tuple(_operator_at(storage, operator) for operator in look.operators),
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


def _operator_at(storage: Storage, operator: int) -> Operator:
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


def exported_positions(point: Point) -> Positions:
    """The positions of all sources at a point; an error if a source has none, or two share one."""
    merged = []
    for offset in point.entry.offsets:
        if offset.positions is None:
            raise UnsupportedFormat(
                f"source {offset.source} of {point.uri} has a {offset.kind.value} offset, "
                "which is not a position of a topic",
                hint=f"see it with: {command('offsets', 'show', point.uri)}",
                place=point.uri,
            )
        merged += list(offset.positions)
    return Positions.of(merged)
