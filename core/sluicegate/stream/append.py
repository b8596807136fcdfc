"""Drafts: snapshots to append, and what each does when another process's snapshot came first.

The writer re-reads the head and passes a draft the snapshots in between. A draft returns the
snapshot to append on that head, or None if there is nothing left to do, or raises the error in this
table:

    appending    compact, prune   rebalance      claim or epoch         reset, rollback, repair,
                                                 of another run         import
    epoch        rebase           StaleVersion   SplitBrainCommit       StaleGeneration
    compact      rebase, or drop  rebase         rebase                 rebase, or drop
    rebalance    rebase           drift          rebase                 drift
    reset, …     rebase           rebase         refused, or by force   drift
    prune        rebase           rebase         rebase                 rebase
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal, Protocol

from sluicegate import units
from sluicegate.errors import (
    Drifted,
    Locked,
    SplitBrainCommit,
    StaleGeneration,
    StaleVersion,
    UsageError,
)
from sluicegate.positions import Positions
from sluicegate.process import Who, myself
from sluicegate.state import manifest
from sluicegate.storage.blobs import Blobs, Ref
from sluicegate.stream.snapshot import (
    MAX_DELTAS,
    Fingerprints,
    Kind,
    Manifest,
    Snapshot,
    extended,
)

NEW_GENERATION = frozenset({Kind.RESET, Kind.ROLLBACK, Kind.REPAIR, Kind.IMPORT})
_RUNS = frozenset({Kind.CLAIM, Kind.EPOCH})


# No host is earlier that runs this release; and a stream does not rest for so long.
_EARLIEST = 1_735_689_600.0
_LONGEST_REST = 10 * 366 * 86400.0


class ClockWrong(UsageError):
    """The clock of this host is years off: a snapshot with its time would spoil all later ones."""

    default_hint = "set the clock of this host, then run this again; see: timedatectl status"


def _now(head: Snapshot) -> float:
    """The time of the next snapshot; `ClockWrong` if it cannot be right."""
    now = time.time()
    # A damaged snapshot may say anything, and a repair must still be possible.
    latest = max(head.created_at, _EARLIEST) + _LONGEST_REST
    if not _EARLIEST <= now <= latest:
        raise ClockWrong(
            f"the clock of this host says {units.utc(now)}, but the newest snapshot of "
            f"{head.stream} is of {units.utc(head.created_at)}"
        )
    return now


class Draft(Protocol):
    """A snapshot to append."""

    def on(self, head: Snapshot, since: Sequence[Snapshot], blobs: Blobs, /) -> Snapshot | None:
        """The snapshot to append on this head; `since` came after the draft's base."""


@dataclass(frozen=True, slots=True)
class Signature:
    """Who appends a snapshot, for whom and why; the nonce is the same for every attempt."""

    by: Who = field(default_factory=myself)
    app: str | None = None
    reason: str | None = None
    nonce: str = field(default_factory=lambda: uuid.uuid4().hex)

    def next(self, head: Snapshot, kind: Kind, **changes: Any) -> Snapshot:
        """The snapshot after a head: the same stream, except for the changes."""
        fields: dict[str, Any] = {
            "number": head.number + 1,
            "kind": kind,
            "parent": head.digest,
            "nonce": self.nonce,
            "by": self.by,
            "app": self.app,
            "reason": self.reason,
            # Clocks can go backwards; a chain does not.
            "created_at": max(_now(head), head.created_at),
            "changed": head.changed if head.kind is Kind.EPOCH else head.number,
            "ancestry": extended(head.ancestry, head.number + 1),
            "state_delta": None,
            "stamps": None,
            "output": None,
            "details": {},
            "digest": "",
        }
        return replace(head, **(fields | changes))


