"""Repair: the stream goes on from the newest link that is whole, and says what it gave up.

A repair never frees a number. It appends a link above the highest number that was ever used, at a
generation above all others, which names the damaged links by the digest of what is there. From then
on verify accepts them as dealt with.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from sluicegate import units
from sluicegate.blobs import digest_of
from sluicegate.chain.errors import ChainDamaged
from sluicegate.chain.link import Kind, Link, extended
from sluicegate.errors import Drifted, Locked, NotFound, StorageFailed
from sluicegate.gate.collect import declared_numbers, sweep
from sluicegate.gate.drafts import Signature
from sluicegate.gate.gate import Gate
from sluicegate.gate.history import content_of
from sluicegate.gate.stream import Stream
from sluicegate.gate.survey import Bad, BlobSurvey, Damage, Survey, spans, survey


@dataclass(frozen=True, slots=True)
class Diagnosis:
    """What is wrong with a stream, and the link it can go on from."""

    found: Survey
    base: Link | None
    damaged: tuple[Damage, ...]
    unusable: tuple[tuple[int, int], ...]
    bad: tuple[Bad, ...]
    below_floor: int

    @property
    def needs_link(self) -> bool:
        """Whether something must be said in the chain."""
        return not self.found.is_whole or bool(self.unusable)

    @property
    def loses(self) -> bool:
        """Whether the stream goes back, because its newest link is not whole."""
        return self.base is None or self.base.number != self.found.newest

    def digest(self) -> str:
        """What the plan of a repair depends on."""
        parts = [self.found.newest, self.base.digest if self.base else None, self.found.hint]
        return digest_of(repr((parts, self.damaged, self.unusable, self.below_floor)).encode())


def diagnose(stream: Stream, *, read_data: bool = False) -> Diagnosis:
    """Look at everything; with `read_data`, at the content of every blob."""
    blobs = BlobSurvey(stream.blobs, read=read_data)
    sound: list[Link] = []
    unusable: list[int] = []
    bad: dict[str, Bad] = {}
    given_up: set[int] = set()

    def on_link(link: Link) -> None:
        given_up.update(declared_numbers(link))
        if link.number in given_up:
            return
        wrong = blobs.of(link)
        if wrong:
            unusable.append(link.number)
            bad.update({each.ref.digest: each for each in wrong})
        elif not sound:
            sound.append(link)

    found = survey(stream, on_link)
    return Diagnosis(
        found=found,
        base=sound[0] if sound else None,
        damaged=tuple(found.damaged),
        unusable=tuple(spans(sorted(unusable))),
        bad=tuple(bad.values()),
        below_floor=found.below_floor,
    )


def refuse_hopeless(stream: Stream, diagnosis: Diagnosis) -> None:
    """Refuse what a repair cannot mend, with what can be done instead."""
    found = diagnosis.found
    if found.newest < 0 and not found.findings:
        raise NotFound(f"there is no chain in {stream.uri}", place=stream.uri)
    unreadable = [bad for bad in diagnosis.bad if bad.unreadable]
    if found.unreadable or unreadable:
        what = unreadable[0].what if unreadable else found.findings[0].detail
        raise StorageFailed(
            f"what cannot be read is not given up: {what}",
            hint="make it readable (chmod u+r), then run this again",
            place=stream.uri,
        )
    if found.foreign:
        raise ChainDamaged(
            f"{stream.uri} holds another stream than the one that the home remembers",
            hint="put the right directory there; if the old stream is given up for good, remove "
            f"heads/{stream.name}.head in the home",
            place=stream.uri,
        )
    if diagnosis.base is None:
        raise ChainDamaged(
            f"no link of {stream.uri} is whole, so there is nothing to go on from",
            hint="restore the directory from a backup, then run this again",
            place=stream.uri,
        )


def repair(gate: Gate, diagnosis: Diagnosis, signature: Signature, details: dict[str, Any]) -> Link:
    """Append the link that deals with a diagnosis; nobody else appends meanwhile."""
    stream, found, base = gate.stream, diagnosis.found, diagnosis.base
    assert base
    with stream.collecting():
        if diagnose_again(stream, diagnosis).digest() != diagnosis.digest():
            raise Drifted("the stream changed since it was looked at")
        # Of lost links only their number is known; each raised these by one at the most.
        lost = found.newest - base.number
        link = replace(
            signature.next(base, Kind.REPAIR, **content_of(base)),
            number=found.newest + 1,
            parent=_parent(stream, found),
            generation=max(found.generation, base.generation + lost) + 1,
            version=base.version + lost if base.version else 0,
            epoch=base.epoch + lost,
            floor=found.floor,
            lineage=extended(base.lineage, found.newest + 1),
            changed=_changed(base),
            details=details | declared(diagnosis),
        )
        if found.head and found.head.created_at > link.created_at:
            link = replace(link, created_at=found.head.created_at)
        appended = stream.chain.append(link)
        if appended is None:
            raise Locked(f"somebody else appended link {link.number} to {stream.uri}")
        stream.chain.tell_home(appended)
    if diagnosis.below_floor:
        sweep(stream)
    return appended


def diagnose_again(stream: Stream, diagnosis: Diagnosis) -> Diagnosis:
    """The same look once more; content is only read again where it was bad."""
    again = diagnose(stream)
    # What only reading finds, a look at names and sizes does not find again.
    return replace(
        again,
        base=diagnosis.base if again.found.newest == diagnosis.found.newest else again.base,
        unusable=diagnosis.unusable,
        bad=diagnosis.bad,
    )


def declared(diagnosis: Diagnosis) -> dict[str, Any]:
    """What the link says about the damage."""
    return {
        "damaged": [[each.first, each.last, each.raw] for each in diagnosis.damaged],
        "unusable": [list(span) for span in diagnosis.unusable],
    }


def loss(diagnosis: Diagnosis) -> str:
    """What is given up, in the operator's words."""
    base, newest = diagnosis.base, diagnosis.found.newest
    assert base
    if not diagnosis.loses:
        return (
            "Nothing of the stream is lost: its newest link is whole. What is damaged can only no "
            "longer be gone back to."
        )
    first = base.number + 1
    which = f"link {first}" if first == newest else f"links {first} to {newest}"
    return (
        f"The stream goes back to link {base.number} of {units.utc(base.created_at)}: what {which} "
        f"sealed is given up, and its events are read again, if the source still has them. Output "
        "that was published for them is withdrawn at the next start; downstream readers may have "
        "consumed it."
    )


def _parent(stream: Stream, found: Survey) -> str | None:
    """The identity of the newest number: as it is known, else of the bytes that are there."""
    if found.head and found.head.number == found.newest:
        return found.head.digest
    if known := found.expected.get(found.newest):
        return known
    raw = stream.chain.raw(found.newest)
    return digest_of(raw) if raw is not None else None


def _changed(base: Link) -> int | None:
    return base.changed if base.kind is Kind.EPOCH else base.number
