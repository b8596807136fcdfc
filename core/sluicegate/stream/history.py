"""Going back: what older links hold, which of them can be gone back to, and the history."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from typing import Any

from sluicegate.errors import Corrupt, UsageError
from sluicegate.positions import Positions
from sluicegate.reset import Point, Timeline
from sluicegate.stream.scan import BlobSurvey, given_up_by
from sluicegate.stream.snapshot import Kind, Link, LinkDamaged, Span
from sluicegate.stream.stream import Stream


class CannotGoBack(UsageError):
    """A link that cannot be gone back to: given up, damaged, or not there yet."""

    default_hint = "see the links with: sluicegate checkpoint list STREAM"


def content_of(link: Link) -> dict[str, Any]:
    """What going back to a link restores; numbers that only grow are not part of it."""
    return {
        "positions": link.positions,
        "sequence": link.sequence,
        "watermark_ns": link.watermark_ns,
        "counters": link.counters,
        "state": link.state,
        "dedup": link.dedup,
        "operators": link.operators,
        "lineage": link.lineage,
    }


def common_ancestor(stream: Stream, one: Link, other: Link) -> Link | None:
    """The newest link that both lineages go through; None if it is no longer kept."""
    shared = [
        min(last, end)
        for first, last in one.lineage
        for begin, end in other.lineage
        if max(first, begin) <= min(last, end)
    ]
    try:
        return stream.chain.read(max(shared)) if shared else None
    except Corrupt:
        return None


def restorable(stream: Stream, head: Link, number: int) -> Link:
    """The link to go back to, with all its blobs there, or `CannotGoBack` naming the oldest."""
    if number > head.number:
        raise CannotGoBack(f"there is no link {number} yet; the newest is {head.number}")
    if number < head.floor:
        oldest = oldest_restorable(stream, head)
        left = (
            "no link is left that can be gone back to"
            if oldest is None
            else f"the oldest that can be gone back to is {oldest}"
        )
        raise CannotGoBack(f"link {number} was given up by a prune; {left}")
    problem = obstacle(stream, number)
    if problem is None:
        try:
            return stream.chain.read(number)
        except LinkDamaged:
            problem = "it was pruned just now"
    raise CannotGoBack(
        f"link {number} cannot be gone back to: {problem}; "
        f"the newest before it that can is {_nearest(stream, head, number)}"
    )


def obstacle(stream: Stream, number: int) -> str | None:
    """Why a link cannot be gone back to; None if it can."""
    try:
        link = stream.chain.read(number)
    except LinkDamaged as e:
        return e.message
    with suppress(LinkDamaged):
        if stream.chain.read(number + 1).parent != link.digest:
            return f"it is not the one that link {number + 1} names as its parent"
    bad = BlobSurvey(stream.blobs).of(link)
    return bad[0].what if bad else None


def oldest_restorable(stream: Stream, head: Link) -> int | None:
    """The oldest link that can be gone back to, if one is left."""
    numbers = range(head.floor, head.number + 1)
    return next((number for number in numbers if obstacle(stream, number) is None), None)


def link_at(stream: Stream, head: Link, moment_ms: int) -> int:
    """The newest link that was there at a time."""
    links = sound_links(stream, head.number, head.floor)
    return Timeline(map(point_of, links), stream.uri).at(moment_ms).value.number


def point_of(link: Link) -> Point[Link]:
    """When a link was made."""
    return Point(round(link.created_at * 1000), link, f"link {link.number}")


def link_before(stream: Stream, head: Link, positions: Positions) -> int:
    """The newest link of the lineage up to which nothing at or past these positions was read.

    From the oldest on: after a reset, positions are lower than what was counted.
    """
    found = None
    for link in sound_links(stream, head.floor, head.number):
        reached = (positions.get(p.topic, p.partition) for p in link.positions)
        inside = all(
            wanted is None or each.offset <= wanted
            for each, wanted in zip(link.positions, reached, strict=True)
        )
        if not head.includes(link.number):
            continue
        if not inside:
            break
        found = link.number
    if found is not None:
        return found
    raise CannotGoBack(
        "every kept link has read past these positions already",
        hint="keep what was counted with --skip-seen, or choose later positions",
    )


def newest_epoch(stream: Stream, head: Link) -> Link | None:
    """The newest epoch that is kept, whether it is part of the stream now or was taken back.

    It is the only one whose output may be neither published nor in the trash under its name.
    """
    links = sound_links(stream, head.number, head.floor)
    return next((link for link in links if link.kind is Kind.EPOCH), None)


def given_up(stream: Stream, head: Link) -> Iterator[Span]:
    """The links that repairs have given up; of what they said there may be nothing left."""
    for link in changes(stream, head):
        yield from given_up_by(link)


def changes(stream: Stream, head: Link) -> Iterator[Link]:
    """The links that are not epochs, newest first, without reading the epochs between them."""
    link: Link | None = head
    while link is not None:
        if link.kind is not Kind.EPOCH:
            yield link
        number = link.changed
        if number is None or number < head.floor:
            return
        link = _read_or_before(stream, head, number)


def _read_or_before(stream: Stream, head: Link, number: int) -> Link | None:
    """A link, or the nearest sound one before it if it is damaged."""
    return next(sound_links(stream, number, head.floor), None)


def sound_links(stream: Stream, start: int, end: int) -> Iterator[Link]:
    """The links from one number to another, either way, without those that cannot be read."""
    step = 1 if start <= end else -1
    for number in range(start, end + step, step):
        try:
            yield stream.chain.read(number)
        except Corrupt:
            continue


def _nearest(stream: Stream, head: Link, number: int) -> str:
    for candidate in range(number - 1, head.floor - 1, -1):
        if obstacle(stream, candidate) is None:
            return str(candidate)
    return "none"
