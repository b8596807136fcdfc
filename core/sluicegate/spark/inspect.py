"""Where a checkpoint stands: everything about it that one screen can say."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TypeVar

from sluicegate.errors import SluicegateError
from sluicegate.spark.checkpoint import SOURCES, Look, Standing, look_at, read_query_id
from sluicegate.spark.commit_log import CommitEntry, read_commit
from sluicegate.spark.file_log import LogSize, measure
from sluicegate.spark.offset_log import OffsetEntry, OffsetKind, SourceOffset, read_offsets
from sluicegate.spark.operators import Operator, read_operator
from sluicegate.spark.state import StateStore, find_stores, store_bytes
from sluicegate.storage import Storage

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class SourceSummary:
    """Where one source stands; `log` is how large a file source's own log has become."""

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
    """All that is known of a checkpoint; `problems` are the parts that could not be read."""

    uri: str
    query_id: str | None
    standing: Standing
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
        if self.commit is not None and self.standing is Standing.CLEAN:
            return self.commit.next_watermark_ms
        return self.offsets.watermark_ms if self.offsets else None

    @property
    def conf(self) -> Mapping[str, str]:
        """Settings that a restart takes from here, whatever the session says."""
        return self.offsets.conf if self.offsets else {}


def inspect(storage: Storage) -> Summary:
    """Look at a checkpoint; damage is told, not raised."""
    look = look_at(storage)
    problems: list[str] = []
    stores = find_stores(look)
    offsets = _try(problems, lambda: _newest_offsets(look))
    commit = _try(problems, lambda: _newest_commit(look))
    # Names alone may look clean; what the next start does depends on reading these two.
    readable = not problems
    return Summary(
        uri=storage.uri,
        query_id=_try(problems, lambda: read_query_id(storage)),
        standing=look.standing if readable else Standing.BROKEN,
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

    Judged by names; a gap in between ends it.
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
