"""Exactly once for plain Python consumers: stamps, state and positions in one snapshot.

A transaction belongs to one message. Staged changes are invisible until the commit. A commit is
one snapshot with the stamps, the state and the source's positions, so a crash loses all of it or
nothing. Messages that arrive together are committed together: one snapshot for any number of them.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from itertools import count

from sluicegate.dedup.ledger import DUPLICATE, EXPIRED, Ledger
from sluicegate.dedup.stamp import Stamp, Stamps
from sluicegate.errors import NotFound, SluicegateError, StaleVersion
from sluicegate.positions import Positions
from sluicegate.shards.routing import shard_of
from sluicegate.state import delta
from sluicegate.state.delta import Merge
from sluicegate.storage.blobs import Ref
from sluicegate.stream import segments
from sluicegate.stream.append import Epoch
from sluicegate.stream.dedup_log import ledger_at
from sluicegate.stream.snapshot import Snapshot
from sluicegate.stream.state import shard_state
from sluicegate.stream.stream import Stream
from sluicegate.stream.writer import Run


@dataclass(frozen=True, slots=True)
class Recovery:
    """The end of the newest checkpoint: resume after this sequence, at these positions."""

    sequence: int
    positions: Positions
    snapshot: int

    @property
    def resume_at(self) -> int:
        """The first sequence that is not included."""
        return self.sequence + 1


def recover(stream: Stream) -> Recovery:
    """The last included sequence, from the chain; it never silently starts from scratch."""
    head = stream.chain.open_head()
    return Recovery(head.sequence, head.positions, head.number)


@dataclass(frozen=True, slots=True)
class Schedule:
    """When a checkpoint is due, per stream: after so many events, or so many seconds."""

    events: int | None = None
    seconds: float | None = None

    def next_sequence(self, head: Snapshot) -> int | None:
        """The sequence at which one is due; None if events do not decide."""
        return None if self.events is None else head.sequence + self.events

    def next_time(self, head: Snapshot) -> float | None:
        """The time at which one is due; None if time does not decide."""
        return None if self.seconds is None else head.created_at + self.seconds

    def is_due(self, head: Snapshot, sequence: int, now: float) -> bool:
        """Whether to commit up to a sequence; without new events, a commit is never due."""
        if sequence <= head.sequence:
            return False
        at_sequence, at_time = self.next_sequence(head), self.next_time(head)
        if at_sequence is None and at_time is None:
            return True
        reached = at_sequence is not None and sequence >= at_sequence
        return reached or (at_time is not None and now >= at_time)


VALUE = "value"
TIMEOUT = 60.0


class TransactionError(SluicegateError):
    """A transaction was used wrongly."""

    default_hint = "the consumer has a bug: see the documentation of Coordinator"


class UnknownTransaction(NotFound):
    """There is no transaction of this id."""

    default_hint = "it may belong to another run of the consumer"


class AlreadyCommitted(TransactionError):
    """The transaction was committed before."""


class AlreadyAborted(TransactionError):
    """The transaction was aborted before."""


class TimedOut(TransactionError):
    """The transaction was open for too long; its message may be delivered again."""

    default_hint = "begin it again, or set a longer timeout for the coordinator"


class InProgress(TransactionError):
    """The stamp belongs to a transaction that is open."""

    default_hint = "end that transaction first"


@dataclass(frozen=True, slots=True)
class Counters:
    """What a coordinator has done so far."""

    received: int = 0
    duplicates: int = 0
    expired: int = 0
    opened: int = 0
    committed: int = 0
    aborted: int = 0
    timed_out: int = 0


@dataclass(slots=True)
class Transaction:
    """What one message changes: key → value, or None for a deleted key."""

    id: str
    stamp: Stamp
    deadline: float
    staged: dict[str, bytes | None] = field(default_factory=dict)

    def put(self, key: str, value: bytes) -> None:
        """Stage a value."""
        self.staged[key] = value

    def delete(self, key: str) -> None:
        """Stage the deletion of a key."""
        self.staged[key] = None


class Coordinator:
    """Transactions of one run; not to be shared between threads."""

    def __init__(
        self,
        run: Run,
        *,
        shards: int = 1,
        timeout: float = TIMEOUT,
        schedule: Schedule = Schedule(),
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._run = run
        self._shards = shards
        self._timeout = timeout
        self._schedule = schedule
        self._clock = clock
        self._ledger = ledger_at(run.stream, run.snapshot)
        self._known = run.snapshot.epoch
        self._open: dict[str, Transaction] = {}
        self._ended: dict[str, type[TransactionError]] = {}
        self._counts = dict.fromkeys(Counters.__slots__, 0)
        self._numbers = count(1)
        self._cache: dict[int, dict[str, bytes]] = {}

    @property
    def counters(self) -> Counters:
        """What it has done so far."""
        return Counters(**self._counts)

    @property
    def positions(self) -> Positions:
        """Where the next message is to be read."""
        return self._run.snapshot.positions

    def is_due(self) -> bool:
        """Whether the schedule asks for a commit of the open transactions now."""
        snapshot = self._run.snapshot
        return self._schedule.is_due(snapshot, snapshot.sequence + len(self._open), time.time())

    def begin(self, stamp: Stamp) -> Transaction | None:
        """A transaction for a message; None if it was processed before, or that is not known.

        Stamps below a retention floor count as expired: whether they are new is not known.
        """
        self._expire()
        self._count("received")
        verdict = int(self._ledger.check(Stamps.from_stamps([stamp]))[0])
        if verdict in (DUPLICATE, EXPIRED):
            self._count("duplicates" if verdict == DUPLICATE else "expired")
            return None
        if any(each.stamp == stamp for each in self._open.values()):
            raise InProgress(f"{stamp} belongs to a transaction that is open")
        # With the run's name, so that an id of an earlier run never matches one of this run.
        transaction = Transaction(
            f"{self._run.id}/{next(self._numbers)}", stamp, self._clock() + self._timeout
        )
        self._open[transaction.id] = transaction
        self._count("opened")
        return transaction

    def get(self, key: str) -> bytes | None:
        """The committed value of a key, without staged changes."""
        shard = shard_of(key, self._shards)
        if shard not in self._cache:
            table = shard_state(self._run.stream, self._run.snapshot, shard)
            rows = table.select([delta.KEY, VALUE]).to_pylist() if table else []
            self._cache[shard] = {row[delta.KEY]: row[VALUE] for row in rows}
        return self._cache[shard].get(key)

    def commit(
        self, transaction: str | Transaction, positions: Positions | None = None
    ) -> Snapshot:
        """Make one transaction durable, with the positions after its message."""
        return self.commit_all([transaction], positions)

    def commit_all(
        self, transactions: Iterable[str | Transaction], positions: Positions | None = None
    ) -> Snapshot:
        """Make transactions durable together, in this order: one snapshot, all of it or nothing."""
        chosen = [self._find(each) for each in transactions]
        snapshot = self._commit(chosen, positions or self.positions)
        for each in chosen:
            self._end(each, AlreadyCommitted)
        self._count("committed", len(chosen))
        return snapshot

    def abort(self, transaction: str | Transaction, *, retryable: bool = False) -> None:
        """Drop what was staged. The stamp is consumed, unless the message may come again."""
        found = self._find(transaction)
        if not retryable:
            found.staged.clear()
            self._commit([found], self.positions)
        self._end(found, AlreadyAborted)
        self._count("aborted")

    def _commit(self, chosen: list[Transaction], positions: Positions) -> Snapshot:
        if len({each.stamp for each in chosen}) != len(chosen) or not chosen:
            raise TransactionError("a commit needs transactions, and each of them once")
        staged: dict[str, bytes | None] = {}
        for each in chosen:
            staged |= each.staged
        stamps = Stamps.from_stamps([each.stamp for each in chosen])
        seen = Ledger().insert(stamps, at_ms=round(time.time() * 1000)).fresh
        epoch = Epoch(
            start=self._run.snapshot.positions,
            end=positions,
            events=len(chosen),
            deltas=self._deltas(staged),
            version=self._run.snapshot.version,
            generation=self._run.snapshot.generation,
            counters={"committed": len(chosen)},
            stamps=segments.put(self._run.stream.blobs, seen),
            number=self._known + 1,
        )
        snapshot = self._commit_at_this_version(epoch)
        self._known = snapshot.epoch
        self._ledger.absorb(seen)
        for key in staged:
            self._cache.pop(shard_of(key, self._shards), None)
        return snapshot

    def _commit_at_this_version(self, epoch: Epoch) -> Snapshot:
        """Commit; a reassignment of shards does not matter to a single consumer."""
        while True:
            try:
                return self._run.commit(epoch)
            except StaleVersion:
                epoch = replace(epoch, version=self._run.refresh().version)

    def _deltas(self, staged: Mapping[str, bytes | None]) -> dict[int, Ref]:
        by_shard: dict[int, list[str]] = {}
        for key in staged:
            by_shard.setdefault(shard_of(key, self._shards), []).append(key)
        return {shard: self._delta(keys, staged) for shard, keys in by_shard.items()}

    def _delta(self, keys: list[str], staged: Mapping[str, bytes | None]) -> Ref:
        values = [staged[key] for key in keys]
        table = delta.table(
            keys,
            {VALUE: delta.binary(values)},
            {VALUE: Merge.LAST},
            replaces=[True] * len(keys),
            present=[value is not None for value in values],
        )
        return self._run.stream.blobs.put(delta.encode(table))

    def _find(self, transaction: str | Transaction) -> Transaction:
        name = transaction if isinstance(transaction, str) else transaction.id
        self._expire()
        if name in self._open:
            return self._open[name]
        if how := self._ended.get(name):
            raise how(f"transaction {name} has ended")
        raise UnknownTransaction(f"there is no transaction {name!r}")

    def _expire(self) -> None:
        """End the transactions that were open for too long; their messages may come again."""
        now = self._clock()
        for each in [each for each in self._open.values() if each.deadline <= now]:
            self._end(each, TimedOut)
            self._count("timed_out")

    def _end(self, transaction: Transaction, how: type[TransactionError]) -> None:
        del self._open[transaction.id]
        self._ended[transaction.id] = how

    def _count(self, name: str, more: int = 1) -> None:
        self._counts[name] += more
