"""Drafts: snapshots to be, and what each does when somebody else's snapshot came first.

The gate re-reads the head and hands a draft what intervened. A draft gives the snapshot to append
on that head, None if there is nothing left to do, or the error that the table of the design asks
for:

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
from sluicegate.stream.snapshot import MAX_DELTAS, Kind, Manifest, Snapshot, extended

OVERTAKING = frozenset({Kind.RESET, Kind.ROLLBACK, Kind.REPAIR, Kind.IMPORT})
_RUNS = frozenset({Kind.CLAIM, Kind.EPOCH})


class Draft(Protocol):
    """A snapshot to be."""

    def on(self, head: Snapshot, since: Sequence[Snapshot], blobs: Blobs, /) -> Snapshot | None:
        """The snapshot to append on this head; `since` came after what the draft was made for."""


@dataclass(frozen=True, slots=True)
class Signature:
    """Who appends a snapshot, for whom and why; one nonce for as often as it is tried."""

    by: Who = field(default_factory=myself)
    app: str | None = None
    reason: str | None = None
    nonce: str = field(default_factory=lambda: uuid.uuid4().hex)

    def next(self, head: Snapshot, kind: Kind, **changes: Any) -> Snapshot:
        """The snapshot after a head: the same stream, but for what is changed."""
        fields: dict[str, Any] = {
            "number": head.number + 1,
            "kind": kind,
            "parent": head.digest,
            "nonce": self.nonce,
            "by": self.by,
            "app": self.app,
            "reason": self.reason,
            # Clocks go back; a chain does not.
            "created_at": max(time.time(), head.created_at),
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

    With `stamps`, the segment of what it saw for the first time, `number` says which epoch it is:
    the dedup log it was judged by is that of the epoch before.
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


@dataclass(frozen=True, slots=True)
class EpochDraft:
    """An epoch of a run, which commits only on top of what the run has seen."""

    run: str
    epoch: Epoch
    signature: Signature

    def on(self, head: Snapshot, since: Sequence[Snapshot], blobs: Blobs) -> Snapshot | None:
        self._check_moves()
        for snapshot in since:
            self._refuse(snapshot)
            if snapshot.kind is Kind.CLAIM:
                # Also under the same name: two processes may have been given it.
                raise SplitBrainCommit(
                    f"the run {snapshot.writer} was started anew: {told(snapshot)}"
                )
        # Snapshots in between may have been pruned, so the head is asked, too.
        self._refuse(head)
        if self.epoch.start != head.positions:
            raise SplitBrainCommit(
                f"the epoch starts elsewhere than snapshot {head.number} ends: something else "
                "moved the stream on"
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
        )

    def _dedup(self, head: Snapshot, blobs: Blobs) -> Manifest:
        if self.epoch.stamps is None:
            return head.dedup
        # Imported here: only streams with a dedup log need its libraries.
        from sluicegate.stream.segments import with_segment

        return with_segment(blobs, head.dedup, self.epoch.stamps)

    def _check_stamps(self, head: Snapshot) -> None:
        """Refuse what was judged by an older dedup log, and events that the log would not know."""
        epoch = self.epoch
        if epoch.stamps is not None and epoch.number != head.epoch + 1:
            raise SplitBrainCommit(
                f"the epoch was judged by the dedup log before epoch {epoch.number}, but epoch "
                f"{head.epoch} is committed"
            )
        if epoch.stamps is None and epoch.events and head.dedup:
            raise UsageError(
                f"{head.stream} keeps a dedup log, but the epoch has events without stamps",
                hint="give the segment of what it saw for the first time",
            )

    def _check_moves(self) -> None:
        """Refuse an epoch after which something would be read, or counted, once more."""
        start, end = self.epoch.start, self.epoch.end
        for each in start:
            reached = end.get(each.topic, each.partition)
            if reached is None or reached < each.offset:
                raise UsageError(
                    f"the epoch goes back: {each.topic}[{each.partition}] from {each.offset} to "
                    f"{'nothing' if reached is None else reached}",
                    hint="keep the position of a partition that is gone",
                )
        counts = self.epoch.events or self.epoch.deltas
        if counts and start == end and self.epoch.stamps is None:
            raise UsageError("the epoch counts something, but moves no position")

    def _refuse(self, snapshot: Snapshot) -> None:
        """The error, if a snapshot came first that this epoch cannot follow."""
        if snapshot.generation != self.epoch.generation:
            raise StaleGeneration(
                f"{told(snapshot)}: the stream is at generation {snapshot.generation}, this run at "
                f"{self.epoch.generation}"
            )
        if snapshot.writer != self.run:
            raise SplitBrainCommit(f"the run {snapshot.writer} took over: {told(snapshot)}")
        if snapshot.version != self.epoch.version:
            raise StaleVersion(
                f"this epoch was routed at version {self.epoch.version} of the assignment, which "
                f"is at {snapshot.version}: {told(snapshot)}"
            )


@dataclass(frozen=True, slots=True)
class CompactDraft:
    """State or dedup log in fewer blobs; only for the very manifest it was computed from."""

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
                f"the assignment was at version {self.version} of generation {self.generation}, "
                f"is at {head.version} of {head.generation}"
            )
        return self.signature.next(
            head,
            Kind.REBALANCE,
            version=head.version + 1,
            assignment=self.assignment,
            details=self.details,
        )


@dataclass(frozen=True, slots=True)
class OvertakingDraft:
    """A reset, rollback or import: another content, at the next generation.

    With `force` it wins over runs that committed in the meantime, by its generation.
    """

    kind: Kind
    content: Mapping[str, Any]
    force: bool
    signature: Signature
    base: Snapshot
    moved: Positions | None = None

    def on(self, head: Snapshot, since: Sequence[Snapshot], _blobs: Blobs) -> Snapshot | None:
        for snapshot in since:
            self._refuse(snapshot, overtook=snapshot.kind in OVERTAKING, ran=snapshot.kind in _RUNS)
        # Snapshots in between may have been pruned; the head tells what they did.
        self._refuse(
            head,
            overtook=head.generation != self.base.generation,
            ran=(head.epoch, head.writer) != (self.base.epoch, self.base.writer),
        )
        content = dict(self.content)
        ancestry = content.pop("ancestry", head.ancestry)
        if self.moved:
            # On top of where the stream is now: partitions that are not named stay.
            content["positions"] = head.positions.updated(self.moved)
        return self.signature.next(
            head,
            self.kind,
            generation=head.generation + 1,
            ancestry=extended(ancestry, head.number + 1),
            **content,
        )

    def _refuse(self, snapshot: Snapshot, *, overtook: bool, ran: bool) -> None:
        if overtook:
            raise Drifted(f"the stream was changed in the meantime: {told(snapshot)}")
        if ran and not self.force:
            raise Locked(
                f"a job is at work on the stream: {told(snapshot)}",
                hint="stop it first; or let this win over it with --force",
            )


@dataclass(frozen=True, slots=True)
class ClaimDraft:
    """The start of a run, which then is the only one that can commit."""

    run: str
    signature: Signature
    details: Mapping[str, Any] = field(default_factory=dict)

    def on(self, head: Snapshot, _since: Sequence[Snapshot], _blobs: Blobs) -> Snapshot | None:
        return self.signature.next(head, Kind.CLAIM, writer=self.run, details=self.details)


@dataclass(frozen=True, slots=True)
class PruneDraft:
    """A floor: what is below it may be gone from now on."""

    floor: int
    signature: Signature
    details: Mapping[str, Any]

    def on(self, head: Snapshot, _since: Sequence[Snapshot], _blobs: Blobs) -> Snapshot | None:
        if self.floor <= head.floor:
            return None
        # The ancestry stays whole: it alone says which published output is part of the stream.
        return self.signature.next(head, Kind.PRUNE, floor=self.floor, details=self.details)


def with_delta(blobs: Blobs, state: Manifest, delta: Ref) -> Manifest:
    """A manifest with one more delta, folded into a new base when there are too many."""
    deltas = (*state.deltas, delta)
    if len(deltas) <= MAX_DELTAS:
        return Manifest(state.base, deltas)
    return Manifest(manifest.fold(blobs, state.base, deltas))


def added(totals: Mapping[str, int], more: Mapping[str, int]) -> dict[str, int]:
    """Counters with more counted."""
    return {name: totals.get(name, 0) + more.get(name, 0) for name in {**totals, **more}}


def told(snapshot: Snapshot) -> str:
    """A snapshot in a few words, for whoever was overtaken by it."""
    who = snapshot.app or snapshot.by
    at = units.utc(snapshot.created_at)
    return f"snapshot {snapshot.number}, a {snapshot.kind.value} of {at} by {who}"


def _later(one: int | None, other: int | None) -> int | None:
    """The watermark never goes back by an epoch."""
    return max((each for each in (one, other) if each is not None), default=None)
