"""What a sink keeps for nobody: output that was taken back for good, and what dead attempts left.

Output in the trash is needed as long as a link is kept that includes its epoch: going back to that
link publishes it again.
"""

from __future__ import annotations

import shutil
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from sluicegate.chain.link import Link
from sluicegate.gate.gate import Gate
from sluicegate.gate.history import sound_links
from sluicegate.gate.output import KINDS
from sluicegate.gate.sink import ATTEMPTS, NAME, TRASH, Sink
from sluicegate.gate.spans import Span, has
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
    never_sealed = (sink.path(f"{TRASH}/staged/{n}") for n in sink.names(f"{TRASH}/staged"))
    attempts += (path for path in never_sealed if path.stat().st_mtime_ns <= limit_ns)
    return Rubbish(tuple(_taken_back(stream, sink, head)), tuple(attempts), unfinished)


def empty(stream: Stream, sink: Sink, grace: float) -> Rubbish:
    """Remove what may go. That takes no lock: what no link leads to, no link will lead to again."""
    rubbish = look(stream, sink, grace)
    for path in (*rubbish.taken_back, *rubbish.attempts):
        shutil.rmtree(path, ignore_errors=True)
    for path in rubbish.unfinished:
        path.unlink(missing_ok=True)
    return rubbish


def _taken_back(stream: Stream, sink: Sink, head: Link) -> Iterator[Path]:
    """What was withdrawn and can never be part of the stream again."""
    names = [(kind, name) for kind in KINDS for name in sink.names(f"{TRASH}/{kind}")]
    needed = _reachable(stream, head) if names else []
    for kind, name in names:
        match = NAME.fullmatch(name)
        if match and not has(needed, int(match[1])):
            yield sink.path(f"{TRASH}/{kind}/{name}")


def _reachable(stream: Stream, head: Link) -> list[Span]:
    """The epochs of all links that can be gone back to.

    The lineage of a link that is part of a lineage is the beginning of it, so one link of every
    branch is read: its newest that is sound.
    """
    needed = list(head.lineage)
    for number in range(head.number, head.floor - 1, -1):
        if not has(needed, number):
            for link in sound_links(stream, number, number):
                needed += link.lineage
    return needed
