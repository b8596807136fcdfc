"""What a mutating command is about to do, as a value that can be shown before it is done."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Action:
    """One step of a plan: what is done to which place, and a word on why or how."""

    verb: str
    place: str
    detail: str = ""


@dataclass(frozen=True, slots=True)
class Plan:
    """The steps in order, and what they mean for the operator. No steps: nothing to do."""

    title: str
    actions: tuple[Action, ...]
    consequences: tuple[str, ...] = ()
