"""Giving up the backups of old operations: what undo would need, and the contents that were staged.

The record of an operation stays, so that the history is whole. `_sluicegate/N.pruned` is written
before anything goes; whoever finds it knows that the operation cannot be undone any more.
"""

from __future__ import annotations

import shutil
from dataclasses import dataclass

from sluicegate.locks import FileLock
from sluicegate.spark.change.edits import Place, Roots
from sluicegate.spark.change.operation import HOME, Operation, list_operations
from sluicegate.spark.writer import LOCK
from sluicegate.storage import Storage, open_storage
from sluicegate.who import Who


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
    """Remove them, under the lock of the checkpoint; `Locked` if somebody works on it."""
    path = storage.local_path(LOCK)
    assert path is not None
    with FileLock(path).hold(timeout=0):
        gone = old_backups(storage, before)
        for each in gone:
            record = each.operation.record
            storage.put_if_absent(f"{HOME}/{record.pruned_name}", f"{by}\n".encode())
            for root in _roots(storage, each.operation).values():
                directory = root.local_path(f"{HOME}/{record.number:020d}")
                if directory:
                    shutil.rmtree(directory, ignore_errors=True)
    return gone


def _roots(storage: Storage, operation: Operation) -> Roots:
    sink = operation.record.sink
    return {Place.CHECKPOINT: storage} | ({Place.SINK: open_storage(sink)} if sink else {})


def _measure(storage: Storage, number: int) -> tuple[int, int]:
    directory = storage.local_path(f"{HOME}/{number:020d}")
    assert directory is not None
    sizes = [path.stat().st_size for path in directory.rglob("*") if path.is_file()]
    return len(sizes), sum(sizes)
