"""What operators do with a stream's dedup log: look into it, ask it, compact it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from sluicegate import units
from sluicegate.chain.link import Kind, Link, Manifest
from sluicegate.dedup import segment
from sluicegate.dedup.ledger import Ledger
from sluicegate.dedup.stamp import Stamp, Stamps
from sluicegate.dedup.statistics import Statistics, statistics
from sluicegate.errors import Corrupt
from sluicegate.gate import segments
from sluicegate.gate.compact import Inputs, oldest, silent, unless_replaced
from sluicegate.gate.drafts import CompactDraft, Signature
from sluicegate.gate.gate import Gate
from sluicegate.gate.history import sound_links
from sluicegate.gate.stream import Stream

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
    """Segments as one, proven to know the same, and what was given up by age."""

    inputs: Inputs
    data: bytes
    given_up: int


def compacted(
    stream: Stream,
    inputs: Inputs,
    before: float | None,
    on_progress: Callable[[int, int], None] = silent,
) -> Compacted:
    """Merge segments into one; with `before`, give up what did not grow since that time.

    Nothing is stored. Progress is in bytes, for reading, merging and proving each.
    """
    size = sum(ref.size for ref in inputs)
    with unless_replaced(stream, "dedup", inputs):
        ledger = segments.read(stream.blobs, inputs, lambda read: on_progress(read, 3 * size))
    given_up = 0 if before is None else ledger.expire(round(before * 1000))
    entries = ledger.entries()
    data = segment.encode(entries)
    on_progress(2 * size, 3 * size)
    if not segment.decode(data, "the compacted log").same_stamps(entries):
        raise Corrupt("the compacted dedup log would not know the same; nothing was changed")
    on_progress(3 * size, 3 * size)
    return Compacted(inputs, data, given_up)


def compact_dedup(
    gate: Gate, done: Compacted, signature: Signature, details: Mapping[str, Any]
) -> Link | None:
    """Put one segment in the place of those it was made of; None if somebody replaced them."""
    head = gate.head()
    part = oldest(head.dedup, done.inputs)
    if part is None:
        return None
    old = units.size(sum(ref.size for ref in done.inputs))
    told = f"dedup log: {len(done.inputs)} segments, {old} → {units.size(len(done.data))}"
    told += f"; gave up {done.given_up:,} stamps by age" if done.given_up else ""
    fields = {**details, "summary": told, "given_up": done.given_up}
    result = gate.stream.blobs.put(done.data)
    return gate.append(CompactDraft(part, result, signature, fields, "dedup"), head)


def restore_dedup(
    gate: Gate,
    number: int,
    signature: Signature,
    details: Mapping[str, Any],
    on_progress: Callable[[int, int], None] = silent,
) -> Link | None:
    """Take a compaction back: what it gave up by age is known again, with what came since."""
    head = gate.head()
    was, made = gate.stream.chain.read(number - 1), gate.stream.chain.read(number)
    # What the job had sealed beside the compaction is there as it was.
    inputs = was.dedup.refs[: len(was.dedup.refs) - len(made.dedup.deltas)]
    result = gate.stream.blobs.put(compacted(gate.stream, inputs, None, on_progress).data)
    draft = CompactDraft(Manifest(made.dedup.base), result, signature, details, "dedup")
    return gate.append(draft, head)
