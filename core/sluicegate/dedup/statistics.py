"""What a dedup log is made of, for people who wonder why it grows."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from sluicegate.dedup.entries import Entries
from sluicegate.dedup.stamp import Column


@dataclass(frozen=True, slots=True)
class Statistics:
    """Counts of what a log knows; times are in milliseconds, None where there is nothing."""

    producers: int
    partitions: int
    stamps: int
    intervals: int
    floors: int
    gaps: int
    missing: int
    oldest_gap_at: int | None
    widest: tuple[str, int, int] | None  # producer, partition and number of its intervals


def statistics(entries: Entries) -> Statistics:
    """The counts of some entries."""
    seen = ~entries.expired
    first, last, at = entries.first[seen], entries.last[seen], entries.at[seen]
    owner = _owners(entries)
    mine = owner[seen]
    same = mine[1:] == mine[:-1]
    missing = (first[1:] - last[:-1] - 1)[same]
    # A gap is as old as what lies below it: since then nothing closed it.
    oldest = int(at[:-1][same].min()) if same.any() else None
    return Statistics(
        producers=len(entries.producers.unique()),
        partitions=int(owner[-1]) + 1 if len(owner) else 0,
        stamps=int(
            (last.astype(np.uint64) - first.astype(np.uint64)).sum() + np.uint64(len(first))
        ),
        intervals=len(first),
        floors=int(entries.expired.sum()),
        gaps=int(same.sum()),
        missing=int(missing.astype(np.uint64).sum()) if len(missing) else 0,
        oldest_gap_at=oldest,
        widest=_widest(entries, mine, np.flatnonzero(seen)),
    )


def _owners(entries: Entries) -> Column:
    """A number per (producer, partition), ascending along the entries."""
    if not len(entries):
        return np.empty(0, np.int64)
    names = entries.producers.dictionary_encode().indices.to_numpy(zero_copy_only=False)
    changes = (names[1:] != names[:-1]) | (entries.partitions[1:] != entries.partitions[:-1])
    return np.concatenate([[0], np.cumsum(changes)])


def _widest(
    entries: Entries,
    mine: Column,
    rows: Column,
) -> tuple[str, int, int] | None:
    if not len(mine):
        return None
    counts = np.bincount(mine)
    row = int(rows[np.flatnonzero(mine == int(counts.argmax()))[0]])
    return entries.producers[row].as_py(), int(entries.partitions[row]), int(counts.max())
