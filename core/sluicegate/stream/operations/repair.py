"""Repair: the stream goes on from the newest snapshot that is whole, and says what it gave up.

A repair never frees a number. It appends a snapshot above the highest number that was ever used, at
a generation above all others, which names the damaged snapshots by the digest of what is there.
From then on verify accepts them as dealt with, whatever becomes of their files.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar

from sluicegate import units
from sluicegate.codec import digest_of
from sluicegate.errors import Corrupt, Drifted, Locked, NotFound, StorageFailed
from sluicegate.plan import Action, Precondition
from sluicegate.stream import rules
from sluicegate.stream.append import Signature
from sluicegate.stream.gc import sweep
from sluicegate.stream.history import content_of
from sluicegate.stream.operations.base import (
    Parts,
    StreamOperation,
    Workplace,
    moves,
    snapshot_text,
)
from sluicegate.stream.scan import Damage, Survey, survey
from sluicegate.stream.snapshot import ChainDamaged, Kind, Snapshot, Span, extended, spans
from sluicegate.stream.stream import Stream
from sluicegate.stream.writer import Gate


@dataclass(frozen=True, kw_only=True)
class Repair(StreamOperation):
    """Go on from the newest snapshot that is whole; with `read_data`, whose blobs are, too."""

    name: ClassVar = "repair"
    on_damage: ClassVar = True
    read_data: bool = False

    def plan(self, at: Workplace) -> Parts:
        found = diagnose(at.stream, read_data=self.read_data)
        refuse_hopeless(at.stream, found)
        base, newest, head = found.base, found.found.newest, found.found.head
        assert base
        actions = []
        if found.needs_snapshot:
            actions = [Action("give up", d.shown, d.what) for d in found.damaged]
            actions += [
                Action(
                    "mark unusable", f"snapshot {a}" if a == b else f"snapshots {a}-{b}", "blobs"
                )
                for a, b in found.unusable
            ]
            going_on = f"going on from {snapshot_text(base)}"
            actions.append(Action("append", f"snapshot {newest + 1}", going_on))
            if found.loses and head and head.number == newest:
                actions += moves(head.positions, base.positions)
        if found.below_floor:
            actions.append(Action("remove", f"{found.below_floor} snapshots", "below the floor"))
        told = [loss(found), "A job that runs stops at its next epoch."]
        needs = (Precondition("what is wrong", found.digest()),)
        title = f"Repair {at.stream.name}"
        return Parts(title, needs, actions, told if found.needs_snapshot else [])

    def append(
        self, at: Workplace, signature: Signature, details: Mapping[str, Any]
    ) -> Snapshot | None:
        diagnosis = diagnose(at.stream, read_data=self.read_data)
        if not diagnosis.needs_snapshot:
            sweep(at.stream)
            return at.stream.chain.head()
        summary = {"summary": _summary(diagnosis)}
        return repair(at.gate, diagnosis, signature, {**details, **summary})


def _summary(diagnosis: Diagnosis) -> str:
    assert diagnosis.base
    told = [d.shown for d in diagnosis.damaged] + [
        f"snapshots {a}-{b}" for a, b in diagnosis.unusable
    ]
    return f"from snapshot {diagnosis.base.number}; gave up " + (", ".join(told[:3]) or "nothing")


@dataclass(frozen=True, slots=True)
class Diagnosis:
    """What is wrong with a stream, and the snapshot it can go on from."""

    found: Survey

    @property
    def base(self) -> Snapshot | None:
        """The snapshot to go on from."""
        return self.found.base

    @property
    def damaged(self) -> tuple[Damage, ...]:
        """Snapshots whose files are lost or damaged."""
        return tuple(self.found.damaged)

    @property
    def unusable(self) -> tuple[Span, ...]:
        """Sound snapshots that cannot be gone back to: of their blobs, or of their order."""
        return tuple(spans({*self.found.unusable, *self.found.disordered}))

    @property
    def below_floor(self) -> int:
        """How many snapshots a prune left behind."""
        return self.found.below_floor

    @property
    def needs_snapshot(self) -> bool:
        """Whether something must be said in the chain."""
        return bool(self.found.findings)

    @property
    def loses(self) -> bool:
        """Whether the stream goes back, because its newest snapshot is not whole."""
        return self.base is None or self.base.number != self.found.newest

    def digest(self) -> str:
        """What the plan of a repair depends on, wherever the stream lies.

        On the newest snapshot only if the stream goes back; else a job may have gone on since.
        """
        wrong = sorted(each.code for each in self.found.findings)
        parts = [wrong, self.damaged, self.unusable, self.below_floor]
        if self.loses:
            parts += [self.found.newest, self.base.digest if self.base else None]
        return digest_of(repr(parts).encode())


def diagnose(stream: Stream, *, read_data: bool = False) -> Diagnosis:
    """Look at everything; with `read_data`, at the content of every blob."""
    return Diagnosis(survey(stream, read=lambda _: read_data))


def diagnose_again(stream: Stream, diagnosis: Diagnosis) -> Diagnosis:
    """The same look once more; content is only read where it was bad."""
    suspects = {bad.ref for bad, _ in diagnosis.found.bad.values() if bad.by_reading}
    return Diagnosis(survey(stream, read=suspects.__contains__))


def refuse_hopeless(stream: Stream, diagnosis: Diagnosis) -> None:
    """Refuse what a repair cannot mend, with what can be done instead."""
    found = diagnosis.found
    if found.newest < 0 and not found.findings and not found.obstacles:
        raise NotFound(f"there is no chain in {stream.uri}", place=stream.uri)
    for finding in found.obstacles:
        if finding.rule is rules.FOREIGN:
            other = f"heads/{stream.name}.head in the home" if found.evidence.mark else "HEAD"
            raise ChainDamaged(
                f"{stream.uri} is not the stream that belongs there: {finding.detail}",
                hint="put the right directory there; if the stream that was there is given up for "
                f"good, remove {other}",
                place=stream.uri,
            )
        raise StorageFailed(
            f"nothing is given up before this is dealt with: {finding.detail}",
            hint=f"{finding.repair}; then run this again",
            place=finding.place,
        )
    if diagnosis.base is None:
        raise ChainDamaged(
            f"no snapshot of {stream.uri} is whole, so there is nothing to go on from",
            hint="restore from a backup what this names: "
            f"{units.command('checkpoint', 'verify', stream.uri)}; then run this again",
            place=stream.uri,
        )


def repair(
    gate: Gate, diagnosis: Diagnosis, signature: Signature, details: dict[str, Any]
) -> Snapshot:
    """Append the snapshot that deals with a diagnosis; nobody else appends meanwhile."""
    stream = gate.stream
    with stream.collecting():
        now = diagnose_again(stream, diagnosis)
        refuse_hopeless(stream, now)
        if now.digest() != diagnosis.digest():
            raise Drifted("the stream changed since it was looked at")
        snapshot = _snapshot(stream, now.found, signature)
        appended = stream.chain.append(replace(snapshot, details=details | declared(now)))
        if appended is None:
            raise Locked(f"somebody else appended snapshot {snapshot.number} to {stream.uri}")
    if diagnosis.below_floor:
        sweep(stream)
    return appended


def declared(diagnosis: Diagnosis) -> dict[str, Any]:
    """What the snapshot says about the damage."""
    return {
        "damaged": [[each.first, each.last, each.raw] for each in diagnosis.damaged],
        "unusable": [list(span) for span in diagnosis.unusable],
    }


def loss(diagnosis: Diagnosis) -> str:
    """What is given up, in the operator's words."""
    base, newest = diagnosis.base, diagnosis.found.newest
    assert base
    if not diagnosis.loses:
        hurt = diagnosis.damaged or diagnosis.unusable
        closed = " What is damaged can no longer be gone back to." if hurt else ""
        return f"{_nothing_lost(diagnosis)}{closed}"
    first = base.number + 1
    which = f"snapshot {first}" if first == newest else f"snapshots {first} to {newest}"
    taken_back = (
        f" Snapshot {base.number} had been taken back by an earlier change, but nothing else is "
        "whole."
        if diagnosis.found.head and not diagnosis.found.head.includes(base.number)
        else ""
    )
    return (
        f"The stream goes back to snapshot {base.number} of "
        f"{units.utc(base.created_at)}.{taken_back} What {which} did is given up. "
        f"{_lost_events(diagnosis.found, base)}"
    )


