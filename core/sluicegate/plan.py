"""What a mutating command is about to do, as a value that can be shown before it is done."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

Worth = int | str | None


@dataclass(frozen=True, slots=True)
class Precondition:
    """Something the plan depends on: the plan holds as long as `what` is `expected`."""

    what: str
    expected: Worth


@dataclass(frozen=True, slots=True)
class Action:
    """One step of a plan: what is done to which place, from what to what, and why or how."""

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
    """The target that a plan changes: how it is found, and what proves that it is the same one."""

    kind: str
    uri: str
    name: str | None = None
    identity: str | None = None


@dataclass(frozen=True, slots=True)
class Choice:
    """Something a plan leaves to the operator, because it has a price: what, how, what it costs."""

    about: str
    what: str
    command: str
    gives_up: str


@dataclass(frozen=True, slots=True)
class Plan:
    """The steps in order, and what they mean for the operator. No steps: nothing to do.

    The texts do not say where the target lies (`subject` does), because the same plan may be
    applied from a host that has it elsewhere. `work` is all that the target's journal needs to
    make this plan again, in plain values; a plan that is saved is believed only if the journal
    says the same about its work.
    """

    title: str
    actions: tuple[Action, ...]
    consequences: tuple[str, ...] = ()
    preconditions: tuple[Precondition, ...] = ()
    choices: tuple[Choice, ...] = ()
    subject: Subject | None = None
    work: Mapping[str, Any] = field(default_factory=dict)

    def __str__(self) -> str:
        """As text: the steps and what they mean."""
        steps = [f"  {each}" for each in self.actions] or ["  nothing to do"]
        return "\n".join([self.title, *steps, *self.consequences])
