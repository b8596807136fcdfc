"""The lock-file offset store: one directory, one file per consumer, one lock beside each.

    sluicegate.store                             the marker
    billing.offsets                              the newest record of consumer billing
    billing.lock                                 serialises its writers
    billing.00000000000000000041.version         its record number 41, a commit
    billing.00000000000000000042.change          its record number 42, an operator's change
    billing.1794800000000.damaged                what a restore found in place of the record

A commit writes the new record, renames it over the old one and gives it its second name, all
covered by one fsync of the file and one of the directory. Readers take no lock: a rename shows them
the whole old or the whole new record.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from shlex import quote

from sluicegate.detection import STORE_MARKER
from sluicegate.errors import (
    Corrupt,
    NotFound,
    ReadOnlyViolation,
    SluicegateError,
    StorageFailed,
    UnsupportedFormat,
    UsageError,
)
from sluicegate.locks import FileLock
from sluicegate.marker import Mark, Marker
from sluicegate.offsets.base import Commit, Decide, OffsetStore, Update, successor
from sluicegate.offsets.names import SUFFIX, Kept, kept_name, sort_names
from sluicegate.offsets.record import COMMIT, FORMAT, Record, decode, encode
from sluicegate.storage import (
    LocalStorage,
    ReadOnlyStorage,
    Storage,
    local_root,
    open_storage,
    validate_name,
)

MARKER = Marker(STORE_MARKER, "store", "an offset store")
DEFAULT_VERSIONS = 10
CHANGES_KEPT = 100
DEFAULT_PATIENCE = 10.0


class StoreDamaged(Corrupt):
    """A consumer's file is damaged, or missing although older records of it are kept."""

    default_hint = "see what is kept of it with: sluicegate history STORE"


