"""A log as its readers see it: partitions of records, and the log as the source of a stream.

Readers take no lock and see complete records only: bytes behind the last newline are a record that
is being written, or that a dead writer did not finish.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Self

from sluicegate.errors import NotFound, UsageError
from sluicegate.positions import Positions
from sluicegate.sources.log import layout
from sluicegate.sources.log.layout import LogDamaged, LogReplaced, OutOfRange, Piece, Segment
from sluicegate.storage import LocalStorage, local_root
from sluicegate.storage.local import Calls

_ATTEMPTS = 5


class Log:
    """One embedded log; get it from `open` or `create`. Cheap to open, nothing to close."""

    def __init__(self, storage: LocalStorage, identity: layout.Identity) -> None:
        self._storage = storage
        self._identity = identity
        self._durable: dict[int, int] = {}

    @classmethod
    def open(cls, uri: str, *, calls: Calls | None = None) -> Self:
        """The log at a URI; `NotFound` if there is none, `Corrupt` if it is damaged."""
        storage = LocalStorage(_root(uri), calls=calls)
        return cls(storage, layout.read_marker(storage))

    @classmethod
    def create(
        cls,
        uri: str,
        partitions: int | None = None,
        topic: str | None = None,
        *,
        calls: Calls | None = None,
    ) -> Self:
        """Make a log durably, or open the one that is there; `UsageError` if that does not fit.

        By default a new log has one partition, and the name of its directory as its topic.
        """
        root = _root(uri)
        layout.check_shape(topic or root.name, 1 if partitions is None else partitions)
        storage = LocalStorage.create(root, calls=calls)
        if storage.stat(layout.MARKER.name) is None:
            layout.refuse_foreign(storage)
            count = partitions or 1
            for partition in range(count):
                storage.put_if_absent(layout.segment_key(partition, 0), b"")
            # Last: the partitions that it counts must exist.
            layout.MARKER.create(storage, more={"topic": topic or root.name, "partitions": count})
        log = cls.open(uri, calls=calls)
        return log.fitting(partitions, topic)

    @property
    def uri(self) -> str:
        """Where it is: an absolute path."""
        return self._storage.uri

    @property
    def topic(self) -> str:
        """The name of its records in positions."""
        return self._identity.topic

    @property
    def incarnation(self) -> str:
        """A random id, made with the log: another one means other records under these offsets."""
        return self._identity.incarnation

    def fitting(self, partitions: int | None, topic: str | None) -> Self:
        """This log, if it is of that topic and has, or began with, so many partitions."""
        if topic not in (None, self.topic):
            raise UsageError(
                f"{self.uri} is the log of {self.topic!r}, not of {topic!r}",
                hint="give each log a directory of its own",
                place=self.uri,
            )
        have = len(self.partitions())
        if partitions not in (None, have, self._identity.partitions):
            raise UsageError(
                f"{self.uri} has {have} partitions, not {partitions}",
                hint="open it with the number it has; more are added with add_partitions",
                place=self.uri,
            )
        return self

    def partitions(self) -> list[int]:
        """The partitions it has now, ascending from 0; `LogReplaced` if it is another log now."""
        found = layout.read_marker(self._storage)
        if found.incarnation != self.incarnation:
            raise LogReplaced(
                f"{self.uri} was replaced: it is now {found.incarnation}, not {self.incarnation}",
                place=self.uri,
            )
        there = layout.list_partitions(self._storage)
        # One that is being added counts when it has its first segment.
        there = [p for p in there if p < found.partitions or self._bases_or_none(p)]
        count = max(found.partitions, there[-1] + 1 if there else 0)
        if missing := sorted(set(range(count)) - set(there)):
            place = f"{self.uri}/{layout.partition_name(missing[0])}"
            raise LogDamaged(f"{place} is missing", place=place)
        return there

    def add_partitions(self, total: int) -> None:
        """Make it have so many partitions, durably; those that are there stay."""
        layout.check_shape(self.topic, total)
        for partition in range(len(self.partitions()), total):
            self._storage.put_if_absent(layout.segment_key(partition, 0), b"")

    def earliest(self) -> Positions:
        """The offset of the oldest record of each partition, or of the first to come."""
        return Positions({self.topic: {p: self.bases(p)[0] for p in self.partitions()}})

    def latest(self) -> Positions:
        """The offset that the next record of each partition gets; complete records only."""
        return Positions({self.topic: {p: self.end(p) for p in self.partitions()}})

    def end(self, partition: int) -> int:
        """The offset that the next record of one partition gets."""
        for _ in range(_ATTEMPTS):
            base = self.bases(partition)[-1]
            try:
                with self._segment(partition, base) as segment:
                    return base + segment.count()
            except NotFound:
                # Writers began another segment, and this one was trimmed.
                continue
        raise self._missing(partition, base)

    def read(
        self, partition: int, start: int, end: int, max_bytes: int = 8 << 20
    ) -> Iterator[Piece]:
        """The records from `start` to before `end`, in pieces of complete lines, about that large.

        `OutOfRange`, before any piece, if the log does not hold all of them. `LogDamaged` when a
        segment does not hold the records between its name and that of the next one.
        """
        if not 0 <= start <= end or max_bytes < 1:
            raise UsageError(f"cannot read {start} to {end} in pieces of {max_bytes} bytes")
        bases = self.bases(partition)
        if start < bases[0]:
            raise self._trimmed(partition, start, bases[0])
        if end > bases[-1] and not self._reaches(partition, bases[-1], end):
            have = self.end(partition)
            if end > have:
                raise OutOfRange(
                    f"{self.topic}[{partition}] of {self.uri} ends at {have}; {end} was requested",
                    place=self.uri,
                )
            # Writers began another segment meanwhile.
            bases = self.bases(partition)
        return self._pieces(partition, bases, (start, end), max_bytes)

    def sync(self, end: Positions) -> None:
        """Make the records up to there durable: their writer may have died before its fsync."""
        for partition, offset in end.by_topic.get(self.topic, {}).items():
            done = self._durable.get(partition, 0)
            if offset <= done:
                continue
            have = self.end(partition)
            if offset > have:
                raise LogDamaged(
                    f"{self.topic}[{partition}] of {self.uri} ends at {have}; {offset} was read",
                    place=self.uri,
                )
            for base, until in _spans(self.bases(partition)):
                reaches = have if until is None else until
                if base < offset and reaches > done:
                    self._storage.sync(layout.segment_key(partition, base))
                    self._durable[partition] = reaches

    def trim(self, partition: int, before: int) -> int:
        """Remove the segments that hold only records before an offset; the newest stays.

        Durable, the oldest first, so that there is never a gap. Returns the offset of the oldest
        remaining record.
        """
        for base, until in _spans(self.bases(partition)):
            if until is None or until > before:
                break
            self._storage.delete(layout.segment_key(partition, base))
        return self.bases(partition)[0]

    def bases(self, partition: int) -> list[int]:
        """The first offset of each segment of a partition, ascending."""
        bases = self._bases_or_none(partition)
        if bases:
            return bases
        if partition not in self.partitions():
            raise NotFound(
                f"{self.uri} has no partition {partition}",
                hint=f"it has {len(self.partitions())}, counted from 0",
                place=self.uri,
            )
        place = f"{self.uri}/{layout.partition_name(partition)}"
        raise LogDamaged(f"{place} has lost its records: it has no segment", place=place)

    def _bases_or_none(self, partition: int) -> list[int] | None:
        try:
            return layout.list_segments(self._storage, partition)
        except NotFound:
            return None

    def _reaches(self, partition: int, base: int, end: int) -> bool:
        try:
            with self._segment(partition, base) as segment:
                return base + segment.count(up_to=end - base) >= end
        except NotFound:
            return False

    def _pieces(
        self, partition: int, bases: list[int], wanted: tuple[int, int], max_bytes: int
    ) -> Iterator[Piece]:
        start, end = wanted
        for base, until in _spans(bases):
            low, high = max(start, base), end if until is None else min(end, until)
            if low >= high:
                continue
            try:
                with self._segment(partition, base) as segment:
                    yield from segment.read(low, high, max_bytes, until)
            except NotFound as e:
                raise self._missing(partition, base) from e
            except LogDamaged:
                if bases[0] != (now := self.bases(partition)[0]):
                    # The list of segments was read while they were trimmed.
                    raise self._trimmed(partition, low, now) from None
                raise

    def _segment(self, partition: int, base: int) -> Segment:
        return Segment(self._storage, self.incarnation, partition, base)

    def _missing(self, partition: int, base: int) -> NotFound | LogDamaged:
        """The error for a missing segment: trimmed, or damaged."""
        now = self.bases(partition)[0]
        if base < now:
            return self._trimmed(partition, base, now)
        place = f"{self.uri}/{layout.segment_key(partition, base)}"
        return LogDamaged(f"{place} is missing", place=place)

    def _trimmed(self, partition: int, wanted: int, earliest: int) -> OutOfRange:
        return OutOfRange(
            f"{self.topic}[{partition}] of {self.uri} begins at {earliest}; {wanted} was "
            "requested, but is trimmed",
            place=self.uri,
        )


def _root(uri: str) -> Path:
    return local_root(uri).absolute()


def _spans(bases: list[int]) -> Iterator[tuple[int, int | None]]:
    """Each segment's first offset and that of the next, None for the newest."""
    return zip(bases, [*bases[1:], None], strict=True)


