"""Is a job writing to a Spark checkpoint? A checkpoint of another application has no fence.

Spark makes every file by creating a temporary one and renaming it, and removes old ones, so the
time of a directory shows every write below it, temporary or not, without listing its files.

Certain signs: our lock is held, a process of this host has a file of the checkpoint open, or a JVM
names its path or lists its query. Possible signs: the checkpoint was written to within the last two
minutes, or a JVM with a streaming query names the directory above it, or its log names it. A JVM
with an unidentified query is reported, too, but decides nothing. A stopped query counts as long as
its JVM lives, whose background maintenance may still write. A job on another host shows by its
writes alone.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from sluicegate import units
from sluicegate.checkpoint.format.log import COMMITS, OFFSETS
from sluicegate.checkpoint.format.operators import STATE
from sluicegate.checkpoint.view import SOURCES, NextStart, look_at, read_query_id
from sluicegate.errors import Locked, NotFound, SluicegateError, StorageFailed
from sluicegate.liveness import Evidence, Sign, Verdict
from sluicegate.liveness.jvm import Seen, look_at_processes, watch
from sluicegate.liveness.proc import Proc
from sluicegate.process import myself
from sluicegate.storage import Storage

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
    """Record that all writers so far have ended, so that their writes no longer count as signs.

    The caller holds the lock and knows it: it waited for the job, or its operation is done.
    """
    storage.replace(ENDED, f"{myself()}\n".encode())


def lock_signs(storage: Storage) -> list[Sign]:
    """Other processes that hold our lock on the checkpoint."""
    lock = storage.lock(LOCK)
    try:
        if not lock.is_held():
            return []
    except StorageFailed as e:
        return [Sign(f"our lock cannot be read: {e.message}", Verdict.POSSIBLY_ALIVE)]
    holders = lock.holders()
    if any(holder.who == myself() for holder in holders):
        return []
    names = [holder.describe() for holder in holders] or ["a holder that left no note"]
    return [Sign(f"{lock.place} is held by {each}", Verdict.ALIVE) for each in names]


def newest_write(storage: Storage) -> Write | None:
    """The newest write, unless its writer is known to have ended."""
    directories = [OFFSETS, COMMITS, *_below(storage, SOURCES, 1), *_below(storage, STATE)]
    times = [(at, key) for key in directories if (at := _time(storage, key)) is not None]
    if not times:
        return None
    at, directory = max(times)
    if at <= _settled(storage):
        return None
    return Write(_newest_file(storage, directory, at), at)


def flight_signs(storage: Storage) -> list[Sign]:
    """A batch that is planned but not committed; an old crash leaves the same."""
    try:
        look = look_at(storage)
    except SluicegateError:
        return []
    if look.next_start not in (NextStart.REPLAY, NextStart.BEHIND):
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
        entries = storage.list(directory, sizes=True)
    except SluicegateError:
        return directory
    times = [(entry.modified_ns / 1e9, f"{directory}/{entry.name}") for entry in entries]
    newest = max(times, default=(0.0, directory))
    return newest[1] if newest[0] >= at - 1 else directory


def _settled(storage: Storage) -> float:
    """The time up to which all writers are known to have ended."""
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


WINDOW = 120.0
"""Seconds without a write after which a checkpoint counts as quiet."""
_TIMEOUT = 2.0


class WriterAlive(Locked):
    """A job writes to the checkpoint, or may; `message` has the evidence."""

    default_hint = "stop the job, wait until its JVM has exited, then run the command again"


def signs_of_life(
    storage: Storage,
    *,
    now: float | None = None,
    window: float = WINDOW,
    timeout: float = _TIMEOUT,
    proc: Proc | None = None,
) -> Evidence:
    """All signs of a writer of this checkpoint other than this process.

    A JVM that may be the writer is watched for up to `timeout` seconds, since it opens files of
    its checkpoint for moments only.
    """
    proc, clock = proc or Proc(), time.time() if now is None else now
    written = newest_write(storage)
    # A time in the future comes from a clock that is ahead of ours, so it is recent.
    is_recent = written is not None and clock - written.at < window
    seen = _processes(storage, clock, proc, timeout if is_recent else 0.0)
    return Evidence(
        signs=(
            *lock_signs(storage),
            *seen.signs,
            *(suspect.sign for suspect in seen.suspects),
            *_write_signs(written, clock, recent=is_recent),
            *flight_signs(storage),
        ),
        unseen=seen.unseen,
        quiet_at=written.at + window if written and is_recent else None,
    )


def refuse_living(
    storage: Storage,
    *,
    accept_possible: bool = False,
    option: str | None = None,
    look: Callable[[Storage], Evidence] = signs_of_life,
) -> Evidence:
    """The evidence, or `WriterAlive` if a job writes to this checkpoint or may.

    `accept_possible` is for an operator who knows that the job has ended, and confirms it with the
    command's `option`; certain signs are always refused.
    """
    evidence = look(storage)
    verdict = evidence.verdict
    if verdict is Verdict.QUIET or (accept_possible and verdict is Verdict.POSSIBLY_ALIVE):
        return evidence
    hint = WriterAlive.default_hint
    if verdict is Verdict.POSSIBLY_ALIVE:
        if evidence.quiet_at is not None:
            hint += f"; writes alone count until {units.utc(evidence.quiet_at)}"
        hint += f"; if you know that it has ended, add {option}" if option else ""
    signs = "; ".join(evidence.lines)
    raise WriterAlive(f"{storage.uri}: {verdict.value}: {signs}", hint=hint, place=storage.uri)


def _processes(storage: Storage, now: float, proc: Proc, timeout: float) -> Seen:
    root = storage.local_path()
    if root is None:
        return Seen(unseen=(f"{storage.uri} is not local, so no process can be seen",))
    try:
        query = read_query_id(storage)
    except SluicegateError:
        query = None
    seen = look_at_processes(root, query, now, proc)
    return seen if seen.signs else watch(seen, root, proc, timeout)


def _write_signs(written: Write | None, now: float, *, recent: bool) -> list[Sign]:
    if written is None:
        return []
    weight = Verdict.POSSIBLY_ALIVE if recent else Verdict.QUIET
    return [Sign(written.describe(now), weight)]
