"""The state of a stream at a snapshot: its shards, and looking keys up in them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from sluicegate.errors import UsageError
from sluicegate.shards.routing import shard_of
from sluicegate.state import aggregates, manifest
from sluicegate.state.aggregates import Aggregate
from sluicegate.state.backend import BlobStateBackend, EpochStatus
from sluicegate.state.delta import Table
from sluicegate.state.manifest import Shards
from sluicegate.storage.blobs import Ref
from sluicegate.stream.gc import prune
from sluicegate.stream.snapshot import Kind, Snapshot, SnapshotDamaged
from sluicegate.stream.stream import Stream
from sluicegate.stream.writer import StreamWriter


class CommittedEpochs:
    """`Committed` on a chain, which is read again for every question."""

    def __init__(self, writer: StreamWriter) -> None:
        self._writer = writer

    def version(self) -> int:
        return self._writer.stream.chain.head().version

    def status(self, epoch: int) -> EpochStatus:
        head = self._writer.stream.chain.head()
        return EpochStatus(head.version, head.epoch, self._deltas(epoch, head))

    def _deltas(self, epoch: int, head: Snapshot) -> Mapping[int, Ref] | None:
        snapshot = self._first_at(epoch, head)
        if snapshot is None or snapshot.epoch != epoch or snapshot.kind is not Kind.EPOCH:
            # Not yet, or not any more: its snapshot was pruned, or discarded by a repair.
            return None
        shards = (
            manifest.read(self._writer.stream.blobs, snapshot.state_delta)
            if snapshot.state_delta
            else {}
        )
        return {shard: refs[0] for shard, refs in shards.items()}

    def prune_before(self, epoch: int) -> int:
        snapshot = self._first_at(epoch, self._writer.stream.chain.head())
        if snapshot is None:
            return 0
        before = self._writer.head().floor
        prune(self._writer, snapshot.number)
        return max(0, snapshot.number - before)

    def _first_at(self, epoch: int, head: Snapshot) -> Snapshot | None:
        """The oldest kept snapshot with at least so many epochs; they only grow along the chain."""
        chain = self._writer.stream.chain
        if head.epoch < epoch:
            return None
        number = chain.first(head.floor, head.number, lambda snapshot: snapshot.epoch >= epoch)
        try:
            return chain.read(number)
        except SnapshotDamaged:
            return None


def state_backend(writer: StreamWriter) -> BlobStateBackend:
    """Where the epochs of a stream put their deltas."""
    return BlobStateBackend(writer.stream.blobs, CommittedEpochs(writer))


def shards_of(stream: Stream, snapshot: Snapshot) -> Shards:
    """The deltas of every shard at a snapshot, oldest first."""
    return manifest.joined(manifest.read(stream.blobs, ref) for ref in snapshot.state.refs)


def shard_state(stream: Stream, snapshot: Snapshot, shard: int) -> Table | None:
    """The state of one shard at a snapshot; None if it has none."""
    return manifest.contents(stream.blobs, shards_of(stream, snapshot).get(shard, ()))


@dataclass(frozen=True, slots=True)
class Found:
    """One key: its shard, and its values; none if the stream has not seen it."""

    key: str
    shard: int
    values: dict[str, Any] | None


def aggregates_of(snapshot: Snapshot) -> tuple[Aggregate, ...]:
    """The aggregates that a stream keeps, as they were fixed when it began."""
    wanted = snapshot.pins.get("aggregates") or {}
    return aggregates.parse(wanted, snapshot.pins.get("types") or {})


def look_up(stream: Stream, snapshot: Snapshot, keys: Sequence[str]) -> list[Found]:
    """The values of keys, in the order they were asked for."""
    count = shard_count(snapshot)
    places = {key: shard_of(key, count) for key in keys}
    refs = shards_of(stream, snapshot)
    known = aggregates_of(snapshot)
    values: dict[str, dict[str, Any]] = {}
    for shard in sorted(set(places.values())):
        table = manifest.contents(stream.blobs, refs.get(shard, ()))
        if table is not None:
            wanted = [key for key in keys if places[key] == shard]
            values |= {row.pop("key"): row for row in aggregates.rows(table, known, wanted)}
    return [Found(key, places[key], values.get(key)) for key in keys]


def scan(stream: Stream, snapshot: Snapshot, shard: int | None = None) -> Iterator[Found]:
    """Every key with its values, shard by shard."""
    known = aggregates_of(snapshot)
    for number, refs in sorted(shards_of(stream, snapshot).items()):
        if shard in (None, number) and (table := manifest.contents(stream.blobs, refs)):
            for row in aggregates.rows(table, known):
                yield Found(row.pop("key"), number, row)


def shard_count(snapshot: Snapshot) -> int:
    """How many shards a stream has, as it was fixed when it began."""
    count = snapshot.pins.get("shards")
    if type(count) is not int or count < 1:
        raise UsageError(
            f"{snapshot.stream} began without a number of shards",
            hint="only a stream with a table in sluicegate.toml has shards to assign",
        )
    return count
