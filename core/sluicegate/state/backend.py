"""Where an epoch puts its partials before it is sealed, and what decides that it is complete.

A backend serves one attempt at a time: what an attempt wrote is invisible until its epoch is
sealed, and is an orphan if it never is.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Protocol

from sluicegate.codec import digest_of
from sluicegate.errors import Corrupt, SluicegateError, SplitBrainCommit, StaleVersion
from sluicegate.storage.blobs import BlobDamaged, Blobs, Ref


class PartialConflict(Corrupt):
    """Different bytes for a partial that is there already; partials are never overwritten."""

    default_hint = (
        "an epoch was computed twice with different results: see whether the job is deterministic"
    )


class EpochIncomplete(SluicegateError):
    """An epoch must not be sealed: a shard has not said what became of it."""

    default_hint = "nothing was sealed; the epoch can be computed again"


class StateBackend(Protocol):
    """Partials per shard and epoch."""

    @property
    def version(self) -> int:
        """The authoritative version of the assignment; it only grows, and 0 means no fence."""

    def write_partial(self, shard: int, epoch: int, version: int, data: bytes) -> Ref:
        """Store what an epoch changed in a shard; the same bytes again are no change.

        `StaleVersion` for a writer that was routed by an older assignment.
        """

    def leave_unchanged(self, shard: int, epoch: int, version: int) -> None:
        """Say that an epoch changed nothing in a shard."""

    def read_partial(self, shard: int, epoch: int) -> bytes | None:
        """What an epoch changed in a shard; None if nothing is known of it."""

    def epoch_complete(self, epoch: int, shards: Collection[int]) -> Mapping[int, Ref]:
        """The changed shards' partials, every one intact; `EpochIncomplete` if one is silent."""

    def prune_before(self, epoch: int) -> int:
        """Forget the partials of epochs strictly before; never of the newest sealed one."""


@dataclass(frozen=True, slots=True)
class Standing:
    """The authoritative version, the newest sealed epoch (0: none), and what one epoch changed.

    `partials` is None if that epoch is not sealed, or no longer kept.
    """

    version: int
    newest: int
    partials: Mapping[int, Ref] | None


class Sealed(Protocol):
    """What a backend asks the chain, every time anew: a writer's own memory is no fence."""

    def version(self) -> int:
        """The authoritative version of the assignment."""

    def standing(self, epoch: int) -> Standing:
        """How things stand for an epoch, by one look at the head."""

    def prune_before(self, epoch: int) -> int:
        """Give up the epochs strictly before; gives how many links went."""


class BlobStateBackend:
    """`StateBackend` on blobs, for one attempt at one epoch after the other."""

    def __init__(self, blobs: Blobs, sealed: Sealed) -> None:
        self._blobs = blobs
        self._sealed = sealed
        self._attempt = _Attempt()

    @property
    def version(self) -> int:
        return self._sealed.version()

    def write_partial(self, shard: int, epoch: int, version: int, data: bytes) -> Ref:
        ref = Ref(digest_of(data), len(data))
        sealed = self._say(shard, epoch, version, ref)
        return ref if sealed else self._blobs.put(data)

    def leave_unchanged(self, shard: int, epoch: int, version: int) -> None:
        self._say(shard, epoch, version, None)

    def accept(self, epoch: int, version: int, said: Mapping[int, Ref | None]) -> None:
        """Take over what tasks say of their shards: a partial that they stored, or unchanged."""
        standing = self._sealed.standing(epoch)
        check_version(version, standing.version)
        for shard, ref in said.items():
            _is_sealed(standing.partials, shard, epoch, ref)
            self._attempt.say(shard, epoch, ref, standing.newest)

    def _say(self, shard: int, epoch: int, version: int, ref: Ref | None) -> bool:
        """Keep what a shard says; whether just that is sealed already."""
        standing = self._sealed.standing(epoch)
        check_version(version, standing.version)
        sealed = _is_sealed(standing.partials, shard, epoch, ref)
        self._attempt.say(shard, epoch, ref, standing.newest)
        return sealed

    def read_partial(self, shard: int, epoch: int) -> bytes | None:
        sealed = self._sealed.standing(epoch).partials
        ref = self._attempt.said(epoch).get(shard) if sealed is None else sealed.get(shard)
        return self._blobs.get(ref) if ref else None

    def epoch_complete(self, epoch: int, shards: Collection[int]) -> Mapping[int, Ref]:
        changed = complete(self._attempt.said(epoch), epoch, shards)
        for shard, ref in changed.items():
            try:
                self._blobs.check(ref, read=True)
            except BlobDamaged as e:
                raise EpochIncomplete(f"the partial of shard {shard} is not intact: {e}") from e
        return changed

    def prune_before(self, epoch: int) -> int:
        self._attempt.forget_before(epoch)
        return self._sealed.prune_before(min(epoch, self._sealed.standing(epoch).newest))


