"""What a sink is: output that is staged, published with its snapshot, and withdrawn with it.

Output is identified by number *and* nonce of its snapshot. After a backup was restored, a chain may
use a number again; it never uses a nonce again. So what a sink has published is a witness: if the
chain does not know it, the chain is older than its output.

A sink is fenced by each claim of the stream. From then on no earlier claim can publish or withdraw
anything, also if its process was frozen in the middle of doing so and wakes up years later.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from sluicegate import units
from sluicegate.errors import Corrupt, Fenced
from sluicegate.positions import Positions

DATA, REJECTS = "data", "rejects"
KINDS = (DATA, REJECTS)
PUBLISHED, PENDING = "published", "pending"


class OutputLost(Corrupt):
    """Output of a committed epoch is neither published nor staged nor in the trash."""

    default_hint = (
        "restore the sink from a backup, or discard the epoch with: sluicegate checkpoint rollback"
    )


class SinkFenced(Fenced):
    """Another claim took over the sink: this one can never publish again."""

    default_hint = "another run writes to the stream now; look at it with: sluicegate locks list"


@dataclass(frozen=True, slots=True, order=True)
class SnapshotName:
    """Which snapshot output or a claim belongs to, in all worlds that backups can make."""

    number: int
    nonce: str

    def __str__(self) -> str:
        return f"{self.number:020d}-{self.nonce}"


@dataclass(frozen=True, slots=True)
class File:
    """A file that a task wrote, complete and durable."""

    name: str
    size: int
    rows: int
    digest: str

    def fields(self) -> list[Any]:
        """As plain values."""
        return [self.name, self.size, self.rows, self.digest]


@dataclass(frozen=True, slots=True)
class Output:
    """The files of one epoch, by kind."""

    files: Mapping[str, tuple[File, ...]]

    def __bool__(self) -> bool:
        return any(self.files.values())

    @property
    def kinds(self) -> tuple[str, ...]:
        """The kinds of which there are files."""
        return tuple(kind for kind, files in self.files.items() if files)

    def rows(self, kind: str) -> int:
        """How many rows there are of a kind."""
        return sum(each.rows for each in self.files.get(kind, ()))


@dataclass(frozen=True, slots=True)
class Reach:
    """Which events an output holds: those between two positions, read in one generation."""

    generation: int
    start: Positions
    end: Positions


@dataclass(frozen=True, slots=True)
class Settled:
    """The snapshot whose ancestry was published last, and what was published then."""

    head: SnapshotName
    ancestry: tuple[tuple[int, int], ...]
    published: str
    """A digest of all published names."""


@dataclass(frozen=True, slots=True)
class OutputGarbage:
    """What may be removed from a sink: withdrawn output, and files of dead writers."""

    reverted: tuple[str, ...] = ()
    attempts: tuple[str, ...] = ()
    unfinished: tuple[Path, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.reverted or self.attempts or self.unfinished)

    @property
    def shown(self) -> str:
        """For people: how many of each."""
        counts: Sequence[tuple[Sequence[object], str, str]] = (
            (self.reverted, "reverted output", ""),
            (self.attempts, "output of a failed attempt", "outputs of failed attempts"),
            (self.unfinished, "unfinished file", ""),
        )
        return ", ".join(units.counted(len(found), *what) for found, *what in counts if found)


class Sink(Protocol):
    """Where the output of one stream goes."""

    @property
    def uri(self) -> str:
        """Where it is."""

    def published(self) -> Mapping[SnapshotName, Collection[str]]:
        """What is published now: the kinds of output of each snapshot."""

    def withdrawn(self) -> Mapping[SnapshotName, Collection[str]]:
        """What was withdrawn and is kept under its name."""

    def is_waiting(self, name: SnapshotName) -> bool:
        """Whether output is staged, or was withdrawn, and can be published."""

    def reach(self, name: SnapshotName) -> Reach | None:
        """The events that a published output holds; None if that was not recorded."""

    def claims(self) -> list[SnapshotName]:
        """The claims that have fenced the sink, as far as it remembers them; newest last."""

    def fence(self, claim: SnapshotName) -> None:
        """Fence off all earlier claims; `SinkFenced` if a later one was here."""

    def attempts(self, nonce: str) -> str:
        """The directory that the tasks of an attempt write to."""

    def stage(self, nonce: str, output: Output, reach: Reach) -> None:
        """Take over the files of an epoch from its tasks, durably; nobody sees them yet."""

    def drop(self, nonce: str) -> None:
        """Remove the files of an attempt that will not be committed."""

    def publish(self, name: SnapshotName, kinds: Collection[str]) -> list[str]:
        """Make the output of a committed epoch visible, once; the kinds that are nowhere."""

    def withdraw(self, name: SnapshotName) -> None:
        """Make output invisible, and keep it: the stream may be rolled forward again."""

    def clear(self, newest: SnapshotName | None) -> None:
        """Clear away what earlier claims staged, but keep the output of the newest epoch."""

    def status(self, name: SnapshotName, kind: str, file: File, *, read: bool = False) -> str:
        """The status of a file: `published`, `pending`, or what is wrong with it."""

    def settled(self) -> Settled | None:
        """What was settled last; None if that is not known."""

    def settle(self, settled: Settled) -> None:
        """Remember what is published now."""

    def garbage(
        self, limit_ns: float, is_needed: Callable[[int], bool], *, is_running: bool
    ) -> OutputGarbage:
        """What may be removed; files of attempts only if they are older than the limit."""

    def remove(self, garbage: OutputGarbage) -> None:
        """Remove it."""
