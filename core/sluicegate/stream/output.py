"""The output of epochs: files that are published together, with their snapshot.

    data/snapshot=00000000000000000042-<nonce>/…      rows, as Parquet
    rejects/snapshot=00000000000000000042-<nonce>/…   records that were not applied, with the reason
    _sluicegate/attempts/<nonce>/…                files that tasks write, also failed ones
    _sluicegate/staged/<nonce>/data, …/rejects    the files of an epoch, not yet published
    _sluicegate/trash/data/…, …/rejects/…         output that a rollback unpublished, under its name
    _sluicegate/trash/staged/<nonce>/…            output that was never committed
    _sluicegate/sink, _sluicegate/settled         the owner, and which ancestry is published

Spark and others ignore names that begin with an underscore. The published directories are those of
the head's ancestry; comparing it with the ancestry that was settled last shows what is missing and
what is no longer part of the stream.
"""

from __future__ import annotations

import logging
import re
import shutil
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from hashlib import blake2b
from pathlib import Path
from typing import Any

from sluicegate import codec
from sluicegate.errors import Corrupt, NotFound, SluicegateError, UsageError
from sluicegate.identity import Marker
from sluicegate.storage import LocalStorage, ReadOnlyStorage, Storage, base, local_root
from sluicegate.storage.blobs import Ref
from sluicegate.stream.history import discarded, newest_epoch
from sluicegate.stream.snapshot import Kind, Snapshot, SnapshotDamaged, Span, has, spans, without
from sluicegate.stream.stream import Stream
from sluicegate.stream.writer import Run
from sluicegate.units import command

DATA, REJECTS = "data", "rejects"
KINDS = (DATA, REJECTS)
_LIST = codec.Format("output", 1, 64 * 1024 * 1024)


@dataclass(frozen=True, slots=True)
class File:
    """A file that a task wrote, complete and durable."""

    name: str
    size: int
    rows: int
    digest: str

    def fields(self) -> list[Any]:
        """As plain values."""
        return [self.name, self.size, self.rows, self.digest]


@dataclass(frozen=True, slots=True)
class Output:
    """The files of one epoch, by kind."""

    files: Mapping[str, tuple[File, ...]]

    def __bool__(self) -> bool:
        return any(self.files.values())

    def rows(self, kind: str) -> int:
        """How many rows there are of a kind."""
        return sum(each.rows for each in self.files.get(kind, ()))


def encode(output: Output) -> bytes:
    """The blob that lists the files of an epoch."""
    return codec.encode(
        _LIST, {kind: [f.fields() for f in files] for kind, files in output.files.items() if files}
    )


def read_output(stream: Stream, ref: Ref) -> Output:
    """The files that an epoch wrote."""
    fields = codec.decode(_LIST, stream.blobs.get(ref), ref.key)
    try:
        return Output({kind: tuple(_file(*each) for each in fields[kind]) for kind in fields})
    except (TypeError, ValueError) as e:
        raise Corrupt(f"{ref.key} does not list files: {e!r}", place=ref.key) from e


def _file(name: str, size: int, rows: int, digest: str) -> File:
    return File(str(name), int(size), int(rows), str(digest))


PUBLISHED, PENDING = "published", "pending"
_OWN = "_sluicegate"
ATTEMPTS, STAGED, TRASH = f"{_OWN}/attempts", f"{_OWN}/staged", f"{_OWN}/trash"
_SETTLED = f"{_OWN}/settled"
_MARKER = Marker(f"{_OWN}/sink", "sink", "the sink of a stream", version=2)
_ANCESTRY = codec.Format("settled", 2, 16 * 1024 * 1024, oldest=2)
_log = logging.getLogger("sluicegate.stream")
NAME = re.compile(r"snapshot=([0-9]{20})-[0-9a-f]{32}")


class OutputLost(Corrupt):
    """Output of a committed epoch is neither published nor staged nor in the trash."""

    default_hint = (
        "restore the sink from a backup, or discard the epoch with: sluicegate checkpoint rollback"
    )


