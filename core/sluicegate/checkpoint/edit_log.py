"""The edits of a checkpoint: as entries of its history, and the backups they keep for undo.

The record of an operation is kept, so that the history stays complete. `_sluicegate/N.pruned` is
written before anything is removed; it shows that the operation can no longer be undone.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from sluicegate.checkpoint.edit import HOME, Operation, Progress, list_operations
from sluicegate.checkpoint.file_edits import Place, Roots
from sluicegate.checkpoint.writers import LOCK
from sluicegate.journal import Entry, undone_by
from sluicegate.process import Who
from sluicegate.storage import Storage, open_storage
from sluicegate.storage.base import files_below


def undone_operations(operations: list[Operation]) -> dict[str, str]:
    """Operation → the one that undid it, of those that were carried out."""
    done = [each.record for each in operations if each.progress is Progress.DONE]
    return undone_by([(record.id, record.undoes) for record in done])


def entry_of(found: Operation, undone: Mapping[str, str]) -> Entry:
    """An operation as history shows it; `undone` maps operations to those that undid them."""
    record = found.record
    undo = "yes" if found.progress is Progress.DONE else f"no: {found.progress.value}"
    if found.progress.is_interrupted:
        undo = "yes"
    if found.pruned:
        undo = "no: its backups were removed"
    if record.id in undone:
        undo = f"undone by {undone[record.id]}"
    prefix = "" if found.progress is Progress.DONE else f"{found.progress.value}: "
    return Entry(
        id=record.id,
        at=record.at,
        kind=record.kind,
        by=str(record.by),
        summary=prefix + record.summary,
        reason=record.reason,
        undoes=record.undoes,
        undo=undo,
        plan_digest=record.plan_digest,
        planned_by=record.planned_by,
        progress=found.progress.value,
    )


@dataclass(frozen=True, slots=True)
class Backup:
    """The kept files of one operation."""

    operation: Operation
    files: int
    bytes: int


def old_backups(storage: Storage, before: float) -> list[Backup]:
    """The backups of operations from before a time, oldest first; none of an unfinished one."""
    found = []
    for each in list_operations({Place.CHECKPOINT: storage}):
        if each.record.at >= before or each.progress.is_interrupted:
            continue
        files, size = _measure(storage, each.record.number)
        if files:
            found.append(Backup(each, files, size))
    return found


def prune_backups(storage: Storage, before: float, by: Who) -> list[Backup]:
    """Remove them, under the lock of the checkpoint; `Locked` if another process holds it."""
    with storage.lock(LOCK).hold(timeout=0):
        gone = old_backups(storage, before)
        for each in gone:
            record = each.operation.record
            storage.put_if_absent(f"{HOME}/{record.pruned_name}", f"{by}\n".encode())
            for root in _roots(storage, each.operation).values():
                root.delete_all(f"{HOME}/{record.number:020d}")
    return gone


def _roots(storage: Storage, operation: Operation) -> Roots:
    sink = operation.record.sink
    return {Place.CHECKPOINT: storage} | ({Place.SINK: open_storage(sink)} if sink else {})


def _measure(storage: Storage, number: int) -> tuple[int, int]:
    found = (storage.stat(key) for key in files_below(storage, f"{HOME}/{number:020d}"))
    sizes = [each.size for each in found if each]
    return len(sizes), sum(sizes)
