"""What the files of a checkpoint tell about a writer: our lock, recent writes, a batch in flight.

Spark makes every file by creating a temporary one and renaming it, and removes old ones, so the
time of a directory tells of every write below it, temporary or not, without listing its files.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from sluicegate import units
from sluicegate.errors import NotFound, SluicegateError, StorageFailed
from sluicegate.locks import FileLock
from sluicegate.spark.checkpoint import SOURCES, STATE, Standing, look_at
from sluicegate.spark.commit_log import DIRECTORY as COMMITS
from sluicegate.spark.offset_log import DIRECTORY as OFFSETS
from sluicegate.spark.writer.evidence import Sign, Verdict
from sluicegate.storage import Storage
from sluicegate.who import myself

HOME = "_sluicegate"
LOCK = f"{HOME}/checkpoint.lock"
ENDED = f"{HOME}/ended"
_DONE = ".done"
_STATE_DEPTH = 4


@dataclass(frozen=True, slots=True)
class Write:
    """The newest write to a checkpoint: which file or directory, and when."""

    key: str
    at: float

    def describe(self, now: float) -> str:
        """One line of evidence."""
        return f"newest write: {self.key} at {units.utc(self.at)} ({units.ago(self.at, now)})"


def settle(storage: Storage) -> None:
    """Write down that whatever wrote so far has ended, so that it is not taken for a writer.

    For whoever holds the lock and knows it: a job was waited for, or an operation is over.
    """
    storage.replace(ENDED, f"{myself()}\n".encode())


def lock_signs(storage: Storage) -> list[Sign]:
    """Who else holds our lock on the checkpoint."""
    path = storage.local_path(LOCK)
    if path is None:
        return []
    lock = FileLock(path)
    try:
        if not lock.is_held():
            return []
    except StorageFailed as e:
        return [Sign(f"our lock cannot be looked at: {e.message}", Verdict.POSSIBLY_ALIVE)]
    holders = lock.holders()
    if any(holder.who == myself() for holder in holders):
        return []
    told = [holder.describe() for holder in holders] or ["a holder that left no note"]
    return [Sign(f"{path} is held by {each}", Verdict.ALIVE) for each in told]


def newest_write(storage: Storage) -> Write | None:
    """The newest write that nobody has settled."""
    directories = [OFFSETS, COMMITS, *_below(storage, SOURCES, 1), *_below(storage, STATE)]
    times = [(at, key) for key in directories if (at := _time(storage, key)) is not None]
    if not times:
        return None
    at, directory = max(times)
    if at <= _settled(storage):
        return None
    return Write(_newest_file(storage, directory, at), at)


def flight_signs(storage: Storage) -> list[Sign]:
    """A batch that is planned and not committed; that alone may as well be an old crash."""
    try:
        look = look_at(storage)
    except SluicegateError:
        return []
    if look.standing not in (Standing.REPLAY, Standing.BEHIND):
        return []
    text = f"batch {look.last_batch} is planned but not committed: in flight, or cut off by a crash"
    return [Sign(text, Verdict.QUIET)]


def _below(storage: Storage, key: str, depth: int = _STATE_DEPTH) -> Iterator[str]:
    """A directory and those below it."""
    yield key
    if depth == 0:
        return
    try:
        entries = storage.list(key)
    except SluicegateError:
        return
    for entry in entries:
        if entry.kind == "directory":
            yield from _below(storage, f"{key}/{entry.name}", depth - 1)


def _newest_file(storage: Storage, directory: str, at: float) -> str:
    """The file that gave a directory its time, if it is still there; else the directory."""
    try:
        keys = [f"{directory}/{entry.name}" for entry in storage.list(directory)]
    except SluicegateError:
        return directory
    times = [(time, key) for key in keys if (time := _time(storage, key)) is not None]
    newest = max(times, default=(0.0, directory))
    return newest[1] if newest[0] >= at - 1 else directory


def _settled(storage: Storage) -> float:
    """Up to when writes are known to be of something that has ended."""
    try:
        names = [f"{HOME}/{entry.name}" for entry in storage.list(HOME)]
    except (NotFound, StorageFailed):
        return 0.0
    known = (name for name in names if name == ENDED or name.endswith(_DONE))
    return max((_time(storage, name) or 0.0 for name in known), default=0.0)


def _time(storage: Storage, key: str) -> float | None:
    try:
        found = storage.stat(key)
    except SluicegateError:
        return None
    return found.modified_ns / 1e9 if found else None
