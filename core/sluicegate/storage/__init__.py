"""Durable storage: the interface, local files, and a wrapper for dry runs."""

from __future__ import annotations

from sluicegate.storage.base import (
    BACKENDS,
    DEFAULT_LIMIT,
    Capabilities,
    Entry,
    Kind,
    ReadOnlyStorage,
    Stat,
    Storage,
    canonical_uri,
    joined_uri,
    local_root,
    open_beside,
    open_storage,
    split_key,
    validate_name,
)
from sluicegate.storage.local import LocalStorage

__all__ = [
    "BACKENDS",
    "DEFAULT_LIMIT",
    "Capabilities",
    "Entry",
    "Kind",
    "LocalStorage",
    "ReadOnlyStorage",
    "Stat",
    "Storage",
    "canonical_uri",
    "joined_uri",
    "local_root",
    "open_beside",
    "open_storage",
    "split_key",
    "validate_name",
]
