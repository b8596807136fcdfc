"""The output of a stream: what is published is what the head's ancestry has written.

What a sink has published is compared with the chain, by number and nonce. Output that a rollback
disowned is withdrawn, output that is missing is published. Output that the chain does not know at
all is a witness: the chain is older than the world, because a backup was restored or the home was
copied. Then nothing starts; an operator decides with `sluicegate checkpoint repair`.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from hashlib import blake2b
from pathlib import Path

from sluicegate import codec
from sluicegate.errors import Corrupt, NotFound
from sluicegate.findings import Finding, Severity, rule
from sluicegate.sinks import files
from sluicegate.sinks.base import KINDS, File, Output, OutputLost, Settled, Sink, SnapshotName
from sluicegate.sinks.files import FileSink
from sluicegate.storage import local_root
from sluicegate.storage.blobs import Ref
from sluicegate.stream.evidence import identity_of
from sluicegate.stream.history import changes, discarded, intact_snapshots, newest_epoch
from sluicegate.stream.snapshot import (
    ChainDamaged,
    Kind,
    Snapshot,
    SnapshotDamaged,
    Span,
    has,
    without,
)
from sluicegate.stream.stream import Stream
from sluicegate.stream.writer import Run
from sluicegate.units import command

_LIST = codec.Format("output", 1, 64 * 1024 * 1024)
_log = logging.getLogger("sluicegate.stream")

OLDER = rule(
    "SG-CHAIN-OLDER",
    Severity.ERROR,
    "the chain is older than its output",
    "The sink has output, or a claim, of snapshots that the chain does not have: an old backup of "
    "the stream or of its home was restored, or the home was copied and both copies write to this "
    "sink. Started from here, the stream would publish these events a second time, so no job "
    "starts. If there is a newer copy of the chain, restore that. Otherwise `sluicegate checkpoint "
    "repair` offers two ways: --withdraw takes the output back and reads its events again; --adopt "
    "keeps the output and reads its events again without publishing them.",
)
TWICE = rule(
    "SG-OUTPUT-TWICE",
    Severity.ERROR,
    "output of one snapshot is published twice",
    "Two published directories have the same number and different nonces, so the events in them "
    "are probably there twice. The snapshot is pruned, so the chain no longer knows which of them "
    "is its own. Compare them, and move the wrong one out of the sink.",
)


OUTPUT = rule(
    "SG-AUDIT-OUTPUT",
    Severity.ERROR,
    "output of a committed epoch is missing or changed",
    "A file that an epoch wrote is not where readers look for it, or was changed since. "
    "Restore it from a backup, or roll the stream back to before the epoch: it then writes again.",
)


class OlderThanOutput(ChainDamaged):
    """The sink has output of snapshots that the chain does not have."""


def encode(output: Output) -> bytes:
    """The blob that lists the files of an epoch."""
    return codec.encode(
        _LIST, {kind: [f.fields() for f in output.files[kind]] for kind in output.kinds}
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


def name_of(snapshot: Snapshot) -> SnapshotName:
    """The name of a snapshot in a sink."""
    return SnapshotName(snapshot.number, snapshot.nonce)


@dataclass(slots=True)
class Comparison:
    """What a sink has published, compared with a chain.

    `disowned` was rolled back; `foreign` is unknown to the chain, and so are `claims`; of `twice`
    one is foreign, but it is not known which. `lost` was adopted, and is not there any more.
    """

    disowned: list[SnapshotName] = field(default_factory=list)
    foreign: list[SnapshotName] = field(default_factory=list)
    claims: list[SnapshotName] = field(default_factory=list)
    twice: list[SnapshotName] = field(default_factory=list)
    lost: list[SnapshotName] = field(default_factory=list)

    @property
    def newest(self) -> int:
        """The highest number that the chain does not know; -1 if there is none."""
        return max((name.number for name in (*self.foreign, *self.claims)), default=-1)

    def findings(self, stream: Stream, sink: Sink) -> Iterator[Finding]:
        """What is wrong."""
        if self.newest >= 0:
            # With the sink, so that it can be typed where no configuration names it.
            repair = command("checkpoint", "repair", stream.uri, "--sink", sink.uri, "--dry-run")
            yield OLDER.at(sink.uri, self.shown, repair=repair)
        if self.twice:
            numbers = sorted({name.number for name in self.twice})
            yield TWICE.at(sink.uri, f"of snapshots {_some(numbers)}")

    @property
    def shown(self) -> str:
        """What the chain does not know, for people."""
        if self.foreign:
            numbers = sorted({name.number for name in self.foreign})
            return f"it has output of snapshots {_some(numbers)} that the chain does not have"
        return f"snapshot {self.newest} has claimed it, which the chain does not have"


def _some(numbers: Sequence[int]) -> str:
    more = f" and {len(numbers) - 5:,} more" if len(numbers) > 5 else ""
    return ", ".join(map(str, numbers[:5])) + more


def compare(stream: Stream, sink: Sink, since: int = 0, head: Snapshot | None = None) -> Comparison:
    """Compare a sink with the chain; output below `since` is known to be the chain's own.

    Without `head`, with the newest snapshot.
    """
    # The head last: an epoch is committed before it is published.
    published, claims = sink.published(), sink.claims()
    return _Comparing(stream, head or stream.chain.head(), since).run(published, claims)


def gone(stream: Stream, sink: Sink) -> Iterator[Finding]:
    """Output of the head's ancestry that is neither published nor waiting for it."""
    published, head = sink.published(), stream.chain.head()
    lost = [
        snapshot
        for snapshot in intact_snapshots(stream, head.floor, head.number)
        if snapshot.output
        and head.includes(snapshot.number)
        and name_of(snapshot) not in published
        and not sink.is_waiting(name_of(snapshot))
    ]
    # A running job may just have published it.
    published = sink.published() if lost else {}
    for snapshot in lost:
        if name_of(snapshot) not in published:
            back = ("checkpoint", "rollback", stream.uri, "--to", snapshot.number - 1)
            place = f"{sink.uri}, snapshot {snapshot.number}"
            yield OUTPUT.at(place, "its output is missing", repair=command(*back))


