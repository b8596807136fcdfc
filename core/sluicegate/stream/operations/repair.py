"""Repair: the stream resumes from its newest complete snapshot, and records what was discarded.

A repair never frees a number. It appends a snapshot above the highest number that was ever used, at
a generation above all others, which names the damaged snapshots by the digest of what is there.
From then on verify accepts them as repaired, whatever happens to their files.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar

from sluicegate import units
from sluicegate.codec import digest_of
from sluicegate.errors import Corrupt, Drifted, Locked, NotFound, StorageFailed
from sluicegate.plan import Action, Precondition
from sluicegate.stream import evidence
from sluicegate.stream.append import Signature
from sluicegate.stream.gc import sweep
from sluicegate.stream.history import content_of
from sluicegate.stream.journal import Parts, StreamOperation, Workplace, moves, snapshot_text
from sluicegate.stream.scan import Damage, Survey, survey
from sluicegate.stream.snapshot import ChainDamaged, Kind, Snapshot, Span, extended, spans
from sluicegate.stream.stream import Stream
from sluicegate.stream.writer import StreamWriter


@dataclass(frozen=True, kw_only=True)
class Repair(StreamOperation):
    """Resume from the newest complete snapshot; with `read_data`, all blobs are read."""

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
            actions = [Action("discard", d.shown, d.what) for d in found.damaged]
            actions += [
                Action(
                    "mark unusable", f"snapshot {a}" if a == b else f"snapshots {a}-{b}", "blobs"
                )
                for a, b in found.unusable
            ]
            resumed = f"resumes from {snapshot_text(base)}"
            actions.append(Action("append", f"snapshot {newest + 1}", resumed))
            if found.loses and head and head.number == newest:
                actions += moves(head.positions, base.positions)
        if found.below_floor:
            pruned = units.counted(found.below_floor, "snapshot")
            actions.append(Action("remove", pruned, "pruned before"))
        consequences = [loss(found), "A running job stops at its next epoch."]
        needs = (Precondition("what is wrong", found.digest()),)
        title = f"Repair {at.stream.name}"
        return Parts(title, needs, actions, consequences if found.needs_snapshot else [])

    def append(
        self, at: Workplace, signature: Signature, details: Mapping[str, Any]
    ) -> Snapshot | None:
        diagnosis = diagnose(at.stream, read_data=self.read_data)
        if not diagnosis.needs_snapshot:
            sweep(at.stream)
            return at.stream.chain.head()
        summary = {"summary": _summary(diagnosis)}
        return repair(at.writer, diagnosis, signature, {**details, **summary})


def _summary(diagnosis: Diagnosis) -> str:
    assert diagnosis.base
    names = [d.shown for d in diagnosis.damaged] + [
        f"snapshots {a}-{b}" for a, b in diagnosis.unusable
    ]
    return f"from snapshot {diagnosis.base.number}; discarded " + (
        ", ".join(names[:3]) or "nothing"
    )


@dataclass(frozen=True, slots=True)
class Diagnosis:
    """What is wrong with a stream, and the snapshot it can resume from."""

    found: Survey

    @property
    def base(self) -> Snapshot | None:
        """The snapshot to resume from."""
        return self.found.base

    @property
    def damaged(self) -> tuple[Damage, ...]:
        """Snapshots whose files are lost or damaged."""
        return tuple(self.found.damaged)

    @property
    def unusable(self) -> tuple[Span, ...]:
        """Intact snapshots that cannot be restored, because of their blobs or their order."""
        return tuple(spans({*self.found.unusable, *self.found.disordered}))

    @property
    def below_floor(self) -> int:
        """How many pruned snapshots still have files."""
        return self.found.below_floor

    @property
    def needs_snapshot(self) -> bool:
        """Whether the damage must be recorded in the chain."""
        return bool(self.found.findings)

    @property
    def loses(self) -> bool:
        """Whether the stream is rolled back, because its newest snapshot is not complete."""
        return self.base is None or self.base.number != self.found.newest

    def digest(self) -> str:
        """What the plan of a repair depends on, independent of the stream's path.

        It includes the newest snapshot only if the stream is rolled back; otherwise a job may
        commit in between.
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
    """The same check again; content is only read where it was bad."""
    suspects = {bad.ref for bad, _ in diagnosis.found.bad.values() if bad.by_reading}
    return Diagnosis(survey(stream, read=suspects.__contains__))


