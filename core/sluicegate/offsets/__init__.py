"""Offset stores: where consumers that keep their own position keep it."""

from sluicegate.offsets.base import (
    Commit,
    HookFailure,
    OffsetStore,
    StaleCommit,
    Update,
)
from sluicegate.offsets.hooks import (
    CollectingHook,
    CommitHook,
    CommitInfo,
    HookedOffsetStore,
    JsonLinesHook,
    LoggingHook,
)
from sluicegate.offsets.lockfile import LockFileOffsetStore, StoreDamaged
from sluicegate.offsets.memory import MemoryOffsetStore
from sluicegate.offsets.record import Fence, Record

__all__ = [
    "CollectingHook",
    "Commit",
    "CommitHook",
    "CommitInfo",
    "Fence",
    "HookFailure",
    "HookedOffsetStore",
    "JsonLinesHook",
    "LockFileOffsetStore",
    "LoggingHook",
    "MemoryOffsetStore",
    "OffsetStore",
    "Record",
    "StaleCommit",
    "StoreDamaged",
    "Update",
]
