"""The offset store: one directory, one file per consumer, one lock beside each.

Every change is an `Update` that is decided under the consumer's lock, from the newest record; so
save, compare-and-set, delete and an operator's reset are one mechanism, and a store only has to
implement `update`, `load` and `list`.

    sluicegate.store                             the marker
    billing.offsets                              the newest record of consumer billing
    billing.lock                                 serialises its writers
    billing.00000000000000000041.version         its record number 41, a commit
    billing.00000000000000000042.change          its record number 42, an operator's change
    billing.1794800000000.damaged                the damaged file that a restore replaced

A commit writes the new record, renames it over the old one and gives it its second name, all
covered by one fsync of the file and one of the directory. Readers take no lock: because of the
rename they see either the complete old or the complete new record.
"""

from __future__ import annotations

import time
from abc import abstractmethod
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import Protocol, TypeVar

from sluicegate.errors import (
    Corrupt,
    Fenced,
    NotFound,
    ReadOnlyViolation,
    SluicegateError,
    StorageFailed,
    UsageError,
)
from sluicegate.identity import Mark, Marker
from sluicegate.locks import Lock
from sluicegate.offsets.record import (
    COMMIT,
    FORMAT,
    SUFFIX,
    Change,
    Fence,
    Kept,
    Record,
    decode,
    encode,
    frozen,
    kept_name,
    sort_names,
)
from sluicegate.positions import Position, Positions
from sluicegate.process import myself
from sluicegate.storage import Storage, open_storage, validate_name
from sluicegate.units import command

Partition = tuple[str, int]
_FENCES = 64
V = TypeVar("V")


class StaleCommit(Fenced):
    """A commit came too late: another one was made in between, or its number is an older one."""

    default_hint = "load the position again and decide again; see: sluicegate history STORE"


@dataclass(frozen=True, slots=True)
class Update:
    """A change of a consumer; all other positions stay."""

    put: Positions = field(default_factory=lambda: Positions({}))
    remove: frozenset[Partition] = frozenset()
    kind: str = COMMIT
    fence: Fence | None = None
    change: Change | None = None


@dataclass(frozen=True, slots=True)
class HookFailure:
    """A hook that failed after a commit; the commit is not affected."""

    hook: str
    error: str


@dataclass(frozen=True, slots=True)
class Commit:
    """The result of a call: the newest record, the one before, and hooks that failed afterwards.

    `record is previous` if there was nothing to write.
    """

    record: Record | None
    previous: Record | None
    update: Update = field(default_factory=Update)
    hook_failures: tuple[HookFailure, ...] = ()


Decide = Callable[[Record | None], Update | None]


class OffsetStore(Protocol):
    """A store for the positions of consumers."""

    @abstractmethod
    def load(self, consumer: str) -> Record | None:
        """The last durable commit of a consumer; None if it has no positions."""

    @abstractmethod
    def list(self) -> list[str]:
        """The consumers that have positions, by name."""

    @abstractmethod
    def update(self, consumer: str, decide: Decide) -> Commit:
        """Change a consumer under its lock; `decide` sees the newest record, deleted or not."""

    def save(
        self,
        consumer: str,
        position: Position,
        *,
        expect: int | None = None,
        fence: Fence | None = None,
    ) -> Commit:
        """Commit one position; see `save_many`."""
        return self.save_many(consumer, Positions.of([position]), expect=expect, fence=fence)

    def save_many(
        self,
        consumer: str,
        positions: Positions,
        *,
        expect: int | None = None,
        fence: Fence | None = None,
    ) -> Commit:
        """Commit positions, all of them or none; they may move backwards.

        `expect` is compare-and-set: the sequence that was loaded, 0 for a consumer without
        positions; if it has changed, `StaleCommit`. `fence` is the caller's own number: an older
        one than the last of the same source is `StaleCommit`; the same one again with the same
        positions does nothing. The last 64 sources are remembered.
        """
        checked = positions.checked()

        def decide(current: Record | None) -> Update | None:
            _check_expected(current, consumer, expect)
            if not len(checked) or _is_repeated(current, checked, fence):
                return None
            return Update(put=checked, fence=fence)

        return self.update(consumer, decide)

    def delete(
        self,
        consumer: str,
        partitions: frozenset[Partition] | None = None,
        *,
        expect: int | None = None,
    ) -> Commit:
        """Delete positions, by default all; deleting absent positions does nothing."""

        def decide(current: Record | None) -> Update | None:
            _check_expected(current, consumer, expect)
            known = frozenset((p.topic, p.partition) for p in current.positions) if current else ()
            gone = frozenset(known) if partitions is None else partitions.intersection(known)
            return Update(remove=gone, kind="delete") if gone else None

        return self.update(consumer, decide)