@dataclass(frozen=True, slots=True)
class Epoch:
    """One micro-batch of a run: from where to where it read, and what it changed.

    With `stamps`, the segment of its new stamps, `number` is the number of the epoch: its stamps
    were checked against the dedup log of the epoch before.
    """

    start: Positions
    end: Positions
    events: int
    deltas: Mapping[int, Ref]
    version: int
    generation: int
    watermark_ns: int | None = None
    counters: Mapping[str, int] = field(default_factory=dict)
    operators: Ref | None = None
    stamps: Ref | None = None
    number: int | None = None
    output: Ref | None = None
    fingerprints: Fingerprints = field(default_factory=dict)
    hooks: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class EpochDraft:
    """An epoch of a run; it commits only on top of snapshots that the run has seen."""

    run: str
    epoch: Epoch
    signature: Signature

    def on(self, head: Snapshot, since: Sequence[Snapshot], blobs: Blobs) -> Snapshot | None:
        self._check_moves()
        for snapshot in since:
            self._refuse(snapshot)
            if snapshot.kind is Kind.CLAIM:
                # Also under the same name: two processes may use it.
                raise SplitBrainCommit(
                    f"run {snapshot.writer} was restarted by another process: {described(snapshot)}"
                )
        # Snapshots in between may have been pruned, so the head is checked, too.
        self._refuse(head)
        if self.epoch.start != head.positions:
            raise SplitBrainCommit(
                f"the epoch does not start where snapshot {head.number} ends: another process "
                "moved the stream"
            )
        epoch = self.epoch
        self._check_stamps(head)
        delta = None
        state = head.state
        if epoch.deltas:
            delta = blobs.put(manifest.encode({s: (ref,) for s, ref in epoch.deltas.items()}))
            state = with_delta(blobs, state, delta)
        return self.signature.next(
            head,
            Kind.EPOCH,
            positions=epoch.end,
            sequence=head.sequence + epoch.events,
            epoch=head.epoch + 1,
            watermark_ns=_later(head.watermark_ns, epoch.watermark_ns),
            counters=added(head.counters, epoch.counters),
            state=state,
            dedup=self._dedup(head, blobs),
            state_delta=delta,
            stamps=epoch.stamps,
            output=epoch.output,
            operators=epoch.operators or head.operators,
            fingerprints={**head.fingerprints, **epoch.fingerprints},
            hooks={**head.hooks, **epoch.hooks},
            adopting=Positions({}) if epoch.end.covers(head.adopting) else head.adopting,
        )

    def _dedup(self, head: Snapshot, blobs: Blobs) -> Manifest:
        if self.epoch.stamps is None:
            return head.dedup
        # Imported here: only streams with a dedup log need its libraries.
        from sluicegate.stream.segments import with_segment

        return with_segment(blobs, head.dedup, self.epoch.stamps)

    def _check_stamps(self, head: Snapshot) -> None:
        """Refuse stamps checked against an older dedup log, and events without stamps."""
        epoch = self.epoch
        if epoch.stamps is not None and epoch.number != head.epoch + 1:
            raise SplitBrainCommit(
                f"the epoch was checked against the dedup log before epoch {epoch.number}, but "
                f"epoch {head.epoch} is committed"
            )
        if epoch.stamps is None and epoch.events and head.dedup:
            raise UsageError(
                f"{head.stream} keeps a dedup log, but the epoch has events without stamps",
                hint="pass the segment of its new stamps",
            )

    def _check_moves(self) -> None:
        """Refuse an epoch after which events would be read, or applied, again."""
        start, end = self.epoch.start, self.epoch.end
        for each in start:
            reached = end.get(each.topic, each.partition)
            if reached is None or reached < each.offset:
                raise UsageError(
                    f"the epoch moves backwards: {each.topic}[{each.partition}] from {each.offset} "
                    f"to {'nothing' if reached is None else reached}",
                    hint="keep the position of a partition that no longer exists",
                )
        counts = self.epoch.events or self.epoch.deltas
        if counts and start == end and self.epoch.stamps is None:
            raise UsageError("the epoch has events or deltas, but moves no position")

    def _refuse(self, snapshot: Snapshot) -> None:
        """The error, if a snapshot came first that this epoch cannot follow."""
        if snapshot.generation != self.epoch.generation:
            raise StaleGeneration(
                f"the stream is at generation {snapshot.generation}, this run at "
                f"{self.epoch.generation}: {described(snapshot)}"
            )
        if snapshot.writer != self.run:
            raise SplitBrainCommit(f"run {snapshot.writer} took over: {described(snapshot)}")
        if snapshot.version != self.epoch.version:
            raise StaleVersion(
                f"this epoch was routed by version {self.epoch.version} of the assignment, which "
                f"is at {snapshot.version}: {described(snapshot)}"
            )


@dataclass(frozen=True, slots=True)
class CompactDraft:
    """State or dedup log in fewer blobs; only for the manifest that it was computed from."""

    inputs: Manifest
    result: Ref
    signature: Signature
    details: Mapping[str, Any]
    what: Literal["state", "dedup"] = "state"

    def on(self, head: Snapshot, _since: Sequence[Snapshot], _blobs: Blobs) -> Snapshot | None:
        count = len(self.inputs.deltas)
        kept = head.state if self.what == "state" else head.dedup
        if kept.base != self.inputs.base or kept.deltas[:count] != self.inputs.deltas:
            return None
        content = {self.what: Manifest(self.result, kept.deltas[count:])}
        return self.signature.next(head, Kind.COMPACT, details=self.details, **content)


