"""A log as its readers see it: partitions of records; a `Source` of streams.

Readers take no lock and see complete records only: bytes behind the last newline are a record that
is being written, or that a dead writer did not finish.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from pathlib import Path
from typing import Any, Self

from sluicegate.errors import NotFound, UsageError
from sluicegate.positions import Positions
from sluicegate.sources.base import Chunk, OutOfRange, Reached, Scan, Slice
from sluicegate.sources.log import layout
from sluicegate.sources.log.layout import LogDamaged, LogReplaced, Piece, Segment
from sluicegate.storage import LocalStorage, local_root
from sluicegate.storage.local import Calls

_ATTEMPTS = 5


class Log:
    """One embedded log; get it from `open` or `create`. Cheap to open, nothing to close."""

    dense = True

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

    def identity(self) -> Mapping[str, str]:
        """Its topic, and which log of that name it is."""
        return {self.topic: self.incarnation}

    def scan(self, spark: Any, slices: Sequence[Slice]) -> Scan:
        """One task for each slice, which gets its number and reads it in place."""
        count = len(slices)
        reader = LogReader(self.uri, tuple(slices))
        return Scan(spark.range(0, count, 1, count), reader, tuple(slices))

    def fingerprint(self, topic: str, partition: int, end: int) -> str | None:
        """A digest of the record before an offset; None if the log no longer holds it."""
        if topic != self.topic or end <= self.bases(partition)[0]:
            return None
        [piece] = self.read(partition, end - 1, end)
        return fingerprint(piece.data)

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


@dataclass(frozen=True, slots=True)
class LogReader:
    """Reads slices in Spark's tasks, which get their numbers."""

    uri: str
    slices: tuple[Slice, ...]

    def __call__(self, batches: Iterator[Any]) -> Iterator[Chunk | Reached]:
        log = Log.open(self.uri)
        for batch in batches:
            for number in batch.column(0).to_pylist():
                yield from _read(log, self.slices[number])


def _read(log: Log, wanted: Slice) -> Iterator[Chunk | Reached]:
    at, last = wanted.start, b""
    for piece in log.read(wanted.partition, wanted.start, wanted.end):
        yield Chunk(wanted.partition, piece.first, piece.count, piece.data)
        at, last = piece.first + piece.count, piece.data
    yield Reached(wanted.topic, wanted.partition, wanted.start, at, fingerprint(last))


def fingerprint(lines: bytes) -> str:
    """A digest of the last of some complete lines."""
    start = lines.rfind(b"\n", 0, len(lines) - 1) + 1
    return blake2b(lines[start:], digest_size=8).hexdigest()


def open_log(uri: str, identity: str | None) -> Log:
    """The log at a URI; `LogReplaced` if it is not the incarnation that a stream began with."""
    log = Log.open(uri)
    if identity not in (None, log.incarnation):
        raise LogReplaced(
            f"{log.uri} was replaced since the stream began: it is now {log.incarnation}, "
            f"not {identity}",
            place=log.uri,
        )
    return log


def _root(uri: str) -> Path:
    return local_root(uri).absolute()


def _spans(bases: list[int]) -> Iterator[tuple[int, int | None]]:
    """Each segment's first offset and that of the next, None for the newest."""
    return zip(bases, [*bases[1:], None], strict=True)
