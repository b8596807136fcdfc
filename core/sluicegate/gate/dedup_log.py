"""What operators do with a stream's dedup log: look into it, ask it, compact it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from sluicegate import units
from sluicegate.blobs import Ref
from sluicegate.chain.link import Kind, Link
from sluicegate.dedup import segment
from sluicegate.dedup.ledger import Ledger
from sluicegate.dedup.stamp import Stamp, Stamps
from sluicegate.dedup.statistics import Statistics, statistics
from sluicegate.errors import Corrupt
from sluicegate.gate import segments
from sluicegate.gate.drafts import CompactDraft, Signature
from sluicegate.gate.gate import Gate
from sluicegate.gate.history import sound_links
from sluicegate.gate.stream import Stream
from sluicegate.storage import ReadOnlyStorage

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


@dataclass(frozen=True, slots=True)
class Compacted:
    """The log as one segment, proven to know the same, and what was given up by age."""

    result: Ref | None
    bytes: int
    given_up: int


def compacted(stream: Stream, link: Link, before: float | None) -> Compacted:
    """Merge all segments into one; with `before`, give up what did not grow since that time.

    Nothing is stored where nothing may be written.
    """
    ledger = ledger_at(stream, link)
    given_up = 0 if before is None else ledger.expire(round(before * 1000))
    entries = ledger.entries()
    data = segment.encode(entries)
    if not segment.decode(data, "the compacted log").same_stamps(entries):
        raise Corrupt("the compacted dedup log would not know the same; nothing was changed")
    may_write = not isinstance(stream.storage, ReadOnlyStorage)
    result = segments.put(stream.blobs, entries) if may_write else None
    return Compacted(result, len(data), given_up)


def compact_dedup(
    gate: Gate, before: float | None, signature: Signature, details: Mapping[str, Any]
) -> Link | None:
    """Replace the log by one segment; None if somebody else changed it meanwhile."""
    head = gate.head()
    done = compacted(gate.stream, head, before)
    if done.result is None:
        return None
    refs = head.dedup.refs
    old = units.size(sum(ref.size for ref in refs))
    told = f"dedup log: {len(refs)} segments, {old} → {units.size(done.bytes)}"
    told += f"; gave up {done.given_up:,} stamps by age" if done.given_up else ""
    fields = {**details, "summary": told, "given_up": done.given_up}
    draft = CompactDraft(head.dedup, done.result, signature, fields, "dedup")
    return gate.append(draft, head)


def restore_dedup(
    gate: Gate, number: int, signature: Signature, details: Mapping[str, Any]
) -> Link | None:
    """Take a compaction back: what it gave up by age is known again, with what came since."""
    head = gate.head()
    was, made = gate.stream.chain.read(number - 1), gate.stream.chain.read(number)
    result = segments.put(gate.stream.blobs, ledger_at(gate.stream, was).entries())
    assert result
    draft = CompactDraft(made.dedup, result, signature, details, "dedup")
    return gate.append(draft, head)
