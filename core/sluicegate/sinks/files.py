"""Output as directories of files, on a file system: published by renaming a directory.

    data/snapshot=00000000000000000042-<nonce>/…      rows, as Parquet; `_epoch` names its events
    rejects/snapshot=00000000000000000042-<nonce>/…   records that were not applied, with the reason
    _sluicegate/attempts/<nonce>/…                files that tasks write, also failed ones
    _sluicegate/staged/<claim>/<nonce>.data, …    the files of an epoch, not yet published
    _sluicegate/fenced/<claim>/…                  what a claim had staged when another took over
    _sluicegate/trash/data/…, …/rejects/…         output that was withdrawn, under its name
    _sluicegate/trash/staged/…                    output that was never committed
    _sluicegate/sink, _sluicegate/settled         the owner, and which ancestry is published

Spark and others ignore names that begin with an underscore.

A claim publishes from its own staged directory, and withdraws into it. To fence it off, its
directory is renamed: whatever it was about to do next, one side of it is gone. Nothing is published
from the trash, or from what a fenced claim had staged, before it is in one's own directory.
"""

from __future__ import annotations

import re
import uuid
from collections.abc import Callable, Collection, Iterator
from contextlib import suppress
from hashlib import blake2b
from pathlib import Path

from sluicegate import codec
from sluicegate.errors import Corrupt, NotFound, SluicegateError, UsageError
from sluicegate.identity import Marker
from sluicegate.positions import from_spark, to_spark
from sluicegate.sinks.base import (
    KINDS,
    PENDING,
    PUBLISHED,
    File,
    Output,
    OutputGarbage,
    OutputLost,
    Reach,
    Settled,
    SinkFenced,
    SnapshotName,
)
from sluicegate.storage import LocalStorage, ReadOnlyStorage, Storage, base, local_root
from sluicegate.storage.local import Translated

_OWN = "_sluicegate"
ATTEMPTS, STAGED, TRASH = f"{_OWN}/attempts", f"{_OWN}/staged", f"{_OWN}/trash"
_FENCED = f"{_OWN}/fenced"
_NEVER_COMMITTED = f"{TRASH}/staged"
_SETTLED = f"{_OWN}/settled"
_CLAIM, _EPOCH, _PROBE = "_claim", "_epoch", "_probe"
_MARKER = Marker(f"{_OWN}/sink", "sink", "the sink of a stream", version=2)
_SETTLED_FORMAT = codec.Format("settled", 3, 16 * 1024 * 1024, oldest=3)
_EPOCH_FORMAT = codec.Format("epoch", 1, 16 * 1024 * 1024)
_NAME = re.compile(r"(?:snapshot=)?([0-9]{20})-([0-9a-f]{32})")


def directory_of(name: SnapshotName) -> str:
    """The name of the published directory of an epoch."""
    return f"snapshot={name}"


