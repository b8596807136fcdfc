"""Rollback: the content of an older snapshot, as a new snapshot. Nothing is forgotten."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from sluicegate import units
from sluicegate.plan import Action, Precondition
from sluicegate.stream.append import OvertakingDraft, Signature
from sluicegate.stream.history import common_ancestor, content_of, restorable
from sluicegate.stream.operations.base import (
    Parts,
    StreamOperation,
    Workplace,
    moves,
    snapshot_text,
    standing,
)
from sluicegate.stream.snapshot import Kind, Snapshot
from sluicegate.stream.stream import Stream


@dataclass(frozen=True, kw_only=True)
class Rollback(StreamOperation):
    """Go back to a snapshot: positions, state, dedup log, watermark, counters and output."""

    name: ClassVar = "rollback"
    to: int

    @property
    def aim(self) -> str:
        return f"to snapshot {self.to}"

    def plan(self, at: Workplace) -> Parts:
        stream, head = at.stream, at.stream.chain.head()
        aim = restorable(stream, head, self.to)
        title = f"Roll {stream.name} back to {snapshot_text(aim)}"
        needs = (
            *standing(head, force=self.force),
            Precondition("the snapshot's digest", aim.digest),
        )
        if _same_content(aim, head):
            return Parts(title, needs)
        shown = not self.force
        actions = moves(head.positions, aim.positions, counted=True) if shown else []
        actions.append(_restored("state", aim.state == head.state, f"as of {snapshot_text(aim)}"))
        if aim.dedup or head.dedup:
            actions.append(_restored("dedup log", aim.dedup == head.dedup, "with it"))
        told = _abandoned(stream, head, aim) if shown else [_abandoned_by_force(aim)]
        told.append(
            "At the next start the published output is made to match: what was given up is "
            "withdrawn, though downstream readers may have consumed it."
        )
        return Parts(title, needs, actions, told)

    def append(
        self, at: Workplace, signature: Signature, details: Mapping[str, Any]
    ) -> Snapshot | None:
        base = at.applied_on
        content = {**content_of(restorable(at.stream, base, self.to)), "details": details}
        draft = OvertakingDraft(Kind.ROLLBACK, content, self.force, signature, base, None)
        return at.gate.append(draft, base)

    @classmethod
    def inverse(cls, _stream: Stream, number: int, operation: str, *, force: bool) -> Rollback:
        """What takes back a snapshot of any kind: the snapshot before it."""
        return cls(to=number - 1, force=force, note=f"undo {operation}", undoes=operation)


def _same_content(aim: Snapshot, head: Snapshot) -> bool:
    ours, theirs = content_of(aim), content_of(head)
    return all(ours[name] == theirs[name] for name in ours if name != "ancestry")


def _restored(what: str, same: bool, detail: str) -> Action:
    return Action("keep" if same else "restore", what, "the same" if same else detail)


def _abandoned(stream: Stream, head: Snapshot, aim: Snapshot) -> list[str]:
    """What going from one snapshot to another gives up, and what it brings back."""
    if aim.number == head.number:
        return []
    fork = common_ancestor(stream, head, aim)
    since = fork.sequence if fork else 0
    lost, regained = head.sequence - since, aim.sequence - since
    told = []
    if lost:
        start = f"snapshot {fork.number}" if fork else "the beginning"
        told.append(
            f"Gives up what was committed since {start}: {units.events(lost)}. They are read again."
        )
    if regained:
        told.append(f"Brings back {units.events(regained)} that an earlier change took away.")
    return told


def _abandoned_by_force(aim: Snapshot) -> str:
    return f"Gives up whatever was committed after {snapshot_text(aim)}. It is read again."
