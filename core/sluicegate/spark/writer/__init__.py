"""Is a job writing to a Spark checkpoint? A checkpoint of somebody else's job has no fence.

What is certain: our lock is held, a process of this host has a file of the checkpoint open, or a
JVM names its path or lists its query. What only may be: the checkpoint was written to within the
last two minutes, or a JVM with a streaming query names the directory above it, or its log names
it. A JVM with a query that nothing tells apart is told, too, but decides nothing. A query that was
stopped counts as long as its JVM lives, whose background maintenance may still write. A job on
another host shows by its writes alone.
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
    seen = _processes(storage, clock, proc, patience if is_recent else 0.0)
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

    `accept_possible` is for an operator who knows that what is only possible is not so, and who
    says it with the command's `option`; what is certain is always refused.
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
    told = "; ".join(evidence.lines)
    raise WriterAlive(f"{storage.uri}: {verdict.value}: {told}", hint=hint, place=storage.uri)


def _processes(storage: Storage, now: float, proc: Proc, patience: float) -> Seen:
    root = storage.local_path()
    if root is None:
        return Seen(unseen=(f"{storage.uri} is not local, so no process can be seen",))
    try:
        query = read_query_id(storage)
    except SluicegateError:
        query = None
    seen = look_at_processes(root, query, now, proc)
    return seen if seen.signs else watch(seen, root, proc, patience)


def _write_signs(written: Write | None, now: float, *, recent: bool) -> list[Sign]:
    if written is None:
        return []
    weight = Verdict.POSSIBLY_ALIVE if recent else Verdict.QUIET
    return [Sign(written.describe(now), weight)]
