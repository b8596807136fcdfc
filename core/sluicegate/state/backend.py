"""Where an epoch stores its deltas before it is committed, and the check that it is complete.

A backend serves one attempt at a time: the deltas of an attempt are invisible until its epoch is
committed, and are orphans if it never is.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Protocol

from sluicegate.codec import digest_of
from sluicegate.errors import Corrupt, SluicegateError, SplitBrainCommit, StaleVersion
from sluicegate.storage.blobs import BlobDamaged, Blobs, Ref


class DeltaConflict(Corrupt):
    """Different bytes for a delta that is there already; deltas are never overwritten."""

    default_hint = (
        "an epoch was computed twice with different results: check that the job is deterministic"
    )


class EpochIncomplete(SluicegateError):
    """An epoch must not be committed: not every shard has a result."""

    default_hint = "nothing was committed; the epoch can be computed again"


class StateBackend(Protocol):
    """Deltas per shard and epoch."""

    @property
    def version(self) -> int:
        """The authoritative version of the assignment; it only grows, and 0 means no fence."""

    def write_delta(self, shard: int, epoch: int, version: int, data: bytes) -> Ref:
        """Store the delta of a shard in an epoch; storing the same bytes again is allowed.

        `StaleVersion` for a writer that was routed by an older assignment.
        """

    def leave_unchanged(self, shard: int, epoch: int, version: int) -> None:
        """Record that an epoch changed nothing in a shard."""

    def read_delta(self, shard: int, epoch: int) -> bytes | None:
        """The delta of a shard in an epoch; None if there is none."""

    def epoch_complete(self, epoch: int, shards: Collection[int]) -> Mapping[int, Ref]:
        """The changed shards' deltas, all intact; `EpochIncomplete` if a result is missing."""

    def prune_before(self, epoch: int) -> int:
        """Forget the deltas of epochs strictly before; never of the newest committed one."""


@dataclass(frozen=True, slots=True)
class EpochStatus:
    """The authoritative version, the newest committed epoch (0: none), and the deltas of one epoch.

    `deltas` is None if that epoch is not committed, or no longer kept.
    """

    version: int
    newest: int
    deltas: Mapping[int, Ref] | None


class Committed(Protocol):
    """What a backend reads from the chain, every time again: a cached value is no fence."""

    def version(self) -> int:
        """The authoritative version of the assignment."""

    def status(self, epoch: int) -> EpochStatus:
        """The status of an epoch, from one read of the head."""

    def prune_before(self, epoch: int) -> int:
        """Prune the epochs strictly before; returns how many snapshots were pruned."""


class BlobStateBackend:
    """`StateBackend` on blobs, for one attempt at one epoch after the other."""

    def __init__(self, blobs: Blobs, committed: Committed) -> None:
        self._blobs = blobs
        self._committed = committed
        self._attempt = _Attempt()

    @property
    def version(self) -> int:
        return self._committed.version()

    def write_delta(self, shard: int, epoch: int, version: int, data: bytes) -> Ref:
        ref = Ref(digest_of(data), len(data))
        committed = self._record(shard, epoch, version, ref)
        return ref if committed else self._blobs.put(data)

    def leave_unchanged(self, shard: int, epoch: int, version: int) -> None:
        self._record(shard, epoch, version, None)

    def accept(self, epoch: int, version: int, results: Mapping[int, Ref | None]) -> None:
        """Take over the results of tasks for shards: a stored delta, or None for unchanged."""
        status = self._committed.status(epoch)
        check_version(version, status.version)
        for shard, ref in results.items():
            _is_committed(status.deltas, shard, epoch, ref)
            self._attempt.record(shard, epoch, ref, status.newest)

    def _record(self, shard: int, epoch: int, version: int, ref: Ref | None) -> bool:
        """Record the result of a shard; whether it is committed already."""
        status = self._committed.status(epoch)
        check_version(version, status.version)
        committed = _is_committed(status.deltas, shard, epoch, ref)
        self._attempt.record(shard, epoch, ref, status.newest)
        return committed

    def read_delta(self, shard: int, epoch: int) -> bytes | None:
        committed = self._committed.status(epoch).deltas
        ref = self._attempt.results(epoch).get(shard) if committed is None else committed.get(shard)
        return self._blobs.get(ref) if ref else None

    def epoch_complete(self, epoch: int, shards: Collection[int]) -> Mapping[int, Ref]:
        changed = complete(self._attempt.results(epoch), epoch, shards)
        for shard, ref in changed.items():
            try:
                self._blobs.check(ref, read=True)
            except BlobDamaged as e:
                raise EpochIncomplete(f"the delta of shard {shard} is not intact: {e}") from e
        return changed

    def prune_before(self, epoch: int) -> int:
        self._attempt.forget_before(epoch)
        return self._committed.prune_before(min(epoch, self._committed.status(epoch).newest))