def name_of(snapshot: Snapshot) -> str:
    """The name of the published directory of an epoch."""
    return f"snapshot={snapshot.number:020d}-{snapshot.nonce}"


class Sink:
    """Where the output of one stream goes; get it from `open_sink`."""

    def __init__(self, storage: Storage, stream: Stream) -> None:
        self._storage = storage
        self._stream = stream

    @property
    def uri(self) -> str:
        """Where it is."""
        return self._storage.uri

    def path(self, key: str) -> Path:
        """The path of a key on this machine."""
        path = self._storage.local_path(key)
        assert path is not None
        return path

    def unfinished(self, limit_ns: float) -> Iterator[Path]:
        """Its own unfinished files that were not written to since a time."""
        return base.old_temporaries(self._storage, [_OWN], limit_ns)

    def attempts(self, nonce: str) -> Path:
        """The directory that the tasks of an attempt write to."""
        path = self.path(f"{ATTEMPTS}/{nonce}")
        path.mkdir(parents=True, exist_ok=True)
        return path

    def stage(self, nonce: str, output: Output) -> None:
        """Take over the files of an epoch from its tasks; files of failed attempts stay behind.

        An abandoned task may still write, but not to where an epoch is published from.
        """
        for kind, files in output.files.items():
            for file in files:
                source = f"{ATTEMPTS}/{nonce}/{file.name}"
                found = self._storage.stat(source)
                if found is None or found.size != file.size:
                    raise OutputLost(
                        f"{self.uri}/{source} is missing, or changed after it was written"
                    )
                self._storage.move(source, f"{STAGED}/{nonce}/{kind}/{file.name}")
        self._remove(f"{ATTEMPTS}/{nonce}")

    def drop(self, nonce: str) -> None:
        """Remove the files of an attempt that will not be committed."""
        self._remove(f"{ATTEMPTS}/{nonce}")
        self._remove(f"{STAGED}/{nonce}")

    def publish(self, snapshot: Snapshot) -> None:
        """Publish a committed epoch, unless it was rolled back in the meantime."""
        if snapshot.output is None:
            return
        with self._publishing():
            if self._stream.chain.head().includes(snapshot.number):
                self._publish(snapshot)

    def settle(self) -> None:
        """Publish the ancestry of the head: add missing output, unpublish the rest.

        If it is interrupted, the next call finishes it, also for another head.
        """
        with self._publishing():
            head = self._stream.chain.head()
            settled = self.settled()
            if settled == head.ancestry:
                return
            missing = _minus(head.ancestry, settled or ())
            # Epochs since then were published one by one, also those that were rolled back since.
            # If it is not known what was settled last, the directory names show what is there.
            there = [*settled, (settled[-1][1] + 1, head.number)] if settled else self._there()
            surplus = _minus(there, head.ancestry)
            if settled and (surplus or missing[0][0] <= settled[-1][1]):
                # From the first move on it is no longer true.
                self._storage.delete(_SETTLED)
            self._republish(missing)
            declared = list(discarded(self._stream, head))
            for snapshot in self._snapshots(head, missing, declared):
                self._publish(snapshot, declared)
            self._unpublish(surplus)
            fields = {"ancestry": [list(span) for span in head.ancestry]}
            self._storage.replace(_SETTLED, codec.encode(_ANCESTRY, fields))

    def clear(self, run: Run) -> None:
        """Clear away unpublished files that attempts before a run left.

        Before an epoch is committed, all before it are published or put aside here. So staged
        output is that of the newest epoch, or was never committed. The newest epoch may have been
        rolled back before it was published, and that may be undone: it is kept under its name.
        """
        with self._publishing():
            newest = newest_epoch(self._stream, run.refresh())
            self._remove(ATTEMPTS)
            for name in self.names(STAGED):
                if newest is None or name != newest.nonce:
                    self._storage.move(f"{STAGED}/{name}", f"{TRASH}/staged/{name}")
                    continue
                for kind in self.names(f"{STAGED}/{name}"):
                    place = f"{TRASH}/{kind}/{name_of(newest)}"
                    self._storage.move(f"{STAGED}/{name}/{kind}", place)
                self._remove(f"{STAGED}/{name}")

    def published(self) -> dict[int, set[str]]:
        """The kinds that are published, by number of snapshot."""
        found: dict[int, set[str]] = {}
        for kind in KINDS:
            for name in self.names(kind):
                if match := NAME.fullmatch(name):
                    found.setdefault(int(match[1]), set()).add(kind)
        return found

    def status(self, snapshot: Snapshot, kind: str, file: File, *, read: bool = False) -> str:
        """The status of a file of an epoch: `published`, `pending`, or what is wrong with it."""
        place = f"{kind}/{name_of(snapshot)}/{file.name}"
        found = self._storage.stat(place)
        if found is None:
            waiting = (f"{each}/{file.name}" for each in _sources(snapshot, kind))
            return PENDING if any(map(self._storage.stat, waiting)) else "is missing"
        if found.size != file.size:
            return f"has {found.size} bytes, not {file.size}"
        if read and self._digest(place) != file.digest:
            return "has different content"
        return PUBLISHED

    def _digest(self, key: str) -> str:
        digest = blake2b(digest_size=32)
        with self._storage.open(key) as stream:
            while piece := stream.read(1 << 20):
                digest.update(piece)
        return digest.hexdigest()

    def _publish(self, snapshot: Snapshot, declared: Sequence[Span] = ()) -> None:
        is_discarded = has(declared, snapshot.number)
        for kind in self._kinds(snapshot, is_discarded=is_discarded):
            place = f"{kind}/{name_of(snapshot)}"
            if self._storage.stat(place) is not None:
                continue
            moved = any(self._storage.move(source, place) for source in _sources(snapshot, kind))
            if not moved and not is_discarded:
                raise OutputLost(
                    f"{self.uri}: the {kind} of snapshot {snapshot.number} are missing"
                )
        self._remove(f"{STAGED}/{snapshot.nonce}")

    def _kinds(self, snapshot: Snapshot, *, is_discarded: bool) -> Sequence[str]:
        """The kinds of files that an epoch wrote; all kinds if a repair discarded it."""
        assert snapshot.output
        try:
            found = read_output(self._stream, snapshot.output).files
        except Corrupt:
            if not is_discarded:
                raise
            return KINDS
        return [kind for kind, files in found.items() if files]

    def _unpublish(self, spans: Sequence[Span]) -> None:
        if not spans:
            return
        for kind in KINDS:
            for name in self.names(kind):
                match = NAME.fullmatch(name)
                if match and any(first <= int(match[1]) <= last for first, last in spans):
                    self._storage.move(f"{kind}/{name}", f"{TRASH}/{kind}/{name}")

    def _republish(self, spans: Sequence[Span]) -> None:
        """Publish output from the trash: by its name, as its snapshot may be pruned."""
        for kind in KINDS:
            for name in self.names(f"{TRASH}/{kind}"):
                match = NAME.fullmatch(name)
                if match and has(spans, int(match[1])):
                    self._storage.move(f"{TRASH}/{kind}/{name}", f"{kind}/{name}")

    def _snapshots(
        self, head: Snapshot, spans: Iterable[Span], declared: Sequence[Span]
    ) -> Iterator[Snapshot]:
        """The epochs with output in these spans, as far as their snapshots are kept."""
        for first, last in spans:
            for number in range(max(first, head.floor), min(last, head.number) + 1):
                try:
                    snapshot = self._stream.chain.read(number)
                except SnapshotDamaged:
                    if not has(declared, number):
                        raise
                    # If a later epoch was committed, this one was published and has its name.
                    _log.warning("snapshot %d was discarded: its output is left unchanged", number)
                    continue
                if snapshot.kind is Kind.EPOCH and snapshot.output:
                    yield snapshot

    def settled(self) -> tuple[Span, ...] | None:
        """The ancestry that was published last; None if that is not known."""
        try:
            data = self._storage.get(_SETTLED)
            fields = codec.decode(_ANCESTRY, data, f"{self.uri}/{_SETTLED}")
            return tuple((int(first), int(last)) for first, last in fields["ancestry"])
        except (NotFound, Corrupt, KeyError, TypeError, ValueError):
            return None

    def _there(self) -> list[Span]:
        return spans(self.published())

    @contextmanager
    def _publishing(self) -> Iterator[None]:
        with self._stream.lock("publish").hold(timeout=60):
            yield

    def names(self, key: str) -> list[str]:
        """The names in one of its directories."""
        try:
            return [entry.name for entry in self._storage.list(key)]
        except NotFound:
            return []

    def _remove(self, key: str) -> None:
        shutil.rmtree(self.path(key), ignore_errors=True)