def _nothing_lost(diagnosis: Diagnosis) -> str:
    if diagnosis.found.evidence.hint:
        return "Nothing of the stream is lost: its newest snapshot is whole."
    return (
        f"The newest snapshot that is there, {diagnosis.found.newest}, is whole. Without HEAD it "
        "is not known whether there were later ones; if so, what they committed is read again."
    )


def _lost_events(found: Survey, base: Snapshot) -> str:
    """What becomes of the events that were committed after a snapshot."""
    last, hint = found.last, found.evidence.hint
    # At another generation the stream went back or was moved in between: nothing can be counted.
    known = last.sequence - base.sequence if last and last.generation == base.generation else None
    # The home is not told of every epoch; only HEAD is.
    surely = "" if hint and hint.number == found.newest else "at least "
    if known == 0 and not surely:
        return "No events were committed since."
    count = "How many events were committed since is not known"
    if known is not None:
        count = f"Since then {surely}{units.events(known)} were committed"
    return (
        f"{count}; they are read again, if the source still has them. Output that was published "
        "for them is withdrawn at the next start; downstream readers may have consumed it."
    )


def _snapshot(stream: Stream, found: Survey, signature: Signature) -> Snapshot:
    """The snapshot of a repair: the content of the base, numbers above all ever used."""
    head, base, peak = found.head, found.base, found.peak
    assert head
    assert base
    # Of snapshots that neither a file nor a hint tells of, each raised these by one at the most.
    unknown = found.newest - peak.number
    snapshot = replace(
        signature.next(head, Kind.REPAIR, **content_of(base)),
        number=found.newest + 1,
        parent=_parent(stream, found),
        generation=peak.generation + unknown + 1,
        version=peak.version + unknown if peak.version else 0,
        epoch=peak.epoch + unknown,
        floor=_floor(found),
        ancestry=extended(base.ancestry, found.newest + 1),
    )
    if snapshot.assignment in found.bad:
        # An older map, which must not be taken for the lost one.
        snapshot = replace(snapshot, assignment=base.assignment, version=snapshot.version + 1)
    return replace(snapshot, created_at=max(snapshot.created_at, peak.created_at))


def _floor(found: Survey) -> int:
    """Above what is missing at the lower end: whether a prune or damage took it is all the same."""
    lowest = [each for each in found.damaged if each.first == found.floor and not each.raw]
    return max((each.last + 1 for each in lowest), default=found.floor)


def _parent(stream: Stream, found: Survey) -> str | None:
    """The identity of the newest number: as it is known, else of the bytes that are there."""
    if found.head and found.head.number == found.newest:
        return found.head.digest
    if known := found.expected.get(found.newest):
        return known
    try:
        raw = stream.chain.raw(found.newest)
    except Corrupt:
        return None
    return None if raw is None else digest_of(raw)
