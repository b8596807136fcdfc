"""The plan of a change, as a value that can be shown before it is applied."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

Worth = int | str | None


@dataclass(frozen=True, slots=True)
class Precondition:
    """A condition of the plan: the plan is valid as long as `what` is `expected`."""

    what: str
    expected: Worth


@dataclass(frozen=True, slots=True)
class Action:
    """One step of a plan: verb, place, old and new value, and why or how."""

    verb: str
    place: str
    detail: str = ""
    old: Worth = None
    new: Worth = None

    def __str__(self) -> str:
        """As text, on one line."""
        moved = f" {self.old} → {self.new}" if self.delta is not None else ""
        return f"{self.verb} {self.place}{moved}" + (f": {self.detail}" if self.detail else "")

    @property
    def delta(self) -> int | None:
        """How far a number moves."""
        if isinstance(self.old, int) and isinstance(self.new, int):
            return self.new - self.old
        return None


@dataclass(frozen=True, slots=True)
class Subject:
    """The target that a plan changes: where it is, and the identity that proves it is the same."""

    kind: str
    uri: str
    name: str | None = None
    identity: str | None = None


@dataclass(frozen=True, slots=True)
class Choice:
    """An option that only the operator can choose, because it has a cost."""

    about: str
    what: str
    command: str
    cost: str


@dataclass(frozen=True, slots=True)
class Plan:
    """The steps in order, and their consequences for the operator. No steps: nothing to do.

    The texts do not contain the path of the target (`subject` does), because the same plan may be
    applied from a host where the path differs. `work` is all that the target's journal needs to
    make this plan again, in plain values; a saved plan is trusted only if the journal makes the
    same plan from its work.
    """

    title: str
    actions: tuple[Action, ...]
    consequences: tuple[str, ...] = ()
    preconditions: tuple[Precondition, ...] = ()
    choices: tuple[Choice, ...] = ()
    subject: Subject | None = None
    work: Mapping[str, Any] = field(default_factory=dict)

    def __str__(self) -> str:
        """As text: the steps and their consequences."""
        steps = [f"  {each}" for each in self.actions] or ["  nothing to do"]
        return "\n".join([self.title, *steps, *self.consequences])
