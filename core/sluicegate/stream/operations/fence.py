"""Fence: the current writer of a stream is shut out, whatever it still does."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from sluicegate.plan import Action, Precondition
from sluicegate.stream.append import Signature
from sluicegate.stream.operations.base import Parts, StreamOperation, Workplace
from sluicegate.stream.snapshot import Snapshot


@dataclass(frozen=True, kw_only=True)
class Fence(StreamOperation):
    """Claim the stream for nobody."""

    name: ClassVar = "depose"
    beside_a_job: ClassVar = True

    def plan(self, at: Workplace) -> Parts:
        head = at.stream.chain.head()
        living = at.gate.living_writer(head)
        title = f"Fence the job of {at.stream.name} off"
        if head.writer is None or head.writer.startswith("none-"):
            return Parts(title, ())
        told = [
            f"{living or 'The run ' + head.writer} can commit nothing more. Start the job again."
        ]
        needs = (Precondition("the run that may commit", head.writer),)
        return Parts(title, needs, [Action("claim", "the stream", "for nobody")], told)

    def append(
        self, at: Workplace, signature: Signature, details: Mapping[str, Any]
    ) -> Snapshot | None:
        return at.gate.depose(signature, details)
