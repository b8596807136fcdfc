"""A producer whose messages carry stamps that never repeat, even if it is killed.

Correctness depends on the order of the durable steps. A segment is made before the state that
declares it, and that state is written before anything is appended; a range is reserved before a
sequence of it is used; a state without a segment is written before the segment is deleted. The
claim is checked after each of these writes.

Before `issue` returns a stamp, stamp and payload are durably in the outbox, inside a range of
sequences that was durably reserved before. So after a crash `pending` gives the messages that must
be sent again, with the same stamps, and new messages get sequences that were never handed out. Send
only messages from `issue` or `pending`; a message whose `issue` was interrupted may be pending or
not, so check `pending` before issuing it again.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack, contextmanager, suppress
from dataclasses import dataclass
from os import PathLike, fspath
from pathlib import Path
from threading import RLock
from types import MappingProxyType, TracebackType
from typing import Self

from sluicegate.dedup.stamp import Stamp, StampInvalid
from sluicegate.errors import Corrupt, NotFound, SluicegateError, StorageFailed, UsageError
from sluicegate.locks import FileLock
from sluicegate.producer.outbox import MAX_GROUP, Found, Key, Messages, Outbox, group_size
from sluicegate.producer.state import (
    END,
    LOCK,
    MAKE,
    MARKER,
    Claim,
    Counter,
    ProducerFenced,
    State,
    create_files,
    look,
    read_newest,
    segment_name,
    state_name,
)
from sluicegate.storage import LocalStorage, local_root
from sluicegate.storage.local import Calls

LogHolds = Mapping[int, int | Iterable[int]]
"""Per partition the sequences of a producer in a log: the highest one, or all of them."""


@dataclass(frozen=True, slots=True)
class Present:
    """The sequences of one partition that a log is known to hold, and the highest (-1 for none)."""

    sequences: Collection[int]
    highest: int

    def ranges(self) -> Iterator[tuple[int, int]]:
        """The same as half-open ranges."""
        if isinstance(self.sequences, range) and self.sequences.step == 1:
            yield self.sequences.start, self.sequences.stop
        else:
            yield from ((each, each + 1) for each in self.sequences)


def present(partition: int, held: int | Iterable[int]) -> Present:
    """The sequences of a partition that a log holds, or `StampInvalid`."""
    if isinstance(held, int):
        _check(partition, held)
        return Present((held,), held)
    sequences: Collection[int]
    if isinstance(held, range) and held.step == 1:
        # Not checked one by one: a log may hold billions.
        sequences, ends = held, [held[0], held[-1]] if held else []
    else:
        try:
            sequences = frozenset(held)
        except TypeError as e:
            raise StampInvalid(f"{held!a:.80} are not sequences") from e
        ends = list(sequences)
    for each in ends:
        _check(partition, each)
    _check(partition, 0)
    return Present(sequences, max(ends, default=-1))


def check_own(stamp: Stamp, producer_id: str) -> None:
    """Refuse a value that is not a stamp of this producer."""
    if not isinstance(stamp, Stamp) or not isinstance(stamp.producer_id, str):
        raise StampInvalid(f"{stamp!a:.80} is not a stamp")
    _check(stamp.partition, stamp.sequence, stamp.producer_id)
    if stamp.producer_id != producer_id:
        raise UsageError(
            f"the stamp is of another producer, {stamp.producer_id!a:.80}",
            hint=f"this one is {producer_id!a:.80}",
        )


def check_messages(messages: Iterable[tuple[int, bytes]]) -> list[tuple[int, bytes]]:
    """The messages as a list, or `UsageError` for invalid ones."""
    wanted = []
    for partition, payload in messages:
        if not isinstance(payload, bytes | bytearray | memoryview):
            raise UsageError(f"a payload is {type(payload).__name__}", hint="give it as bytes")
        # Copied: a later change of the caller's buffer must not change the message.
        wanted.append((partition, bytes(payload)))
    for partition in {partition for partition, _ in wanted}:
        _check(partition, 0)
    return wanted


def _check(partition: int, sequence: int, producer_id: str = "") -> None:
    if type(partition) is not int or type(sequence) is not int:
        raise StampInvalid(f"{partition!a:.40} and {sequence!a:.40} are not integers")
    Stamp(producer_id, partition, sequence).checked()


class SequencesExhausted(SluicegateError):
    """A partition of a producer has used up all 2^63 sequences."""

    default_hint = "send under another producer id, or on another partition"


@dataclass(frozen=True, slots=True)
class Options:
    """Settings of an instance.

    It reserves `reserve` sequences at a time, begins a new segment of its outbox after
    `segment_bytes`, waits `timeout` seconds for the lock, and with `salvage` continues with the
    readable messages of a damaged outbox.
    """

    reserve: int = 1024
    segment_bytes: int = 8 * 1024 * 1024
    timeout: float = 0.0
    salvage: bool = False

    def __post_init__(self) -> None:
        if self.reserve < 1 or not 1 <= self.segment_bytes <= MAX_GROUP:
            raise UsageError(f"{self} cannot be: reserve at least 1, segments up to {MAX_GROUP}")


class Instance:
    """The durable steps of a producer; the caller holds the lock, for one thread at a time."""

    def __init__(self, storage: LocalStorage, calls: Calls, options: Options) -> None:
        """Take over the directory, and fence older instances."""
        self._storage = storage
        self._options = options
        self._unsaved = 0
        # In this order: older instances that issue later find that their claim is gone.
        self.claim = Claim.take(storage)
        self.state = read_newest(storage)
        self.outbox = Outbox(storage, calls, self.claim.epoch, options.segment_bytes)
        self.found = self.outbox.load(self.state, rescue=options.salvage)
        self.state.epoch = self.claim.epoch
        self._continue_behind(self.found)
        self.save()
        self._tidy()

    @property
    def is_due(self) -> bool:
        """Whether acknowledgements are worth a durable state."""
        return self._unsaved >= self._options.reserve or bool(self.outbox.finished())

    def counter(self, partition: int) -> Counter:
        """The counter of a partition, made if it is new."""
        return self.state.counters.setdefault(partition, Counter())

    def next_sequence(self, partition: int) -> int:
        """The sequence that the next message of a partition gets."""
        counter = self.state.counters.get(partition)
        return counter.next if counter else 0

    def stamped(self, wanted: list[tuple[int, bytes]]) -> tuple[Messages, dict[int, int]]:
        """Messages with their sequences, and the next sequence of each partition."""
        ends: dict[int, int] = {}
        stamped: Messages = []
        for partition, payload in wanted:
            sequence = ends.get(partition)
            if sequence is None:
                sequence = self.next_sequence(partition)
            stamped.append((partition, sequence, payload))
            ends[partition] = sequence + 1
        spent = [partition for partition, end in ends.items() if end > END]
        if spent:
            raise SequencesExhausted(f"partition {spent[0]} has no sequence left up to 2^63-1")
        return stamped, ends

    def make_room(self, ends: Mapping[int, int], size: int) -> None:
        """Reserve sequences up to there and a place in the outbox; one durable state for both."""
        short = [p for p, end in ends.items() if end > self.counter(p).reserved]
        if not self.outbox.has_room(size):
            self.outbox.begin()
        elif not short:
            return
        try:
            self.save({p: min(ends[p] + self._options.reserve - 1, END) for p in short})
        except BaseException:
            # The next call must not find room in a segment that no state declares.
            self.outbox.close_segment()
            raise

    def append(self, stamped: Messages) -> None:
        """Put messages into the outbox, durably."""
        try:
            self.outbox.append(stamped)
        except NotFound:
            self.claim.lose("its outbox was replaced, as by the restore of a backup")
            self.claim.check()

    def drop(self, keys: Iterable[Key]) -> int:
        """Remove messages that the log holds from the outbox."""
        dropped = 0
        for key in keys:
            if self.outbox.drop(key):
                self.counter(key[0]).acknowledged.add(key[1], key[1] + 1)
                dropped += 1
        self._unsaved += dropped
        return dropped

    def drop_range(self, partition: int, first: int, end: int) -> int:
        """The same for consecutive messages of one partition."""
        if end - first > len(self.outbox):
            waiting = self.outbox.keys()
            return self.drop(k for k in waiting if k[0] == partition and first <= k[1] < end)
        keys = [(partition, sequence) for sequence in range(first, end)]
        if not all(map(self.outbox.__contains__, keys)):
            return self.drop(keys)
        for key in keys:
            self.outbox.drop(key)
        self.counter(partition).acknowledged.add(first, end)
        self._unsaved += len(keys)
        return len(keys)

    def save(self, reserve: Mapping[int, int] = MappingProxyType({})) -> None:
        """Replace the durable state, then delete the segments that it no longer names."""
        state, finished = self.state, self.outbox.finished()
        state.segments, state.growing = self.outbox.declared(), self.outbox.growing
        self._storage.replace(state_name(state.epoch), state.encode(reserve))
        # A newer instance may have read the state before; then it does not know this one.
        self.claim.check()
        self._unsaved = 0
        for partition, counter in state.counters.items():
            counter.reserved = max(counter.reserved, counter.next, reserve.get(partition, 0))
        for segment in finished:
            for partition, span in segment.spans.items():
                self.counter(partition).acknowledged.remove(*span)
        self.outbox.forget(finished)

    def _continue_behind(self, found: Found) -> None:
        for partition, highest in found.highest.items():
            counter = self.counter(partition)
            counter.next = max(counter.next, highest + 1)
        if found.doubtful:
            # Messages lost at the end may have been sent: their sequences are not used again.
            for counter in self.state.counters.values():
                counter.skip_to(counter.reserved)

    def _tidy(self) -> None:
        """Delete files of older instances that the durable state does not name."""
        files = look(self._storage)
        named = {(each.epoch, each.number) for each in self.state.segments}
        stale = [state_name(epoch) for epoch in files.states if epoch < self.claim.epoch]
        stale += [
            segment_name(*each)
            for each in files.segments
            if each[0] <= self.claim.epoch and each not in named
        ]
        for name in stale:
            # The next opening tries again.
            with suppress(StorageFailed):
                self._storage.delete(name)
        for entry in self._storage.list(temporary=True):
            # A process that writes here holds the lock, or is fenced and must not finish anyway.
            with suppress(OSError):
                Path(self._storage.uri, entry.name).unlink()


DEFAULT_WINDOW = 1024
DEFAULTS = Options()


@dataclass(frozen=True, slots=True)
class Message:
    """A message with its stamp."""

    stamp: Stamp
    payload: bytes


class IdempotentProducer:
    """The only open instance of a producer; get it from `create` or `open`, and close it.

    Threads may share it; forked children may not.
    """

    def __init__(self, instance: Instance) -> None:
        self._instance = instance
        self._mutex = RLock()
        self._held = ExitStack()
        self._closed = False

    @classmethod
    def create(
        cls,
        directory: str | PathLike[str],
        producer_id: str,
        options: Options = DEFAULTS,
        *,
        window: int = DEFAULT_WINDOW,
        calls: Calls | None = None,
    ) -> Self:
        """Make a producer, or open the one of this name that is there."""
        check_own(Stamp(producer_id, 0, 0), producer_id)
        if type(window) is not int or not 0 <= window < END:
            raise UsageError(f"{window!r} is not a size of a replay window")
        storage = LocalStorage.create(local_root(fspath(directory)), calls=calls)
        with _lock(storage, options):
            create_files(storage, State(producer_id, 0, window))
        return cls.open(directory, options, calls=calls)

    @classmethod
    def open(
        cls,
        directory: str | PathLike[str],
        options: Options = DEFAULTS,
        *,
        in_log: LogHolds | None = None,
        calls: Calls | None = None,
    ) -> Self:
        """The producer in a directory, as its only instance; reconciled with `in_log`.

        `NotFound` if there is none, `Locked` if another instance is open. After the restore of a
        backup `in_log` is necessary: nothing else shows what was issued since.
        """
        calls = calls or Calls()
        storage = LocalStorage(local_root(fspath(directory)), calls=calls)
        MARKER.read(storage, make=MAKE)
        with ExitStack() as stack:
            stack.enter_context(_lock(storage, options))
            producer = cls(Instance(storage, calls, options))
            if in_log is not None:
                producer.reconcile(in_log)
            producer._held = stack.pop_all()
        return producer

    @property
    def producer_id(self) -> str:
        """The name in every stamp."""
        return self._instance.state.producer_id

    @property
    def epoch(self) -> int:
        """The number of this instance; higher than that of every older one."""
        return self._instance.claim.epoch

    def next_sequence(self, partition: int) -> int:
        """The sequence that the next message of a partition gets."""
        return self._instance.next_sequence(partition)

    @property
    def found(self) -> Found:
        """The result of reading the outbox: bytes that were cut off, files that were salvaged."""
        return self._instance.found

    def issue(self, partition: int, payload: bytes) -> Stamp:
        """Stamp one message, durably; see `issue_many` for many at the cost of one."""
        return self.issue_many([(partition, payload)])[0]

    def issue_many(self, messages: Iterable[tuple[int, bytes]]) -> list[Stamp]:
        """Stamp messages, in order, durably, and all or none of them, for one fsync.

        If it raises, they may or may not have been issued; those that were are `pending` after
        the next opening, and their sequences are not used for others.
        """
        wanted = check_messages(messages)
        if not wanted:
            return []
        size = group_size(payload for _, payload in wanted)
        if size > MAX_GROUP:
            hint = "issue fewer or smaller messages at a time"
            raise UsageError(f"{size} bytes are over the {MAX_GROUP} of one call", hint=hint)
        with self._working():
            stamped, ends = self._instance.stamped(wanted)
            self._instance.make_room(ends, size)
            self._instance.append(stamped)
            for partition, end in ends.items():
                self._instance.state.counters[partition].next = end
            # A newer instance that did not see these messages has taken our claim by now.
            self._instance.claim.check()
        return [Stamp(self.producer_id, partition, sequence) for partition, sequence, _ in stamped]

    def acknowledge(self, stamps: Stamp | Iterable[Stamp]) -> int:
        """Record that the log durably holds these messages; returns how many were pending.

        This becomes durable with later work or `close`, because an acknowledgement that is lost
        only costs one more sending of the message, with the same stamp.
        """
        chosen = [stamps] if isinstance(stamps, Stamp) else list(stamps)
        with self._working():
            for stamp in chosen:
                check_own(stamp, self.producer_id)
                if stamp.sequence >= self.next_sequence(stamp.partition):
                    raise UsageError(
                        f"{stamp!s:.200} was never issued",
                        hint="acknowledge stamps that issue returned",
                    )
            dropped = self._instance.drop((stamp.partition, stamp.sequence) for stamp in chosen)
            if self._instance.is_due:
                self._instance.save()
        return dropped

    def acknowledge_range(self, partition: int, first: int, end: int) -> int:
        """Like `acknowledge` for the sequences from `first` to before `end`, for less."""
        if first >= end:
            return 0
        with self._working():
            for sequence in (first, end - 1):
                check_own(Stamp(self.producer_id, partition, sequence), self.producer_id)
            if end > self.next_sequence(partition):
                last = Stamp(self.producer_id, partition, end - 1)
                raise UsageError(
                    f"{last!s:.200} was never issued", hint="acknowledge stamps that issue returned"
                )
            dropped = self._instance.drop_range(partition, first, end)
            if self._instance.is_due:
                self._instance.save()
        return dropped

    def pending(self) -> Iterator[Message]:
        """The messages to send, again or for the first time, in the order of each partition."""
        with self._working():
            return self._messages(self._instance.outbox.keys())

    def pending_stamps(self) -> list[Stamp]:
        """The stamps of the messages to send, by partition and sequence."""
        with self._working():
            keys = self._instance.outbox.keys()
        return [Stamp(self.producer_id, *key) for key in keys]

    def _messages(self, keys: list[tuple[int, int]]) -> Iterator[Message]:
        try:
            for (partition, sequence), payload in self._instance.outbox.read(keys):
                yield Message(Stamp(self.producer_id, partition, sequence), payload)
        except Corrupt:
            # A newer instance deletes messages that the log has, which is no damage.
            self._instance.claim.check()
            raise

    def reissue(self, stamp: Stamp) -> bytes | None:
        """Record, durably, that a stamp is sent again: the partition continues after it at least.

        Returns the payload, or None if the outbox does not hold it.
        """
        check_own(stamp, self.producer_id)
        key = stamp.partition, stamp.sequence
        with self._working():
            counter = self._instance.counter(stamp.partition)
            if stamp.sequence >= counter.next or stamp.sequence in counter.gaps:
                counter.skip_to(stamp.sequence)
                counter.next = max(counter.next, stamp.sequence + 1)
                counter.gaps.remove(stamp.sequence, stamp.sequence + 1)
                self._instance.save()
            return next((payload for _, payload in self._instance.outbox.read([key])), None)

    def was_issued(self, stamp: Stamp) -> bool:
        """Whether this producer issued a stamp: exact for the last `window` of a partition.

        For older ones nothing is kept, and the answer is yes: a new message never gets them.
        """
        stamp.checked()
        counter = self._instance.state.counters.get(stamp.partition)
        if stamp.producer_id != self.producer_id or not counter or stamp.sequence >= counter.next:
            return False
        return stamp.sequence < counter.next - self._instance.state.window or (
            stamp.sequence not in counter.gaps
        )

    def reconcile(self, in_log: LogHolds) -> int:
        """Take over, durably, what the log holds per partition; returns how many were pending.

        A number is the highest sequence there: lower ones may be missing, so only that one leaves
        the outbox. A collection, such as `range(0, highest + 1)` for a log that was written in
        order, lists them all. Each partition continues after the highest.
        """
        known = {partition: present(partition, held) for partition, held in in_log.items()}
        with self._working():
            keys = self._instance.outbox.keys()
            dropped = self._instance.drop(
                key for key in keys if key[0] in known and key[1] in known[key[0]].sequences
            )
            for partition, held in known.items():
                _advance(self._instance.counter(partition), held)
            self._instance.save()
        return dropped

    def close(self) -> None:
        """Release the lock; acknowledgements are made durable if possible."""
        with self._mutex:
            if self._closed:
                return
            self._closed = True
            with self._held:
                self._instance.outbox.close_segment()
                # Only acknowledgements could get lost; a newer instance has the rest.
                with suppress(StorageFailed, ProducerFenced, NotFound):
                    self._instance.claim.check()
                    self._instance.save()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, _type: object, _error: BaseException | None, _traceback: TracebackType | None
    ) -> None:
        self.close()

    @contextmanager
    def _working(self) -> Iterator[None]:
        """With the mutex, while it is open and its claim is valid."""
        with self._mutex:
            if self._closed:
                raise UsageError(f"producer {self.producer_id!a:.80} is closed", hint="open it")
            self._instance.claim.check()
            try:
                yield
            except (NotFound, StorageFailed):
                # A newer instance may have removed the file that was just written to.
                self._instance.claim.check()
                raise


def _lock(storage: LocalStorage, options: Options) -> AbstractContextManager[None]:
    return FileLock(Path(storage.uri) / LOCK).hold(timeout=options.timeout)


def _advance(counter: Counter, held: Present) -> None:
    """Continue after the sequences in the log; those up to there count as issued."""
    counter.next = max(counter.next, held.highest + 1)
    for first, end in held.ranges():
        counter.gaps.remove(first, end)
