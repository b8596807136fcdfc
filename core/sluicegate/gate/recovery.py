"""Where a stream is taken up again, and when its next checkpoint is due."""

from __future__ import annotations

from dataclasses import dataclass

from sluicegate.chain.link import Link
from sluicegate.gate.stream import Stream
from sluicegate.positions import Positions


@dataclass(frozen=True, slots=True)
class Recovery:
    """What the newest checkpoint includes: resume after this sequence, at these positions."""

    sequence: int
    positions: Positions
    link: int

    @property
    def resume_at(self) -> int:
        """The first sequence that is not included."""
        return self.sequence + 1


def recover(stream: Stream) -> Recovery:
    """The last included sequence, from the chain; never from nothing in silence."""
    head = stream.chain.open_head()
    return Recovery(head.sequence, head.positions, head.number)


@dataclass(frozen=True, slots=True)
class Schedule:
    """When a checkpoint is due, per stream: after so many events, or so many seconds."""

    events: int | None = None
    seconds: float | None = None

    def next_sequence(self, head: Link) -> int | None:
        """The sequence at which one is due; None if events do not decide."""
        return None if self.events is None else head.sequence + self.events

    def next_time(self, head: Link) -> float | None:
        """The time at which one is due; None if time does not decide."""
        return None if self.seconds is None else head.created_at + self.seconds

    def is_due(self, head: Link, sequence: int, now: float) -> bool:
        """Whether what was seen up to a sequence should be sealed; nothing new is never due."""
        if sequence <= head.sequence:
            return False
        at_sequence, at_time = self.next_sequence(head), self.next_time(head)
        if at_sequence is None and at_time is None:
            return True
        reached = at_sequence is not None and sequence >= at_sequence
        return reached or (at_time is not None and now >= at_time)
