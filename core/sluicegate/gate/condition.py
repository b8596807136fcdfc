"""The condition of a stream: what is damaged, what is known of what is lost, and what is left."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from sluicegate.blobs import Ref
from sluicegate.chain.hint import Hint
from sluicegate.chain.link import Kind, Link
from sluicegate.errors import StorageFailed
from sluicegate.findings import Finding
from sluicegate.gate.evidence import Evidence
from sluicegate.gate.spans import Span, shown


@dataclass(frozen=True, slots=True)
class Damage:
    """Links that are not sound; `raw` is the digest of the bytes that are there, if any are."""

    first: int
    last: int
    what: str
    raw: str | None = None

    @property
    def shown(self) -> str:
        """The numbers, for people."""
        numbers = shown([(self.first, self.last)])
        return f"link {numbers}" if self.first == self.last else f"links {numbers}"


@dataclass(frozen=True, slots=True)
class Bad:
    """A blob that is not sound; `by_reading` if only its content tells."""

    ref: Ref
    what: str
    by_reading: bool = False
    unreadable: StorageFailed | None = None


@dataclass(slots=True)
class Peak:
    """The highest known of each number that never goes back along a chain."""

    number: int = -1
    generation: int = 0
    version: int = 0
    epoch: int = 0
    floor: int = 0
    created_at: float = 0.0

    def rise(self, known: Link | Hint) -> None:
        """Take in what a link, or a hint of one, says."""
        self.number = max(self.number, known.number)
        self.generation = max(self.generation, known.generation)
        self.version = max(self.version, known.version)
        self.epoch = max(self.epoch, known.epoch)
        self.floor = max(self.floor, known.floor)
        self.created_at = max(self.created_at, known.created_at)


@dataclass(slots=True)
class Survey:
    """What was found.

    `head` is the newest sound link, `base` the one to go on from: the newest that is whole, of
    those that belong to the stream. `newest` is the highest number ever used. `live` are the blobs
    that links lead to, `bad` those of them that are not sound, with the links they belong to.
    `obstacles` are findings that a person must deal with before anything is repaired.
    """

    evidence: Evidence
    head: Link | None = None
    base: Link | None = None
    newest: int = -1
    links: int = 0
    below_floor: int = 0
    damaged: list[Damage] = field(default_factory=list)
    disordered: list[int] = field(default_factory=list)
    unusable: list[int] = field(default_factory=list)
    live: set[Ref] = field(default_factory=set)
    bad: dict[Ref, tuple[Bad, list[int]]] = field(default_factory=dict)
    given_up: list[Span] = field(default_factory=list)
    expected: dict[int, str] = field(default_factory=dict)
    peak: Peak = field(default_factory=Peak)
    findings: list[Finding] = field(default_factory=list)
    obstacles: list[Finding] = field(default_factory=list)

    @property
    def floor(self) -> int:
        """The lowest number that must be there, as far as is known."""
        return self.peak.floor

    @property
    def last(self) -> Link | Hint | None:
        """What is known of the newest number."""
        known: Iterable[Link | Hint | None] = (self.head, *self.evidence.hints)
        return next((each for each in known if each and each.number == self.newest), None)


def given_up_by(link: Link, *names: str) -> Iterator[Span]:
    """The links that a repair says are `damaged` (or lost), `unusable`, or either."""
    if link.kind is not Kind.REPAIR:
        return
    for name in names or ("damaged", "unusable"):
        listed = link.details.get(name)
        for span in listed if isinstance(listed, list) else ():
            match span:
                case [int(first), int(last), *_]:
                    yield first, min(last, link.number - 1)
