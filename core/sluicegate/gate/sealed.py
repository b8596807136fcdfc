"""What the chain knows of sealed epochs, for whoever writes or reads state."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from sluicegate.blobs import Ref
from sluicegate.chain.errors import LinkDamaged
from sluicegate.chain.link import Kind, Link
from sluicegate.gate.collect import prune
from sluicegate.gate.gate import Gate
from sluicegate.state import manifest
from sluicegate.state.backends import BlobStateBackend, Standing
from sluicegate.state.manifest import Shards
from sluicegate.state.partial import Table

if TYPE_CHECKING:
    from sluicegate.gate.stream import Stream


class SealedEpochs:
    """`Sealed` on a chain: everything is read from it anew, nothing is remembered."""

    def __init__(self, gate: Gate) -> None:
        self._gate = gate

    def version(self) -> int:
        return self._gate.stream.chain.head().version

    def standing(self, epoch: int) -> Standing:
        head = self._gate.stream.chain.head()
        return Standing(head.version, head.epoch, self._partials(epoch, head))

    def _partials(self, epoch: int, head: Link) -> Mapping[int, Ref] | None:
        link = self._first_at(epoch, head)
        if link is None or link.epoch != epoch or link.kind is not Kind.EPOCH:
            # Not yet, or not any more: its link is pruned or was given up by a repair.
            return None
        shards = manifest.read(self._gate.stream.blobs, link.partials) if link.partials else {}
        return {shard: refs[0] for shard, refs in shards.items()}

    def prune_before(self, epoch: int) -> int:
        link = self._first_at(epoch, self._gate.stream.chain.head())
        if link is None:
            return 0
        before = self._gate.head().floor
        prune(self._gate, link.number)
        return max(0, link.number - before)

    def _first_at(self, epoch: int, head: Link) -> Link | None:
        """The oldest kept link that has seen so many epochs; they only grow along the chain."""
        chain = self._gate.stream.chain
        if head.epoch < epoch:
            return None
        number = chain.first(head.floor, head.number, lambda link: link.epoch >= epoch)
        try:
            return chain.read(number)
        except LinkDamaged:
            return None


def state_backend(gate: Gate) -> BlobStateBackend:
    """Where the epochs of a stream put their partials."""
    return BlobStateBackend(gate.stream.blobs, SealedEpochs(gate))


def shards_of(stream: Stream, link: Link) -> Shards:
    """The partials of every shard at a link, oldest first."""
    return manifest.joined(manifest.read(stream.blobs, ref) for ref in link.state.refs)


def shard_state(stream: Stream, link: Link, shard: int) -> Table | None:
    """The state of one shard at a link; None if it has none."""
    return manifest.contents(stream.blobs, shards_of(stream, link).get(shard, ()))