class LockFileOffsetStore(OffsetStore):
    """`OffsetStore` in a directory; `open` an existing one or `create` it."""

    def __init__(
        self,
        storage: Storage,
        *,
        versions: int = DEFAULT_VERSIONS,
        patience: float = DEFAULT_PATIENCE,
    ) -> None:
        self.storage = storage
        self.mark = self._read_mark()
        self._versions = max(1, versions)
        self._patience = patience
        # The newest record seen, with its bytes: what has not changed is not decoded again.
        self._seen: dict[str, tuple[bytes, Record]] = {}
        self._kept: dict[str, int] = {}

    @classmethod
    def open(cls, uri: str, *, read_only: bool = False) -> LockFileOffsetStore:
        """The store at a path or URI; one that is not there is `NotFound`, never empty."""
        return cls(open_storage(uri, read_only=read_only))

    @classmethod
    def create(cls, uri: str, reason: str | None = None) -> LockFileOffsetStore:
        """The store at a path or URI, made if it is not there."""
        storage = LocalStorage.create(local_root(uri))
        MARKER.create(storage, reason)
        return cls(storage)

    @property
    def uri(self) -> str:
        """Where the store is."""
        return self.storage.uri

    def load(self, consumer: str) -> Record | None:
        found = self.newest(consumer)
        return found if found and len(found.positions) else None

    def update(self, consumer: str, decide: Decide) -> Commit:
        with self._writing(consumer):
            previous = self.newest(consumer)
            wanted = decide(previous)
            # Of what it builds on, the writer may have died before the fsync.
            self._make_durable(consumer, previous)
            if wanted is None:
                return Commit(previous, previous)
            record = successor(consumer, previous, wanted)
            self._write(record, previous)
            return Commit(record, previous, wanted)

    def restore(self, consumer: str, kept: Kept, decide: Callable[[], Update]) -> Commit:
        """Put a kept record in the place of a damaged or missing one, with a number above all.

        What was found there is kept, too. `decide` runs under the lock.
        """
        with self._writing(consumer):
            wanted = decide()
            base = self.read_kept(consumer, kept)
            if self.storage.stat(consumer + SUFFIX) is not None:
                aside = f"{consumer}.{time.time_ns() // 10**6}.damaged"
                self.storage.link(consumer + SUFFIX, aside)
            # What was lost may have had the number after the highest that is kept.
            highest = max(each.sequence for each in self.kept(consumer)) + 1
            record = successor(consumer, base, wanted, after=highest)
            self._write(record, base)
            return Commit(record, None, wanted)

    def lock(self, consumer: str) -> FileLock:
        """The lock that writers of a consumer hold."""
        path = self.storage.local_path(f"{validate_name(consumer, 'consumer')}.lock")
        if path is None:
            raise UnsupportedFormat(f"{self.uri} is not local, so it has no file locks")
        return FileLock(path)

    def consumers(self) -> list[str]:
        """Every consumer of which there is a file, also deleted and damaged ones."""
        return sorted(self.kept_records())

    def kept_records(self) -> dict[str, list[Kept]]:
        """Every consumer with the records that are kept of it, oldest first; one look at all."""
        found = sort_names(entry.name for entry in self.storage.list())
        if not found:
            # An empty directory may be a disk that is not mounted.
            self._refuse_other_store()
        return found

    def choose(self, consumer: str | None) -> str:
        """The consumer of that name, or the only one there is."""
        known = self.consumers()
        if consumer in known:
            return validate_name(consumer or "", "consumer")
        there = f"known consumers: {', '.join(known) or 'none'}"
        if consumer is not None:
            validate_name(consumer, "consumer")
            raise NotFound(f"there is no consumer {consumer!r} in {self.uri}; {there}")
        if len(known) == 1:
            return known[0]
        if not known:
            raise NotFound(
                f"{self.uri} has no consumers yet",
                hint=f"set positions with: sluicegate offsets import {quote(self.uri)} FILE "
                "--consumer NAME",
                place=self.uri,
            )
        raise UsageError(
            f"no consumer was given, and {self.uri} has {len(known)}; {there}",
            hint="name one with --consumer",
        )

    def newest(self, consumer: str) -> Record | None:
        """The newest record, also of a deleted consumer; None if there never was one."""
        data = self._raw(consumer)
        if data is None:
            self._refuse_other_store()
            if not self.kept(consumer):
                return None
            # Or its first commits were made between the two looks.
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
        """A record that is kept, or `Corrupt`."""
        place = f"{self.uri}/{kept.name}"
        record = decode(self.storage.get(kept.name, limit=FORMAT.max_frame), place, consumer)
        if record.sequence != kept.sequence:
            raise Corrupt(f"{place} holds record number {record.sequence}", place=place)
        return record

    def records(
        self, consumer: str, kept: list[Kept] | None = None
    ) -> list[Record | SluicegateError]:
        """The newest record and those kept below it, newest first; errors for the unreadable."""
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
                found += self._read_if_there(consumer, each)
        return found

    def _read_if_there(self, consumer: str, kept: Kept) -> Iterator[Record | SluicegateError]:
        try:
            yield self.read_kept(consumer, kept)
        except NotFound:
            # A commit dropped it while we were looking.
            return
        except SluicegateError as e:
            yield e

    def prune(self, consumer: str) -> None:
        """Remove records beyond those to keep: old commits, and the oldest changes."""
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
            # The change is made; that old ones could not be removed must not hide it.
            with suppress(StorageFailed):
                self.prune(consumer)

    def _keep(self, record: Record) -> None:
        """Make sure that a record about to be replaced is kept: its writer may have died."""
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
        """What is acknowledged as done already may be of a writer that died before its fsync."""
        if record is not None and self._kept.get(consumer) != record.sequence:
            self.storage.sync(consumer + SUFFIX)

    @contextmanager
    def _writing(self, consumer: str) -> Iterator[None]:
        """Hold the consumer's lock, in a store that is there and may be written."""
        lock = self.lock(consumer)
        self._refuse_read_only(consumer)
        if not lock.path.exists():
            # No lock file may be left where the store's disk is not mounted.
            self._refuse_other_store()
        with lock.hold(timeout=self._patience):
            yield

    def _refuse_read_only(self, consumer: str) -> None:
        if isinstance(self.storage, ReadOnlyStorage):
            place = self._place(consumer)
            raise ReadOnlyViolation(f"refused to change {place}: opened read-only", place=place)

    def _refuse_other_store(self) -> None:
        """Another store in the place of this one must not pass for a consumer without positions."""
        if self._read_mark().id != self.mark.id:
            raise NotFound(
                f"{self.uri} is another store than the one that was opened",
                hint="see what is mounted there, then start the consumer again",
                place=self.uri,
            )

    def _read_mark(self) -> Mark:
        return MARKER.read(self.storage, make=f"sluicegate init --store {quote(self.storage.uri)}")

    def _place(self, consumer: str) -> str:
        return f"{self.uri}/{consumer}{SUFFIX}"

    def _damaged(self, consumer: str, what: str) -> StoreDamaged:
        place = self._place(consumer)
        store = quote(self.uri)
        return StoreDamaged(
            f"the file of consumer {consumer} {what}",
            hint=f"restore what is kept of it with: sluicegate undo {store} --consumer "
            + quote(consumer),
            place=place,
        )
