"""What a source is, and how far an epoch reads: the protocol, opening one by URI, and planning.

A source holds records in partitions of topics, each at an offset that never changes. The job plans
`[start, end)` for each partition, and reads exactly that.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib import import_module
from typing import Any, Protocol

from sluicegate.errors import NotFound, UsageError
from sluicegate.positions import Positions
from sluicegate.units import command

SOURCES = {"file": "sluicegate.sources.log.log:open_log"}
"""Scheme → function that opens a source, from its URI and the identity that a stream began with."""


class OutOfRange(NotFound):
    """Records that a source does not hold: trimmed away, or not written yet."""

    default_hint = "show the offsets it holds with: sluicegate offsets lag STREAM"


@dataclass(frozen=True, slots=True)
class Slice:
    """A range of one partition: one task reads it, in order."""

    topic: str
    partition: int
    start: int
    end: int


@dataclass(frozen=True, slots=True)
class Chunk:
    """Records `first` to `first + count - 1` of a partition: complete lines with newlines."""

    partition: int
    first: int
    count: int
    data: bytes


@dataclass(frozen=True, slots=True)
class Reached:
    """A slice that was read: from where to the position that the reader has reached.

    `fingerprint` is a digest of the last record. Offsets need not be dense, so the position is the
    reader's own, not that of the last record.
    """

    topic: str
    partition: int
    start: int
    end: int
    fingerprint: str


@dataclass(frozen=True, slots=True)
class Rows:
    """Records that are columns already: an Arrow table, each row with its place."""

    table: Any


Reader = Callable[[Iterator[Any]], Iterator[Chunk | Rows | Reached]]
"""How a task reads records from the Arrow batches of a frame; each slice is reported when read."""


@dataclass(frozen=True, slots=True)
class Scan:
    """A Spark frame, how a task reads records from its batches, and the slices it will report."""

    frame: Any
    read: Reader
    slices: tuple[Slice, ...]


class Source(Protocol):
    """Where the events of a stream come from."""

    @property
    def uri(self) -> str:
        """Where it is."""

    @property
    def dense(self) -> bool:
        """Whether there is a record at every offset, so that distances are counts."""

    def identity(self) -> Mapping[str, str]:
        """Which topics it holds; another identity means other records under the same offsets."""

    def earliest(self) -> Positions:
        """The offset of the oldest record of each partition, or of the first to come."""

    def latest(self) -> Positions:
        """The offset that the next record of each partition gets."""

    def scan(self, spark: Any, slices: Sequence[Slice]) -> Scan:
        """Read slices in Spark: each is reported once, when all of it was read."""

    def fingerprint(self, topic: str, partition: int, end: int) -> str | None:
        """A digest of the last record before an offset; None if it is no longer held."""

    def sync(self, end: Positions) -> None:
        """Make what was read durable: its writer may have died before."""


_BROKER, _QUERY = "kafka://", "query:"
BATCH = "batch"
"""The topic of a stream that a query drives: its positions are numbers of batches."""
_START = "start inside that range, or omit the offsets to start at its beginning"


class BrokerNeeded(UsageError):
    """The offsets are known only to a broker, which is not queried here."""

    default_hint = "query the broker, and pass its answer as a file"


def needs_broker(uri: str) -> bool:
    """Whether only somebody else knows what a source holds: Kafka's broker, or Spark."""
    return uri.lower().startswith(_BROKER) or is_query(uri)


def is_query(uri: str) -> bool:
    """Whether the user's own streaming query reads the source; its checkpoint is named then."""
    return uri.startswith(_QUERY)


def checkpoint_of(uri: str) -> str:
    """The checkpoint of the query that reads a source."""
    return uri.removeprefix(_QUERY)


def open_source(uri: str, identity: str | None = None) -> Source:
    """The source that a stream reads; refused if it is not the one that the stream began with."""
    scheme = "kafka" if needs_broker(uri) else "file"
    if is_query(uri):
        raise BrokerNeeded(
            f"only the streaming query of {checkpoint_of(uri)} knows its source",
            hint="look at its checkpoint with: " + command("offsets", "show", checkpoint_of(uri)),
        )
    if scheme not in SOURCES:
        raise BrokerNeeded(
            f"only the broker knows the offsets of {uri}; Sluicegate does not query it"
        )
    module, _, function = SOURCES[scheme].partition(":")
    found: Source = getattr(import_module(module), function)(uri, identity)
    return found


