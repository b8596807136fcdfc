"""The chain of a stream: appending to it, finding its head, walking it; and the hints to its head.

`HEAD` in the stream is where readers begin to probe. The home keeps a second hint beside the
stream (`heads/NAME.head`), which survives when the stream's directory is lost, not mounted, or
replaced by an old backup: a chain that is shorter than what a hint remembers is never taken for
the complete one. A hint also holds what a repair must know of a lost snapshot: the numbers that
only grow, and how many events it included.

The head is found from the `HEAD` hint by probing upward; the directory is never listed for it.
Appending creates the next number exclusively, so of any number of racing writers exactly one gets
it, and the others look at the snapshot that came first.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import asdict, dataclass, fields, replace
from typing import Any

from sluicegate import codec
from sluicegate.errors import (
    Corrupt,
    NotFound,
    SluicegateError,
    SplitBrainCommit,
    UnsupportedFormat,
)
from sluicegate.storage import Storage
from sluicegate.stream.snapshot import (
    ChainDamaged,
    ChainShort,
    HeadDamaged,
    Kind,
    Snapshot,
    SnapshotDamaged,
    decode,
    digest_of,
    encode,
    key_of,
)
from sluicegate.units import command

HEAD = "HEAD"
HOME_DIRECTORY = "heads"
FORMAT = codec.Format("head", 2, 4096, oldest=2)
_DIGEST = re.compile(r"[0-9a-f]{64}")
# No chain gets so far, and the next number must still be one.
_COUNTS = range(2**63)


@dataclass(frozen=True, slots=True)
class Hint:
    """The newest snapshot that was known when the hint was written."""

    stream_id: str
    number: int
    generation: int
    version: int
    epoch: int
    sequence: int
    floor: int
    created_at: float
    nonce: str
    digest: str

    @classmethod
    def of(cls, snapshot: Snapshot) -> Hint:
        """The hint that names a snapshot."""
        return cls(**{each.name: getattr(snapshot, each.name) for each in fields(cls)})


def home_key(stream: str) -> str:
    """Where the home remembers a stream."""
    return f"{HOME_DIRECTORY}/{stream}.head"


def read_hint(storage: Storage, key: str) -> Hint | None:
    """The hint at a key; None if there is none; `HeadDamaged` if it cannot be read."""
    place = f"{storage.uri}/{key}"
    try:
        data = storage.get(key, limit=FORMAT.max_frame)
        return _hint(codec.decode(FORMAT, data, place))
    except NotFound:
        return None
    except Corrupt as e:
        raise HeadDamaged(e.message, place=place) from e
    except (TypeError, ValueError) as e:
        raise HeadDamaged(f"{place}: its fields are not those of a hint: {e}", place=place) from e


def write_hint(storage: Storage, key: str, hint: Hint, *, first: bool = False) -> None:
    """Put a hint durably in the place of the one before; with `first`, only if there is none."""
    data = codec.encode(FORMAT, asdict(hint))
    if first:
        storage.put_if_absent(key, data)
    else:
        storage.replace(key, data)


def _hint(found: Any) -> Hint:
    if not isinstance(found, dict):
        raise TypeError("not a map")
    hint = Hint(**found)
    counts = (hint.number, hint.generation, hint.version, hint.epoch, hint.sequence, hint.floor)
    if any(type(each) is not int or each not in _COUNTS for each in counts):
        raise ValueError("a count is out of range")
    if hint.floor > hint.number:
        raise ValueError("its oldest kept snapshot is above its number")
    if type(hint.created_at) is not float or not math.isfinite(hint.created_at):
        raise ValueError("created_at")
    if not isinstance(hint.stream_id, str) or not _DIGEST.fullmatch(hint.digest):
        raise ValueError("not the identity of a snapshot")
    return hint


# The home's hint follows every change, but not every epoch: that would cost each commit two fsyncs.
_HOME_INTERVAL = 64
_LIMIT = 64 * 1024 * 1024


class Chain:
    """The chain of one stream; `home` is where the second hint is kept, if anywhere."""

    def __init__(self, storage: Storage, home: Storage | None = None, stream: str = "") -> None:
        self.storage = storage
        self.home = home
        self._stream = stream

    def head(self) -> Snapshot:
        """The newest snapshot; `NotFound` without a chain, `ChainDamaged` if it is not complete."""
        while True:
            hint = read_hint(self.storage, HEAD)
            snapshot = self._read_if_there(hint.number) if hint else self._genesis_alone()
            if snapshot is None:
                if read_hint(self.storage, HEAD) != hint:
                    # Begun or pruned while we looked: there is a newer hint now.
                    continue
                if hint is None and self.numbers() == [0]:
                    continue
                raise self._short(hint) if hint else self._headless()
            if hint and (snapshot.digest != hint.digest or snapshot.stream_id != hint.stream_id):
                raise self._damaged(hint.number, "it is not the snapshot that HEAD names")
            return self._newest_from(snapshot)

    def open_head(self) -> Snapshot:
        """The head to build on: durable, and no older than what the home remembers."""
        while True:
            head = self.head()
            try:
                # Its writer may have died before its last fsync.
                self.storage.sync(key_of(head.number))
            except NotFound:
                # Pruned since, so there is a newer one.
                continue
            if read_hint(self.storage, HEAD) is None:
                # Never over one that is there: others may be far ahead by now.
                write_hint(self.storage, HEAD, Hint.of(head), first=True)
            self.check_home(head)
            return head

    def check_above(self, head: Snapshot) -> None:
        """Refuse a head above which there are snapshots, but not the next one: that one was lost.

        HEAD may be older than the loss. The home's hint is at most so far below the newest, so
        snapshots that it does not know of lie within this distance.
        """
        for number in range(head.number + 2, head.number + _HOME_INTERVAL + 2):
            if self.storage.stat(key_of(number)) is None:
                continue
            # Unless other processes appended, and perhaps pruned, since the head was read.
            if self.head().number == head.number:
                raise self._damaged(
                    head.number + 1, f"it is missing, but snapshot {number} is there"
                )
            return

    def check_home(self, head: Snapshot) -> None:
        """Refuse a chain that is older than, or another than, the one that the home remembers."""
        known = self.remembered()
        if known is None:
            return
        if known.number > head.number:
            # Perhaps other processes appended since the head was read.
            head = self.head()
        if known.stream_id != head.stream_id:
            raise ChainDamaged(
                f"{self.storage.uri} holds another stream than the one that the home remembers "
                f"as {head.stream!r}",
                hint="restore the right directory; if the old stream is abandoned, "
                f"remove {self._home_place()}",
                place=self.storage.uri,
            )
        if known.number > head.number:
            raise ChainShort(
                f"{self.storage.uri} ends at snapshot {head.number}, but the home remembers "
                f"snapshot {known.number}: an old backup was restored, or snapshots were lost",
                hint=self._look(),
                place=self.storage.uri,
            )
        if known.number >= head.floor:
            snapshot = self._read_if_there(known.number)
            if snapshot and snapshot.digest != known.digest:
                raise self._damaged(known.number, "it is not the snapshot that the home remembers")

    def remembered(self) -> Hint | None:
        """The home's hint of this stream."""
        return read_hint(self.home, home_key(self._stream)) if self.home else None

    def read(self, number: int) -> Snapshot:
        """A snapshot, which is the one that belongs there, or `SnapshotDamaged`."""
        snapshot = self._read_if_there(number)
        if snapshot is None:
            raise self._damaged(number, "it is missing")
        return snapshot

    def named(self, number: int) -> Snapshot:
        """A snapshot that an operator named: one that cannot be there is `NotFound`, not damage."""
        snapshot = self._read_if_there(number)
        if snapshot is not None:
            return snapshot
        head = self.head()
        if number > head.number:
            raise NotFound(f"there is no snapshot {number} yet; the newest is {head.number}")
        if number < head.floor:
            raise NotFound(f"snapshot {number} was pruned; the oldest kept one is {head.floor}")
        raise self._damaged(number, "it is missing")

    def raw(self, number: int) -> bytes | None:
        """The bytes at a number, whatever they are; None if there are none."""
        try:
            return self.storage.get(key_of(number), limit=_LIMIT)
        except NotFound:
            return None

    def walk(self, newest: int, oldest: int) -> Iterator[Snapshot]:
        """The snapshots between two numbers, newest first; each is the parent of the one before."""
        child: Snapshot | None = None
        for number in range(newest, oldest - 1, -1):
            snapshot = self.read(number)
            if child and child.parent != snapshot.digest:
                raise self._damaged(
                    number, f"it is not the parent that snapshot {child.number} names"
                )
            yield snapshot
            child = snapshot

    def first(self, oldest: int, newest: int, wanted: Callable[[Snapshot], bool]) -> int:
        """The lowest number from which on snapshots are as wanted, which they stay, by bisection.

        Unreadable snapshots decide nothing: of damaged ones at the edge it gives the lowest.
        """
        while oldest < newest:
            middle = (oldest + newest) // 2
            found = next(self._intact(middle, newest - 1), None)
            if found is None or wanted(found):
                newest = middle
            else:
                oldest = found.number + 1
        return oldest

    def append(self, snapshot: Snapshot) -> Snapshot | None:
        """Make this the next snapshot, durably; None if another process's came first."""
        data = encode(snapshot)
        created = self.storage.put_if_absent(key_of(snapshot.number), data)
        # A snapshot with our own nonce is ours: it had succeeded, and the reply was lost.
        if not created and self.read(snapshot.number).nonce != snapshot.nonce:
            return None
        appended = replace(snapshot, digest=digest_of(data))
        self._refuse_pruned(appended)
        self._hint_at(appended)
        if snapshot.kind is not Kind.EPOCH or snapshot.number % _HOME_INTERVAL == 0:
            self.update_home(appended)
        return appended

    def update_home(self, snapshot: Snapshot) -> None:
        """Update the home's hint, unless it names a later snapshot."""
        if self.home is None:
            return
        try:
            known = self.remembered()
        except HeadDamaged:
            # The snapshot is durable; the next start and verify report the damaged hint.
            return
        if known is None or known.number < snapshot.number:
            write_hint(self.home, home_key(self._stream), Hint.of(snapshot))

    def settle(self, head: Snapshot) -> None:
        """Let HEAD name the head; the caller keeps all others from appending.

        A killed writer may have left it at an older snapshot, which is about to be removed.
        """
        if read_hint(self.storage, HEAD) != Hint.of(head):
            write_hint(self.storage, HEAD, Hint.of(head))

    def _refuse_pruned(self, snapshot: Snapshot) -> None:
        """Refuse a number that was used and pruned while its writer was frozen.

        It is free again, but it is not the next one: HEAD, which only grows, is past it.
        """
        with suppress(HeadDamaged):
            hint = read_hint(self.storage, HEAD)
            if hint and hint.floor > snapshot.number:
                self.storage.delete(key_of(snapshot.number))
                raise SplitBrainCommit(
                    f"snapshot {snapshot.number} was taken by another writer, and is pruned: the "
                    f"stream begins with {hint.floor}"
                )

    def _hint_at(self, snapshot: Snapshot) -> None:
        """Write HEAD; never leave it older than a later snapshot that is already there."""
        while True:
            with suppress(HeadDamaged):
                known = read_hint(self.storage, HEAD)
                if known and known.number > snapshot.number:
                    return
            write_hint(self.storage, HEAD, Hint.of(snapshot))
            later = self._read_if_there(snapshot.number + 1)
            if later is None:
                return
            if later.parent != snapshot.digest:
                raise self._damaged(later.number, f"its parent is not snapshot {snapshot.number}")
            self.storage.sync(key_of(later.number))
            snapshot = later

    def _newest_from(self, snapshot: Snapshot) -> Snapshot:
        while (later := self._read_if_there(snapshot.number + 1)) is not None:
            if later.parent != snapshot.digest:
                raise self._damaged(later.number, f"its parent is not snapshot {snapshot.number}")
            snapshot = later
        return snapshot

    def _genesis_alone(self) -> Snapshot | None:
        """A genesis whose writer died before the hint is a chain of one; all else is damage."""
        return self._read_if_there(0) if self.numbers() == [0] else None

    def _headless(self) -> SluicegateError:
        if self._is_of_format_1():
            return UnsupportedFormat(
                f"{self.storage.uri} is a stream of format 1; this release reads format 2",
                hint="it was made by an older release: use that release for it",
                place=self.storage.uri,
            )
        if self.numbers():
            return HeadDamaged(
                f"{self.storage.uri}/{HEAD} is missing, so the newest snapshot is not known for "
                "sure",
                hint=self._look(),
                place=f"{self.storage.uri}/{HEAD}",
            )
        if self.remembered():
            return ChainShort(
                f"{self.storage.uri} has no chain, but the home remembers one: the directory was "
                "lost, emptied, or is not mounted",
                hint="mount or restore the directory; if the stream is abandoned, "
                f"remove {self._home_place()}",
                place=self.storage.uri,
            )
        return NotFound(f"there is no chain in {self.storage.uri}", place=self.storage.uri)

    def _is_of_format_1(self) -> bool:
        """Whether it has snapshots of the first format, which were called links."""
        with suppress(NotFound):
            return any(entry.name.endswith(".link") for entry in self.storage.list("chain"))
        return False

    def numbers(self) -> list[int]:
        """The numbers that have a file, by listing; for checks and repairs only."""
        try:
            entries = self.storage.list("chain")
        except NotFound:
            return []
        stems = [e.name.removesuffix(".snapshot") for e in entries if e.name.endswith(".snapshot")]
        return sorted(int(stem) for stem in stems if len(stem) == 20 and stem.isdigit())

    def _intact(self, first: int, last: int) -> Iterator[Snapshot]:
        for number in range(first, last + 1):
            with suppress(SnapshotDamaged):
                yield self.read(number)

    def _read_if_there(self, number: int) -> Snapshot | None:
        key = key_of(number)
        try:
            data = self.storage.get(key, limit=_LIMIT)
        except NotFound:
            return None
        try:
            snapshot = decode(data, f"{self.storage.uri}/{key}")
        except SnapshotDamaged as e:
            raise SnapshotDamaged(e.message, hint=self._look(), place=e.place) from e
        if snapshot.number != number:
            raise self._damaged(number, f"it holds snapshot {snapshot.number}")
        return snapshot

    def _short(self, hint: Hint) -> ChainShort:
        return ChainShort(
            f"{self.storage.uri}: HEAD names snapshot {hint.number}, which is missing",
            hint=self._look(),
            place=f"{self.storage.uri}/{key_of(hint.number)}",
        )

    def _damaged(self, number: int, what: str) -> SnapshotDamaged:
        place = f"{self.storage.uri}/{key_of(number)}"
        return SnapshotDamaged(f"{place}: {what}", hint=self._look(), place=place)

    def _look(self) -> str:
        return f"check it with: {command('checkpoint', 'verify', self.storage.uri)}"

    def _home_place(self) -> str:
        return f"{self.home.uri}/{home_key(self._stream)}" if self.home else "the hint"