class FileSink:
    """The sink in one directory; get it from `open_sink`."""

    def __init__(self, storage: Storage) -> None:
        self._storage = storage
        self._claim: SnapshotName | None = None

    @property
    def uri(self) -> str:
        """Where it is."""
        return self._storage.uri

    def published(self) -> dict[SnapshotName, set[str]]:
        """What is published now: the kinds of output of each snapshot."""
        found: dict[SnapshotName, set[str]] = {}
        for kind in KINDS:
            for name in self._snapshots(kind):
                found.setdefault(name, set()).add(kind)
        return found

    def withdrawn(self) -> dict[SnapshotName, set[str]]:
        """What is in the trash under its name, and can be published again."""
        found: dict[SnapshotName, set[str]] = {}
        for kind in KINDS:
            for name in self._snapshots(f"{TRASH}/{kind}"):
                found.setdefault(name, set()).add(kind)
        return found

    def reach(self, name: SnapshotName) -> Reach | None:
        """The events that a published output holds; None if that was not recorded."""
        for kind in KINDS:
            place = f"{kind}/{directory_of(name)}/{_EPOCH}"
            try:
                data = self._storage.get(place, limit=_EPOCH_FORMAT.max_frame)
                found = codec.decode(_EPOCH_FORMAT, data, f"{self.uri}/{place}")
                start, end = from_spark(found["start"]), from_spark(found["end"])
                return Reach(int(found["generation"]), start, end)
            except (NotFound, Corrupt, UsageError, KeyError, TypeError, ValueError):
                continue
        return None

    def claims(self) -> list[SnapshotName]:
        """The claims that have fenced the sink, as far as it remembers them; newest last."""
        return sorted(self._snapshots(STAGED))

    def fence(self, claim: SnapshotName) -> None:
        """Fence off all earlier claims; `SinkFenced` if a later one was here.

        One's own directory first, then the list: of two claims at the same time, either the later
        one sees the directory of the earlier and moves it, or the earlier one sees the later.
        """
        self._storage.put_if_absent(f"{STAGED}/{claim}/{_CLAIM}", b"")
        others = [other for other in self.claims() if other != claim]
        later = [other for other in others if other.number >= claim.number]
        if later:
            raise SinkFenced(
                f"{self.uri} was taken over by a later claim, snapshot {later[-1].number}"
            )
        for other in others:
            # Unless somebody else has just done it.
            with suppress(NotFound):
                self._storage.move(f"{STAGED}/{other}", f"{_FENCED}/{other}")
        self._claim = claim
        self._try_out()
        self._take_over()

    def _try_out(self) -> None:
        """Publish and withdraw an empty directory: what fails now would fail after a commit."""
        entry = f"{_PROBE}-{uuid.uuid4().hex}"
        # A kind of which there is no output yet gets its directory in the sink itself.
        places = [f"{kind}/" if self._storage.stat(kind) else "" for kind in KINDS]
        for place in ("", *places):
            for left in self._names(place.rstrip("/")):
                if left.startswith(f"{_PROBE}-"):
                    self._storage.delete_all(f"{place}{left}")
        self._storage.put_if_absent(f"{self._place(entry)}/{_PROBE}", b"")
        for place in places:
            self._move(self._place(entry), f"{place}{entry}")
            self._into_own(f"{place}{entry}", entry)
        self._storage.delete_all(self._place(entry))

    def _take_over(self) -> None:
        """Take what earlier claims had staged into one's own directory, or into the trash."""
        for claim in self._names(_FENCED):
            for entry in self._names(f"{_FENCED}/{claim}"):
                if entry != _CLAIM:
                    self._into_own(f"{_FENCED}/{claim}/{entry}", entry)
            self._storage.delete_all(f"{_FENCED}/{claim}")
        for entry, kind in self._staged():
            # It was on its way, out or back.
            if _name(entry):
                self._to_trash(entry, kind)

    def attempts(self, nonce: str) -> str:
        """The directory that the tasks of an attempt write to."""
        path = self._storage.local_path(f"{ATTEMPTS}/{nonce}")
        assert path is not None
        with Translated(path):
            path.mkdir(parents=True, exist_ok=True)
        return str(path)

    def stage(self, nonce: str, output: Output, reach: Reach) -> None:
        """Take over the files of an epoch from its tasks; files of failed attempts stay behind.

        An abandoned task may still write, but not to where an epoch is published from.
        """
        events = {"start": to_spark(reach.start), "end": to_spark(reach.end)}
        epoch = codec.encode(_EPOCH_FORMAT, {"generation": reach.generation, **events})
        for kind in output.kinds:
            place = self._place(f"{nonce}.{kind}")
            for file in output.files[kind]:
                source = f"{ATTEMPTS}/{nonce}/{file.name}"
                found = self._storage.stat(source)
                if found is None or found.size != file.size:
                    self._refuse_fenced()
                    raise OutputLost(
                        f"{self.uri}/{source} is missing, or changed after it was written"
                    )
                self._move(source, f"{place}/{file.name}")
            self._storage.put_if_absent(f"{place}/{_EPOCH}", epoch)
        self._storage.delete_all(f"{ATTEMPTS}/{nonce}")

    def drop(self, nonce: str) -> None:
        """Remove the files of an attempt that will not be committed."""
        self._storage.delete_all(f"{ATTEMPTS}/{nonce}")
        for kind in KINDS:
            self._storage.delete_all(self._place(f"{nonce}.{kind}"))

    def publish(self, name: SnapshotName, kinds: Collection[str]) -> list[str]:
        """Make the output of a committed epoch visible, once; the kinds that are nowhere."""
        return [kind for kind in kinds if not self._publish(name, kind)]

    def _publish(self, name: SnapshotName, kind: str) -> bool:
        place = f"{kind}/{directory_of(name)}"
        if self._storage.stat(place) is not None:
            return True
        fresh, again = f"{name.nonce}.{kind}", f"{directory_of(name)}.{kind}"
        if self._move(self._place(fresh), place):
            return True
        kept = (f"{TRASH}/{place}", f"{_NEVER_COMMITTED}/{fresh}")
        if any(self._into_own(each, again) for each in kept):
            return self._move(self._place(again), place)
        self._refuse_fenced()
        # Another claim may have published it meanwhile.
        return self._storage.stat(place) is not None

    def withdraw(self, name: SnapshotName) -> None:
        """Make output invisible, and keep it: the stream may be rolled forward again."""
        for kind in KINDS:
            if self._into_own(f"{kind}/{directory_of(name)}", f"{directory_of(name)}.{kind}"):
                self._to_trash(directory_of(name), kind)

    def clear(self, newest: SnapshotName | None) -> None:
        """Clear away what earlier claims staged, but keep the output of the newest epoch.

        Before an epoch is committed, all before it are published or put aside here. So staged
        output is that of the newest epoch, or was never committed. The newest epoch may have been
        rolled back before it was published, and that may be undone: it is kept under its name.
        """
        for nonce, kind in self._staged():
            if newest and nonce == newest.nonce:
                self._to_trash(nonce, kind, directory_of(newest))
            else:
                place = f"{_NEVER_COMMITTED}/{nonce}.{kind}"
                self._move(self._place(f"{nonce}.{kind}"), place)
        self._storage.delete_all(ATTEMPTS)

    def status(self, name: SnapshotName, kind: str, file: File, *, read: bool = False) -> str:
        """The status of a file of an epoch: `published`, `pending`, or what is wrong with it."""
        place = f"{kind}/{directory_of(name)}/{file.name}"
        found = self._storage.stat(place)
        if found is None:
            waiting = (f"{each}/{file.name}" for each in self._waiting(name, kind))
            return PENDING if any(map(self._storage.stat, waiting)) else "is missing"
        if found.size != file.size:
            return f"has {found.size} bytes, not {file.size}"
        if read and self._digest(place) != file.digest:
            return "has different content"
        return PUBLISHED

    def is_waiting(self, name: SnapshotName) -> bool:
        """Whether output is staged, or was withdrawn, and can be published."""
        places = (place for kind in KINDS for place in self._waiting(name, kind))
        return any(self._storage.stat(place) for place in places)

    def settled(self) -> Settled | None:
        """What was settled last; None if that is not known."""
        try:
            data = self._storage.get(_SETTLED, limit=_SETTLED_FORMAT.max_frame)
            found = codec.decode(_SETTLED_FORMAT, data, f"{self.uri}/{_SETTLED}")
            ancestry = tuple((int(first), int(last)) for first, last in found["ancestry"])
            head = SnapshotName(int(found["number"]), str(found["nonce"]))
            return Settled(head, ancestry, str(found["published"]))
        except (SluicegateError, KeyError, TypeError, ValueError):
            # It only saves work.
            return None

    def settle(self, settled: Settled) -> None:
        """Remember what is published now."""
        fields = {
            "number": settled.head.number,
            "nonce": settled.head.nonce,
            "ancestry": [list(span) for span in settled.ancestry],
            "published": settled.published,
        }
        self._storage.replace(_SETTLED, codec.encode(_SETTLED_FORMAT, fields))

    def garbage(
        self, limit_ns: float, is_needed: Callable[[int], bool], *, is_running: bool
    ) -> OutputGarbage:
        """What may be removed; files of attempts only if they are older than the limit."""
        reverted = [
            f"{TRASH}/{kind}/{directory_of(name)}"
            for kind in KINDS
            for name in self._snapshots(f"{TRASH}/{kind}")
            if not is_needed(name.number)
        ]
        # A job clears them away when it starts, so what is there now may be its own.
        places = (_NEVER_COMMITTED,) if is_running else (ATTEMPTS, _NEVER_COMMITTED)
        tried = (f"{place}/{name}" for place in places for name in self._names(place))
        attempts = [key for key in tried if self._is_old(key, limit_ns)]
        unfinished = base.old_temporaries(self._storage, [_OWN], limit_ns)
        return OutputGarbage(tuple(reverted), tuple(attempts), tuple(unfinished))

    def remove(self, garbage: OutputGarbage) -> None:
        """Remove it. That takes no lock: what is garbage stays garbage."""
        writable = LocalStorage(local_root(self.uri))
        for key in (*garbage.reverted, *garbage.attempts):
            writable.delete_all(key)
        for path in garbage.unfinished:
            path.unlink(missing_ok=True)

    def _is_old(self, key: str, limit_ns: float) -> bool:
        found = self._storage.stat(key)
        return found is not None and found.modified_ns <= limit_ns

    def _names(self, key: str) -> list[str]:
        """The names in one of its directories."""
        try:
            return [entry.name for entry in self._storage.list(key)]
        except NotFound:
            return []

    def _snapshots(self, key: str) -> Iterator[SnapshotName]:
        for entry in self._names(key):
            if name := _name(entry):
                yield name

    @property
    def _own(self) -> str:
        assert self._claim, "a sink is fenced before anything is published"
        return f"{STAGED}/{self._claim}"

    def _place(self, entry: str) -> str:
        return f"{self._own}/{entry}"

    def _staged(self) -> Iterator[tuple[str, str]]:
        """The name, or nonce, and kind of everything in one's own staged directory."""
        for entry in self._names(self._own):
            name, dot, kind = entry.partition(".")
            if dot and kind in KINDS:
                yield name, kind

    def _into_own(self, source: str, entry: str) -> bool:
        """Move something into one's own staged directory, which must be there."""
        return self._move(source, self._place(entry), create=False)

    def _move(self, source: str, key: str, *, create: bool = True) -> bool:
        """Move something; `SinkFenced` if a later claim has taken one's own directory away."""
        try:
            return self._storage.move(source, key, create=create)
        except NotFound:
            self._refuse_fenced()
            raise

    def _to_trash(self, entry: str, kind: str, name: str | None = None) -> None:
        """Move something from one's own staged directory to the trash, under its name."""
        place = f"{TRASH}/{kind}/{name or entry}"
        if self._storage.stat(place) is not None:
            # The same output twice: a backup was restored over the sink. One of them is enough.
            self._storage.delete_all(self._place(f"{entry}.{kind}"))
        else:
            self._move(self._place(f"{entry}.{kind}"), place)

    def _refuse_fenced(self) -> None:
        if self._storage.stat(self._place(_CLAIM)) is None:
            raise SinkFenced(f"{self.uri} was taken over by a later claim")

    def _waiting(self, name: SnapshotName, kind: str) -> Iterator[str]:
        """Where the output of an epoch may be until it is published, or after it was withdrawn."""
        entries = (f"{name.nonce}.{kind}", f"{directory_of(name)}.{kind}")
        for place in (STAGED, _FENCED):
            for claim in self._names(place):
                yield from (f"{place}/{claim}/{entry}" for entry in entries)
        yield f"{TRASH}/{kind}/{directory_of(name)}"
        yield f"{_NEVER_COMMITTED}/{entries[0]}"

    def _digest(self, key: str) -> str:
        digest = blake2b(digest_size=32)
        with self._storage.open(key) as stream:
            while piece := stream.read(1 << 20):
                digest.update(piece)
        return digest.hexdigest()


