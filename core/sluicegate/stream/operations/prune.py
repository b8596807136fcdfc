"""Prune: remove old snapshots, and files that nothing refers to."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from sluicegate.plan import Action, Precondition
from sluicegate.stream import gc
from sluicegate.stream.append import Signature
from sluicegate.stream.journal import Parts, StreamOperation, Workplace
from sluicegate.stream.snapshot import Snapshot


@dataclass(frozen=True, kw_only=True)
class Prune(StreamOperation):
    """Remove the snapshots below a floor; never the newest epoch, whose output may be pending."""

    name: ClassVar = "prune"
    online: ClassVar = True
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
            actions.append(Action("prune", "snapshots", which, head.floor, floor))
        elif swept := gc.sweep(stream, dry_run=True):
            actions.append(Action("remove", "garbage", swept.shown))
        consequences = [
            f"The oldest kept snapshot will be {floor}. This cannot be undone.",
            "Blobs that nothing refers to are removed when they are a day old.",
        ]
        needs = (
            Precondition("the stream", head.stream_id),
            Precondition("the oldest kept snapshot", head.floor),
        )
        return Parts(f"Prune {stream.name}", needs, actions, consequences if actions else [])

    def append(
        self, at: Workplace, signature: Signature, details: Mapping[str, Any]
    ) -> Snapshot | None:
        snapshot = gc.prune(at.writer, self.to, signature, details)
        # If there was garbage only, it is removed.
        return snapshot or (at.applied_on if self.to <= at.applied_on.floor else None)
