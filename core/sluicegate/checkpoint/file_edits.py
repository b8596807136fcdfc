"""Edits of files, and the base class of all operations on a checkpoint.

Edits are values that planners make and the operation carries out. Their order matters only to
readers; the barrier makes an operation atomic.

Each operation is one frozen dataclass with `plan`, which turns it into edits of files. The journal
plans it, plans it again when it is applied, compares the preconditions, and carries the edits out
behind a barrier; `undo` is the inverse of all of them.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, fields
from enum import Enum
from hashlib import blake2b
from typing import Any, ClassVar, Self

from sluicegate.checkpoint.format.checksums import hidden_name, visible_name
from sluicegate.checkpoint.view import Look
from sluicegate.errors import NotFound
from sluicegate.plan import Action, Choice, Precondition
from sluicegate.storage import Storage


class Place(Enum):
    """Which directory an edit is in."""

    CHECKPOINT = "checkpoint"
    SINK = "sink"


Roots = Mapping[Place, Storage]
Pieces = Callable[[], Iterable[bytes]]


@dataclass(frozen=True, slots=True)
class Linked:
    """Content that is already in a file, under this key of the same place."""

    key: str


Content = bytes | Pieces | Linked | None
"""New content, in pieces if it is large; None removes the file."""


@dataclass(frozen=True, slots=True)
class Edit:
    """One file and its new content."""

    place: Place
    key: str
    content: Content = None


def put(key: str, text: str, place: Place = Place.CHECKPOINT) -> Edit:
    """Write a small text file."""
    return Edit(place, key, text.encode())


def remove_with_sums(storage: Storage, key: str, place: Place = Place.CHECKPOINT) -> list[Edit]:
    """Remove a file, with Hadoop's and Spark's checksums of it and theirs."""
    directory, slash, name = key.rpartition("/")
    sums = (hidden_name(name), visible_name(name), hidden_name(visible_name(name)))
    keys = [key, *(f"{directory}{slash}{each}" for each in sums)]
    return [Edit(place, each) for each in keys if storage.stat(each) is not None]


def drop_sums(storage: Storage, key: str, place: Place = Place.CHECKPOINT) -> list[Edit]:
    """Remove the checksums that are stale once a file has new content."""
    return [edit for edit in remove_with_sums(storage, key, place) if edit.key != key]


def fingerprint(roots: Roots, edits: Iterable[Edit]) -> str:
    """A digest of the current files that the edits change: names, sizes and times."""
    digest = blake2b(digest_size=16)
    for edit in sorted(edits, key=lambda e: (e.place.value, e.key)):
        found = roots[edit.place].stat(edit.key)
        state = f"{found.size} {found.modified_ns}" if found else "absent"
        digest.update(f"{edit.place.value}\0{edit.key}\0{state}\0".encode())
    return digest.hexdigest()


def digest_of(storage: Storage, key: str, limit: int = 1 << 26) -> str | None:
    """A digest of a small file's content; None if there is none."""
    try:
        return blake2b(storage.get(key, limit=limit), digest_size=16).hexdigest()
    except NotFound:
        return None


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


def newest_after(batches: Iterable[int], edits: Iterable[Edit]) -> int:
    """The newest offsets file once the edits are done; -1 if there will be none."""
    left = set(batches)
    for edit in edits:
        directory, _, name = edit.key.rpartition("/")
        if edit.place is Place.CHECKPOINT and directory == "offsets" and name.isdigit():
            (left.discard if edit.content is None else left.add)(int(name))
    return max(left, default=-1)


def newest_preconditions(look: Look) -> tuple[Precondition, ...]:
    """The newest batch and commit, by number and content: nearly every change depends on them."""
    storage = look.storage
    newest = look.last_batch
    digest = None if newest is None else digest_of(storage, f"offsets/{newest}")
    return (
        Precondition("the newest batch", newest),
        Precondition("the newest commit", look.last_commit),
        Precondition("the content of the newest offsets file", digest),
    )


@dataclass(frozen=True, kw_only=True)
class CheckpointOperation(ABC):
    """A change of a checkpoint. A field `sink` is its file sink, if the operator named one."""

    name: ClassVar[str]

    @abstractmethod
    def plan(self, roots: Roots) -> Draft:
        """Its edits for the checkpoint in its current state, or a refusal with the reason."""

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
