"""Rollback: the content of an older snapshot, as a new snapshot. No snapshot is removed."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from sluicegate import units
from sluicegate.plan import Action, Precondition
from sluicegate.stream.append import NewGenerationDraft, Signature
from sluicegate.stream.history import common_ancestor, content_of, restorable
from sluicegate.stream.journal import (
    Parts,
    StreamOperation,
    Workplace,
    moves,
    preconditions,
    snapshot_text,
)
from sluicegate.stream.snapshot import Kind, Snapshot
from sluicegate.stream.spec import refuse_lost
from sluicegate.stream.stream import Stream


@dataclass(frozen=True, kw_only=True)
class Rollback(StreamOperation):
    """Restore a snapshot: positions, state, dedup log, watermark, counters and output."""

    name: ClassVar = "rollback"
    to: int
    unchecked: bool = False
    """Whether the source is not asked for what it still holds."""

    @property
    def aim(self) -> str:
        return f"to snapshot {self.to}"

    def plan(self, at: Workplace) -> Parts:
        stream, head = at.stream, at.stream.chain.head()
        aim = restorable(stream, head, self.to)
        title = f"Roll {stream.name} back to {snapshot_text(aim)}"
        needs = (
            *preconditions(head, force=self.force),
            Precondition("the snapshot's digest", aim.digest),
        )
        if _same_content(aim, head):
            return Parts(title, needs)
        if not self.unchecked:
            refuse_lost(head, aim.positions)
        shown = not self.force
        actions = moves(head.positions, aim.positions, with_state=True) if shown else []
        actions.append(_restored("state", aim.state == head.state, f"as of {snapshot_text(aim)}"))
        if aim.dedup or head.dedup:
            actions.append(_restored("dedup log", aim.dedup == head.dedup, "with it"))
        consequences = _discarded(stream, head, aim) if shown else [_discarded_by_force(aim)]
        consequences.append(
            "The next start makes the published output match: it unpublishes discarded output, "
            "which downstream readers may have consumed."
        )
        return Parts(title, needs, actions, consequences)

    def append(
        self, at: Workplace, signature: Signature, details: Mapping[str, Any]
    ) -> Snapshot | None:
        base = at.applied_on
        content = {**content_of(restorable(at.stream, base, self.to)), "details": details}
        draft = NewGenerationDraft(Kind.ROLLBACK, content, self.force, signature, base, None)
        return at.writer.append(draft, base)

    @classmethod
    def inverse(cls, _stream: Stream, number: int, operation: str, *, force: bool) -> Rollback:
        """The undo of a snapshot of any kind: a rollback to the snapshot before it."""
        return cls(to=number - 1, force=force, note=f"undo {operation}", undoes=operation)


def _same_content(aim: Snapshot, head: Snapshot) -> bool:
    ours, theirs = content_of(aim), content_of(head)
    return all(ours[name] == theirs[name] for name in ours if name != "ancestry")


def _restored(what: str, same: bool, detail: str) -> Action:
    return Action("keep" if same else "restore", what, "the same" if same else detail)


def _discarded(stream: Stream, head: Snapshot, aim: Snapshot) -> list[str]:
    """What a rollback from one snapshot to another discards, and what it restores."""
    if aim.number == head.number:
        return []
    fork = common_ancestor(stream, head, aim)
    since = fork.sequence if fork else 0
    lost, regained = head.sequence - since, aim.sequence - since
    texts = []
    if lost:
        start = f"snapshot {fork.number}" if fork else "the beginning"
        texts.append(
            f"Discards {units.events(lost)} committed since {start}, and reads them again."
        )
    if regained:
        texts.append(f"Restores {units.events(regained)} that an earlier change reverted.")
    return texts


def _discarded_by_force(aim: Snapshot) -> str:
    return f"Discards all events committed after {snapshot_text(aim)}, and reads them again."
