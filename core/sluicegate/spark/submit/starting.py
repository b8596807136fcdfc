"""Where an application starts that keeps its position in an offset store."""

from __future__ import annotations

import json
from dataclasses import dataclass
from shlex import quote

from sluicegate.errors import NotFound
from sluicegate.offsets import LockFileOffsetStore, Record
from sluicegate.positions import to_spark
from sluicegate.spark.submit import keys
from sluicegate.spark.submit.keys import Setting
from sluicegate.storage import local_root, validate_name


@dataclass(frozen=True, slots=True)
class Starting:
    """A consumer of a store and its last commit; None if it has no positions yet."""

    store: str
    consumer: str
    record: Record | None

    @property
    def settings(self) -> tuple[Setting, ...]:
        """What the application is told."""
        told = ((keys.OFFSETS_STORE, self.store), (keys.CONSUMER, self.consumer))
        if self.record is None:
            return told
        text = json.dumps(to_spark(self.record.positions), separators=(",", ":"))
        return (*told, (keys.STARTING_OFFSETS, text))


def read_starting(uri: str, consumer: str | None, *, allow_new: bool) -> Starting:
    """The positions of a consumer, or of the only one there is."""
    store = LockFileOffsetStore.open(str(local_root(uri).absolute()), read_only=True)
    name = consumer if consumer is not None else store.choose(None)
    record = store.load(validate_name(name, "consumer"))
    if record is None and not allow_new:
        known = ", ".join(store.list()) or "none"
        place = quote(store.uri)
        raise NotFound(
            f"consumer {name} has no positions in {store.uri}; consumers that have: {known}",
            hint=f"set some with: sluicegate offsets import {place} FILE --consumer {quote(name)}; "
            "or let the application choose with --allow-new-consumer",
            place=store.uri,
        )
    return Starting(store.uri, name, record)
