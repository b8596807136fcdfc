"""Prune: old snapshots are given up, and what nothing refers to any more is removed."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from sluicegate.plan import Action, Precondition
from sluicegate.stream import gc
from sluicegate.stream.append import Signature
from sluicegate.stream.operations.base import Parts, StreamOperation, Workplace
from sluicegate.stream.snapshot import Snapshot


@dataclass(frozen=True, kw_only=True)
class Prune(StreamOperation):
    """Give up the snapshots below a floor; the output of the newest epoch is never given up."""

    name: ClassVar = "prune"
    beside_a_job: ClassVar = True
    to: int

    @property
    def aim(self) -> str:
        return f"to snapshot {self.to}"

    def plan(self, at: Workplace) -> Parts:
        stream, head = at.stream, at.stream.chain.head()
        floor = min(self.to, gc.highest_floor(stream, head))
        actions = []
        if floor > head.floor:
            count = floor - head.floor
            which = f"{head.floor} to {floor - 1}, {count} of them"
            actions.append(Action("give up", "snapshots", which, head.floor, floor))
        elif swept := gc.sweep(stream, dry_run=True):
            actions.append(Action("remove", "leftovers", swept.shown))
        told = [
            f"The oldest snapshot that can be gone back to will be {floor}. This cannot be undone.",
            "Blobs that nothing refers to any more are removed when they are a day old.",
        ]
        needs = (Precondition("the stream", head.stream_id), Precondition("the floor", head.floor))
        return Parts(f"Prune {stream.name}", needs, actions, told if actions else [])

    def append(
        self, at: Workplace, signature: Signature, details: Mapping[str, Any]
    ) -> Snapshot | None:
        snapshot = gc.prune(at.gate, self.to, signature, details)
        # If there were leftovers only, those are gone.
        return snapshot or (at.applied_on if self.to <= at.applied_on.floor else None)
