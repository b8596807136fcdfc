"""The output of epochs: files that are published as a whole, with their snapshot.

    data/snapshot=00000000000000000042-<nonce>/…      rows, as Parquet
    rejects/snapshot=00000000000000000042-<nonce>/…   records that were not applied, with the reason
    _sluicegate/attempts/<nonce>/…                what tasks write, also those that fail later
    _sluicegate/staged/<nonce>/data, …/rejects    what an epoch consists of, not yet published
    _sluicegate/trash/data/…, …/rejects/…         what a rollback took back, under its name
    _sluicegate/trash/staged/<nonce>/…            what was never committed
    _sluicegate/sink, _sluicegate/settled         whose it is, and which ancestry was made to show

Spark and others pass over names that begin with an underscore. The published directories are those
of the head's ancestry; the ancestry that was settled last says what is missing and what is too
much.
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
from sluicegate.stream.history import given_up, newest_epoch
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
        "restore the sink from a backup; or give the epoch up with: sluicegate checkpoint rollback"
    )


def name_of(snapshot: Snapshot) -> str:
    """What the published directory of an epoch is called."""
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
        """Where something of it lies on this machine."""
        path = self._storage.local_path(key)
        assert path is not None
        return path

    def unfinished(self, limit_ns: float) -> Iterator[Path]:
        """Files of its own that nobody finished, and nobody has written to since a time."""
        return base.old_temporaries(self._storage, [_OWN], limit_ns)

    def attempts(self, nonce: str) -> Path:
        """The directory that the tasks of an attempt write to."""
        path = self.path(f"{ATTEMPTS}/{nonce}")
        path.mkdir(parents=True, exist_ok=True)
        return path

    def stage(self, nonce: str, output: Output) -> None:
        """Take the files of an epoch over from its tasks; what others of them wrote stays behind.

        A task that was given up may still write, but not to where an epoch is published from.
        """
        for kind, files in output.files.items():
            for file in files:
                source = f"{ATTEMPTS}/{nonce}/{file.name}"
                found = self._storage.stat(source)
                if found is None or found.size != file.size:
                    raise OutputLost(f"{self.uri}/{source} is not as its task left it")
                self._storage.move(source, f"{STAGED}/{nonce}/{kind}/{file.name}")
        self._remove(f"{ATTEMPTS}/{nonce}")

    def drop(self, nonce: str) -> None:
        """Remove what an attempt wrote that will not be committed."""
        self._remove(f"{ATTEMPTS}/{nonce}")
        self._remove(f"{STAGED}/{nonce}")

    def publish(self, snapshot: Snapshot) -> None:
        """Publish a committed epoch, unless it was taken back in the meantime."""
        if snapshot.output is None:
            return
        with self._publishing():
            if self._stream.chain.head().includes(snapshot.number):
                self._publish(snapshot)

    def settle(self) -> None:
        """Make what is published the ancestry of the head: add what is missing, withdraw the rest.

        Whatever interrupts it, the next one finishes it, also for another head.
        """
        with self._publishing():
            head = self._stream.chain.head()
            settled = self.settled()
            if settled == head.ancestry:
                return
            missing = _minus(head.ancestry, settled or ())
            # Epochs since then were published one by one, also those that were taken back since.
            # Without knowing what was settled last, names tell what is there.
            there = [*settled, (settled[-1][1] + 1, head.number)] if settled else self._shown()
            surplus = _minus(there, head.ancestry)
            if settled and (surplus or missing[0][0] <= settled[-1][1]):
                # From the first move on it is not so any more.
                self._storage.delete(_SETTLED)
            self._bring_back(missing)
            declared = list(given_up(self._stream, head))
            for snapshot in self._snapshots(head, missing, declared):
                self._publish(snapshot, declared)
            self._withdraw(surplus)
            fields = {"ancestry": [list(span) for span in head.ancestry]}
            self._storage.replace(_SETTLED, codec.encode(_ANCESTRY, fields))

    def clear(self, run: Run) -> None:
        """Clear away what attempts before a run left that is not published.

        Before an epoch is committed, all before it are published or put aside here. So what is
        staged is the output of the newest epoch, which may have been taken back before it was
        published, and that may be undone: it is kept under its name. Or it was never committed.
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

    def standing(self, snapshot: Snapshot, kind: str, file: File, *, read: bool = False) -> str:
        """Where a file of an epoch is: `published`, `pending`, or what is wrong with it."""
        place = f"{kind}/{name_of(snapshot)}/{file.name}"
        found = self._storage.stat(place)
        if found is None:
            waiting = (f"{each}/{file.name}" for each in _sources(snapshot, kind))
            return PENDING if any(map(self._storage.stat, waiting)) else "is missing"
        if found.size != file.size:
            return f"has {found.size} bytes, not {file.size}"
        if read and self._digest(place) != file.digest:
            return "has another content"
        return PUBLISHED

    def _digest(self, key: str) -> str:
        digest = blake2b(digest_size=32)
        with self._storage.open(key) as stream:
            while piece := stream.read(1 << 20):
                digest.update(piece)
        return digest.hexdigest()

    def _publish(self, snapshot: Snapshot, declared: Sequence[Span] = ()) -> None:
        is_given_up = has(declared, snapshot.number)
        for kind in self._kinds(snapshot, is_given_up=is_given_up):
            place = f"{kind}/{name_of(snapshot)}"
            if self._storage.stat(place) is not None:
                continue
            moved = any(self._storage.move(source, place) for source in _sources(snapshot, kind))
            if not moved and not is_given_up:
                raise OutputLost(
                    f"{self.uri}: the {kind} of snapshot {snapshot.number} are not there"
                )
        self._remove(f"{STAGED}/{snapshot.nonce}")

    def _kinds(self, snapshot: Snapshot, *, is_given_up: bool) -> Sequence[str]:
        """What an epoch wrote; of one that a repair has given up, that may not be known."""
        assert snapshot.output
        try:
            found = read_output(self._stream, snapshot.output).files
        except Corrupt:
            if not is_given_up:
                raise
            return KINDS
        return [kind for kind, files in found.items() if files]

    def _withdraw(self, spans: Sequence[Span]) -> None:
        if not spans:
            return
        for kind in KINDS:
            for name in self.names(kind):
                match = NAME.fullmatch(name)
                if match and any(first <= int(match[1]) <= last for first, last in spans):
                    self._storage.move(f"{kind}/{name}", f"{TRASH}/{kind}/{name}")

    def _bring_back(self, spans: Sequence[Span]) -> None:
        """Publish what was withdrawn: by its name, as its snapshot may not be kept any more."""
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
                    _log.warning("snapshot %d was given up: its output is left as it is", number)
                    continue
                if snapshot.kind is Kind.EPOCH and snapshot.output:
                    yield snapshot

    def settled(self) -> tuple[Span, ...] | None:
        """The ancestry that was made to show last; None if that is not known."""
        try:
            data = self._storage.get(_SETTLED)
            fields = codec.decode(_ANCESTRY, data, f"{self.uri}/{_SETTLED}")
            return tuple((int(first), int(last)) for first, last in fields["ancestry"])
        except (NotFound, Corrupt, KeyError, TypeError, ValueError):
            return None

    def _shown(self) -> list[Span]:
        return spans(self.published())

    @contextmanager
    def _publishing(self) -> Iterator[None]:
        with self._stream.lock("publish").hold(timeout=60):
            yield

    def names(self, key: str) -> list[str]:
        """What a directory of it holds."""
        try:
            return [entry.name for entry in self._storage.list(key)]
        except NotFound:
            return []

    def _remove(self, key: str) -> None:
        shutil.rmtree(self.path(key), ignore_errors=True)


def _sources(snapshot: Snapshot, kind: str) -> tuple[str, ...]:
    """Where the output of an epoch is until it is published, or after it was withdrawn."""
    staged = f"{snapshot.nonce}/{kind}"
    withdrawn = f"{TRASH}/{kind}/{name_of(snapshot)}"
    return f"{STAGED}/{staged}", withdrawn, f"{TRASH}/staged/{staged}"


def look_at_sink(stream: Stream, uri: str | None) -> Sink | None:
    """The sink of a stream, only to be read; None if there is none that is its own."""
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
    # Whoever was interrupted while it made the sink left the directory for the marker.
    storage = LocalStorage(place)
    if place.is_dir() and any(e.name != _OWN or storage.list(_OWN) for e in storage.list()):
        raise UsageError(
            f"{place} holds something that is not a sink's", hint="name an empty directory"
        )


def _minus(these: Iterable[Span], those: Sequence[Span]) -> list[Span]:
    """The numbers that are in one ancestry and not in another."""
    return [left for span in these for left in without(span, those)]
