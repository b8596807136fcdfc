"""Giving up the old records of an offset store, by age.

Commits keep ten records, and changes a hundred, however old they are. Here those go that are older
than a time; of every consumer the newest two records stay, so that a damaged file can be restored
and the last commit undone.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from sluicegate.errors import SluicegateError
from sluicegate.offsets.lockfile import LockFileOffsetStore
from sluicegate.offsets.names import Kept

_NEWEST = 2
_DAMAGED = re.compile(r"(?P<consumer>.+)\.(?P<at>[0-9]{1,16})\.damaged", re.ASCII)


@dataclass(frozen=True, slots=True)
class OldRecords:
    """Files of one consumer that may go."""

    consumer: str
    names: tuple[str, ...]


def old_records(store: LockFileOffsetStore, before: float) -> list[OldRecords]:
    """What is older than a time, by consumer; nothing of one whose newest record is damaged."""
    kept = store.kept_records()
    aside: dict[str, list[str]] = {}
    for entry in store.storage.list():
        match = _DAMAGED.fullmatch(entry.name)
        if match and int(match["at"]) / 1000 < before:
            aside.setdefault(match["consumer"], []).append(entry.name)
    found = []
    for consumer in sorted(kept):
        names = (*_old(store, consumer, kept[consumer], before), *aside.get(consumer, ()))
        found += [OldRecords(consumer, names)] if names else []
    return found


def prune_records(store: LockFileOffsetStore, before: float) -> list[OldRecords]:
    """Remove it, one consumer after the other; `Locked` if one of them is being written."""
    found = old_records(store, before)
    for each in found:
        with store.lock(each.consumer).hold(timeout=0):
            # Numbers and times only grow, so what was old is; but it may be needed by now.
            store.newest(each.consumer)
            for name in each.names:
                store.storage.delete(name)
    return found


def _old(
    store: LockFileOffsetStore, consumer: str, kept: list[Kept], before: float
) -> Iterator[str]:
    try:
        newest = store.newest(consumer)
    except SluicegateError:
        # Whatever is kept may be needed to restore it.
        return
    limit = newest.sequence - _NEWEST + 1 if newest else 0
    for each in kept:
        if each.sequence >= limit:
            return
        try:
            record = store.read_kept(consumer, each)
        except SluicegateError:
            continue
        if record.at >= before:
            return
        yield each.name