def _name(entry: str) -> SnapshotName | None:
    match = _NAME.fullmatch(entry)
    return SnapshotName(int(match[1]), match[2]) if match else None


def look_at_sink(place: Path, stream_id: str) -> FileSink | None:
    """The sink of a stream, only to be read; None if there is none of its own."""
    storage = ReadOnlyStorage(LocalStorage(place))
    try:
        mark = _MARKER.read(storage, make="")
    except SluicegateError:
        return None
    return FileSink(storage) if mark.more.get("stream_id") == stream_id else None


def open_sink(place: Path, stream_id: str, *, may_create: Callable[[], object]) -> FileSink:
    """The sink of a stream; `may_create` is asked before a new one is made, and raises if not."""
    storage = LocalStorage(place)
    try:
        mark = _MARKER.read(storage, make="")
    except NotFound:
        may_create()
        _refuse_full(place)
        storage = LocalStorage.create(place)
        _MARKER.create(storage, more={"stream_id": stream_id})
        mark = _MARKER.read(storage, make="")
    if mark.more.get("stream_id") != stream_id:
        raise UsageError(
            f"{place} is the sink of another stream", hint="give each stream a sink of its own"
        )
    return FileSink(storage)


def _refuse_full(place: Path) -> None:
    # A process that was interrupted while it made the sink left the marker's directory.
    storage = LocalStorage(place)
    if place.is_dir() and any(e.name != _OWN or storage.list(_OWN) for e in storage.list()):
        raise UsageError(
            f"{place} is not empty and is not a Sluicegate sink", hint="name an empty directory"
        )
