"""Is a job writing to a Spark checkpoint? A checkpoint of somebody else's job has no fence.

What is certain: our lock is held, a process of this host has a file of the checkpoint open, or a
JVM names its path or lists its query. What only may be: the checkpoint was written to within the
last two minutes, or a JVM here runs a streaming query and which one cannot be seen. A query that
was stopped counts as long as its JVM lives, whose background maintenance may still write. A job
on another host shows by its writes alone.
"""

from __future__ import annotations

import time
from collections.abc import Callable

from sluicegate import units
from sluicegate.errors import Locked, SluicegateError
from sluicegate.spark.checkpoint import read_query_id
from sluicegate.spark.writer.evidence import Evidence, Sign, Verdict
from sluicegate.spark.writer.files import (
    ENDED,
    LOCK,
    Write,
    flight_signs,
    lock_signs,
    newest_write,
    settle,
)
from sluicegate.spark.writer.jvms import Seen, look_at_processes, watch
from sluicegate.spark.writer.proc import Proc
from sluicegate.storage import Storage

__all__ = [
    "ENDED",
    "LOCK",
    "WINDOW",
    "Evidence",
    "Sign",
    "Verdict",
    "WriterAlive",
    "refuse_living",
    "settle",
    "signs_of_life",
]

WINDOW = 120.0
"""How long a checkpoint must have been left alone, in seconds, to be quiet."""
_PATIENCE = 2.0


class WriterAlive(Locked):
    """A job writes to the checkpoint, or may; `message` has the evidence."""

    default_hint = "stop the job, wait until its JVM has exited, then run the command again"


def signs_of_life(
    storage: Storage,
    *,
    now: float | None = None,
    window: float = WINDOW,
    patience: float = _PATIENCE,
    proc: Proc | None = None,
) -> Evidence:
    """Everything that speaks for a writer of this checkpoint other than this very process.

    A JVM that may be the writer is watched for up to `patience` seconds, since it opens files of
    its checkpoint for moments only.
    """
    proc, clock = proc or Proc(), time.time() if now is None else now
    written = newest_write(storage)
    # A time in the future is that of a clock that goes ahead of ours, so it is recent.
    is_recent = written is not None and clock - written.at < window
    seen = _processes(storage, clock, proc)
    signs = [*lock_signs(storage), *seen.signs, *_write_signs(written, clock, recent=is_recent)]
    if seen.suspects and is_recent and not any(s.weight is Verdict.ALIVE for s in signs):
        signs += _watch(storage, seen, clock, proc, patience)
    return Evidence(
        signs=(*signs, *flight_signs(storage)),
        unseen=seen.unseen,
        quiet_at=written.at + window if written and is_recent else None,
    )


def refuse_living(
    storage: Storage,
    *,
    accept_possible: bool = False,
    look: Callable[[Storage], Evidence] = signs_of_life,
) -> Evidence:
    """The evidence, or `WriterAlive` if a job writes to this checkpoint or may.

    `accept_possible` is for an operator who knows that what is only possible is not so; what is
    certain is always refused.
    """
    evidence = look(storage)
    verdict = evidence.verdict
    if verdict is Verdict.QUIET or (accept_possible and verdict is Verdict.POSSIBLY_ALIVE):
        return evidence
    hint = None
    if verdict is Verdict.POSSIBLY_ALIVE and evidence.quiet_at is not None:
        moment = units.utc(evidence.quiet_at)
        hint = f"{WriterAlive.default_hint}; writes alone count until {moment}"
    told = "; ".join(evidence.lines)
    raise WriterAlive(f"{storage.uri}: {verdict.value}: {told}", hint=hint, place=storage.uri)


def _processes(storage: Storage, now: float, proc: Proc) -> Seen:
    root = storage.local_path()
    if root is None:
        return Seen((), (), (f"{storage.uri} is not local, so no process can be seen",))
    try:
        query = read_query_id(storage)
    except SluicegateError:
        query = None
    return look_at_processes(root, query, now, proc)


def _write_signs(written: Write | None, now: float, *, recent: bool) -> list[Sign]:
    if written is None:
        return []
    weight = Verdict.POSSIBLY_ALIVE if recent else Verdict.QUIET
    return [Sign(written.describe(now), weight)]


def _watch(storage: Storage, seen: Seen, now: float, proc: Proc, patience: float) -> list[Sign]:
    root = storage.local_path()
    found = watch(seen.suspects, root, now, proc, patience) if root else None
    return [found] if found else []
