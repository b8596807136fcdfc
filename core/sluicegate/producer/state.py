"""The state of a producer, its directory, and the claim that fences older instances.

Fields of the body, version 1:

    producer_id   text
    epoch         of the instance that wrote it
    window        for how many sequences `was_issued` is exact, per partition
    partitions    three columns: partition, next sequence, end of the reserved range
    gaps          three columns: partition, first, end: skipped sequences inside the window
    acknowledged  three columns: partition, first, end: of messages that are in the segments
    segments      three columns: epoch, number, durable length
    growing       whether the last segment may hold more than that

Only segments named here count, and of those that do not grow only so many bytes.

    sluicegate.producer                       the marker
    producer.lock                             held by the instance that is open
    <epoch>.claim                             the newest instance; made exclusively, never changed
    <epoch>.state                             its state; of several the one of the highest epoch
    <epoch>-<number>.outbox                   its segments, and those it inherited
    <name>.outbox.damaged                     a file that salvage set aside

Each instance writes only to files that carry its own epoch, so one that lost its lock cannot
overwrite anything of a newer one. It finds out because the newer one removes its claim *before* it
reads states and segments, and because it checks its claim *after* each write and before it hands
out a stamp: whichever comes first, the other one sees it.
"""

from __future__ import annotations

import os
import re
import time
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from sluicegate import codec
from sluicegate.dedup.stamp import MAX_PARTITION, MAX_SEQUENCE, Stamp
from sluicegate.errors import Corrupt, Fenced, NotFound, SluicegateError, UsageError
from sluicegate.identity import Marker
from sluicegate.process import Who, myself
from sluicegate.storage import Storage

FORMAT = codec.Format("producer", version=1, max_body=64 * 1024 * 1024)
END = MAX_SEQUENCE + 1
"""The next sequence of a partition when all are used up."""
_LARGEST = 2**63


class Ranges:
    """A set of numbers as sorted disjoint half-open ranges, changed one range at a time.

    Unlike `dedup.intervals`, which is for millions in one go and loads numpy, this is for the few
    ranges of one producer, with a change for every message.
    """

    __slots__ = ("_ends", "_starts")

    def __init__(self) -> None:
        self._starts: list[int] = []
        self._ends: list[int] = []

    def __contains__(self, number: int) -> bool:
        at = bisect_right(self._starts, number) - 1
        return at >= 0 and number < self._ends[at]

    def __iter__(self) -> Iterator[tuple[int, int]]:
        return iter(list(zip(self._starts, self._ends, strict=True)))

    def add(self, first: int, end: int) -> None:
        """Add the numbers from `first` to before `end`."""
        if first >= end:
            return
        low, high = bisect_left(self._ends, first), bisect_right(self._starts, end)
        if low < high:
            first, end = min(first, self._starts[low]), max(end, self._ends[high - 1])
        self._starts[low:high], self._ends[low:high] = [first], [end]

    def remove(self, first: int, end: int) -> None:
        """Remove the numbers from `first` to before `end`."""
        low, high = bisect_right(self._ends, first), bisect_left(self._starts, end)
        if low >= high or first >= end:
            return
        rest = [(self._starts[low], first), (end, self._ends[high - 1])]
        rest = [(start, stop) for start, stop in rest if start < stop]
        self._starts[low:high] = [start for start, _ in rest]
        self._ends[low:high] = [stop for _, stop in rest]


@dataclass(slots=True)
class Counter:
    """One partition: the next sequence, how far sequences are durably reserved, and exceptions.

    `gaps` were skipped and never issued; `acknowledged` are those the log is known to hold.
    """

    next: int = 0
    reserved: int = 0
    gaps: Ranges = field(default_factory=Ranges)
    acknowledged: Ranges = field(default_factory=Ranges)

    def skip_to(self, sequence: int) -> None:
        """Continue there; the sequences in between are never issued."""
        if sequence > self.next:
            self.gaps.add(self.next, sequence)
            self.next = sequence


@dataclass(frozen=True, slots=True, order=True)
class Declared:
    """A segment of the outbox, and how many of its bytes were durable."""

    epoch: int
    number: int
    length: int