class _Comparing:
    def __init__(self, stream: Stream, head: Snapshot, since: int) -> None:
        self._stream = stream
        self._head = head
        self._since = max(since, head.floor)
        self._withdrawn, self._adopted = _decided(stream, head)

    def run(
        self, published: Mapping[SnapshotName, Collection[str]], claims: Iterable[SnapshotName]
    ) -> Comparison:
        # Those below the head have published nothing that is not seen here: they are harmless.
        found = Comparison(claims=[name for name in claims if name.number > self._head.number])
        own: Counter[tuple[int, str]] = Counter()
        for name in sorted(published):
            if name in self._withdrawn:
                found.disowned.append(name)
            elif not self._is_own(name):
                found.foreign.append(name)
            elif not self._head.includes(name.number):
                found.disowned.append(name)
            else:
                own.update((name.number, kind) for kind in published[name])
        twice = {number for (number, _), count in own.items() if count > 1}
        found.twice += [name for name in sorted(published) if name.number in twice]
        kept = (name for name in self._adopted if self._head.includes(name.number))
        found.lost += sorted(name for name in kept if name not in published)
        return found

    def _is_own(self, name: SnapshotName) -> bool:
        """Whether a snapshot is, or was, one of the chain; nonces of pruned ones are not known."""
        if name in self._adopted:
            return True
        if name.number > self._head.number:
            return False
        if name.number < self._since:
            return True
        try:
            return self._stream.chain.read(name.number).nonce == name.nonce
        except Corrupt:
            # Lost, which verify reports, or discarded by a repair.
            return True


def _decided(stream: Stream, head: Snapshot) -> tuple[set[SnapshotName], set[SnapshotName]]:
    """The output that repairs have withdrawn, and adopted, although the chain never had it."""
    found: dict[str, set[SnapshotName]] = {"withdrawn": set(), "adopted": set()}
    for snapshot in changes(stream, head):
        for what, names in found.items():
            listed = snapshot.details.get(what) if snapshot.kind is Kind.REPAIR else None
            for each in listed if isinstance(listed, list) else ():
                match each:
                    case [int(number), str(nonce)]:
                        names.add(SnapshotName(number, nonce))
    return found["withdrawn"], found["adopted"]


