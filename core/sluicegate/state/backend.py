"""Where an epoch puts its partials before it is sealed, and what decides that it is complete.

A backend serves one attempt at a time: what an attempt wrote is invisible until its epoch is
sealed, and is an orphan if it never is.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Protocol

from sluicegate.blobs import Ref
from sluicegate.errors import Corrupt, SluicegateError


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