@dataclass(slots=True)
class State:
    """Everything a producer must not forget."""

    producer_id: str
    epoch: int
    window: int
    counters: dict[int, Counter] = field(default_factory=dict)
    segments: list[Declared] = field(default_factory=list)
    growing: bool = False

    def encode(self, reserve: Mapping[int, int]) -> bytes:
        """The file, with the ends of ranges to reserve; a range never ends below the next."""
        order = sorted(self.counters)
        counters = [self.counters[each] for each in order]
        ends = [
            max(each.reserved, each.next, reserve.get(partition, 0))
            for partition, each in zip(order, counters, strict=True)
        ]
        for each in counters:
            each.gaps.remove(0, max(0, each.next - self.window))
        segments = [[each.epoch, each.number, each.length] for each in self.segments]
        return codec.encode(
            FORMAT,
            {
                "producer_id": self.producer_id,
                "epoch": self.epoch,
                "window": self.window,
                "partitions": [order, [each.next for each in counters], ends],
                "gaps": self._ranges(lambda each: each.gaps),
                "acknowledged": self._ranges(lambda each: each.acknowledged),
                "segments": _columns(segments),
                "growing": self.growing,
            },
        )

    def _ranges(self, chosen: Callable[[Counter], Ranges]) -> list[list[int]]:
        rows = [
            [partition, first, end]
            for partition in sorted(self.counters)
            for first, end in chosen(self.counters[partition])
        ]
        return _columns(rows)


def decode(data: bytes, place: str) -> State:
    """The state in a file, or `Corrupt`."""
    fields = codec.decode(FORMAT, data, place)
    try:
        return _state(fields)
    except (AttributeError, KeyError, TypeError, ValueError, UsageError) as e:
        raise Corrupt(f"{place}: not a producer's state: {e!r}", place=place) from e


def _state(fields: Any) -> State:
    producer_id = fields["producer_id"]
    if not isinstance(producer_id, str):
        raise TypeError("the producer's name is not a text")
    Stamp(producer_id, 0, 0).checked()
    state = State(producer_id, _integer(fields["epoch"]), _integer(fields["window"]))
    for partition, sequence, end in _rows(fields["partitions"]):
        if partition > MAX_PARTITION or partition in state.counters or sequence > end:
            raise ValueError(f"partition {partition} cannot be at {sequence} of {end}")
        state.counters[partition] = Counter(sequence, end)
    for partition, first, end in _rows(fields["gaps"]):
        state.counters[partition].gaps.add(first, end)
    for partition, first, end in _rows(fields["acknowledged"]):
        state.counters[partition].acknowledged.add(first, end)
    state.segments = [Declared(*row) for row in _rows(fields["segments"])]
    if sorted(set(state.segments)) != state.segments:
        raise ValueError("the segments are not in order")
    state.growing = fields["growing"] is True
    return state


def _columns(rows: list[list[int]]) -> list[list[int]]:
    """Rows of three as three lists: long lists of one kind are cheap to write."""
    return [[row[index] for row in rows] for index in range(3)]


def _rows(columns: Any) -> list[tuple[int, int, int]]:
    one, two, three = columns
    return [
        (_integer(a), _integer(b), _integer(c)) for a, b, c in zip(one, two, three, strict=True)
    ]


def _integer(value: Any) -> int:
    if type(value) is not int or not 0 <= value <= _LARGEST:
        raise TypeError(f"{value!r} is not an integer")
    return value


MAKE = "IdempotentProducer.create(DIRECTORY, PRODUCER_ID)"
MARKER = Marker("sluicegate.producer", "prodmark", "a producer")
LOCK = "producer.lock"
CLAIM = codec.Format("claim", version=1, max_body=65536)
_NAME = re.compile(r"(\d{20})(?:-(\d{8}))?\.(claim|state|outbox)")
_ATTEMPTS = 10


class ProducerFenced(Fenced):
    """A newer instance of the producer was opened, so this one may never issue again."""

    default_hint = "close it; its unsent messages are in pending() of the newer instance"


class StateDamaged(Corrupt):
    """The state of a producer is damaged or missing, so the issued stamps are not known."""

    default_hint = (
        "restore the directory from a backup and open it with in_log=, so that it continues after "
        "the last sequence in the log; or create a producer with another id in another directory"
    )


def state_name(epoch: int) -> str:
    """The state file of an instance."""
    return f"{epoch:020d}.state"


def segment_name(epoch: int, number: int) -> str:
    """A segment of the outbox."""
    return f"{epoch:020d}-{number:08d}.outbox"


def _claim_name(epoch: int) -> str:
    return f"{epoch:020d}.claim"


@dataclass(slots=True)
class Files:
    """The files of a producer's directory, by epoch."""

    claims: list[int] = field(default_factory=list)
    states: list[int] = field(default_factory=list)
    segments: list[tuple[int, int]] = field(default_factory=list)
    others: list[str] = field(default_factory=list)

    @property
    def newest(self) -> int:
        """The highest epoch of any file."""
        return max(*self.claims, *self.states, *(epoch for epoch, _ in self.segments), 0, 0)