def _sources(snapshot: Snapshot, kind: str) -> tuple[str, ...]:
    """Where the output of an epoch is until it is published, or after it was unpublished."""
    staged = f"{snapshot.nonce}/{kind}"
    unpublished = f"{TRASH}/{kind}/{name_of(snapshot)}"
    return f"{STAGED}/{staged}", unpublished, f"{TRASH}/staged/{staged}"


def look_at_sink(stream: Stream, uri: str | None) -> Sink | None:
    """The sink of a stream, only to be read; None if it has none of its own."""
    place = local_root(uri) if uri else stream.storage.local_path("output")
    assert place is not None
    storage = ReadOnlyStorage(LocalStorage(place))
    try:
        mark = _MARKER.read(storage, make="")
    except SluicegateError:
        return None
    is_own = mark.more.get("stream_id") == stream.chain.head().stream_id
    return Sink(storage, stream) if is_own else None


def open_sink(stream: Stream, uri: str | None) -> Sink:
    """The sink of a stream, made if the stream never had one; inside the stream if none is named.

    A sink that another stream writes to is refused, and one that should have output and has none:
    its disk may not be mounted.
    """
    head = stream.chain.head()
    own = stream.storage.local_path("output")
    place = local_root(uri) if uri else own
    assert place is not None
    storage = LocalStorage(place)
    try:
        mark = _MARKER.read(storage, make="")
    except NotFound:
        _refuse_lost(stream, head, place)
        storage = LocalStorage.create(place)
        _MARKER.create(storage, more={"stream_id": head.stream_id})
        mark = _MARKER.read(storage, make="")
    if mark.more.get("stream_id") != head.stream_id:
        raise UsageError(
            f"{place} is the sink of another stream",
            hint=f"give [streams.{stream.name}] a sink of its own",
        )
    return Sink(storage, stream)


def _refuse_lost(stream: Stream, head: Snapshot, place: Path) -> None:
    if not head.counters.get("written") and not head.counters.get("rejected"):
        _refuse_full(place)
        return
    raise NotFound(
        f"{place} is not the sink of {stream.name}, which has written output",
        hint="mount its disk, or move the sink there, or put the old path back into "
        f"[streams.{stream.name}]; see: {command('checkpoint', 'inspect', stream.uri)}",
        place=str(place),
    )


def _refuse_full(place: Path) -> None:
    # A process that was interrupted while it made the sink left the marker's directory.
    storage = LocalStorage(place)
    if place.is_dir() and any(e.name != _OWN or storage.list(_OWN) for e in storage.list()):
        raise UsageError(
            f"{place} is not empty and is not a Sluicegate sink", hint="name an empty directory"
        )


def _minus(these: Iterable[Span], those: Sequence[Span]) -> list[Span]:
    """The numbers that are in one ancestry and not in another."""
    return [left for span in these for left in without(span, those)]
