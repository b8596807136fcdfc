"""What operators do with a stream's dedup log: look into it, ask it, compact it."""

from __future__ import annotations

from dataclasses import dataclass

from sluicegate.dedup import segment
from sluicegate.dedup.ledger import Ledger
from sluicegate.dedup.segment import Statistics, statistics
from sluicegate.dedup.stamp import Stamp, Stamps
from sluicegate.stream import segments
from sluicegate.stream.history import sound_links
from sluicegate.stream.snapshot import Kind, Link
from sluicegate.stream.stream import Stream

NAMES = ("fresh", "seen", "expired")


@dataclass(frozen=True, slots=True)
class LogStats:
    """The dedup log at a link, and what compaction would make of it."""

    link: Link
    segments: int
    bytes: int
    compacted_bytes: int
    statistics: Statistics


@dataclass(frozen=True, slots=True)
class Answer:
    """What the log knows of a stamp; the epoch's link, if the epoch is still kept."""

    stamp: Stamp
    verdict: str
    link: int | None = None


def ledger_at(stream: Stream, link: Link) -> Ledger:
    """Everything that was seen up to a link."""
    return segments.read(stream.blobs, link.dedup.refs)


def look(stream: Stream) -> LogStats:
    """What the dedup log consists of."""
    link = stream.chain.head()
    ledger = ledger_at(stream, link)
    entries = ledger.entries()
    compacted = len(segment.encode(entries)) if len(entries) else 0
    refs = link.dedup.refs
    return LogStats(link, len(refs), sum(r.size for r in refs), compacted, statistics(entries))


def ask(stream: Stream, stamps: list[Stamp]) -> list[Answer]:
    """Whether stamps were seen, and in which link's epoch, while that is kept."""
    head = stream.chain.head()
    columns = Stamps.from_stamps(stamps)
    # One by one: a stamp that is asked for twice was not seen twice.
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


def _epochs_of(stream: Stream, head: Link, wanted: set[Stamp]) -> dict[Stamp, int]:
    """The link whose epoch saw each stamp first, newest links first."""
    found: dict[Stamp, int] = {}
    for link in sound_links(stream, head.number, head.floor):
        left = sorted(wanted - found.keys())
        if not left:
            break
        if link.kind is not Kind.EPOCH or link.stamps is None or not head.includes(link.number):
            continue
        ledger = segments.read(stream.blobs, [link.stamps])
        verdicts = ledger.check(Stamps.from_stamps(left))
        found |= {s: link.number for s, v in zip(left, verdicts, strict=True) if NAMES[v] == "seen"}
    return found
