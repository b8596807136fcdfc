"""What a planner hands to the journal: texts for the operator, edits for the operation."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from sluicegate.plan import Action, Choice, Precondition
from sluicegate.spark.change.edits import Edit, Place, Roots, digest_of
from sluicegate.spark.checkpoint import Look


@dataclass(frozen=True, slots=True)
class Draft:
    """A change as planned now; `newest` is the newest batch that it leaves."""

    title: str
    summary: str
    actions: tuple[Action, ...]
    consequences: tuple[str, ...]
    edits: tuple[Edit, ...]
    newest: int
    preconditions: tuple[Precondition, ...] = ()
    undoes: str | None = None
    choices: tuple[Choice, ...] = ()


Planner = Callable[[Roots, Mapping[str, Any]], Draft]
"""Makes a draft of some work from what the checkpoint is now, or refuses and says why."""


def newest_after(batches: Iterable[int], edits: Iterable[Edit]) -> int:
    """The newest offsets file once the edits are done; -1 if there will be none."""
    left = set(batches)
    for edit in edits:
        directory, _, name = edit.key.rpartition("/")
        if edit.place is Place.CHECKPOINT and directory == "offsets" and name.isdigit():
            (left.discard if edit.content is None else left.add)(int(name))
    return max(left, default=-1)


def standing(look: Look) -> tuple[Precondition, ...]:
    """The newest batch and commit, by number and content: what nearly every change depends on."""
    storage = look.storage
    newest = look.last_batch
    digest = None if newest is None else digest_of(storage, f"offsets/{newest}")
    return (
        Precondition("the newest batch", newest),
        Precondition("the newest commit", look.last_commit),
        Precondition("the content of the newest offsets file", digest),
    )
