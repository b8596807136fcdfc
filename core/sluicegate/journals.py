"""The journal of a target, whatever its kind."""

from __future__ import annotations

from sluicegate.errors import UnsupportedFormat
from sluicegate.journal import Journal
from sluicegate.offsets import LockFileOffsetStore
from sluicegate.offsets.journal import StoreJournal
from sluicegate.target import Target, TargetKind


def open_journal(target: Target, *, consumer: str | None = None, read_only: bool) -> Journal:
    """The journal of a target; of one consumer, where it has several."""
    if target.kind is TargetKind.OFFSET_STORE:
        store = LockFileOffsetStore.open(target.uri, read_only=read_only)
        return StoreJournal(store, name=target.configured_name, consumer=consumer)
    raise UnsupportedFormat(
        f"{target.uri} is a {target.kind.value} ({target.why}), of which this release keeps no "
        "journal",
        hint="name an offset store; the batches of a checkpoint: sluicegate checkpoint list",
        place=target.uri,
    )
