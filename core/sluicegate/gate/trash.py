"""What a sink keeps for nobody: output that was taken back for good, and what dead attempts left.

Output in the trash is needed as long as a link is kept that includes its epoch: going back to that
link publishes it again. Lineages only grow along a branch, so the newest link of every branch that
is kept tells for all others.
"""

from __future__ import annotations

import shutil
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from sluicegate.chain.link import Kind, Link
from sluicegate.gate.drafts import OVERTAKING
from sluicegate.gate.gate import Gate
from sluicegate.gate.history import changes
from sluicegate.gate.output import KINDS
from sluicegate.gate.sink import ATTEMPTS, NAME, TRASH, Sink
from sluicegate.gate.spans import Span, has, merged, without
from sluicegate.gate.stream import Stream


@dataclass(frozen=True, slots=True)
class Rubbish:
    """What may go of a sink: output taken back for good, and what dead writers left."""

    taken_back: tuple[Path, ...] = ()
    attempts: tuple[Path, ...] = ()
    unfinished: tuple[Path, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.taken_back or self.attempts or self.unfinished)

    @property
    def shown(self) -> str:
        """For people: how many of each."""
        counts = (
            (self.taken_back, "outputs that were taken back for good"),
            (self.attempts, "leftovers of attempts that died"),
            (self.unfinished, "unfinished files"),
        )
        return ", ".join(f"{len(paths):,} {what}" for paths, what in counts if paths)


def look(stream: Stream, sink: Sink, grace: float) -> Rubbish:
    """What may go of a sink; of leftovers, those that are older than the grace."""
    head = stream.chain.head()
    limit_ns = (time.time() - grace) * 1e9
    unfinished = tuple(sink.unfinished(limit_ns))
    attempts: list[Path] = []
    if Gate(stream).living_writer(head) is None:
        # A job clears them away when it starts, so whatever is there now may be its own.
        found = (sink.path(f"{ATTEMPTS}/{name}") for name in sink.names(ATTEMPTS))
        attempts = [path for path in found if path.stat().st_mtime_ns <= limit_ns]
    kinds = [(kind, sink.names(f"{TRASH}/{kind}")) for kind in (*KINDS, "staged")]
    if not any(names for _, names in kinds):
        return Rubbish((), tuple(attempts), unfinished)
    needed = list(_reachable(stream, head))
    nonces = {link.nonce for link in _taken_back(stream, head, needed)}
    gone = [
        sink.path(f"{TRASH}/{kind}/{name}")
        for kind, names in kinds
        for name in names
        if not (has(needed, int(match[1])) if (match := NAME.fullmatch(name)) else name in nonces)
    ]
    return Rubbish(tuple(gone), tuple(attempts), unfinished)


def empty(stream: Stream, sink: Sink, grace: float) -> Rubbish:
    """Remove what may go, while nobody publishes; `Locked` if somebody does."""
    with stream.lock("publish").hold(timeout=0):
        rubbish = look(stream, sink, grace)
        for path in (*rubbish.taken_back, *rubbish.attempts):
            shutil.rmtree(path, ignore_errors=True)
        for path in rubbish.unfinished:
            path.unlink(missing_ok=True)
        return rubbish


def unpublished_from(stream: Stream, sink: Sink, head: Link) -> int:
    """The oldest link whose epoch may have output that the next start still has to publish.

    A running job publishes an epoch before it seals the next. What a rollback, or its undo, made
    part of the stream again is published when a job starts.
    """
    settled = sink.settled()
    if settled is None:
        return head.floor
    last = settled[-1][1] if settled else -1
    if any(link.kind in OVERTAKING and link.number > last for link in changes(stream, head)):
        missing = [left for span in head.lineage for left in without(span, settled)]
        return min((first for first, _ in missing), default=head.number)
    for link in stream.chain.walk(head.number, head.floor):
        if link.kind is Kind.EPOCH:
            return link.number
    return head.number


def _reachable(stream: Stream, head: Link) -> Iterator[Span]:
    """The epochs of all links that can be gone back to."""
    yield from head.lineage
    for link in changes(stream, head):
        if link.kind in OVERTAKING and link.number > head.floor:
            yield from stream.chain.read(link.number - 1).lineage


def _taken_back(stream: Stream, head: Link, needed: list[Span]) -> Iterator[Link]:
    """The kept links that are not part of the stream now, but can be again."""
    for span in merged(needed):
        for first, last in without(span, head.lineage):
            for number in range(max(first, head.floor), last + 1):
                yield stream.chain.read(number)