def source_range(uri: str, incarnation: str | None = None) -> tuple[Positions, Positions]:
    """The oldest offsets that a source holds, and the next that it will write."""
    source = open_source(uri, incarnation)
    return source.earliest(), source.latest()


def incarnation_of(uri: str) -> str | None:
    """Which log a source is; None if it is Kafka's."""
    if needs_broker(uri):
        return None
    [identity] = open_source(uri).identity().values()
    return identity


def refuse_outside(uri: str, positions: Positions, hint: str = _START) -> None:
    """Refuse positions that a log does not hold; those of Kafka are not checked.

    The end is allowed, too: it is the position of the next record.
    """
    if not needs_broker(uri):
        _refuse_outside(open_source(uri), positions, hint)


def _refuse_outside(source: Source, positions: Positions, hint: str) -> None:
    uri, earliest, latest = source.uri, source.earliest(), source.latest()
    for each in positions:
        low = earliest.get(each.topic, each.partition)
        high = latest.get(each.topic, each.partition)
        where = f"{each.topic}[{each.partition}]"
        if low is None or high is None:
            held = ", ".join(f"{p.topic}[{p.partition}]" for p in earliest)
            raise OutOfRange(f"{uri} has no {where}", hint=f"it has {held:.300}", place=uri)
        if not low <= each.offset <= high:
            raise OutOfRange(
                f"{where} cannot start at {each.offset}: {uri} holds {low} to {high}",
                hint=hint,
                place=uri,
            )


_MOVE = (
    "show the offsets with: sluicegate offsets lag STREAM; move the stream with: sluicegate "
    "offsets reset STREAM"
)


def complete(source: Source, given: Positions) -> Positions:
    """Positions for every partition of a source; `OutOfRange` where it does not hold one.

    Missing ones start at their beginning: a new partition has not been read.
    """
    _refuse_outside(source, given, _MOVE)
    return source.earliest().updated(given)


def admitted(begin: Positions, end: Positions, most: int | None) -> Positions:
    """The end of a batch with a limit: every partition gets its share."""
    waiting = {
        (p.topic, p.partition): max(0, p.offset - (begin.get(p.topic, p.partition) or 0))
        for p in end
    }
    if most is None or sum(waiting.values()) <= most:
        return begin.updated(end)
    # Partitions take turns if there is not one event for each: the turn depends on the offsets.
    turn = sum(each.offset for each in begin)
    shares = dict(zip(waiting, _shares(list(waiting.values()), most, turn), strict=True))
    return Positions(
        {
            topic: {p: at + shares.get((topic, p), 0) for p, at in partitions.items()}
            for topic, partitions in begin.by_topic.items()
        }
    )


def adopted(begin: Positions, end: Positions, adopting: Positions) -> Positions:
    """The end of what may be read: first only the events whose output is adopted."""
    if not adopting:
        return end
    if not end.covers(adopting):
        lost = next(p for p in adopting if (end.get(p.topic, p.partition) or 0) < p.offset)
        raise OutOfRange(
            f"{lost.topic}[{lost.partition}] ends at {end.get(lost.topic, lost.partition) or 0}, "
            f"but events up to {lost.offset} were published: the source has lost records",
            hint="restore the source, or withdraw that output with: sluicegate checkpoint rollback",
        )
    return begin.highest(adopting)


def _shares(counts: Sequence[int], most: int, turn: int) -> list[int]:
    """Integers up to `counts` that sum up to `most`; the counts themselves sum up to more.

    First one for each, so that none waits for ever behind larger ones, then in proportion. If there
    is not one for each, they take turns.
    """
    shares = [0] * len(counts)
    some = [number for number, count in enumerate(counts) if count]
    for at in range(min(most, len(some))):
        shares[some[(turn + at) % len(some)]] = 1
    if most <= len(some):
        return shares
    left, total = most - len(some), sum(counts) - len(some)
    exact = {number: (counts[number] - 1) * left for number in some}
    for number in some:
        shares[number] += exact[number] // total
    by_rest = sorted(some, key=lambda number: -(exact[number] % total))
    for number in by_rest[: most - sum(shares)]:
        shares[number] += 1
    return shares
