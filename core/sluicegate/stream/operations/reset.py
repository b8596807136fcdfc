"""Reset: other positions, while the dedup log drops events that were applied before."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from sluicegate import units
from sluicegate.errors import UsageError
from sluicegate.positions import Position, Positions
from sluicegate.reset import Known, Point, ResetSpec, Scenario, plan_reset
from sluicegate.sources.base import is_query
from sluicegate.stream.append import NewGenerationDraft, Signature
from sluicegate.stream.history import intact_snapshots, snapshot_before
from sluicegate.stream.journal import Parts, StreamOperation, Workplace, moves, preconditions
from sluicegate.stream.operations.rollback import Rollback
from sluicegate.stream.snapshot import Kind, Snapshot
from sluicegate.stream.spec import ranges_of
from sluicegate.stream.stream import Stream


class NeedsDedup(UsageError):
    """A reset would apply events twice, because there is no dedup log to recognise them."""

    default_hint = "add --reprocess, which also reverts the events applied since then"


@dataclass(frozen=True, kw_only=True)
class Reset(StreamOperation):
    """Move positions; applied events stay applied."""

    name: ClassVar = "reset"
    positions: Positions

    def plan(self, at: Workplace) -> Parts:
        stream, head = at.stream, at.stream.chain.head()
        if is_query(str(head.pins.get("source"))):
            raise UsageError(
                f"a streaming query of its own feeds {stream.name}, and knows its offsets",
                hint="roll the stream back with --reprocess, and the query's checkpoint with it",
            )
        if head.adopting:
            raise UsageError(
                f"{stream.name} has adopted output whose events it has not read again yet",
                hint=f"start its job first: {units.command('submit', stream.name)}",
            )
        # Where nothing was applied yet, nothing can be applied twice.
        if head.sequence and not head.dedup:
            raise NeedsDedup(
                f"{stream.name} keeps no dedup log, so events that it reads again would be applied "
                "again; --skip-seen cannot work"
            )
        actions = moves(head.positions, head.positions.updated(self.positions))
        consequences = []
        if back := sum(-(a.delta or 0) for a in actions if (a.delta or 0) < 0):
            consequences.append(
                f"Reads {units.events(back)} again. Events in the dedup log are dropped; only gaps "
                "are filled."
            )
        if on := sum(a.delta or 0 for a in actions if (a.delta or 0) > 0):
            skipped = f"Skips {units.events(on)}: unread events among them are never read."
            consequences.append(skipped)
        needs = preconditions(head, force=self.force)
        return Parts(f"Reset the positions of {stream.name}", needs, actions, consequences)

    def append(
        self, at: Workplace, signature: Signature, details: Mapping[str, Any]
    ) -> Snapshot | None:
        content, base = {"details": details}, at.applied_on
        draft = NewGenerationDraft(Kind.RESET, content, self.force, signature, base, self.positions)
        return at.writer.append(draft, base)


def topics(stream: Stream) -> list[str]:
    """The topics that a stream reads."""
    return sorted(stream.chain.head().positions.by_topic)


def reset_to(
    stream: Stream, spec: ResetSpec, *, reprocess: bool, force: bool, unchecked: bool = False
) -> Reset | Rollback:
    """The operation of a scenario; with `reprocess`, applied events are reverted, too."""
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
    return Rollback(to=to, force=force, note=f"{spec}, --reprocess", unchecked=unchecked)


def _past(stream: Stream) -> list[Point[Positions]]:
    """Where the stream was at which time, oldest first."""
    head = stream.chain.head()
    return [
        Point(round(snapshot.created_at * 1000), snapshot.positions, f"snapshot {snapshot.number}")
        for snapshot in intact_snapshots(stream, head.floor, head.number)
    ]
