"""A producer whose messages carry stamps that never repeat, whatever kills it.

Before `issue` returns a stamp, stamp and payload are durably in the outbox, inside a range of
sequences that was durably reserved before. So after a crash `pending` gives what must be sent
again, with the same stamps, and new messages get sequences that nobody was told of. Send only what
`issue` or `pending` gave you; a message whose `issue` was cut short may be pending or not, so look
there before issuing it again.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager, suppress
from dataclasses import dataclass
from os import PathLike, fspath
from pathlib import Path
from threading import RLock
from types import TracebackType
from typing import Self

from sluicegate.dedup.outbox import Found
from sluicegate.dedup.producer_files import (
    LOCK,
    MAKE,
    MARKER,
    ProducerFenced,
    create_files,
)
from sluicegate.dedup.producer_input import LogHolds, Present, check_messages, check_own, present
from sluicegate.dedup.producer_instance import Instance, Options, SequencesExhausted
from sluicegate.dedup.producer_segment import MAX_GROUP, group_size
from sluicegate.dedup.producer_state import END, Counter, State
from sluicegate.dedup.stamp import Stamp
from sluicegate.errors import Corrupt, NotFound, StorageFailed, UsageError
from sluicegate.locks import FileLock
from sluicegate.storage import LocalStorage, local_root
from sluicegate.storage.calls import Calls

__all__ = ["IdempotentProducer", "Message", "Options", "ProducerFenced", "SequencesExhausted"]

DEFAULT_WINDOW = 1024
DEFAULTS = Options()


@dataclass(frozen=True, slots=True)
class Message:
    """What to send, under which stamp."""

    stamp: Stamp
    payload: bytes


class IdempotentProducer:
    """The one open instance of a producer; get it from `create` or `open`, and close it.

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
        """The producer in a directory, as its only instance; reconciled if told `in_log`.

        `NotFound` if there is none, `Locked` if another instance is open. After the restore of a
        backup `in_log` is necessary: nothing else tells what was issued since.
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
        """What opening found in the outbox: bytes it cut off, files it salvaged."""
        return self._instance.found

    def issue(self, partition: int, payload: bytes) -> Stamp:
        """Stamp one message, durably; see `issue_many` for many at the price of one."""
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
        """Note that the log durably holds these messages; gives how many were pending.

        This becomes durable with later work or `close`, because an acknowledgement that is lost
        only costs one more sending of the message, with the same stamp.
        """
        chosen = [stamps] if isinstance(stamps, Stamp) else list(stamps)
        with self._working():
            for stamp in chosen:
                check_own(stamp, self.producer_id)
                if stamp.sequence >= self.next_sequence(stamp.partition):
                    raise UsageError(
                        f"{stamp!s:.200} was never issued", hint="acknowledge what issue gave"
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
                    f"{last!s:.200} was never issued", hint="acknowledge what issue gave"
                )
            dropped = self._instance.drop_range(partition, first, end)
            if self._instance.is_due:
                self._instance.save()
        return dropped

    def pending(self) -> Iterator[Message]:
        """What must be sent, again or for the first time: in order of each partition."""
        with self._working():
            return self._messages(self._instance.outbox.keys())

    def _messages(self, keys: list[tuple[int, int]]) -> Iterator[Message]:
        try:
            for (partition, sequence), payload in self._instance.outbox.read(keys):
                yield Message(Stamp(self.producer_id, partition, sequence), payload)
        except Corrupt:
            # A newer instance deletes what the log has, which is no damage.
            self._instance.claim.check()
            raise

    def reissue(self, stamp: Stamp) -> bytes | None:
        """Note, durably, that a stamp is sent again: the partition continues behind it at least.

        Gives the payload, or None if the outbox does not hold it.
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

        Of those below nothing is kept, and the answer is yes: it cannot be a new message's.
        """
        stamp.checked()
        counter = self._instance.state.counters.get(stamp.partition)
        if stamp.producer_id != self.producer_id or not counter or stamp.sequence >= counter.next:
            return False
        return stamp.sequence < counter.next - self._instance.state.window or (
            stamp.sequence not in counter.gaps
        )

    def reconcile(self, in_log: LogHolds) -> int:
        """Take over, durably, what the log holds per partition; gives how many were pending.

        A number is the highest sequence there: of those below some may be missing, so only that
        one leaves the outbox. A collection, such as `range(0, highest + 1)` of a log that was
        written in order, tells them all. Each partition continues behind the highest.
        """
        told = {partition: present(partition, held) for partition, held in in_log.items()}
        with self._working():
            keys = self._instance.outbox.keys()
            dropped = self._instance.drop(
                key for key in keys if key[0] in told and key[1] in told[key[0]].sequences
            )
            for partition, held in told.items():
                _advance(self._instance.counter(partition), held)
            self._instance.save()
        return dropped

    def close(self) -> None:
        """Give up the lock; what was acknowledged is made durable if that is possible."""
        with self._mutex:
            if self._closed:
                return
            self._closed = True
            with self._held:
                self._instance.outbox.seal()
                # Acknowledgements are all that could get lost, and another has the rest by now.
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
        """Alone among threads, open, and with a claim that nobody has taken."""
        with self._mutex:
            if self._closed:
                raise UsageError(f"producer {self.producer_id!a:.80} is closed", hint="open it")
            self._instance.claim.check()
            try:
                yield
            except (NotFound, StorageFailed):
                # A newer instance may have cleared away what was written to just now.
                self._instance.claim.check()
                raise


def _lock(storage: LocalStorage, options: Options) -> AbstractContextManager[None]:
    return FileLock(Path(storage.uri) / LOCK).hold(timeout=options.patience)


def _advance(counter: Counter, held: Present) -> None:
    """Continue behind what the log holds; the sequences up to there count as issued."""
    counter.next = max(counter.next, held.highest + 1)
    for first, end in held.ranges():
        counter.gaps.remove(first, end)
