"""What shows that a process writes, or does not."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum


class Verdict(Enum):
    """Whether a job writes to a checkpoint, the worst first."""

    ALIVE = "a job is writing to it"
    POSSIBLY_ALIVE = "a job may be writing to it"
    QUIET = "nothing writes to it"


@dataclass(frozen=True, slots=True)
class Sign:
    """One thing that was seen, for a person to read, and what it means by itself.

    A doubt decides nothing, but a person should see it before something is changed.
    """

    text: str
    weight: Verdict
    is_doubt: bool = False


@dataclass(frozen=True, slots=True)
class Evidence:
    """Everything that was seen; `unseen` says what could not be looked at.

    `quiet_at` is when the newest write will be too old to count, if one counts now.
    """

    signs: tuple[Sign, ...]
    unseen: tuple[str, ...] = ()
    quiet_at: float | None = None

    @property
    def verdict(self) -> Verdict:
        """What the strongest sign means."""
        order = list(Verdict)
        return min((sign.weight for sign in self.signs), key=order.index, default=Verdict.QUIET)

    @property
    def lines(self) -> list[str]:
        """The signs, the strongest first, then what could not be looked at."""
        order = list(Verdict)
        ranked = sorted(self.signs, key=lambda sign: order.index(sign.weight))
        return [*(sign.text for sign in ranked), *self.unseen]

    @property
    def doubts(self) -> list[str]:
        """What should be said even if nothing seems to write."""
        return [*(sign.text for sign in self.signs if sign.is_doubt), *self.unseen]
