"""A listing of all logs of a Spark checkpoint, and what the next start of the query will do.

The job may be writing at the same time. Spark writes a batch in the order source log, offsets,
state, commit. Listing in the opposite order means that everything listed has all its predecessors
listed as well, so a running job never looks damaged.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING

from sluicegate.checkpoint.format import log
from sluicegate.checkpoint.format.log import LogListing, OffsetEntry, list_log, parse_object
from sluicegate.checkpoint.format.operators import STATE
from sluicegate.errors import Corrupt, NotFound, SluicegateError
from sluicegate.storage import Storage

if TYPE_CHECKING:
    from sluicegate.reset import Point

METADATA = "metadata"
SOURCES = "sources"
_METADATA_BYTES = 64 * 1024
_NUMBER = re.compile(r"0|[1-9][0-9]{0,8}")


class NextStart(Enum):
    """What the next start of the query will do."""

    FRESH = "nothing has run yet"
    CLEAN = "clean: the next start begins a new batch"
    REPLAY = "one batch to replay"
    BEHIND = "several batches are not committed; only the newest is replayed"
    BROKEN = "the logs are damaged or contradict each other"


@dataclass(frozen=True, slots=True)
class Look:
    """The listings of a checkpoint's logs, taken in an order that a running job cannot confuse."""

    storage: Storage
    commits: LogListing
    operators: tuple[int, ...]
    offsets: LogListing
    sources: Mapping[str, LogListing]

    @property
    def last_batch(self) -> int | None:
        return self.offsets.last

    @property
    def last_commit(self) -> int | None:
        return self.commits.last

    @property
    def next_start(self) -> NextStart:
        """What the newest offsets and commit mean together."""
        planned, done = self.last_batch, self.last_commit
        if planned is None:
            return NextStart.FRESH if done is None else NextStart.BROKEN
        if done is None:
            return NextStart.REPLAY if len(self.offsets.batches) == 1 else NextStart.BEHIND
        if done > planned:
            return NextStart.BROKEN
        uncommitted = [batch for batch in self.offsets.batches if batch > done]
        if not uncommitted:
            return NextStart.CLEAN
        return NextStart.REPLAY if len(uncommitted) == 1 else NextStart.BEHIND


def look_at(storage: Storage) -> Look:
    """List a checkpoint's logs; missing ones are empty."""
    commits = list_log(storage, log.COMMITS)
    ids = tuple(operator_ids(storage))
    offsets = list_log(storage, log.OFFSETS)
    return Look(storage, commits, ids, offsets, _source_logs(storage))


def timeline(look: Look) -> Iterator[Point[OffsetEntry]]:
    """When each batch was planned, newest first, without those whose entry cannot be read."""
    from sluicegate.reset import Point  # here: only what looks up a time needs it

    newer: int | None = None
    for batch in reversed(look.offsets.batches):
        try:
            entry = log.read_offsets(look.storage, batch)
        except SluicegateError:
            continue
        gap_after = newer is not None and newer != batch + 1
        yield Point(entry.timestamp_ms, entry, f"batch {batch}", gap_after)
        newer = batch


def operator_ids(storage: Storage) -> list[int]:
    """The operators that have a directory below `state/`."""
    try:
        entries = storage.list(STATE)
    except NotFound:
        return []
    return sorted(
        int(e.name) for e in entries if e.kind == "directory" and _NUMBER.fullmatch(e.name)
    )


def newest_batch(storage: Storage) -> int:
    """The newest batch that is planned now; -1 if none is.

    Read again before something is reported as ahead of the offsets: a running job may have planned
    further batches since they were listed.
    """
    last = list_log(storage, log.OFFSETS).last
    return -1 if last is None else last


def read_query_id(storage: Storage) -> str:
    """The id in the file `metadata`, or `NotFound` / `Corrupt`."""
    place = f"{storage.uri}/{METADATA}"
    data = storage.get(METADATA, limit=_METADATA_BYTES)
    try:
        fields = parse_object(data.decode(), place)
    except UnicodeDecodeError as e:
        raise Corrupt(f"{place}: not UTF-8", place=place) from e
    found = fields.get("id")
    if not isinstance(found, str) or not found:
        raise Corrupt(f"{place}: it has no query id", place=place)
    return found


def _source_logs(storage: Storage) -> dict[str, LogListing]:
    """The logs of sources that keep one; only the file source's is understood."""
    try:
        entries = storage.list(SOURCES)
    except NotFound:
        return {}
    names = [entry.name for entry in entries if entry.kind == "directory"]
    return {name: list_log(storage, f"{SOURCES}/{name}") for name in names}
