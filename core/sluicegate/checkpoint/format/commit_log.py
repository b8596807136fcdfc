"""The commit log: the committed batches and, with state format 2, the ids of their state."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from sluicegate.checkpoint.format.log import integer, parse_object, read_lines
from sluicegate.errors import Corrupt
from sluicegate.storage import Storage

COMMITS = "commits"
COMMITS_VERSION = 3

StateIds = Mapping[int, tuple[tuple[str, ...], ...]]
"""Operator → partition → the ids of its stores' files (state format 2)."""


@dataclass(frozen=True, slots=True)
class CommitEntry:
    """One file of the commit log."""

    batch: int
    version: int
    next_watermark_ms: int
    state_ids: StateIds = field(default_factory=dict)
    extra: Mapping[str, Any] = field(default_factory=dict)


def read_commit(storage: Storage, batch: int) -> CommitEntry:
    """The commit of a batch, or `NotFound`, `Corrupt`, `UnsupportedFormat`."""
    key = f"{COMMITS}/{batch}"
    version, lines = read_lines(storage, key, COMMITS_VERSION)
    place = f"{storage.uri}/{key}"
    text = lines[0] if lines else ""
    if not text:
        # A bare version line is how early releases wrote a commit, and Spark accepts it.
        return CommitEntry(batch, version, 0)
    fields = parse_object(text, place)
    known = ("nextBatchWatermarkMs", "stateUniqueIds")
    return CommitEntry(
        batch=batch,
        version=version,
        next_watermark_ms=integer(fields, "nextBatchWatermarkMs", place, default=0),
        state_ids=_state_ids(fields.get("stateUniqueIds") or {}, place),
        extra={name: value for name, value in fields.items() if name not in known},
    )


def _state_ids(value: Any, place: str) -> dict[int, tuple[tuple[str, ...], ...]]:
    try:
        return {
            int(operator): tuple(tuple(str(i) for i in ids) for ids in partitions)
            for operator, partitions in value.items()
        }
    except (AttributeError, TypeError, ValueError) as e:
        raise Corrupt(f"{place}: stateUniqueIds has an unknown form", place=place) from e
