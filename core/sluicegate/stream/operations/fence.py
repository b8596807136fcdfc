"""Fence: the current writer of a stream can never commit again, even if it still runs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from sluicegate.plan import Action, Precondition
from sluicegate.stream.append import Signature
from sluicegate.stream.journal import Parts, StreamOperation, Workplace
from sluicegate.stream.snapshot import Snapshot


@dataclass(frozen=True, kw_only=True)
class Fence(StreamOperation):
    """Claim the stream without a run."""

    name: ClassVar = "fence"
    online: ClassVar = True

    def plan(self, at: Workplace) -> Parts:
        head = at.stream.chain.head()
        living = at.writer.living_writer(head)
        title = f"Fence off the current writer of {at.stream.name}"
        if head.writer is None or head.writer.startswith("none-"):
            return Parts(title, ())
        who = living or f"run {head.writer}"
        fenced = [f"The current writer cannot commit any more: {who}. Start the job again."]
        needs = (Precondition("the current writer", head.writer),)
        return Parts(title, needs, [Action("claim", "the stream", "without a run")], fenced)

    def append(
        self, at: Workplace, signature: Signature, details: Mapping[str, Any]
    ) -> Snapshot | None:
        return at.writer.fence_off(signature, details)
