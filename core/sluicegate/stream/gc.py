"""Retention and collection: pruning snapshots, and removing files that nothing refers to.

Prune commits a floor first and unlinks below it afterwards, oldest first. So an interrupted prune
leaves a complete chain and some files that the next sweep removes. A process that removes snapshots
or blobs holds the collect lock exclusively, reads the head inside it, and releases it in between,
so that a job never waits long.

Output in the trash is needed as long as a snapshot is kept that includes its epoch: a rollback to
that snapshot publishes it again.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, TypeVar

from sluicegate import units
from sluicegate.errors import Corrupt, Locked, NotFound
from sluicegate.sinks.base import OutputGarbage, Sink
from sluicegate.state import manifest
from sluicegate.storage import Stat, base
from sluicegate.storage.blobs import Blobs, Ref, Stored
from sluicegate.stream.append import PruneDraft, Signature
from sluicegate.stream.chain import HOME_DIRECTORY
from sluicegate.stream.history import intact_snapshots, newest_epoch
from sluicegate.stream.scan import discarded_by
from sluicegate.stream.snapshot import Snapshot, SnapshotDamaged, Span, has, key_of
from sluicegate.stream.stream import Stream
from sluicegate.stream.writer import StreamWriter

Item = TypeVar("Item")
GRACE = 24 * 3600.0
"""How old an orphan must be: an epoch in progress has blobs that no snapshot refers to yet."""
_PORTION = 256
"""How many files are removed before a waiting writer gets a turn."""


@dataclass(frozen=True, slots=True)
class Retention:
    """What is kept: so many of the newest snapshots, and all younger than so many seconds."""

    snapshots: int = 1
    seconds: float = 0.0

    def floor(self, stream: Stream, head: Snapshot, now: float | None = None) -> int:
        """The number of the oldest snapshot to keep; the head is always kept."""
        floor = max(head.floor, head.number - max(self.snapshots, 1) + 1)
        if self.seconds <= 0:
            return floor
        since = (time.time() if now is None else now) - self.seconds
        # Creation times never decrease along a chain.
        return stream.chain.first(head.floor, floor, lambda snapshot: snapshot.created_at >= since)


@dataclass(frozen=True, slots=True)
class Swept:
    """What a sweep removed, or would remove."""

    snapshots: int = 0
    blobs: int = 0
    bytes: int = 0
    temporary: int = 0
    locks: int = 0

    def __bool__(self) -> bool:
        return any((self.snapshots, self.blobs, self.temporary, self.locks))

    @property
    def shown(self) -> str:
        """For people: how many there are of each."""
        blobs = f"{units.counted(self.blobs, 'blob')} ({units.size(self.bytes)})"
        counts = (
            (self.snapshots, units.counted(self.snapshots, "pruned snapshot")),
            (self.blobs, blobs),
            (self.temporary, units.counted(self.temporary, "unfinished file")),
            (self.locks, f"{units.counted(self.locks, 'lock')} of ended runs"),
        )
        return ", ".join(text for count, text in counts if count)


def prune(
    writer: StreamWriter,
    floor: int,
    signature: Signature | None = None,
    details: Mapping[str, Any] | None = None,
    *,
    grace: float = GRACE,
) -> Snapshot | None:
    """Prune the snapshots below a floor; None if they were pruned before."""
    head = writer.head()
    draft = _Prune(PruneDraft(floor, signature or Signature(), details or {}), writer.stream)
    snapshot = writer.append(draft, head)
    sweep(writer.stream, grace=grace)
    return snapshot


@dataclass(frozen=True, slots=True)
class _Prune:
    """A prune draft that never prunes above the highest floor, also after other snapshots."""

    draft: PruneDraft
    stream: Stream

    def on(self, head: Snapshot, since: Sequence[Snapshot], blobs: Blobs) -> Snapshot | None:
        floor = min(self.draft.floor, highest_floor(self.stream, head))
        return replace(self.draft, floor=floor).on(head, since, blobs)


def highest_floor(stream: Stream, head: Snapshot) -> int:
    """As far as a prune may go: the output of the newest epoch may still have to be published."""
    newest = newest_epoch(stream, head)
    return newest.number if newest and newest.output else head.number


@dataclass(frozen=True, slots=True)
class Garbage:
    """What may be removed, as it was seen while others continued to append."""

    seen: Snapshot
    limit_ns: float
    snapshots: list[str]
    blobs: list[tuple[Stored, int]]
    temporary: list[Path]
    locks: list[Path]

    @property
    def swept(self) -> Swept:
        """How much of each there is."""
        size = sum(size for _, size in self.blobs)
        others = (len(self.temporary), len(self.locks))
        return Swept(len(self.snapshots), len(self.blobs), size, *others)


def sweep(stream: Stream, *, grace: float = GRACE, dry_run: bool = False) -> Swept:
    """Remove snapshots below the floor, orphans, and temporary files of dead writers."""
    garbage = list_garbage(stream, grace)
    return garbage.swept if dry_run or not garbage.swept else remove(stream, garbage)


def remove(stream: Stream, garbage: Garbage) -> Swept:
    """Remove what was seen to be garbage, except what became part of the stream since."""
    for snapshots in _portions(garbage.snapshots):
        with _removing(stream):
            for key in snapshots:
                stream.storage.delete(key)
    blobs, size = 0, 0
    for portion in _portions(garbage.blobs):
        with _removing(stream) as head:
            newer = {ref.digest for ref in live_refs(stream, head, above=garbage.seen.number)}
            for blob, length in portion:
                if _old(stream, blob, newer, garbage.limit_ns):
                    stream.storage.delete(blob.key)
                    blobs, size = blobs + 1, size + length
    _remove_temporary(stream, garbage)
    return replace(garbage.swept, blobs=blobs, bytes=size)


@contextmanager
def _removing(stream: Stream) -> Iterator[Snapshot]:
    """While no process appends: the head, which HEAD names, so that older files may go."""
    with stream.collecting():
        head = stream.chain.open_head()
        stream.chain.settle(head)
        yield head


def _portions(items: Sequence[Item]) -> Iterator[Sequence[Item]]:
    for start in range(0, len(items), _PORTION):
        yield items[start : start + _PORTION]


def list_garbage(
    stream: Stream, grace: float = GRACE, known: tuple[Snapshot, frozenset[str]] | None = None
) -> Garbage:
    """What may be removed. Others append meanwhile; `remove` only checks what is new.

    With `known`, an older head and the blobs of all snapshots up to it, those are not read again.
    """
    older, before = known or (None, frozenset[str]())
    while True:
        seen = stream.chain.head()
        try:
            # Before anything is removed: the blobs of an unreadable snapshot are not known.
            above = older.number if older else -1
            live = before | {ref.digest for ref in live_refs(stream, seen, above)}
        except SnapshotDamaged:
            if stream.chain.head().floor == seen.floor:
                raise
            # Another sweep came first.
            continue
        limit = (time.time() - grace) * 1e9
        stored = [(blob, _old(stream, blob, live, limit)) for blob in stream.blobs.stored()]
        return Garbage(
            seen,
            limit,
            [key_of(number) for number in stream.chain.numbers() if number < seen.floor],
            [(blob, found.size) for blob, found in stored if found],
            list(old_temporaries(stream, limit)),
            list(old_run_locks(stream, seen, limit)),
        )


def _remove_temporary(stream: Stream, garbage: Garbage) -> None:
    for path in garbage.temporary:
        path.unlink(missing_ok=True)
    for path in garbage.locks:
        with suppress(Locked):
            stream.storage.lock(f"locks/{path.name}").remove()


def _old(stream: Stream, blob: Stored, live: AbstractSet[str], limit_ns: float) -> Stat | None:
    """The file of an orphan that is old enough to be removed."""
    found = None if blob.digest in live else stream.storage.stat(blob.key)
    return found if found and found.modified_ns <= limit_ns else None


def live_refs(stream: Stream, head: Snapshot, above: int = -1) -> Iterator[Ref]:
    """Every blob that a kept snapshot leads to; `SnapshotDamaged` if one is unreadable.

    With `above`, only those of the snapshots above a number.
    """
    declared: list[Span] = []
    seen: set[Ref] = set()
    for number in range(head.number, max(head.floor - 1, above), -1):
        if has(declared, number):
            # Discarded by a repair, which lists it.
            continue
        try:
            snapshot = stream.chain.read(number)
            declared += discarded_by(snapshot)
            fresh = set(snapshot.refs) - seen
            seen |= fresh
            yield from fresh
            for ref in fresh & {*snapshot.state.refs, snapshot.state_delta}:
                inner = set(manifest.refs_in(stream.blobs, ref)) - seen
                seen |= inner
                yield from inner
        except (Corrupt, NotFound) as e:
            raise SnapshotDamaged(
                f"the blobs of snapshot {number} are not known, so nothing is removed: {e}",
                hint="repair the chain first: sluicegate checkpoint repair STREAM",
            ) from e


def old_temporaries(stream: Stream, limit_ns: float) -> Iterator[Path]:
    """Files that dead writers did not finish, also those of the home's hints."""
    keys = ("", "chain", *_prefixes(stream))
    yield from base.old_temporaries(stream.storage, keys, limit_ns)
    if stream.chain.home:
        yield from base.old_temporaries(stream.chain.home, [HOME_DIRECTORY], limit_ns)


