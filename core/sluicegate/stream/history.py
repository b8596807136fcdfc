"""Going back: what older snapshots hold, which of them can be gone back to, and the history."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from typing import Any

from sluicegate.errors import Corrupt, UsageError
from sluicegate.positions import Positions
from sluicegate.reset import Point, Timeline
from sluicegate.stream.scan import BlobSurvey, given_up_by
from sluicegate.stream.snapshot import Kind, Snapshot, SnapshotDamaged, Span
from sluicegate.stream.stream import Stream


class CannotGoBack(UsageError):
    """A snapshot that cannot be gone back to: given up, damaged, or not there yet."""

    default_hint = "see the snapshots with: sluicegate checkpoint list STREAM"


def content_of(snapshot: Snapshot) -> dict[str, Any]:
    """What going back to a snapshot restores; numbers that only grow are not part of it."""
    return {
        "positions": snapshot.positions,
        "sequence": snapshot.sequence,
        "watermark_ns": snapshot.watermark_ns,
        "counters": snapshot.counters,
        "state": snapshot.state,
        "dedup": snapshot.dedup,
        "operators": snapshot.operators,
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
    """The snapshot to go back to, with all its blobs there, or `CannotGoBack` naming the oldest."""
    if number > head.number:
        raise CannotGoBack(f"there is no snapshot {number} yet; the newest is {head.number}")
    if number < head.floor:
        oldest = oldest_restorable(stream, head)
        left = (
            "no snapshot is left that can be gone back to"
            if oldest is None
            else f"the oldest that can be gone back to is {oldest}"
        )
        raise CannotGoBack(f"snapshot {number} was given up by a prune; {left}")
    problem = obstacle(stream, number)
    if problem is None:
        try:
            return stream.chain.read(number)
        except SnapshotDamaged:
            problem = "it was pruned just now"
    raise CannotGoBack(
        f"snapshot {number} cannot be gone back to: {problem}; "
        f"the newest before it that can is {_nearest(stream, head, number)}"
    )


def obstacle(stream: Stream, number: int) -> str | None:
    """Why a snapshot cannot be gone back to; None if it can."""
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
    """The oldest snapshot that can be gone back to, if one is left."""
    numbers = range(head.floor, head.number + 1)
    return next((number for number in numbers if obstacle(stream, number) is None), None)


def snapshot_at(stream: Stream, head: Snapshot, moment_ms: int) -> int:
    """The newest snapshot that was there at a time."""
    snapshots = sound_snapshots(stream, head.number, head.floor)
    return Timeline(map(point_of, snapshots), stream.uri).at(moment_ms).value.number


def point_of(snapshot: Snapshot) -> Point[Snapshot]:
    """When a snapshot was made."""
    return Point(round(snapshot.created_at * 1000), snapshot, f"snapshot {snapshot.number}")


def snapshot_before(stream: Stream, head: Snapshot, positions: Positions) -> int:
    """The newest snapshot of the ancestry up to which nothing at or past these positions was read.

    From the oldest on: after a reset, positions are lower than what was counted.
    """
    found = None
    for snapshot in sound_snapshots(stream, head.floor, head.number):
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
    raise CannotGoBack(
        "every kept snapshot has read past these positions already",
        hint="keep what was counted with --skip-seen, or choose later positions",
    )


def newest_epoch(stream: Stream, head: Snapshot) -> Snapshot | None:
    """The newest epoch that is kept, whether it is part of the stream now or was taken back.

    It is the only one whose output may be neither published nor in the trash under its name.
    """
    snapshots = sound_snapshots(stream, head.number, head.floor)
    return next((snapshot for snapshot in snapshots if snapshot.kind is Kind.EPOCH), None)


def given_up(stream: Stream, head: Snapshot) -> Iterator[Span]:
    """The snapshots that repairs have given up; of what they said there may be nothing left."""
    for snapshot in changes(stream, head):
        yield from given_up_by(snapshot)


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
    """A snapshot, or the nearest sound one before it if it is damaged."""
    return next(sound_snapshots(stream, number, head.floor), None)


def sound_snapshots(stream: Stream, start: int, end: int) -> Iterator[Snapshot]:
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
