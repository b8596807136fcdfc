"""The producer for applications: records with stamps, in the log at least once, never lost.

A record is durable in the outbox before it is appended, and leaves the outbox after. If the
producer is killed or the disk is full, the next one with its directory looks into the log for the
records of the outbox, and appends those that are missing, under the same stamps. Should one still
be there twice, the job that reads the log drops the duplicate.

The lock of a partition is held for the length of one append, so any number of producers take turns.
To hold it longer would save some microseconds beside an fsync, and keep all the others out.
"""

from __future__ import annotations

import json
import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from os import PathLike
from threading import RLock
from types import TracebackType
from typing import Any, NoReturn, Self

from sluicegate.dedup.stamp import Stamp
from sluicegate.errors import Locked, UsageError
from sluicegate.producer.producer import IdempotentProducer, LogHolds, Message, Options
from sluicegate.sources.log.layout import MAX_RECORD
from sluicegate.sources.log.log import Log
from sluicegate.sources.log.writer import (
    SEGMENT_BYTES,
    LogWriterStopped,
    Tail,
    check_segment_bytes,
    writer_lock,
)
from sluicegate.storage.local import Calls

STAMP = ("producer", "partition", "seq")
"""The columns of the stamp, as the example of a stream's table names them."""
Fields = Mapping[str, Any]
_NUMBERS = 64


class RecordInvalid(UsageError):
    """A value that cannot be a record of a log."""

    default_hint = "pass a JSON object without the columns of the stamp"


def _no_number(text: str) -> NoReturn:
    raise ValueError(f"{text} is not JSON")


_encode = json.JSONEncoder(ensure_ascii=False, allow_nan=False, separators=(",", ":")).encode
_decode = json.JSONDecoder(parse_constant=_no_number).decode


class Columns:
    """The three columns of a stamp, and how they get into a record."""

    def __init__(self, names: Sequence[str], producer_id: str) -> None:
        if isinstance(names, str) or len(names) != 3 or len(set(names)) != 3 or not all(names):
            raise UsageError(
                f"{names!a:.80} are not the columns of a stamp",
                hint="name three: of the producer, the partition and the sequence",
            )
        self._names = frozenset(names)
        producer, self._partition, self._sequence = map(_encode, names)
        self._producer = f"{producer}:{_encode(producer_id)}"
        self._most = MAX_RECORD - 1 - len(self._head(0)) - _NUMBERS

    def payload(self, value: Fields | bytes | str) -> bytes:
        """The record without its stamp, on one line; `RecordInvalid` if it cannot be one."""
        try:
            fields, data = _from_text(value) if isinstance(value, bytes | str) else _plain(value)
        except (TypeError, ValueError, RecursionError) as e:
            raise RecordInvalid(f"a record cannot be JSON: {e!s:.200}") from e
        if not self._names.isdisjoint(fields):
            taken = ", ".join(sorted(self._names & fields.keys()))
            raise RecordInvalid(f"a record already has columns of the stamp: {taken!a:.200}")
        if len(data) > self._most:
            hint = f"a record has up to {self._most} bytes"
            raise RecordInvalid(f"a record has {len(data)} bytes", hint=hint)
        return data

    def stamped(self, partition: int, messages: Iterable[tuple[int, bytes]]) -> list[bytes]:
        """The records of one partition, given as sequence and payload, with their stamps."""
        head = self._head(partition)
        more = b"," + head
        return [
            payload[:-1] + (head if payload == b"{}" else more) + b"%d}" % sequence
            for sequence, payload in messages
        ]

    def sequences(self, partition: int, lines: bytes) -> list[int]:
        """The sequences of this producer among the complete lines of one partition."""
        # A stamp ends its line. Behind another character, it would be part of a column's name.
        stamps = re.finditer(re.escape(self._head(partition)) + rb"(\d+)}\n", lines)
        return [int(found[1]) for found in stamps if lines[found.start() - 1] in b"{,"]

    def _head(self, partition: int) -> bytes:
        return f"{self._producer},{self._partition}:{partition},{self._sequence}:".encode()


def _plain(value: Fields) -> tuple[Fields, bytes]:
    if not isinstance(value, Mapping):
        raise TypeError(f"{type(value).__name__} is not an object")
    fields = value if isinstance(value, dict) else dict(value)
    return fields, _encode(fields).encode()


def _from_text(value: bytes | str) -> tuple[Fields, bytes]:
    text = value.decode() if isinstance(value, bytes) else value
    fields = _decode(text)
    if not isinstance(fields, dict):
        raise TypeError(f"{type(fields).__name__} is not an object")
    # A newline in valid JSON is space between its parts: inside a text it is written as \n.
    return fields, text.strip().replace("\n", " ").encode() if fields else b"{}"


_AT_ONCE = 1000
_APPEND_BYTES = 32 << 20
# Reserving costs an fsync, and a sequence that is reserved and not used costs nothing.
_OUTBOX = Options(reserve=65536, segment_bytes=64 << 20)


@dataclass(frozen=True, slots=True)
class Sending:
    """Settings of a log's producer.

    A segment of the log is full at `segment_bytes`; `timeout` is how many seconds to wait for the
    lock of a partition. `in_log` lists the producer's sequences in the log: needed after a backup
    of its directory was restored.
    """

    segment_bytes: int = SEGMENT_BYTES
    timeout: float = 30.0
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
        """The producer in a directory, made if it is new; appends pending records to the log."""
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

        Each is an object, or one as JSON. An invalid record is refused before anything is
        written. After any other error the records may be in the outbox, and the next call or the
        next opening appends them: send only those again that you know are not.
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
        """Append the records in the outbox that the log lacks, in order; returns how many."""
        count = 0
        with self._mutex:
            self._refuse_stopped()
            self._acknowledge_appended()
            pending = groupby(self._producer.pending(), lambda message: message.stamp.partition)
            for partition, messages in pending:
                for some in _batches(messages):
                    self._append(partition, [(m.stamp.sequence, m.payload) for m in some])
                    self._producer.acknowledge(m.stamp for m in some)
                    count += len(some)
            self._behind = False
        return count

    def close(self) -> None:
        """Close it; records that are not appended stay in the outbox for the next opening."""
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

    def _acknowledge_appended(self) -> None:
        """Remove the records from the outbox whose append was not acknowledged, but happened."""
        stamps = self._producer.pending_stamps()
        for partition, some in groupby(stamps, lambda stamp: stamp.partition):
            pending = list(some)
            with writer_lock(self._log, partition).hold(timeout=self._sending.timeout):
                # Their writer may have died before they were durable.
                self._tail(partition).refresh()
                found = self._appended(partition, pending[0].sequence)
            self._producer.acknowledge(stamp for stamp in pending if stamp.sequence in found)

    def _appended(self, partition: int, first: int) -> set[int]:
        """The sequences from `first` on that the log holds.

        A producer appends in order: the newest segment with an older sequence is the last to read.
        """
        found: set[int] = set()
        end = self._log.end(partition)
        for base in reversed(self._log.bases(partition)):
            for piece in self._log.read(partition, base, end):
                found.update(self._columns.sequences(partition, piece.data))
            end = base
            if found and min(found) < first:
                break
        return found

    def _append(self, partition: int, messages: list[tuple[int, bytes]]) -> None:
        lines = self._columns.stamped(partition, messages)
        tail = self._tail(partition)
        at_once = max(1, _APPEND_BYTES // max(map(len, lines)))
        try:
            with writer_lock(self._log, partition).hold(timeout=self._sending.timeout):
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
        """Refuse a missing partition before a record is in the outbox."""
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
                hint="open it again: it then appends the pending records, with the same stamps",
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