_BROKER = "kafka://"
_START = "start inside that range, or omit the offsets to start at its beginning"


class BrokerNeeded(UsageError):
    """The offsets are known only to a broker, which is not queried here."""

    default_hint = "query the broker, and pass its answer as a file"


def needs_broker(uri: str) -> bool:
    """Whether a source is Kafka's, where only the broker knows what it holds."""
    return uri.lower().startswith(_BROKER)


def open_source(uri: str, incarnation: str | None = None) -> Log:
    """The log that a stream reads; `LogReplaced` if it is not the incarnation it began with."""
    if needs_broker(uri):
        raise BrokerNeeded(
            f"only the broker knows the offsets of {uri}; Sluicegate does not query it"
        )
    log = Log.open(uri)
    if incarnation not in (None, log.incarnation):
        raise LogReplaced(
            f"{log.uri} was replaced since the stream began: it is now {log.incarnation}, "
            f"not {incarnation}",
            place=log.uri,
        )
    return log


def source_range(uri: str, incarnation: str | None = None) -> tuple[Positions, Positions]:
    """The oldest offsets that a source holds, and the next that it will write."""
    log = open_source(uri, incarnation)
    return log.earliest(), log.latest()


def incarnation_of(uri: str) -> str | None:
    """Which log a source is; None if it is Kafka's."""
    return None if needs_broker(uri) else Log.open(uri).incarnation


def refuse_outside(uri: str, positions: Positions, hint: str = _START) -> None:
    """Refuse positions that a log does not hold; those of Kafka are not checked.

    The end is allowed, too: it is the position of the next record.
    """
    if needs_broker(uri):
        return
    earliest, latest = source_range(uri)
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


def complete(log: Log, given: Positions) -> Positions:
    """Positions for every partition of a log; `OutOfRange` where one is not in the log.

    Missing ones start at their beginning: a new partition has not been read.
    """
    refuse_outside(log.uri, given, _MOVE)
    return log.earliest().updated(given)


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
