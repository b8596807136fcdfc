"""Reset: positions elsewhere, while the dedup log drops what was counted before."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from sluicegate import units
from sluicegate.errors import UsageError
from sluicegate.positions import Position, Positions
from sluicegate.reset import Known, Point, ResetSpec, Scenario, plan_reset
from sluicegate.stream.append import OvertakingDraft, Signature
from sluicegate.stream.history import snapshot_before, sound_snapshots
from sluicegate.stream.operations.base import Parts, StreamOperation, Workplace, moves, standing
from sluicegate.stream.operations.rollback import Rollback
from sluicegate.stream.snapshot import Kind, Snapshot
from sluicegate.stream.spec import ranges_of
from sluicegate.stream.stream import Stream


class NeedsDedup(UsageError):
    """A reset would count events twice, because there is no dedup log to recognise them."""

    default_hint = "add --reprocess, which also takes back what was counted since then"


@dataclass(frozen=True, kw_only=True)
class Reset(StreamOperation):
    """Move positions; what was counted stays counted."""

    name: ClassVar = "reset"
    positions: Positions

    def plan(self, at: Workplace) -> Parts:
        stream, head = at.stream, at.stream.chain.head()
        # Where nothing was counted yet, nothing can be counted twice.
        if head.sequence and not head.dedup:
            raise NeedsDedup(
                f"{stream.name} keeps no dedup log, so what it reads again it would count "
                "again; --skip-seen cannot work"
            )
        actions = moves(head.positions, head.positions.updated(self.positions))
        told = []
        if back := sum(-(a.delta or 0) for a in actions if (a.delta or 0) < 0):
            told.append(
                f"Re-reads {units.events(back)}. What is in the dedup log is dropped; only gaps "
                "are filled."
            )
        if on := sum(a.delta or 0 for a in actions if (a.delta or 0) > 0):
            told.append(f"Skips {units.events(on)}: what was not read by now is never read.")
        needs = standing(head, force=self.force)
        return Parts(f"Reset the positions of {stream.name}", needs, actions, told)

    def append(
        self, at: Workplace, signature: Signature, details: Mapping[str, Any]
    ) -> Snapshot | None:
        content, base = {"details": details}, at.applied_on
        draft = OvertakingDraft(Kind.RESET, content, self.force, signature, base, self.positions)
        return at.gate.append(draft, base)


def topics(stream: Stream) -> list[str]:
    """The topics that a stream reads."""
    return sorted(stream.chain.head().positions.by_topic)


def reset_to(stream: Stream, spec: ResetSpec, *, reprocess: bool, force: bool) -> Reset | Rollback:
    """The operation that a scenario asks for; with `reprocess`, what was counted goes back, too."""
    head = stream.chain.head()
    past = _past(stream) if spec.scenario is Scenario.MOMENT else []
    edges = spec.scenario in (Scenario.EARLIEST, Scenario.LATEST)
    ranges = ranges_of(head, needed=edges)
    source = head.pins.get("source") or "the source"
    known = Known(ranges, past, ranges_from=str(source), past_from="snapshot")
    moved = plan_reset(head.positions, known, spec)
    wanted = Positions.of(Position(move.topic, move.partition, move.new) for move in moved)
    if not reprocess:
        return Reset(positions=wanted, force=force, note=str(spec))
    to = snapshot_before(stream, head, wanted)
    return Rollback(to=to, force=force, note=f"{spec}, --reprocess")


def _past(stream: Stream) -> list[Point[Positions]]:
    """Where the stream was at which time, oldest first."""
    head = stream.chain.head()
    return [
        Point(round(snapshot.created_at * 1000), snapshot.positions, f"snapshot {snapshot.number}")
        for snapshot in sound_snapshots(stream, head.floor, head.number)
    ]
