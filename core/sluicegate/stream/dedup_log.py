"""The dedup log of a stream: its statistics, and whether stamps were seen."""

from __future__ import annotations

from dataclasses import dataclass

from sluicegate.dedup import segment
from sluicegate.dedup.ledger import Ledger
from sluicegate.dedup.segment import Statistics, statistics
from sluicegate.dedup.stamp import Stamp, Stamps
from sluicegate.stream import segments
from sluicegate.stream.history import intact_snapshots
from sluicegate.stream.snapshot import Kind, Snapshot
from sluicegate.stream.stream import Stream

NAMES = ("fresh", "seen", "expired")


@dataclass(frozen=True, slots=True)
class LogStats:
    """The dedup log at a snapshot, and its size after a compaction."""

    snapshot: Snapshot
    segments: int
    bytes: int
    compacted_bytes: int
    statistics: Statistics


@dataclass(frozen=True, slots=True)
class Answer:
    """Whether a stamp was seen; with the snapshot of its epoch, if that is still kept."""

    stamp: Stamp
    verdict: str
    snapshot: int | None = None


def ledger_at(stream: Stream, snapshot: Snapshot) -> Ledger:
    """All stamps that were seen up to a snapshot."""
    return segments.read(stream.blobs, snapshot.dedup.refs)


def look(stream: Stream) -> LogStats:
    """The size and contents of the dedup log."""
    snapshot = stream.chain.head()
    ledger = ledger_at(stream, snapshot)
    entries = ledger.entries()
    compacted = len(segment.encode(entries)) if len(entries) else 0
    refs = snapshot.dedup.refs
    return LogStats(snapshot, len(refs), sum(r.size for r in refs), compacted, statistics(entries))


def ask(stream: Stream, stamps: list[Stamp]) -> list[Answer]:
    """Whether stamps were seen, and in which snapshot's epoch, while that is kept."""
    head = stream.chain.head()
    columns = Stamps.from_stamps(stamps)
    # One by one: a stamp that is asked for twice is not its own duplicate.
    verdicts = [
        int(ledger.check(one)[0])
        for ledger in [ledger_at(stream, head)]
        for one in columns.slices(1)
    ]
    wanted = {s for s, verdict in zip(stamps, verdicts, strict=True) if NAMES[verdict] == "seen"}
    found = _epochs_of(stream, head, wanted)
    return [
        Answer(stamp, NAMES[verdict], found.get(stamp))
        for stamp, verdict in zip(stamps, verdicts, strict=True)
    ]


def _epochs_of(stream: Stream, head: Snapshot, wanted: set[Stamp]) -> dict[Stamp, int]:
    """The snapshot whose epoch saw each stamp first, newest snapshots first."""
    found: dict[Stamp, int] = {}
    for snapshot in intact_snapshots(stream, head.number, head.floor):
        left = sorted(wanted - found.keys())
        if not left:
            break
        if (
            snapshot.kind is not Kind.EPOCH
            or snapshot.stamps is None
            or not head.includes(snapshot.number)
        ):
            continue
        ledger = segments.read(stream.blobs, [snapshot.stamps])
        verdicts = ledger.check(Stamps.from_stamps(left))
        found |= {
            s: snapshot.number for s, v in zip(left, verdicts, strict=True) if NAMES[v] == "seen"
        }
    return found
