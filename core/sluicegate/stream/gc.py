"""Retention and collection: what is pruned, and removing what nothing refers to any more.

Prune commits a floor first and unlinks below it afterwards, oldest first; so whatever interrupts
it, what is left is a whole chain and some files that the next sweep removes. Whoever removes
snapshots or blobs holds the collect lock exclusively and reads the head inside it, and lets go of
it in between, so that a job never waits long.

Output in the trash is needed as long as a snapshot is kept that includes its epoch: going back to
that snapshot publishes it again.
"""

from __future__ import annotations

import shutil
import time
from collections.abc import Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, TypeVar

from sluicegate import units
from sluicegate.errors import Corrupt, Locked, NotFound
from sluicegate.state import manifest
from sluicegate.storage import Stat, base
from sluicegate.storage.blobs import Blobs, Ref, Stored
from sluicegate.stream.append import PruneDraft, Signature
from sluicegate.stream.chain import HOME_DIRECTORY
from sluicegate.stream.history import newest_epoch, sound_snapshots
from sluicegate.stream.output import ATTEMPTS, KINDS, NAME, TRASH, Sink
from sluicegate.stream.scan import given_up_by
from sluicegate.stream.snapshot import Snapshot, SnapshotDamaged, Span, has, key_of
from sluicegate.stream.stream import Stream
from sluicegate.stream.writer import Gate

Item = TypeVar("Item")
GRACE = 24 * 3600.0
"""How old an orphan must be: an epoch in progress has blobs that no snapshot refers to yet."""
_PORTION = 256
"""How many files are removed before whoever waits to append gets a turn."""


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
        # Creation times never go back along a chain.
        return stream.chain.first(head.floor, floor, lambda snapshot: snapshot.created_at >= since)


@dataclass(frozen=True, slots=True)
class Swept:
    """What a sweep removed, or would remove."""

    snapshots: int = 0
    blobs: int = 0
    bytes: int = 0
    temporary: int = 0
    locks: int = 0
    runs: int = 0

    def __bool__(self) -> bool:
        return any((self.snapshots, self.blobs, self.temporary, self.locks, self.runs))

    @property
    def shown(self) -> str:
        """For people: what there is of each."""
        counts = (
            (self.snapshots, f"{self.snapshots:,} snapshots below the floor"),
            (self.blobs, f"{self.blobs:,} blobs ({units.size(self.bytes)})"),
            (self.temporary, f"{self.temporary:,} unfinished files"),
            (self.locks, f"{self.locks:,} locks of runs that are over"),
            (self.runs, f"{self.runs:,} directories of runs that are over"),
        )
        return ", ".join(text for count, text in counts if count)


def prune(
    gate: Gate,
    floor: int,
    signature: Signature | None = None,
    details: Mapping[str, Any] | None = None,
    *,
    grace: float = GRACE,
) -> Snapshot | None:
    """Give up the snapshots below a floor, and remove them; None if they were given up before."""
    head = gate.head()
    draft = _Prune(PruneDraft(floor, signature or Signature(), details or {}), gate.stream)
    snapshot = gate.append(draft, head)
    sweep(gate.stream, grace=grace)
    return snapshot


@dataclass(frozen=True, slots=True)
class _Prune:
    """A prune that keeps what must be kept, whatever was appended before it."""

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
    """What may go, as it was seen while others went on."""

    seen: Snapshot
    limit_ns: float
    snapshots: list[str]
    blobs: list[tuple[Stored, int]]
    temporary: list[Path]
    locks: list[Path]
    runs: list[Path]

    @property
    def swept(self) -> Swept:
        """How much of each there is."""
        size = sum(size for _, size in self.blobs)
        others = (len(self.temporary), len(self.locks), len(self.runs))
        return Swept(len(self.snapshots), len(self.blobs), size, *others)


def sweep(stream: Stream, *, grace: float = GRACE, dry_run: bool = False) -> Swept:
    """Remove snapshots below the floor, orphans, and leftovers of dead writers."""
    garbage = list_garbage(stream, grace)
    return garbage.swept if dry_run or not garbage.swept else remove(stream, garbage)


def remove(stream: Stream, garbage: Garbage) -> Swept:
    """Remove what was seen to be garbage, but what became part of the stream since."""
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
    _remove_leftovers(stream, garbage)
    return replace(garbage.swept, blobs=blobs, bytes=size)


@contextmanager
def _removing(stream: Stream) -> Iterator[Snapshot]:
    """While nobody appends: the head, which HEAD names, so that what is below may go."""
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
    """What may go. Others append meanwhile; who removes it only looks at what is new.

    With `known`, an older head and what it and the snapshots before it lead to, those are not read
    once more.
    """
    older, before = known or (None, frozenset[str]())
    while True:
        seen = stream.chain.head()
        try:
            # Before anything goes: what a snapshot that cannot be read refers to is not known.
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
            list(old_runs(stream, limit)),
        )


def _remove_leftovers(stream: Stream, garbage: Garbage) -> None:
    for path in garbage.temporary:
        path.unlink(missing_ok=True)
    for path in garbage.runs:
        # Inside the lock: a run that is started anew under its name would write there.
        with suppress(Locked), stream.run_lock(path.name).hold(timeout=0, note=False):
            shutil.rmtree(path, ignore_errors=True)
    for path in garbage.locks:
        with suppress(Locked):
            stream.storage.lock(f"locks/{path.name}").remove()