class Publisher:
    """Publishes the output of one stream; a run calls `begin` before its first epoch."""

    def __init__(self, stream: Stream, sink: Sink) -> None:
        self._stream = stream
        self.sink = sink

    def check(self) -> None:
        """`OlderThanOutput` if the sink has what the chain does not have; nothing is changed."""
        self._refuse_foreign(compare(self._stream, self.sink, self._known_until()))

    def begin(self, run: Run) -> None:
        """Fence off all earlier runs, publish what is missing, withdraw what was disowned."""
        self.sink.fence(name_of(run.snapshot))
        self.settle()
        newest = newest_epoch(self._stream, run.refresh())
        self.sink.clear(name_of(newest) if newest else None)

    def publish(self, snapshot: Snapshot, kinds: Collection[str]) -> None:
        """Publish a committed epoch, unless it was rolled back in the meantime."""
        if kinds and self._stream.chain.head().includes(snapshot.number):
            self._publish(snapshot, kinds)

    def settle(self) -> None:
        """Publish the ancestry of the head: add missing output, withdraw the rest.

        If it is interrupted, the next call finishes it, also for another head.
        """
        known = self._known()
        found = compare(self._stream, self.sink, known.head.number + 1 if known else 0)
        self._refuse_foreign(found)
        head = self._stream.chain.head()
        missing = _minus(head.ancestry, known.ancestry if known else ())
        if not found.disowned and not missing:
            return
        declared = list(discarded(self._stream, head))
        for name in found.disowned:
            self.sink.withdraw(name)
        self._publish_again(head, missing)
        for snapshot in self._snapshots(head, missing, declared):
            self._publish_again_or_lost(snapshot, has(declared, snapshot.number))
        for name in compare(self._stream, self.sink, head.number + 1, head).lost:
            raise OutputLost(
                f"{self.sink.uri}: the output of snapshot {name.number} was adopted, and is missing"
            )
        self.sink.settle(Settled(name_of(head), head.ancestry, self._digest(head.number)))

    def _known(self) -> Settled | None:
        """What was settled last, if nothing but later output has changed since."""
        settled = self.sink.settled()
        if settled is None or settled.published != self._digest(settled.head.number):
            return None
        try:
            nonce = self._stream.chain.read(settled.head.number).nonce
        except Corrupt:
            return None
        return settled if nonce == settled.head.nonce else None

    def _known_until(self) -> int:
        known = self._known()
        return known.head.number + 1 if known else 0

    def _digest(self, until: int) -> str:
        """A digest of all that is published up to a number."""
        published = self.sink.published()
        digest = blake2b(digest_size=32)
        for name in sorted(published):
            if name.number <= until:
                digest.update(f"{name} {' '.join(sorted(published[name]))}\n".encode())
        return digest.hexdigest()

    def _refuse_foreign(self, found: Comparison) -> None:
        for finding in found.findings(self._stream, self.sink):
            raise OlderThanOutput(
                f"{finding.rule.title}: {self.sink.uri}: {finding.detail}",
                hint="an old backup was restored, or the home was copied; see the choices with: "
                + finding.repair,
                place=self.sink.uri,
            )

    def _publish(self, snapshot: Snapshot, kinds: Collection[str]) -> None:
        for kind in self.sink.publish(name_of(snapshot), kinds):
            raise OutputLost(
                f"{self.sink.uri}: the {kind} of snapshot {snapshot.number} are missing"
            )

    def _publish_again_or_lost(self, snapshot: Snapshot, is_discarded: bool) -> None:
        """Publish an epoch; what a repair discarded may be lost."""
        assert snapshot.output
        try:
            kinds: Collection[str] = read_output(self._stream, snapshot.output).kinds
        except Corrupt:
            if not is_discarded:
                raise
            kinds = KINDS
        if is_discarded:
            self.sink.publish(name_of(snapshot), kinds)
        else:
            self._publish(snapshot, kinds)

    def _publish_again(self, head: Snapshot, spans: Sequence[Span]) -> None:
        """Publish what was withdrawn: by its name, as its snapshot may be pruned."""
        withdrawn = self.sink.withdrawn()
        comparing = _Comparing(self._stream, head, 0)
        again = comparing.run(withdrawn, ())
        others = {*again.disowned, *again.foreign, *again.twice}
        for name, kinds in withdrawn.items():
            if has(spans, name.number) and name not in others:
                self.sink.publish(name, kinds)

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


def look_at_sink(stream: Stream, uri: str | None) -> FileSink | None:
    """The sink of a stream, only to be read; None if it has none of its own."""
    stream_id = identity_of(stream)
    return files.look_at_sink(_place(stream, uri), stream_id) if stream_id else None


def open_sink(stream: Stream, uri: str | None) -> FileSink:
    """The sink of a stream, made if the stream never had one; inside the stream if none is named.

    A sink that another stream writes to is refused, and one that should have output and has none:
    its disk may not be mounted.
    """
    head, place = stream.chain.head(), _place(stream, uri)

    def refuse_lost() -> None:
        if head.counters.get("written") or head.counters.get("rejected"):
            raise NotFound(
                f"{place} is not the sink of {stream.name}, which has written output",
                hint="mount its disk, or move the sink there, or put the old path back into "
                f"[streams.{stream.name}]; see: {command('checkpoint', 'inspect', stream.uri)}",
                place=str(place),
            )

    return files.open_sink(place, head.stream_id, may_create=refuse_lost)


def _place(stream: Stream, uri: str | None) -> Path:
    place = local_root(uri) if uri else stream.storage.local_path("output")
    assert place is not None
    return place


def _minus(these: Iterable[Span], those: Sequence[Span]) -> list[Span]:
    """The numbers that are in one ancestry and not in another."""
    return [left for span in these for left in without(span, those)]