def successor(consumer: str, previous: Record | None, update: Update, *, after: int = 0) -> Record:
    """The next record, from the previous one and an update; its number is above `after`."""
    # A clock that was set back must not move history backwards.
    now = max(time.time(), previous.at if previous else 0.0)
    positions: dict[str, dict[int, int]] = {}
    times: dict[str, dict[int, float]] = {}
    if previous:
        positions = {topic: dict(each) for topic, each in previous.positions.by_topic.items()}
        times = {topic: dict(each) for topic, each in previous.times.items()}
    for topic, partition in update.remove:
        _forget(positions, topic, partition)
        _forget(times, topic, partition)
    for topic, offsets in update.put.by_topic.items():
        positions.setdefault(topic, {}).update(offsets)
        times.setdefault(topic, {}).update(dict.fromkeys(offsets, now))
    return Record(
        consumer=consumer,
        sequence=max(after, previous.sequence if previous else 0) + 1,
        at=now,
        kind=update.kind,
        by=myself(),
        positions=Positions(frozen(positions)),
        times=frozen(times),
        fences=_fences(previous, update.fence),
        change=update.change,
    )


def _forget(by_topic: dict[str, dict[int, V]], topic: str, partition: int) -> None:
    of_topic = by_topic.get(topic, {})
    of_topic.pop(partition, None)
    if not of_topic:
        by_topic.pop(topic, None)


def _fences(previous: Record | None, fence: Fence | None) -> tuple[Fence, ...]:
    """The last number of each source, newest last; beyond the limit the oldest are dropped."""
    known = previous.fences if previous else ()
    if fence is None:
        return known
    return (*(each for each in known if each.source != fence.source), fence)[-_FENCES:]


def _check_expected(current: Record | None, consumer: str, expect: int | None) -> None:
    sequence = current.sequence if current and len(current.positions) else 0
    if expect is not None and expect != sequence:
        raise StaleCommit(
            f"consumer {consumer} is at sequence {sequence}, not {expect}"
            + (f": {current.by} committed in between" if current else "")
        )


def _is_repeated(current: Record | None, positions: Positions, fence: Fence | None) -> bool:
    """Whether a fenced commit was already made; `StaleCommit` if it is an older one."""
    known = current.fences if current else ()
    last = next((each for each in known if fence and each.source == fence.source), None)
    if not current or not fence or not last:
        return False
    held = (current.positions.get(each.topic, each.partition) == each.offset for each in positions)
    if fence.number > last.number:
        return False
    if fence.number == last.number and all(held):
        return True
    raise StaleCommit(
        f"consumer {current.consumer} already has number {last.number} of {last.source}; number "
        f"{fence.number} came too late"
    )


MARKER = Marker("sluicegate.store", "store", "an offset store")
DEFAULT_VERSIONS = 10
CHANGES_KEPT = 100
DEFAULT_TIMEOUT = 10.0


class StoreDamaged(Corrupt):
    """A consumer's file is damaged, or missing although older records of it are kept."""

    default_hint = "list its kept records with: sluicegate history STORE"