def _old(stream: Stream, blob: Stored, live: AbstractSet[str], limit_ns: float) -> Stat | None:
    """What is known of an orphan that is old enough to go."""
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
            # Given up by a repair, which says so.
            continue
        try:
            snapshot = stream.chain.read(number)
            declared += given_up_by(snapshot)
            fresh = set(snapshot.refs) - seen
            seen |= fresh
            yield from fresh
            for ref in fresh & {*snapshot.state.refs, snapshot.state_delta}:
                inner = set(manifest.refs_in(stream.blobs, ref)) - seen
                seen |= inner
                yield from inner
        except (Corrupt, NotFound) as e:
            raise SnapshotDamaged(
                f"what snapshot {number} refers to is not known, so nothing is removed: {e}",
                hint="mend the chain first: sluicegate checkpoint repair STREAM",
            ) from e


def old_temporaries(stream: Stream, limit_ns: float) -> Iterator[Path]:
    """Files that dead writers did not finish, also in what the home remembers of streams."""
    keys = ("", "chain", *_prefixes(stream))
    yield from base.old_temporaries(stream.storage, keys, limit_ns)
    if stream.chain.home:
        yield from base.old_temporaries(stream.chain.home, [HOME_DIRECTORY], limit_ns)


def old_run_locks(stream: Stream, head: Snapshot, limit_ns: float) -> Iterator[Path]:
    """Lock files of runs that are over; nobody waits for those, so they may go."""
    directory = stream.storage.local_path("locks")
    for path in sorted(directory.glob("run-*.lock")) if directory else ():
        run = path.name.removeprefix("run-").removesuffix(".lock")
        if run == head.writer or not base.is_old(path, limit_ns):
            continue
        if not stream.run_lock(run).is_held():
            yield path


def old_runs(stream: Stream, limit_ns: float) -> Iterator[Path]:
    """What Spark wrote for runs that were killed; a run that ends removes its own."""
    directory = stream.storage.local_path("runs")
    for path in sorted(directory.iterdir()) if directory and directory.is_dir() else ():
        if (
            path.is_dir()
            and base.is_old(path, limit_ns)
            and not stream.run_lock(path.name).is_held()
        ):
            yield path


def _prefixes(stream: Stream) -> list[str]:
    try:
        return [f"blobs/{e.name}" for e in stream.storage.list("blobs") if e.kind == "directory"]
    except NotFound:
        return []


@dataclass(frozen=True, slots=True)
class Rubbish:
    """What may go of a sink: output taken back for good, and what dead writers left."""

    taken_back: tuple[Path, ...] = ()
    attempts: tuple[Path, ...] = ()
    unfinished: tuple[Path, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.taken_back or self.attempts or self.unfinished)

    @property
    def shown(self) -> str:
        """For people: how many of each."""
        counts = (
            (self.taken_back, "outputs that were taken back for good"),
            (self.attempts, "leftovers of attempts that died"),
            (self.unfinished, "unfinished files"),
        )
        return ", ".join(f"{len(paths):,} {what}" for paths, what in counts if paths)


def list_output_garbage(stream: Stream, sink: Sink, grace: float) -> Rubbish:
    """What may go of a sink; of leftovers, those that are older than the grace."""
    head = stream.chain.head()
    limit_ns = (time.time() - grace) * 1e9
    unfinished = tuple(sink.unfinished(limit_ns))
    attempts: list[Path] = []
    if Gate(stream).living_writer(head) is None:
        # A job clears them away when it starts, so whatever is there now may be its own.
        found = (sink.path(f"{ATTEMPTS}/{name}") for name in sink.names(ATTEMPTS))
        attempts = [path for path in found if path.stat().st_mtime_ns <= limit_ns]
    never_committed = (sink.path(f"{TRASH}/staged/{n}") for n in sink.names(f"{TRASH}/staged"))
    attempts += (path for path in never_committed if path.stat().st_mtime_ns <= limit_ns)
    return Rubbish(tuple(_taken_back(stream, sink, head)), tuple(attempts), unfinished)


def empty(stream: Stream, sink: Sink, grace: float) -> Rubbish:
    """Remove what may go. That takes no lock: an orphan stays an orphan."""
    rubbish = list_output_garbage(stream, sink, grace)
    for path in (*rubbish.taken_back, *rubbish.attempts):
        shutil.rmtree(path, ignore_errors=True)
    for path in rubbish.unfinished:
        path.unlink(missing_ok=True)
    return rubbish


def _taken_back(stream: Stream, sink: Sink, head: Snapshot) -> Iterator[Path]:
    """What was withdrawn and can never be part of the stream again."""
    names = [(kind, name) for kind in KINDS for name in sink.names(f"{TRASH}/{kind}")]
    needed = _reachable(stream, head) if names else []
    for kind, name in names:
        match = NAME.fullmatch(name)
        if match and not has(needed, int(match[1])):
            yield sink.path(f"{TRASH}/{kind}/{name}")


def _reachable(stream: Stream, head: Snapshot) -> list[Span]:
    """The epochs of all snapshots that can be gone back to.

    The ancestry of a snapshot that is part of a ancestry is the beginning of it, so one snapshot of
    every branch is read: its newest that is sound.
    """
    needed = list(head.ancestry)
    for number in range(head.number, head.floor - 1, -1):
        if not has(needed, number):
            for snapshot in sound_snapshots(stream, number, number):
                needed += snapshot.ancestry
    return needed