def refuse_hopeless(stream: Stream, diagnosis: Diagnosis) -> None:
    """Refuse damage that a repair cannot fix, with a hint what to do instead."""
    found = diagnosis.found
    if found.newest < 0 and not found.findings and not found.obstacles:
        raise NotFound(f"there is no chain in {stream.uri}", place=stream.uri)
    for finding in found.obstacles:
        if finding.rule is evidence.FOREIGN:
            other = f"heads/{stream.name}.head in the home" if found.evidence.mark else "HEAD"
            raise ChainDamaged(
                f"{stream.uri} is not the stream that belongs there: {finding.detail}",
                hint="restore the right directory; if the stream that was there is abandoned, "
                f"remove {other}",
                place=stream.uri,
            )
        raise StorageFailed(
            f"repair stopped, fix this first: {finding.detail}",
            hint=f"{finding.repair}; then run this again",
            place=finding.place,
        )
    if diagnosis.base is None:
        raise ChainDamaged(
            f"no snapshot of {stream.uri} is complete, so the stream cannot resume",
            hint="restore the damaged files from a backup; list them with: "
            f"{units.command('checkpoint', 'verify', stream.uri)}; then run this again",
            place=stream.uri,
        )


def repair(
    writer: StreamWriter, diagnosis: Diagnosis, signature: Signature, details: dict[str, Any]
) -> Snapshot:
    """Append the snapshot that repairs the damage; no other process appends meanwhile."""
    stream = writer.stream
    with stream.collecting():
        now = diagnose_again(stream, diagnosis)
        refuse_hopeless(stream, now)
        if now.digest() != diagnosis.digest():
            raise Drifted("the stream changed since it was checked")
        snapshot = _snapshot(stream, now.found, signature)
        appended = stream.chain.append(replace(snapshot, details=details | declared(now)))
        if appended is None:
            raise Locked(f"another process appended snapshot {snapshot.number} to {stream.uri}")
    if diagnosis.below_floor:
        sweep(stream)
    return appended


def declared(diagnosis: Diagnosis) -> dict[str, Any]:
    """The damage as the snapshot records it."""
    return {
        "damaged": [[each.first, each.last, each.raw] for each in diagnosis.damaged],
        "unusable": [list(span) for span in diagnosis.unusable],
    }


def loss(diagnosis: Diagnosis) -> str:
    """What is lost, for the operator."""
    base, newest = diagnosis.base, diagnosis.found.newest
    assert base
    if not diagnosis.loses:
        hurt = diagnosis.damaged or diagnosis.unusable
        closed = " Damaged snapshots can no longer be restored." if hurt else ""
        return f"{_nothing_lost(diagnosis)}{closed}"
    first = base.number + 1
    which = f"snapshot {first}" if first == newest else f"snapshots {first} to {newest}"
    reverted = (
        f" Snapshot {base.number} was reverted by an earlier change, but no other snapshot is "
        "complete."
        if diagnosis.found.head and not diagnosis.found.head.includes(base.number)
        else ""
    )
    return (
        f"The stream is rolled back to snapshot {base.number} of "
        f"{units.utc(base.created_at)}.{reverted} The changes of {which} are discarded. "
        f"{_lost_events(diagnosis.found, base)}"
    )


def _nothing_lost(diagnosis: Diagnosis) -> str:
    if diagnosis.found.evidence.hint:
        return "No data is lost: the newest snapshot is complete."
    return (
        f"The newest snapshot that is there, {diagnosis.found.newest}, is complete. Without HEAD "
        "it is not known whether there were later ones; if so, their events are read again."
    )


def _lost_events(found: Survey, base: Snapshot) -> str:
    """What happens to the events that were committed after a snapshot."""
    last, hint = found.last, found.evidence.hint
    # At another generation the stream was moved in between: the events cannot be counted.
    known = last.sequence - base.sequence if last and last.generation == base.generation else None
    # The home's hint does not follow every epoch; only HEAD does.
    surely = "" if hint and hint.number == found.newest else "at least "
    if known == 0 and not surely:
        return "No events were committed since."
    count = "How many events were committed since is not known"
    if known is not None:
        were = "was" if known == 1 else "were"
        count = f"Since then {surely}{units.events(known)} {were} committed"
    return (
        f"{count}; they are read again, if the source still has them. The next start unpublishes "
        "their output; downstream readers may have consumed it."
    )


def _snapshot(stream: Stream, found: Survey, signature: Signature) -> Snapshot:
    """The snapshot of a repair: the content of the base, numbers above all ever used."""
    head, base, peak = found.head, found.base, found.peak
    assert head
    assert base
    # Each snapshot without a file or a hint raised these by one at the most.
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
        # An older assignment, which must not be taken for the lost one.
        snapshot = replace(snapshot, assignment=base.assignment, version=snapshot.version + 1)
    return replace(snapshot, created_at=max(snapshot.created_at, peak.created_at))


def _floor(found: Survey) -> int:
    """Above the missing snapshots at the lower end, whether they were pruned or lost."""
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
