"""Older snapshots: what they hold, which of them can be restored, and the history."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from typing import Any

from sluicegate.errors import Corrupt, UsageError
from sluicegate.positions import Positions
from sluicegate.reset import Point, Timeline
from sluicegate.stream.scan import BlobSurvey, discarded_by
from sluicegate.stream.snapshot import Kind, Snapshot, SnapshotDamaged, Span
from sluicegate.stream.stream import Stream


class NotRestorable(UsageError):
    """A snapshot that cannot be restored: pruned, damaged, or not there yet."""

    default_hint = "list the snapshots with: sluicegate checkpoint list STREAM"


def content_of(snapshot: Snapshot) -> dict[str, Any]:
    """What a rollback to a snapshot restores; numbers that only grow are not part of it."""
    return {
        "positions": snapshot.positions,
        "sequence": snapshot.sequence,
        "watermark_ns": snapshot.watermark_ns,
        "counters": snapshot.counters,
        "state": snapshot.state,
        "dedup": snapshot.dedup,
        "operators": snapshot.operators,
        "adopting": snapshot.adopting,
        "fingerprints": snapshot.fingerprints,
        "hooks": snapshot.hooks,
        "ancestry": snapshot.ancestry,
    }


def common_ancestor(stream: Stream, one: Snapshot, other: Snapshot) -> Snapshot | None:
    """The newest snapshot that both ancestries go through; None if it is no longer kept."""
    shared = [
        min(last, end)
        for first, last in one.ancestry
        for begin, end in other.ancestry
        if max(first, begin) <= min(last, end)
    ]
    try:
        return stream.chain.read(max(shared)) if shared else None
    except Corrupt:
        return None


def restorable(stream: Stream, head: Snapshot, number: int) -> Snapshot:
    """The snapshot to restore, with all its blobs, or `NotRestorable` naming the oldest."""
    if number > head.number:
        raise NotRestorable(f"there is no snapshot {number} yet; the newest is {head.number}")
    if number < head.floor:
        oldest = oldest_restorable(stream, head)
        left = "none is available" if oldest is None else f"the oldest available is {oldest}"
        raise NotRestorable(f"snapshot {number} was pruned; {left}")
    problem = obstacle(stream, number)
    if problem is None:
        try:
            return stream.chain.read(number)
        except SnapshotDamaged:
            problem = "it has just been pruned"
    raise NotRestorable(
        f"cannot roll back to snapshot {number}: {problem}; "
        f"the newest usable one before it is {_nearest(stream, head, number)}"
    )


def obstacle(stream: Stream, number: int) -> str | None:
    """Why a snapshot cannot be restored; None if it can."""
    try:
        snapshot = stream.chain.read(number)
    except SnapshotDamaged as e:
        return e.message
    with suppress(SnapshotDamaged):
        if stream.chain.read(number + 1).parent != snapshot.digest:
            return f"it is not the one that snapshot {number + 1} names as its parent"
    bad = BlobSurvey(stream.blobs).of(snapshot)
    return bad[0].what if bad else None


def oldest_restorable(stream: Stream, head: Snapshot) -> int | None:
    """The oldest snapshot that can be restored, if one is left."""
    numbers = range(head.floor, head.number + 1)
    return next((number for number in numbers if obstacle(stream, number) is None), None)


def snapshot_at(stream: Stream, head: Snapshot, moment_ms: int) -> int:
    """The newest snapshot that was there at a time."""
    snapshots = intact_snapshots(stream, head.number, head.floor)
    return Timeline(map(point_of, snapshots), stream.uri).at(moment_ms).value.number


def point_of(snapshot: Snapshot) -> Point[Snapshot]:
    """When a snapshot was made."""
    return Point(round(snapshot.created_at * 1000), snapshot, f"snapshot {snapshot.number}")


def snapshot_before(stream: Stream, head: Snapshot, positions: Positions) -> int:
    """The newest snapshot of the ancestry up to which nothing at or past these positions was read.

    From the oldest on: after a reset, positions are lower than what was applied.
    """
    found = None
    for snapshot in intact_snapshots(stream, head.floor, head.number):
        reached = (positions.get(p.topic, p.partition) for p in snapshot.positions)
        inside = all(
            wanted is None or each.offset <= wanted
            for each, wanted in zip(snapshot.positions, reached, strict=True)
        )
        if not head.includes(snapshot.number):
            continue
        if not inside:
            break
        found = snapshot.number
    if found is not None:
        return found
    raise NotRestorable(
        "every kept snapshot has already read past these positions",
        hint="keep the applied events with --skip-seen, or choose later positions",
    )


def newest_epoch(stream: Stream, head: Snapshot) -> Snapshot | None:
    """The newest epoch that is kept, whether it is part of the stream now or was rolled back.

    It is the only one whose output may be neither published nor in the trash under its name.
    """
    snapshots = intact_snapshots(stream, head.number, head.floor)
    return next((snapshot for snapshot in snapshots if snapshot.kind is Kind.EPOCH), None)


def discarded(stream: Stream, head: Snapshot) -> Iterator[Span]:
    """The snapshots that repairs have discarded; their content may be lost."""
    for snapshot in changes(stream, head):
        yield from discarded_by(snapshot)


def changes(stream: Stream, head: Snapshot) -> Iterator[Snapshot]:
    """The snapshots that are not epochs, newest first, without reading the epochs between them."""
    snapshot: Snapshot | None = head
    while snapshot is not None:
        if snapshot.kind is not Kind.EPOCH:
            yield snapshot
        number = snapshot.changed
        if number is None or number < head.floor:
            return
        snapshot = _read_or_before(stream, head, number)


def _read_or_before(stream: Stream, head: Snapshot, number: int) -> Snapshot | None:
    """A snapshot, or the nearest intact one before it if it is damaged."""
    return next(intact_snapshots(stream, number, head.floor), None)


def intact_snapshots(stream: Stream, start: int, end: int) -> Iterator[Snapshot]:
    """The snapshots from one number to another, either way, without those that cannot be read."""
    step = 1 if start <= end else -1
    for number in range(start, end + step, step):
        try:
            yield stream.chain.read(number)
        except Corrupt:
            continue


def _nearest(stream: Stream, head: Snapshot, number: int) -> str:
    for candidate in range(number - 1, head.floor - 1, -1):
        if obstacle(stream, candidate) is None:
            return str(candidate)
    return "none"