def look(storage: Storage) -> Files:
    """The files of a producer, ascending."""
    files = Files()
    for entry in storage.list():
        match = _NAME.fullmatch(entry.name)
        if match is None:
            files.others.append(entry.name)
            continue
        epoch, number, kind = int(match[1]), match[2], match[3]
        if kind == "outbox" and number:
            files.segments.append((epoch, int(number)))
        elif kind in ("claim", "state") and not number:
            (files.claims if kind == "claim" else files.states).append(epoch)
        else:
            files.others.append(entry.name)
    return files


def read_newest(storage: Storage) -> State:
    """The state of the newest instance; never that of an older one in its place."""
    states = look(storage).states
    if not states:
        raise StateDamaged(f"{storage.uri} has no state of its producer", place=storage.uri)
    name = state_name(states[-1])
    place = f"{storage.uri}/{name}"
    try:
        data = storage.get(name, limit=FORMAT.max_frame)
        state = decode(data, place)
    except Corrupt as e:
        raise StateDamaged(e.message, place=place) from e
    if state.epoch != states[-1]:
        raise StateDamaged(f"{place} is the state of epoch {state.epoch}", place=place)
    return state


def create_files(storage: Storage, first: State) -> None:
    """Make a directory a producer's, or check that it is this one's; the caller holds the lock."""
    if storage.stat(MARKER.name) is not None:
        MARKER.read(storage, make=MAKE)
        there = read_newest(storage).producer_id
        if there != first.producer_id:
            raise UsageError(
                f"{storage.uri} belongs to another producer, {there!a:.80}",
                hint="give each producer a directory of its own",
            )
        return
    files = look(storage)
    if files.newest or set(files.others) - {LOCK}:
        # Also a producer whose marker got lost: a new start would issue its stamps again.
        raise UsageError(
            f"{storage.uri} is not a producer, and not empty",
            hint="name a new directory, or restore the marker of the producer that was there",
        )
    storage.replace(state_name(0), first.encode({}))
    MARKER.create(storage)


class Claim:
    """The right of one instance to issue, which lasts until a newer one takes it."""

    def __init__(self, storage: Storage, epoch: int, data: bytes) -> None:
        self.epoch = epoch
        self._storage = storage
        self._data = data
        self._pid = os.getpid()
        self._lost: str | None = None

    @classmethod
    def take(cls, storage: Storage) -> Claim:
        """Claim a new epoch durably, and remove the claims of all older instances.

        An epoch is the time in milliseconds, or one more than the highest there is: an instance
        that outlives the restore of a backup must not share its epoch with the next one.
        """
        for _ in range(_ATTEMPTS):
            now = time.time()
            epoch = max(look(storage).newest + 1, int(now * 1000))
            fields = {"by": myself().fields(), "at": now, "nonce": os.urandom(16)}
            data = codec.encode(CLAIM, fields)
            if storage.put_if_absent(_claim_name(epoch), data):
                for older in look(storage).claims:
                    if older < epoch:
                        storage.delete(_claim_name(older))
                return cls(storage, epoch, data)
        raise ProducerFenced(
            f"{storage.uri}: other instances keep opening this producer",
            hint="stop the others; the lock file must be on a file system that all of them share",
            place=storage.uri,
        )

    def check(self) -> None:
        """Raise `ProducerFenced` if the claim was lost; once lost, it is lost for good."""
        if self._lost is None:
            self._lost = self._look()
        if self._lost is not None:
            place = self._storage.uri
            message = f"the producer in {place}, epoch {self.epoch}, is fenced: {self._lost}"
            raise ProducerFenced(message, place=place)

    def lose(self, why: str) -> None:
        """Mark it as lost: the files that it protects belong to another instance."""
        self._lost = self._lost or why

    def _look(self) -> str | None:
        if os.getpid() != self._pid:
            # The lock stayed with the parent, and both would issue the same sequences.
            return "it was opened by the process this one was forked from"
        try:
            found = self._storage.get(_claim_name(self.epoch), limit=CLAIM.max_frame)
        except NotFound:
            return self._successor()
        return None if found == self._data else "its claim was replaced"

    def _successor(self) -> str:
        """The owner of the newer claim, as far as that is known."""
        newer = [epoch for epoch in look(self._storage).claims if epoch > self.epoch]
        if not newer:
            return "its claim is missing, as after the restore of a backup"
        place = f"{self._storage.uri}/{_claim_name(newer[-1])}"
        try:
            data = self._storage.get(_claim_name(newer[-1]), limit=CLAIM.max_frame)
            who = Who.from_fields(codec.decode(CLAIM, data, place)["by"])
        except (SluicegateError, KeyError, TypeError):
            # For the message only: the newer claim itself is enough.
            who = None
        return f"epoch {newer[-1]} was opened by {who or 'another process'}"
