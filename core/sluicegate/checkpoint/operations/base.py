"""What the operations on a checkpoint have in common: their work as plain values.

Each operation is one frozen dataclass with `plan`, which turns it into edits of files. The journal
plans it, plans it again when it is applied, compares what it depends on, and carries the edits out
behind a barrier; the inverse of all of them is the one in `undo`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any, ClassVar, Self

from sluicegate.checkpoint.file_edits import Draft, Roots


@dataclass(frozen=True, kw_only=True)
class CheckpointOperation(ABC):
    """A change of a checkpoint. A field `sink` is its file sink, if the operator named one."""

    name: ClassVar[str]

    @abstractmethod
    def plan(self, roots: Roots) -> Draft:
        """The edits that it is for the checkpoint as it is now, or a refusal that says why."""

    def to_work(self) -> dict[str, Any]:
        """As plain values, for a plan."""
        own = {each.name: getattr(self, each.name) for each in fields(self)}
        if own.get("sink") is None:
            own.pop("sink", None)
        return {"operation": self.name, **own}

    @classmethod
    @abstractmethod
    def from_work(cls, work: Mapping[str, Any]) -> Self:
        """From the plain values of a plan, or `Corrupt`."""


def text_in(work: Mapping[str, Any], key: str) -> str | None:
    """A text of a plan's work; anything else is none."""
    found = work.get(key)
    return found if isinstance(found, str) else None
