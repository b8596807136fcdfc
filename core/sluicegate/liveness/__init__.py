"""Evidence for or against a running writer."""

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
    """One observation, as text for the operator, and what it means by itself.

    A doubt decides nothing, but the operator should see it before anything is changed.
    """

    text: str
    weight: Verdict
    is_doubt: bool = False


@dataclass(frozen=True, slots=True)
class Evidence:
    """All observations; `unseen` lists what could not be checked.

    `quiet_at` is the time when the newest write becomes too old to count, if it counts now.
    """

    signs: tuple[Sign, ...]
    unseen: tuple[str, ...] = ()
    quiet_at: float | None = None

    @property
    def verdict(self) -> Verdict:
        """The meaning of the strongest sign."""
        order = list(Verdict)
        return min((sign.weight for sign in self.signs), key=order.index, default=Verdict.QUIET)

    @property
    def lines(self) -> list[str]:
        """The signs, the strongest first, then what could not be checked."""
        order = list(Verdict)
        ranked = sorted(self.signs, key=lambda sign: order.index(sign.weight))
        return [*(sign.text for sign in ranked), *self.unseen]

    @property
    def doubts(self) -> list[str]:
        """The lines to show even if nothing seems to write."""
        return [*(sign.text for sign in self.signs if sign.is_doubt), *self.unseen]
