"""The input and the results of the tasks of an epoch, as they are sent between machines."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import astuple, dataclass
from typing import Any

from sluicegate.dedup.stamp import Column
from sluicegate.job.records import Shape
from sluicegate.sinks.base import File
from sluicegate.sources.base import Reached, Reader, Slice
from sluicegate.state.aggregates import Value
from sluicegate.storage.blobs import Ref


@dataclass(frozen=True, slots=True)
class Work:
    """One attempt at one epoch: what to read, how to classify and fold it, where to put it."""

    slices: tuple[Slice, ...]
    read: Reader | None
    shape: Shape
    incarnation: str
    stream: str
    dedup: tuple[Ref, ...]
    at_ms: int
    attempts: str
    writes_rows: bool
    values: tuple[Value, ...]
    shards: int
    targets: Column
    """Which task folds each shard."""
    tasks: int
    """How many tasks fold."""
    deduplicates: bool = True
    """Whether duplicates are dropped; false only to measure the cost of that."""
    fails_on_overflow: bool = True
    """Whether a number that is too large for a sum stops the job; else the sum becomes null."""
    dense: bool = True
    """Whether the source has a record at every offset."""


@dataclass(frozen=True, slots=True)
class Classified:
    """The result of a classifying task: counts, files, and the events it sent to each shard."""

    reached: tuple[Reached, ...]
    read: int
    applied: int
    duplicates: int
    rejected: int
    files: Mapping[str, tuple[File, ...]]
    events: Mapping[int, int]

    def to_text(self) -> str:
        """For the way back to the driver."""
        fields = {name: getattr(self, name) for name in self.__slots__}
        fields["files"] = {kind: [f.fields() for f in files] for kind, files in self.files.items()}
        fields["reached"] = [astuple(each) for each in self.reached]
        return json.dumps(fields)

    @classmethod
    def from_text(cls, text: str) -> Classified:
        """As the driver gets it."""
        fields: dict[str, Any] = json.loads(text)
        fields["reached"] = tuple(Reached(*each) for each in fields["reached"])
        fields["files"] = {k: tuple(File(*f) for f in fs) for k, fs in fields["files"].items()}
        fields["events"] = {int(shard): count for shard, count in fields["events"].items()}
        return cls(**fields)


@dataclass(frozen=True, slots=True)
class Folded:
    """The result of a folding task: for each of its shards, the delta and the number of events."""

    task: int
    changed: Mapping[int, tuple[Ref, int]]
    unchanged: tuple[int, ...]

    def to_text(self) -> str:
        """For the way back to the driver."""
        changed = {s: [ref.digest, ref.size, n] for s, (ref, n) in self.changed.items()}
        return json.dumps({"task": self.task, "changed": changed, "unchanged": self.unchanged})

    @classmethod
    def from_text(cls, text: str) -> Folded:
        """As the driver gets it."""
        fields: dict[str, Any] = json.loads(text)
        changed = {int(s): (Ref(d, size), n) for s, (d, size, n) in fields["changed"].items()}
        return cls(fields["task"], changed, tuple(fields["unchanged"]))
