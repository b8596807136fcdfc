"""Repair: the stream resumes from its newest complete snapshot, and records what was discarded.

If the sink has output that the chain does not know, the operator chooses: `withdraw` takes it back
and reads its events again, `adopt` keeps it and applies its events without publishing them.

A repair never frees a number. It appends a snapshot above the highest number that was ever used, at
a generation above all others, which names the damaged snapshots by the digest of what is there.
From then on verify accepts them as repaired, whatever happens to their files.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar

from sluicegate import units
from sluicegate.codec import digest_of
from sluicegate.errors import (
    Corrupt,
    Drifted,
    Locked,
    NotFound,
    SluicegateError,
    StorageFailed,
    UsageError,
)
from sluicegate.plan import Action, Choice, Precondition
from sluicegate.positions import Positions
from sluicegate.sinks.base import Reach, Sink
from sluicegate.sources.base import refuse_outside
from sluicegate.stream import evidence
from sluicegate.stream.append import Signature
from sluicegate.stream.gc import sweep
from sluicegate.stream.history import content_of
from sluicegate.stream.journal import Parts, StreamOperation, Workplace, moves, snapshot_text
from sluicegate.stream.output import Comparison, compare
from sluicegate.stream.scan import Damage, Survey, survey
from sluicegate.stream.snapshot import (
    ChainDamaged,
    Kind,
    Snapshot,
    Span,
    extended,
    merged,
    shown,
    spans,
)
from sluicegate.stream.stream import Stream


@dataclass(frozen=True, kw_only=True)
class Repair(StreamOperation):
    """Resume from the newest complete snapshot; with `read_data`, all blobs are read."""

    name: ClassVar = "repair"
    on_damage: ClassVar = True
    read_data: bool = False
    choice: str | None = None

    def plan(self, at: Workplace) -> Parts:
        found = diagnose(at.stream, at.sink, read_data=self.read_data)
        refuse_hopeless(at.stream, found)
        base, newest, head = found.base, found.newest, found.found.head
        assert base
        title = f"Repair {at.stream.name}"
        needs = (Precondition("what is wrong", found.digest()),)
        if found.output.foreign and self.choice is None:
            return Parts(title, needs, choices=_choices(at, found))
        if self.choice and not found.output.foreign:
            raise UsageError(
                f"the chain of {at.stream.name} knows all published output: there is nothing to "
                f"{self.choice}",
                hint="repair it without this option",
            )
        if reason := found.refusal(self.choice):
            raise UsageError(f"the output cannot be {_DONE[str(self.choice)]}: {reason}")
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
            actions += _decisions(found, self.choice)
            actions.append(Action("append", f"snapshot {newest + 1}", resumed))
            if found.loses and head and head.number == newest:
                actions += moves(head.positions, base.positions)
        if found.below_floor:
            pruned = units.counted(found.below_floor, "snapshot")
            actions.append(Action("remove", pruned, "pruned before"))
        consequences = [loss(found, self.choice), "A running job stops at its next epoch."]
        return Parts(title, needs, actions, consequences if found.needs_snapshot else [])

    def append(
        self, at: Workplace, signature: Signature, details: Mapping[str, Any]
    ) -> Snapshot | None:
        diagnosis = diagnose(at.stream, at.sink, read_data=self.read_data)
        if not diagnosis.needs_snapshot:
            sweep(at.stream)
            return at.stream.chain.head()
        summary = {"summary": _summary(diagnosis)}
        return repair(at, diagnosis, signature, {**details, **summary}, self.choice)


WITHDRAW, ADOPT = "withdraw", "adopt"
_DONE = {WITHDRAW: "withdrawn", ADOPT: "adopted"}


def _choices(at: Workplace, found: Diagnosis) -> tuple[Choice, ...]:
    """What an operator can do about output that the chain does not know."""
    assert at.sink
    again = ("checkpoint", "repair", at.stream.uri, "--sink", at.sink.uri)
    output = f"the output of snapshots {shown(spans(n.number for n in found.output.foreign))}"
    texts = {
        WITHDRAW: (
            f"withdraw {output}, and read its events again",
            "readers may have consumed what is withdrawn",
        ),
        ADOPT: (
            f"keep {output}, and read its events again without publishing them",
            "nothing; state, counters and dedup log are computed again",
        ),
    }
    restore = Choice("SG-CHAIN-OLDER", "restore a newer copy of the chain", "", "nothing")
    possible = [
        Choice("SG-CHAIN-OLDER", what, units.command(*again, f"--{name}"), cost)
        for name, (what, cost) in texts.items()
        if not found.refusal(name)
    ]
    return (restore, *possible)


def _decisions(found: Diagnosis, choice: str | None) -> list[Action]:
    numbers = sorted({name.number for name in found.output.foreign})
    detail = {WITHDRAW: "unknown to the chain; its events are read again", ADOPT: "it stays"}
    return [
        Action(
            str(choice),
            f"output of snapshot{'s' * (first != last)} {shown([(first, last)])}",
            detail[str(choice)],
        )
        for first, last in spans(numbers)
    ]


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
    output: Comparison = field(default_factory=Comparison)
    reach: Positions = Positions({})  # noqa: RUF009 - a frozen value
    """How far the output goes that the chain does not know."""
    obstacles: Mapping[str, str] = field(default_factory=dict)
    """Why that output cannot be withdrawn, or adopted."""

    @property
    def newest(self) -> int:
        """The highest number that was ever used, as far as chain and sink know."""
        return max(self.found.newest, self.output.newest)

    def refusal(self, choice: str | None) -> str | None:
        """Why a choice is not possible; None if it is."""
        return self.obstacles.get(choice) if choice else None

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
        return bool(self.found.findings) or self.output.newest >= 0

    @property
    def loses(self) -> bool:
        """Whether the stream is rolled back, because its newest snapshot is not complete."""
        return self.base is None or self.base.number != self.newest

    def digest(self) -> str:
        """What the plan of a repair depends on, independent of the stream's path.

        It includes the newest snapshot only if the stream is rolled back; otherwise a job may
        commit in between.
        """
        wrong = sorted(each.code for each in self.found.findings)
        unknown = [*self.output.foreign, *self.output.claims]
        parts = [wrong, self.damaged, self.unusable, self.below_floor, *([unknown] * bool(unknown))]
        if self.loses:
            parts += [self.newest, self.base.digest if self.base else None]
        return digest_of(repr(parts).encode())


def diagnose(stream: Stream, sink: Sink | None = None, *, read_data: bool = False) -> Diagnosis:
    """Look at everything; with `read_data`, at the content of every blob."""
    return _diagnosis(stream, sink, survey(stream, read=lambda _: read_data))


def diagnose_again(stream: Stream, sink: Sink | None, diagnosis: Diagnosis) -> Diagnosis:
    """The same check again; content is only read where it was bad."""
    suspects = {bad.ref for bad, _ in diagnosis.found.bad.values() if bad.by_reading}
    return _diagnosis(stream, sink, survey(stream, read=suspects.__contains__))


def _diagnosis(stream: Stream, sink: Sink | None, found: Survey) -> Diagnosis:
    """What the sink has that the chain does not know, and what can be done about it."""
    base = found.base
    output = _compared(stream, sink, found.head) if sink and found.head else Comparison()
    if base is None or sink is None or not output.foreign:
        return Diagnosis(found, output)
    reaches = [sink.reach(name) for name in output.foreign]
    reach = base.positions
    for each in reaches:
        reach = reach.highest(each.end) if each else reach
    return Diagnosis(found, output, reach, dict(_obstacles(base, output, reaches, reach)))


def _compared(stream: Stream, sink: Sink, intact: Snapshot) -> Comparison:
    try:
        return compare(stream, sink)
    except Corrupt:
        # The newest snapshot is damaged: what is known of the chain ends with an older one.
        return compare(stream, sink, head=intact)


def _obstacles(
    base: Snapshot, output: Comparison, reaches: Sequence[Reach | None], reach: Positions
) -> Iterator[tuple[str, str]]:
    """Why output that the chain does not know cannot be withdrawn, or adopted."""
    if lost := _not_held(base, base.positions):
        yield WITHDRAW, lost
    if output.foreign[0].number <= base.number:
        number = output.foreign[0].number
        yield ADOPT, f"the chain has a snapshot {number} of its own, with other output"
    elif None in reaches:
        yield ADOPT, "the sink has lost the record of which events it holds"
    elif any(each and each.generation != base.generation for each in reaches):
        yield ADOPT, "the stream was reset or rolled back between the backup and that output"
    elif lost := _not_held(base, base.positions) or _not_held(base, reach):
        yield ADOPT, lost


def _not_held(base: Snapshot, positions: Positions) -> str | None:
    """Why a source cannot be read from or up to positions; None if it can, or is not known."""
    source = base.pins.get("source")
    if not isinstance(source, str) or not source:
        return None
    try:
        refuse_outside(source, positions)
    except SluicegateError as e:
        return e.message
    return None


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
    at: Workplace,
    diagnosis: Diagnosis,
    signature: Signature,
    details: dict[str, Any],
    choice: str | None = None,
) -> Snapshot:
    """Append the snapshot that repairs the damage; no other process appends meanwhile."""
    stream = at.stream
    with stream.collecting():
        now = diagnose_again(stream, at.sink, diagnosis)
        refuse_hopeless(stream, now)
        if now.digest() != diagnosis.digest():
            raise Drifted("the stream changed since it was checked")
        snapshot = _snapshot(stream, now, signature, choice)
        recorded = details | declared(now, choice)
        appended = stream.chain.append(replace(snapshot, details=recorded))
        if appended is None:
            raise Locked(f"another process appended snapshot {snapshot.number} to {stream.uri}")
    if diagnosis.below_floor:
        sweep(stream)
    return appended


def declared(diagnosis: Diagnosis, choice: str | None = None) -> dict[str, Any]:
    """The damage as the snapshot records it, and what was decided about unknown output."""
    damaged = [[each.first, each.last, each.raw] for each in diagnosis.damaged]
    if diagnosis.newest > diagnosis.found.newest:
        damaged.append([diagnosis.found.newest + 1, diagnosis.newest, None])
    foreign = [[name.number, name.nonce] for name in diagnosis.output.foreign]
    return {
        "damaged": damaged,
        "unusable": [list(span) for span in diagnosis.unusable],
        **({_DONE[choice]: foreign} if choice else {}),
    }


def loss(diagnosis: Diagnosis, choice: str | None = None) -> str:
    """What is lost, for the operator."""
    base, newest = diagnosis.base, diagnosis.newest
    assert base
    if not diagnosis.loses:
        hurt = diagnosis.damaged or diagnosis.unusable
        closed = " Damaged snapshots can no longer be restored." if hurt else ""
        return f"{_nothing_lost(diagnosis)}{closed}"
    if choice:
        return (
            f"The stream resumes from snapshot {base.number} of {units.utc(base.created_at)}. "
            f"{_read_again(choice)}"
        )
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


def _read_again(choice: str) -> str:
    """What happens to the events of output that the chain does not know."""
    if choice == ADOPT:
        return (
            "The next start reads the events of that output again, to compute state and dedup log, "
            "and publishes nothing of them."
        )
    return (
        "The next start withdraws that output, which downstream readers may have consumed, and "
        "reads its events again."
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


def _snapshot(
    stream: Stream, diagnosis: Diagnosis, signature: Signature, choice: str | None
) -> Snapshot:
    """The snapshot of a repair: the content of the base, numbers above all ever used."""
    found, newest = diagnosis.found, diagnosis.newest
    head, base, peak = found.head, found.base, found.peak
    assert head
    assert base
    # Each snapshot without a file or a hint raised these by one at the most.
    unknown = newest - peak.number
    ancestry = base.ancestry
    content = content_of(base)
    if choice == ADOPT:
        numbers = [name.number for name in diagnosis.output.foreign]
        ancestry = tuple(merged([*ancestry, *spans(numbers)]))
        if not base.positions.covers(diagnosis.reach):
            content["adopting"] = diagnosis.reach
    snapshot = replace(
        signature.next(head, Kind.REPAIR, **content),
        number=newest + 1,
        parent=_parent(stream, found) if newest == found.newest else None,
        generation=peak.generation + unknown + 1,
        version=peak.version + unknown if peak.version else 0,
        epoch=peak.epoch + unknown,
        floor=_floor(found),
        ancestry=extended(ancestry, newest + 1),
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
