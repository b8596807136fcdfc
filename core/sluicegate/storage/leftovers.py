"""What writers that died left unfinished."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path

from sluicegate.errors import NotFound
from sluicegate.storage.base import Storage


def old_temporaries(storage: Storage, keys: Iterable[str], limit_ns: float) -> Iterator[Path]:
    """The unfinished files in some directories that nobody has written to since a time."""
    for key in keys:
        root = storage.local_path(key) if key else storage.local_path()
        try:
            left = storage.list(key, temporary=True)
        except NotFound:
            continue
        for entry in left:
            assert root
            if is_old(root / entry.name, limit_ns):
                yield root / entry.name


def is_old(path: Path, limit_ns: float) -> bool:
    """Whether a file or directory is there, and was last changed before a time."""
    try:
        return path.stat().st_mtime_ns <= limit_ns
    except FileNotFoundError:
        # Its writer lives, and has just finished it.
        return False
