"""What applications send with: records that carry stamps, in the log once or more, never lost.

A record is durable in the outbox before it is appended, and leaves the outbox after. Whatever
kills the producer, the next one with its directory appends what may be missing, under the same
stamps; the job that reads the log drops what then is there twice.

The lock of a partition is held for the length of one append, so any number of producers take turns.
To hold it longer would save some microseconds beside an fsync, and keep all the others out.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby
from os import PathLike
from threading import RLock
from types import TracebackType
from typing import Self

from sluicegate.dedup.producer import IdempotentProducer, Message, Options
from sluicegate.dedup.producer_input import LogHolds
from sluicegate.dedup.stamp import Stamp
from sluicegate.errors import Locked, UsageError
from sluicegate.log.log import Log
from sluicegate.log.records import STAMP, Columns, Fields
from sluicegate.log.tail import LogWriterStopped, Tail, check_segment_bytes
from sluicegate.log.writer import SEGMENT_BYTES, writer_lock
from sluicegate.storage.calls import Calls

__all__ = ["LogProducer", "Sending"]

_AT_ONCE = 1000
_APPEND_BYTES = 32 << 20
# Reserving costs an fsync, and a sequence that is reserved and not used costs nothing.
_OUTBOX = Options(reserve=65536, segment_bytes=64 << 20)


@dataclass(frozen=True, slots=True)
class Sending:
    """How a producer of a log works.

    A segment of the log is full at so many bytes; it waits so many seconds for others at a
    partition. `in_log` tells what of it the log holds: necessary after the restore of a backup of
    its directory, and otherwise it saves duplicates.
    """

    segment_bytes: int = SEGMENT_BYTES
    patience: float = 30.0
    outbox: Options = _OUTBOX
    in_log: LogHolds | None = None
    calls: Calls | None = None


DEFAULTS = Sending()


class LogProducer:
    """A producer that appends to a log; get it from `open`, and close it. Threads may share it."""

    def __init__(
        self, log: Log, producer: IdempotentProducer, columns: Columns, sending: Sending
    ) -> None:
        self._log = log
        self._producer = producer
        self._columns = columns
        self._sending = sending
        self._tails: dict[int, Tail] = {}
        self._mutex = RLock()
        self._behind = True
        self._stopped: str | None = None

    @classmethod
    def open(
        cls,
        uri: str,
        directory: str | PathLike[str],
        producer_id: str,
        stamp: Sequence[str] = STAMP,
        sending: Sending = DEFAULTS,
    ) -> Self:
        """The producer in a directory, made if it is new, with what it owed the log appended."""
        log = Log.open(uri, calls=sending.calls)
        columns = Columns(stamp, producer_id)
        check_segment_bytes(sending.segment_bytes)
        producer = IdempotentProducer.create(
            directory, producer_id, sending.outbox, calls=sending.calls
        )
        try:
            if sending.in_log is not None:
                producer.reconcile(sending.in_log)
            opened = cls(log, producer, columns, sending)
            opened.flush()
        except BaseException:
            producer.close()
            raise
        return opened

    @property
    def producer_id(self) -> str:
        """The name in every stamp."""
        return self._producer.producer_id

    def next_sequence(self, partition: int) -> int:
        """The sequence that the next record of a partition gets; all below were sent."""
        return self._producer.next_sequence(partition)

    def send(self, partition: int, record: Fields | bytes | str) -> Stamp:
        """Send one record; see `send_many` for many at the price of one."""
        return self.send_many([(partition, record)])[0]

    def send_many(self, records: Iterable[tuple[int, Fields | bytes | str]]) -> list[Stamp]:
        """Stamp records and append them, in order within each partition; durable when it returns.

        Each is an object, or one as JSON. Something that cannot be a record is refused before
        anything happens. After any other error they may have been taken: what was is appended by
        the next call, or the next opening, so send only those again that you know were not.
        """
        wanted = [(partition, self._columns.payload(record)) for partition, record in records]
        with self._mutex:
            self._refuse_stopped()
            self._check_partitions({partition for partition, _ in wanted})
            if self._behind:
                self.flush()
            self._behind = True
            stamps = self._producer.issue_many(wanted)
            by_partition: defaultdict[int, list[tuple[int, bytes]]] = defaultdict(list)
            for stamp, (partition, payload) in zip(stamps, wanted, strict=True):
                by_partition[partition].append((stamp.sequence, payload))
            for partition, messages in sorted(by_partition.items()):
                self._append(partition, messages)
                # One call issues consecutive sequences.
                first, last = messages[0][0], messages[-1][0]
                self._producer.acknowledge_range(partition, first, last + 1)
            self._behind = False
        return stamps

    def flush(self) -> int:
        """Append what is in the outbox, in order; gives how many records that were."""
        count = 0
        with self._mutex:
            self._refuse_stopped()
            pending = groupby(self._producer.pending(), lambda message: message.stamp.partition)
            for partition, messages in pending:
                for some in _batches(messages):
                    self._append(partition, [(m.stamp.sequence, m.payload) for m in some])
                    self._producer.acknowledge(m.stamp for m in some)
                    count += len(some)
            self._behind = False
        return count

    def close(self) -> None:
        """Close it; what is not appended stays in the outbox for the next opening."""
        with self._mutex:
            self._stopped = self._stopped or "it was closed"
            for tail in self._tails.values():
                tail.close()
            self._tails.clear()
            self._producer.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, _type: object, _error: BaseException | None, _traceback: TracebackType | None
    ) -> None:
        self.close()

    def _append(self, partition: int, messages: list[tuple[int, bytes]]) -> None:
        lines = self._columns.stamped(partition, messages)
        tail = self._tail(partition)
        at_once = max(1, _APPEND_BYTES // max(map(len, lines)))
        try:
            with writer_lock(self._log, partition).hold(timeout=self._sending.patience):
                tail.refresh()
                for first in range(0, len(lines), at_once):
                    tail.append(lines[first : first + at_once])
        except Locked:
            # The outbox has them; the next call tries again.
            raise
        except BaseException as e:
            self._stopped = str(e) or type(e).__name__
            raise

    def _tail(self, partition: int) -> Tail:
        if partition not in self._tails:
            sending = self._sending
            tail = Tail(self._log, partition, sending.segment_bytes, sending.calls)
            self._tails[partition] = tail
        return self._tails[partition]

    def _check_partitions(self, wanted: set[int]) -> None:
        """Refuse what could never be appended, before it is in the outbox."""
        if wanted <= self._tails.keys():
            return
        there = self._log.partitions()
        for partition in wanted:
            if partition not in there:
                raise UsageError(
                    f"{self._log.uri} has no partition {partition!a:.40}",
                    hint=f"it has {len(there)}, counted from 0",
                )

    def _refuse_stopped(self) -> None:
        if self._stopped is not None:
            raise LogWriterStopped(
                f"producer {self.producer_id!a:.80} has stopped: {self._stopped:.300}",
                hint="open it again: it then appends what it owes the log, with the same stamps",
            )


def _batches(messages: Iterator[Message]) -> Iterator[list[Message]]:
    """The messages in lists that fit into memory."""
    some: list[Message] = []
    size = 0
    for message in messages:
        some.append(message)
        size += len(message.payload)
        if len(some) == _AT_ONCE or size >= _APPEND_BYTES:
            yield some
            some, size = [], 0
    if some:
        yield some