class LockFileOffsetStore(OffsetStore):
    """`OffsetStore` in a directory; `open` an existing one or `create` it."""

    def __init__(
        self,
        storage: Storage,
        *,
        versions: int = DEFAULT_VERSIONS,
        timeout: float = DEFAULT_TIMEOUT,
    ) -> None:
        self.storage = storage
        self.mark = self._read_mark()
        self._versions = max(1, versions)
        self._timeout = timeout
        # The newest record seen, with its bytes: unchanged bytes are not decoded again.
        self._seen: dict[str, tuple[bytes, Record]] = {}
        self._kept: dict[str, int] = {}

    @classmethod
    def open(cls, uri: str, *, read_only: bool = False) -> LockFileOffsetStore:
        """The store at a path or URI; a missing one is `NotFound`, never empty."""
        return cls(open_storage(uri, read_only=read_only))

    @classmethod
    def create(cls, uri: str, reason: str | None = None) -> LockFileOffsetStore:
        """The store at a path or URI, created if it is missing."""
        storage = open_storage(uri, create=True)
        MARKER.create(storage, reason)
        return cls(storage)

    @property
    def uri(self) -> str:
        """The URI of the store."""
        return self.storage.uri

    def load(self, consumer: str) -> Record | None:
        found = self.newest(consumer)
        return found if found and len(found.positions) else None

    def update(self, consumer: str, decide: Decide) -> Commit:
        with self._writing(consumer):
            previous = self.newest(consumer)
            wanted = decide(previous)
            # The writer of the previous record may have died before its fsync.
            self._make_durable(consumer, previous)
            if wanted is None:
                return Commit(previous, previous)
            record = successor(consumer, previous, wanted)
            self._write(record, previous)
            return Commit(record, previous, wanted)

    def restore(self, consumer: str, kept: Kept, decide: Callable[[], Update]) -> Commit:
        """Replace a damaged or missing record by a kept one, with a number above all others.

        The damaged file is kept, too. `decide` runs under the lock.
        """
        with self._writing(consumer):
            wanted = decide()
            base = self.read_kept(consumer, kept)
            if self.storage.stat(consumer + SUFFIX) is not None:
                aside = f"{consumer}.{time.time_ns() // 10**6}.damaged"
                self.storage.link(consumer + SUFFIX, aside)
            # The lost record may have had the number after the highest kept one.
            highest = max(each.sequence for each in self.kept(consumer)) + 1
            record = successor(consumer, base, wanted, after=highest)
            self._write(record, base)
            return Commit(record, None, wanted)

    def lock(self, consumer: str) -> Lock:
        """The lock that writers of a consumer hold."""
        return self.storage.lock(f"{validate_name(consumer, 'consumer')}.lock")

    def consumers(self) -> list[str]:
        """Every consumer that has a file, also deleted and damaged ones."""
        return sorted(self.kept_records())

    def kept_records(self) -> dict[str, list[Kept]]:
        """Every consumer with its kept records, oldest first; lists the directory once."""
        found = sort_names(entry.name for entry in self.storage.list())
        if not found:
            # An empty directory may be a disk that is not mounted.
            self._refuse_other_store()
        return found

    def choose(self, consumer: str | None) -> str:
        """The consumer of that name, or the only one."""
        known = self.consumers()
        if consumer in known:
            return validate_name(consumer or "", "consumer")
        names = f"known consumers: {', '.join(known) or 'none'}"
        if consumer is not None:
            validate_name(consumer, "consumer")
            raise NotFound(f"there is no consumer {consumer!r} in {self.uri}; {names}")
        if len(known) == 1:
            return known[0]
        if not known:
            raise NotFound(
                f"{self.uri} has no consumers yet",
                hint="set positions with: "
                + command("offsets", "import", self.uri, "FILE", "--consumer", "NAME"),
                place=self.uri,
            )
        raise UsageError(
            f"the consumer is missing, and {self.uri} has {len(known)}; {names}",
            hint="name one with --consumer",
        )

    def newest(self, consumer: str) -> Record | None:
        """The newest record, also of a deleted consumer; None if there never was one."""
        data = self._raw(consumer)
        if data is None:
            self._refuse_other_store()
            if not self.kept(consumer):
                return None
            # Its first commits may have been made between the two reads.
            data = self._raw(consumer)
        if data is None:
            raise self._damaged(consumer, "is missing although older records are kept")
        seen = self._seen.get(consumer)
        if seen and seen[0] == data:
            return seen[1]
        try:
            record = decode(data, self._place(consumer), consumer)
        except Corrupt as e:
            raise self._damaged(consumer, f"is damaged: {e.message}") from e
        self._seen[consumer] = data, record
        return record

    def _raw(self, consumer: str) -> bytes | None:
        """The bytes of a consumer's file; None if there is none."""
        key = validate_name(consumer, "consumer") + SUFFIX
        try:
            return self.storage.get(key, limit=FORMAT.max_frame)
        except NotFound:
            return None
        except Corrupt as e:
            raise self._damaged(consumer, f"is damaged: {e.message}") from e

    def kept(self, consumer: str) -> list[Kept]:
        """The records of a consumer that are kept beside the newest, oldest first."""
        return self.kept_records().get(consumer, [])

    def read_kept(self, consumer: str, kept: Kept) -> Record:
        """A kept record, or `Corrupt`."""
        place = f"{self.uri}/{kept.name}"
        record = decode(self.storage.get(kept.name, limit=FORMAT.max_frame), place, consumer)
        if record.sequence != kept.sequence:
            raise Corrupt(f"{place} holds record number {record.sequence}", place=place)
        return record

    def records(
        self, consumer: str, kept: list[Kept] | None = None
    ) -> list[Record | SluicegateError]:
        """The newest record and the kept older ones, newest first; errors for unreadable ones."""
        found: list[Record | SluicegateError] = []
        limit = 0
        try:
            newest = self.newest(consumer)
            limit = newest.sequence if newest else 0
            found += [newest] if newest else []
        except SluicegateError as e:
            found.append(e)
            limit = 1 << 64
        for each in reversed(self.kept(consumer) if kept is None else kept):
            # One with a higher number was never committed: its writer died in between.
            if each.sequence < limit:
                found += self._read_if_kept(consumer, each)
        return found

    def _read_if_kept(self, consumer: str, kept: Kept) -> Iterator[Record | SluicegateError]:
        try:
            yield self.read_kept(consumer, kept)
        except NotFound:
            # A commit dropped it after the directory was listed.
            return
        except SluicegateError as e:
            yield e

    def prune(self, consumer: str) -> None:
        """Remove surplus records: old commits, and the oldest changes."""
        newest = self.newest(consumer)
        kept = self.kept(consumer)
        oldest = newest.sequence - self._versions if newest else 0
        changes = [each for each in kept if each.name.endswith(".change")]
        versions = [each for each in kept if each.name.endswith(".version")]
        surplus = changes[: max(0, len(changes) - CHANGES_KEPT)]
        for each in (*surplus, *(each for each in versions if each.sequence <= oldest)):
            self.storage.delete(each.name)

    def list(self) -> list[str]:
        return [name for name in self.consumers() if self.load(name)]

    def _write(self, record: Record, previous: Record | None) -> None:
        consumer, name = record.consumer, kept_name(record)
        if previous is not None:
            self._keep(previous)
        old = max(0, record.sequence - self._versions)
        data = encode(record)
        self.storage.replace(
            consumer + SUFFIX,
            data,
            # Not the first: a crash could leave it without the record itself, which looks like
            # a loss. It is kept once the record is durable.
            keep_as=name if previous else None,
            # One of the other kind with this number was never committed: its writer died.
            drop=(f"{consumer}.{old:020d}.version", kept_name(record, other=True)),
        )
        self._seen[consumer] = data, record
        if previous is None:
            self.storage.put_if_absent(name, data)
        self._kept[consumer] = record.sequence
        if record.kind != COMMIT:
            # The change is made; a failure to remove old ones must not hide it.
            with suppress(StorageFailed):
                self.prune(consumer)

    def _keep(self, record: Record) -> None:
        """Keep a record that is about to be replaced: its writer may have died before it did."""
        if self._kept.get(record.consumer) == record.sequence:
            return
        name, data = kept_name(record), encode(record)
        made = self.storage.put_if_absent(name, data)
        if not made and self.storage.get(name, limit=FORMAT.max_frame) != data:
            self.storage.replace(name, data)
        # One of the other kind with this number was never committed.
        other = kept_name(record, other=True)
        if self.storage.stat(other) is not None:
            self.storage.delete(other)

    def _make_durable(self, consumer: str, record: Record | None) -> None:
        """Sync a record that is acknowledged: its writer may have died before its fsync."""
        if record is not None and self._kept.get(consumer) != record.sequence:
            self.storage.sync(consumer + SUFFIX)

    @contextmanager
    def _writing(self, consumer: str) -> Iterator[None]:
        """Hold the consumer's lock, in a store that exists and may be written."""
        lock = self.lock(consumer)
        self._refuse_read_only(consumer)
        if not lock.was_held():
            # No lock file may be left where the store's disk is not mounted.
            self._refuse_other_store()
        with lock.hold(timeout=self._timeout):
            yield

    def _refuse_read_only(self, consumer: str) -> None:
        if self.storage.read_only:
            place = self._place(consumer)
            raise ReadOnlyViolation(f"refused to change {place}: opened read-only", place=place)

    def _refuse_other_store(self) -> None:
        """Refuse another store in the same place: its consumers would look without positions."""
        if self._read_mark().id != self.mark.id:
            raise NotFound(
                f"{self.uri} is another store than the one that was opened",
                hint="check what is mounted there, then start the consumer again",
                place=self.uri,
            )

    def _read_mark(self) -> Mark:
        return MARKER.read(self.storage, make=command("init", "--store", self.storage.uri))

    def _place(self, consumer: str) -> str:
        return f"{self.uri}/{consumer}{SUFFIX}"

    def _damaged(self, consumer: str, what: str) -> StoreDamaged:
        place = self._place(consumer)
        return StoreDamaged(
            f"the file of consumer {consumer} {what}",
            hint="restore its newest readable record with: "
            + command("undo", self.uri, "--consumer", consumer),
            place=place,
        )