class MemoryStateBackend:
    """`StateBackend` that forgets with its process and commits by itself: a model of the other."""

    def __init__(self) -> None:
        self._version = 0
        self._data: dict[str, bytes] = {}
        self._attempt = _Attempt()
        self._committed: dict[int, tuple[str, Mapping[int, Ref]]] = {}

    @property
    def version(self) -> int:
        return self._version

    def advance(self, version: int) -> None:
        """Raise the authoritative version; it never decreases."""
        check_version(version, self._version)
        self._version = version

    def write_delta(self, shard: int, epoch: int, version: int, data: bytes) -> Ref:
        check_version(version, self._version)
        ref = Ref(digest_of(data), len(data))
        _is_committed(self._deltas(epoch), shard, epoch, ref)
        self._attempt.record(shard, epoch, ref, self._newest)
        self._data[ref.digest] = data
        return ref

    def leave_unchanged(self, shard: int, epoch: int, version: int) -> None:
        check_version(version, self._version)
        _is_committed(self._deltas(epoch), shard, epoch, None)
        self._attempt.record(shard, epoch, None, self._newest)

    def read_delta(self, shard: int, epoch: int) -> bytes | None:
        committed = self._deltas(epoch)
        ref = self._attempt.results(epoch).get(shard) if committed is None else committed.get(shard)
        return self._data[ref.digest] if ref else None

    def epoch_complete(self, epoch: int, shards: Collection[int]) -> Mapping[int, Ref]:
        return complete(self._attempt.results(epoch), epoch, shards)

    def commit(self, epoch: int, shards: Collection[int], writer: str) -> None:
        """Make an epoch final; the first writer wins, and the same one may ask again."""
        winner, _ = self._committed.setdefault(epoch, (writer, self.epoch_complete(epoch, shards)))
        if winner != writer:
            raise SplitBrainCommit(f"epoch {epoch} was committed by {winner}")

    def prune_before(self, epoch: int) -> int:
        gone = [each for each in self._committed if each < min(epoch, self._newest)]
        for each in gone:
            del self._committed[each]
        self._attempt.forget_before(epoch)
        return len(gone)

    @property
    def _newest(self) -> int:
        return max(self._committed, default=0)

    def _deltas(self, epoch: int) -> Mapping[int, Ref] | None:
        return self._committed[epoch][1] if epoch in self._committed else None


class _Attempt:
    """The result of each shard in the newest epochs: a delta, or None for unchanged."""

    def __init__(self) -> None:
        self._results: dict[int, dict[int, Ref | None]] = {}

    def results(self, epoch: int) -> Mapping[int, Ref | None]:
        return self._results.get(epoch, {})

    def record(self, shard: int, epoch: int, ref: Ref | None, newest: int) -> None:
        """Record a result; those before the newest committed epoch are no longer needed.

        A superseded writer reports an older epoch, which must be recorded to be refused.
        """
        self.forget_before(min(newest, epoch))
        known = self._results.setdefault(epoch, {})
        if known.setdefault(shard, ref) != ref:
            raise DeltaConflict(f"conflicting results for shard {shard} in epoch {epoch}")

    def forget_before(self, epoch: int) -> None:
        self._results = {each: results for each, results in self._results.items() if each >= epoch}


def check_version(version: int, authoritative: int) -> None:
    """Refuse a writer with an older version than the authoritative one; 0 is no fence."""
    if authoritative and version < authoritative:
        raise StaleVersion(
            f"this was routed by version {version} of the assignment, which is at {authoritative}"
        )


def complete(
    results: Mapping[int, Ref | None], epoch: int, shards: Collection[int]
) -> Mapping[int, Ref]:
    """The deltas of an epoch, if every owned shard has a result, and no other shard has."""
    if not shards:
        raise EpochIncomplete(f"epoch {epoch} has no shards")
    if missing := sorted(set(shards) - results.keys()):
        raise EpochIncomplete(f"epoch {epoch}: no result was reported for shards {missing[:5]}")
    if unexpected := sorted(results.keys() - set(shards)):
        raise EpochIncomplete(f"epoch {epoch}: shards {unexpected[:5]} do not belong to it")
    changed = {shard: ref for shard, ref in results.items() if ref is not None}
    if empty := sorted(shard for shard, ref in changed.items() if not ref.size):
        raise EpochIncomplete(f"epoch {epoch}: the deltas of shards {empty[:5]} are empty")
    return changed


def _is_committed(
    committed: Mapping[int, Ref] | None, shard: int, epoch: int, ref: Ref | None
) -> bool:
    """Whether this delta, or none, is committed already; a different one is a conflict."""
    if committed is None:
        return False
    if committed.get(shard) != ref:
        raise DeltaConflict(f"epoch {epoch} is committed with another delta of shard {shard}")
    return True
