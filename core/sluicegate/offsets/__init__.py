"""Offset stores, for consumers that manage their own positions."""

from sluicegate.offsets.hooks import (
    CollectingHook,
    CommitHook,
    CommitInfo,
    HookedOffsetStore,
    JsonLinesHook,
    LoggingHook,
)
from sluicegate.offsets.memory import MemoryOffsetStore
from sluicegate.offsets.record import Fence, Record
from sluicegate.offsets.store import (
    Commit,
    HookFailure,
    LockFileOffsetStore,
    OffsetStore,
    StaleCommit,
    StoreDamaged,
    Update,
)

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
