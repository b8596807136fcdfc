"""The batches of a checkpoint, one by one: when planned, what read, whether committed."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from sluicegate.errors import SluicegateError
from sluicegate.spark.checkpoint import Look
from sluicegate.spark.offset_log import OffsetEntry, SourceOffset, read_offsets


@dataclass(frozen=True, slots=True)
class Batch:
    """One batch; `events` is None where the offsets do not count events."""

    number: int
    planned_ms: int | None
    committed: bool
    events: int | None
    offsets: tuple[SourceOffset, ...]
    problem: str | None = None


def read_batches(look: Look, last: int | None = None) -> Iterator[Batch]:
    """The batches that have offsets, oldest first; only the newest `last` if given."""
    numbers = look.offsets.batches
    shown = numbers if last is None else numbers[-last:] if last else ()
    committed = set(look.commits.batches)
    before = _read(look, shown[0] - 1)[0] if shown and shown[0] - 1 in numbers else None
    for number in shown:
        entry, problem = _read(look, number)
        follows = before is not None and before.batch == number - 1
        yield Batch(
            number,
            entry.timestamp_ms if entry else None,
            number in committed,
            events_between(before, entry) if follows else None,
            entry.offsets if entry else (),
            problem,
        )
        before = entry


def events_between(before: OffsetEntry | None, after: OffsetEntry | None) -> int | None:
    """How many events lie between two entries, if every source counts in positions."""
    if before is None or after is None:
        return None
    starts = {offset.source: offset.positions for offset in before.offsets}
    total = 0
    for offset in after.offsets:
        start, end = starts.get(offset.source), offset.positions
        if start is None or end is None:
            return None
        for position in end:
            began = start.get(position.topic, position.partition)
            # Where a new partition began, or what a rewind means, the log does not tell.
            if began is None or position.offset < began:
                return None
            total += position.offset - began
    return total


def _read(look: Look, number: int) -> tuple[OffsetEntry | None, str | None]:
    try:
        return read_offsets(look.storage, number), None
    except SluicegateError as e:
        return None, e.message
