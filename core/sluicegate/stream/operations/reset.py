"""Resets of gated streams: where positions go, and which change that is."""

from __future__ import annotations

from sluicegate.positions import Position, Positions
from sluicegate.reset import Known, Point, ResetSpec, Scenario, plan_reset
from sluicegate.stream.history import link_before, sound_links
from sluicegate.stream.operations.changes import RESET, ROLLBACK, StreamChange
from sluicegate.stream.spec import ranges_of
from sluicegate.stream.stream import Stream


def topics(stream: Stream) -> list[str]:
    """The topics that a stream reads."""
    return sorted(stream.chain.head().positions.by_topic)


def reset(stream: Stream, spec: ResetSpec, mode: str, *, force: bool) -> StreamChange:
    """The change that a reset is: `reset` moves positions only, `rollback` takes back as well."""
    head = stream.chain.head()
    past = _past(stream) if spec.scenario is Scenario.MOMENT else []
    edges = spec.scenario in (Scenario.EARLIEST, Scenario.LATEST)
    ranges = ranges_of(head, needed=edges)
    source = head.pins.get("source") or "the source"
    known = Known(ranges, past, ranges_from=str(source), past_from="link")
    moves = plan_reset(head.positions, known, spec)
    wanted = Positions.of(Position(move.topic, move.partition, move.new) for move in moves)
    note = str(spec)
    if mode == RESET:
        return StreamChange(RESET, positions=wanted, force=force, note=note)
    to = link_before(stream, head, wanted)
    return StreamChange(ROLLBACK, to=to, force=force, note=f"{note}, --reprocess")


def _past(stream: Stream) -> list[Point[Positions]]:
    """Where the stream was at which time, oldest first."""
    head = stream.chain.head()
    return [
        Point(round(link.created_at * 1000), link.positions, f"link {link.number}")
        for link in sound_links(stream, head.floor, head.number)
    ]