@dataclass(frozen=True, slots=True)
class RebalanceDraft:
    """Another assignment, for the version it was planned on."""

    version: int
    generation: int
    assignment: Ref
    signature: Signature
    details: Mapping[str, Any]

    def on(self, head: Snapshot, _since: Sequence[Snapshot], _blobs: Blobs) -> Snapshot | None:
        if head.version != self.version or head.generation != self.generation:
            raise Drifted(
                f"the assignment was at version {self.version} of generation {self.generation} "
                f"and is now at {head.version} of {head.generation}"
            )
        return self.signature.next(
            head,
            Kind.REBALANCE,
            version=head.version + 1,
            assignment=self.assignment,
            details=self.details,
        )


@dataclass(frozen=True, slots=True)
class NewGenerationDraft:
    """A reset, rollback or import: new content, at the next generation.

    With `force` it supersedes runs that committed in the meantime.
    """

    kind: Kind
    content: Mapping[str, Any]
    force: bool
    signature: Signature
    base: Snapshot
    moved: Positions | None = None

    def on(self, head: Snapshot, since: Sequence[Snapshot], _blobs: Blobs) -> Snapshot | None:
        for snapshot in since:
            self._refuse(
                snapshot, superseded=snapshot.kind in NEW_GENERATION, ran=snapshot.kind in _RUNS
            )
        # Snapshots in between may have been pruned; the head shows what they did.
        self._refuse(
            head,
            superseded=head.generation != self.base.generation,
            ran=(head.epoch, head.writer) != (self.base.epoch, self.base.writer),
        )
        content = dict(self.content)
        ancestry = content.pop("ancestry", head.ancestry)
        if self.moved:
            # On top of the current positions: partitions that are not named stay.
            content["positions"] = head.positions.updated(self.moved)
            moved = {(each.topic, each.partition) for each in self.moved}
            kept = {at: mark for at, mark in head.fingerprints.items() if at not in moved}
            # The operator who moves a stream decides about what the source holds there now.
            content["fingerprints"] = kept
        return self.signature.next(
            head,
            self.kind,
            generation=head.generation + 1,
            ancestry=extended(ancestry, head.number + 1),
            **content,
        )

    def _refuse(self, snapshot: Snapshot, *, superseded: bool, ran: bool) -> None:
        if superseded:
            raise Drifted(f"the stream was changed in the meantime: {described(snapshot)}")
        if ran and not self.force:
            raise Locked(
                f"the stream has an active writer: {described(snapshot)}",
                hint="stop it first, or take over with --force",
            )


@dataclass(frozen=True, slots=True)
class ClaimDraft:
    """The start of a run, which is the current writer from then on."""

    run: str
    signature: Signature
    details: Mapping[str, Any] = field(default_factory=dict)
    pins: Mapping[str, Any] = field(default_factory=dict)
    """What may differ from the settings of genesis: where the source is now."""

    def on(self, head: Snapshot, _since: Sequence[Snapshot], _blobs: Blobs) -> Snapshot | None:
        pins = {**head.pins, **self.pins}
        return self.signature.next(
            head, Kind.CLAIM, writer=self.run, details=self.details, pins=pins
        )


@dataclass(frozen=True, slots=True)
class PruneDraft:
    """A new oldest kept snapshot: those below it may be removed from now on."""

    floor: int
    signature: Signature
    details: Mapping[str, Any]

    def on(self, head: Snapshot, _since: Sequence[Snapshot], _blobs: Blobs) -> Snapshot | None:
        if self.floor <= head.floor:
            return None
        # The ancestry stays complete: only it shows which published output is part of the stream.
        return self.signature.next(head, Kind.PRUNE, floor=self.floor, details=self.details)


def with_delta(blobs: Blobs, state: Manifest, delta: Ref) -> Manifest:
    """A manifest with one more delta, folded into a new base when there are too many."""
    deltas = (*state.deltas, delta)
    if len(deltas) <= MAX_DELTAS:
        return Manifest(state.base, deltas)
    return Manifest(manifest.fold(blobs, state.base, deltas))


def added(totals: Mapping[str, int], more: Mapping[str, int]) -> dict[str, int]:
    """The sums of two sets of counters."""
    return {name: totals.get(name, 0) + more.get(name, 0) for name in {**totals, **more}}


def described(snapshot: Snapshot) -> str:
    """A snapshot in a few words, for error messages."""
    who = snapshot.app or snapshot.by
    at = units.utc(snapshot.created_at)
    return f"snapshot {snapshot.number}, a {snapshot.kind.value} of {at} by {who}"


def _later(one: int | None, other: int | None) -> int | None:
    """An epoch never lowers the watermark."""
    return max((each for each in (one, other) if each is not None), default=None)