def old_run_locks(stream: Stream, head: Snapshot, limit_ns: float) -> Iterator[Path]:
    """Lock files of ended runs; no process waits for them, so they may be removed."""
    directory = stream.storage.local_path("locks")
    for path in sorted(directory.glob("run-*.lock")) if directory else ():
        run = path.name.removeprefix("run-").removesuffix(".lock")
        if run == head.writer or not base.is_old(path, limit_ns):
            continue
        if not stream.run_lock(run).is_held():
            yield path


def _prefixes(stream: Stream) -> list[str]:
    try:
        return [f"blobs/{e.name}" for e in stream.storage.list("blobs") if e.kind == "directory"]
    except NotFound:
        return []


def list_output_garbage(stream: Stream, sink: Sink, grace: float) -> OutputGarbage:
    """What may be removed from a sink; temporary files only if older than the grace."""
    head = stream.chain.head()
    needed = _reachable(stream, head)
    return sink.garbage(
        (time.time() - grace) * 1e9,
        lambda number: has(needed, number),
        is_running=StreamWriter(stream).living_writer(head) is not None,
    )


def empty(stream: Stream, sink: Sink, grace: float) -> OutputGarbage:
    """Remove the garbage of a sink."""
    garbage = list_output_garbage(stream, sink, grace)
    sink.remove(garbage)
    return garbage


def _reachable(stream: Stream, head: Snapshot) -> list[Span]:
    """The epochs of all snapshots that can be restored.

    The ancestry of a snapshot that is part of an ancestry is the beginning of it, so one snapshot
    of every branch is read: the newest intact one.
    """
    needed = list(head.ancestry)
    for number in range(head.number, head.floor - 1, -1):
        if not has(needed, number):
            for snapshot in intact_snapshots(stream, number, number):
                needed += snapshot.ancestry
    return needed