class MemoryStateBackend:
    """`StateBackend` that forgets with its process, and seals by itself: the model of the other."""

    def __init__(self) -> None:
        self._version = 0
        self._data: dict[str, bytes] = {}
        self._attempt = _Attempt()
        self._sealed: dict[int, tuple[str, Mapping[int, Ref]]] = {}

    @property
    def version(self) -> int:
        return self._version

    def advance(self, version: int) -> None:
        """Raise the authoritative version; it never goes back."""
        check_version(version, self._version)
        self._version = version

    def write_partial(self, shard: int, epoch: int, version: int, data: bytes) -> Ref:
        check_version(version, self._version)
        ref = Ref(digest_of(data), len(data))
        _is_sealed(self._partials(epoch), shard, epoch, ref)
        self._attempt.say(shard, epoch, ref, self._newest)
        self._data[ref.digest] = data
        return ref

    def leave_unchanged(self, shard: int, epoch: int, version: int) -> None:
        check_version(version, self._version)
        _is_sealed(self._partials(epoch), shard, epoch, None)
        self._attempt.say(shard, epoch, None, self._newest)

    def read_partial(self, shard: int, epoch: int) -> bytes | None:
        sealed = self._partials(epoch)
        ref = self._attempt.said(epoch).get(shard) if sealed is None else sealed.get(shard)
        return self._data[ref.digest] if ref else None

    def epoch_complete(self, epoch: int, shards: Collection[int]) -> Mapping[int, Ref]:
        return complete(self._attempt.said(epoch), epoch, shards)

    def seal(self, epoch: int, shards: Collection[int], writer: str) -> None:
        """Make an epoch final; the first writer wins, and the same one may ask again."""
        winner, _ = self._sealed.setdefault(epoch, (writer, self.epoch_complete(epoch, shards)))
        if winner != writer:
            raise SplitBrainCommit(f"epoch {epoch} was sealed by {winner}")

    def prune_before(self, epoch: int) -> int:
        gone = [each for each in self._sealed if each < min(epoch, self._newest)]
        for each in gone:
            del self._sealed[each]
        self._attempt.forget_before(epoch)
        return len(gone)

    @property
    def _newest(self) -> int:
        return max(self._sealed, default=0)

    def _partials(self, epoch: int) -> Mapping[int, Ref] | None:
        return self._sealed[epoch][1] if epoch in self._sealed else None


class _Attempt:
    """What each shard said of the newest epochs: a partial, or None for unchanged."""

    def __init__(self) -> None:
        self._said: dict[int, dict[int, Ref | None]] = {}

    def said(self, epoch: int) -> Mapping[int, Ref | None]:
        return self._said.get(epoch, {})

    def say(self, shard: int, epoch: int, ref: Ref | None, newest: int) -> None:
        """Keep it; what was said before the newest sealed epoch is not asked for any more.

        Who was overtaken says something of an older one, and must still be heard to be refused.
        """
        self.forget_before(min(newest, epoch))
        known = self._said.setdefault(epoch, {})
        if known.setdefault(shard, ref) != ref:
            raise PartialConflict(f"shard {shard} of epoch {epoch} was said to be something else")

    def forget_before(self, epoch: int) -> None:
        self._said = {each: said for each, said in self._said.items() if each >= epoch}


def check_version(version: int, authoritative: int) -> None:
    """Refuse a writer with an older version than the authoritative one; 0 is no fence."""
    if authoritative and version < authoritative:
        raise StaleVersion(
            f"this was routed at version {version} of the assignment, which is at {authoritative}"
        )


def complete(
    said: Mapping[int, Ref | None], epoch: int, shards: Collection[int]
) -> Mapping[int, Ref]:
    """The changed shards of an epoch in which every owned shard has spoken, and no other."""
    if not shards:
        raise EpochIncomplete(f"epoch {epoch} has no shards at all")
    if silent := sorted(set(shards) - said.keys()):
        raise EpochIncomplete(
            f"epoch {epoch}: shards {silent[:5]} are neither changed nor unchanged"
        )
    if strangers := sorted(said.keys() - set(shards)):
        raise EpochIncomplete(f"epoch {epoch}: shards {strangers[:5]} do not belong to it")
    changed = {shard: ref for shard, ref in said.items() if ref is not None}
    if empty := sorted(shard for shard, ref in changed.items() if not ref.size):
        raise EpochIncomplete(f"epoch {epoch}: the partials of shards {empty[:5]} are empty")
    return changed


def _is_sealed(sealed: Mapping[int, Ref] | None, shard: int, epoch: int, ref: Ref | None) -> bool:
    """Whether this very partial, or none, is sealed already; a different one is a conflict."""
    if sealed is None:
        return False
    if sealed.get(shard) != ref:
        raise PartialConflict(f"epoch {epoch} is sealed, with another partial of shard {shard}")
    return True
