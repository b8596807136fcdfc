"""Operations as entries of a checkpoint's history."""

from __future__ import annotations

from collections.abc import Mapping

from sluicegate.journal import Entry, undone_by
from sluicegate.spark.change.operation import Operation, Progress


def undone_operations(operations: list[Operation]) -> dict[str, str]:
    """Operation → the one that undid it, of those that were carried out."""
    done = [each.record for each in operations if each.progress is Progress.DONE]
    return undone_by([(record.id, record.undoes) for record in done])


def entry_of(found: Operation, undone: Mapping[str, str]) -> Entry:
    """An operation as history shows it; `undone` tells which were undone by which."""
    record = found.record
    undo = "yes" if found.progress is Progress.DONE else f"no: {found.progress.value}"
    if found.progress.is_interrupted:
        undo = "yes"
    if found.pruned:
        undo = "no: its backups were given up"
    if record.id in undone:
        undo = f"undone by {undone[record.id]}"
    told = "" if found.progress is Progress.DONE else f"{found.progress.value}: "
    return Entry(
        id=record.id,
        at=record.at,
        kind=record.kind,
        by=str(record.by),
        summary=told + record.summary,
        reason=record.reason,
        undoes=record.undoes,
        undo=undo,
        plan_digest=record.plan_digest,
        planned_by=record.planned_by,
        progress=found.progress.value,
    )
