"""Checks whether a query lost or duplicated data, by its own logs and its file sink's.

For each batch: whether it begins where the previous one ended, whether a position went backwards,
whether the sink wrote it in the run that planned it, and whether readers see all its files.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from sluicegate.checkpoint.format.log import (
    SINK_DIRECTORY,
    LogListing,
    OffsetEntry,
    SinkFile,
    list_log,
    read_offsets,
    read_sink_files,
)
from sluicegate.checkpoint.inspect import events_between
from sluicegate.checkpoint.rules.sink_log import check_sink
from sluicegate.checkpoint.view import Look, look_at
from sluicegate.errors import SluicegateError
from sluicegate.findings import Finding, Severity, rule
from sluicegate.storage import Storage

_CLOCK_SLACK_MS = 10_000

UNKNOWN_RANGE = rule(
    "SG-AUDIT-UNKNOWN-RANGE",
    Severity.WARNING,
    "the range that a batch read is unknown",
    "The offsets of the previous batch are missing, so its start is unknown. With "
    "asynchronous progress tracking this is normal; otherwise an offsets file was deleted.",
)
BACKWARDS = rule(
    "SG-AUDIT-BACKWARDS",
    Severity.WARNING,
    "a position went backwards",
    "A later batch ends before an earlier one: the query was rewound, or a topic was recreated. "
    "The events in between were read twice; only an idempotent sink has them once.",
)
SKIPPED = rule(
    "SG-AUDIT-SINK-SKIPPED",
    Severity.ERROR,
    "the sink skipped a batch",
    "The sink had committed this batch number before the batch was planned, in an earlier run of "
    "the query, and therefore ignored it: the events of the batch are not in the output.",
)
NOT_WRITTEN = rule(
    "SG-AUDIT-SINK-NOT-WRITTEN",
    Severity.ERROR,
    "a committed batch is not in the sink's log",
    "The checkpoint has the batch as committed, but the sink's log has no entry for it: readers do "
    "not see its rows.",
)


@dataclass(frozen=True, slots=True)
class AuditedBatch:
    """One batch by its logs; None where they do not show it."""

    number: int
    planned_ms: int
    committed: bool
    contiguous: bool
    events: int | None
    files: int | None
    bytes: int | None


@dataclass(frozen=True, slots=True)
class Audit:
    """The checked batches and their findings."""

    batches: tuple[AuditedBatch, ...]
    findings: tuple[Finding, ...]


def audit(storage: Storage, sink: Storage | None, since_ms: int = 0) -> Audit:
    """Audit the batches planned at or after a time; the sink completely."""
    look = look_at(storage)
    listing = list_log(sink, SINK_DIRECTORY) if sink else None
    batches: list[AuditedBatch] = []
    found: list[Finding] = []
    before: OffsetEntry | None = None
    committed = set(look.commits.batches)
    for number in look.offsets.batches:
        entry = _entry(look, number)
        if entry is None:
            place = f"{storage.uri}/offsets/{number}"
            found.append(UNKNOWN_RANGE.at(place, f"the offsets of batch {number} cannot be read"))
        elif entry.timestamp_ms >= since_ms:
            written = _written(sink, listing, number)
            is_committed = number in committed
            batches.append(_audited(before, entry, written, is_committed=is_committed))
            found += _check_range(look, before, entry)
            if sink and listing and listing.exists:
                found += _check_written(sink, listing, entry, written, is_committed=is_committed)
        before = entry
    if sink:
        found += check_sink(look_at(storage), sink)
    return Audit(tuple(batches), tuple(found))


def _audited(
    before: OffsetEntry | None,
    entry: OffsetEntry,
    written: Sequence[SinkFile] | None,
    *,
    is_committed: bool,
) -> AuditedBatch:
    follows = before is not None and before.batch == entry.batch - 1
    return AuditedBatch(
        entry.batch,
        entry.timestamp_ms,
        is_committed,
        follows or entry.batch == 0,
        events_between(before, entry) if follows else None,
        None if written is None else len(written),
        None if written is None else sum(file.size for file in written),
    )


def _check_range(look: Look, before: OffsetEntry | None, entry: OffsetEntry) -> Iterator[Finding]:
    place = f"{look.storage.uri}/offsets/{entry.batch}"
    if before is None or before.batch != entry.batch - 1:
        if entry.batch != 0 and entry.batch != look.offsets.batches[0]:
            yield UNKNOWN_RANGE.at(place, f"batch {entry.batch - 1} has no readable offsets")
        return
    starts = {offset.source: offset for offset in before.offsets}
    for offset in entry.offsets:
        start = starts.get(offset.source)
        if start is None:
            continue
        if start.number is not None and offset.number is not None and offset.number < start.number:
            yield BACKWARDS.at(place, f"source {offset.source}: {start.number} → {offset.number}")
        known = start.positions
        for position in offset.positions or ():
            earlier = known.get(position.topic, position.partition) if known else None
            if earlier is not None and position.offset < earlier:
                where = f"{position.topic}[{position.partition}]"
                yield BACKWARDS.at(place, f"{where}: {earlier} → {position.offset}")


def _check_written(
    sink: Storage,
    listing: LogListing,
    entry: OffsetEntry,
    written: Sequence[SinkFile] | None,
    *,
    is_committed: bool,
) -> Iterator[Finding]:
    place = f"{sink.uri}/{SINK_DIRECTORY}/{entry.batch}"
    covered = listing.last_compact is not None and entry.batch <= listing.last_compact
    if written is None:
        if is_committed and not covered:
            yield NOT_WRITTEN.at(place, f"batch {entry.batch} is committed")
        return
    # Clocks differ, and many file systems store times in seconds only.
    early = [f for f in written if 0 < f.modified_ms < entry.timestamp_ms - _CLOCK_SLACK_MS]
    if early and len(early) == len(written):
        detail = f"batch {entry.batch} was planned after its output {early[0].path} was written"
        yield SKIPPED.at(place, detail)


def _written(
    sink: Storage | None, listing: LogListing | None, number: int
) -> tuple[SinkFile, ...] | None:
    """The files that the sink wrote for a batch; None if they are compacted or there is no log."""
    if sink is None or listing is None or number not in listing.batches:
        return None
    try:
        return tuple(read_sink_files(sink, f"{SINK_DIRECTORY}/{number}"))
    except SluicegateError:
        return None


def _entry(look: Look, number: int) -> OffsetEntry | None:
    try:
        return read_offsets(look.storage, number)
    except SluicegateError:
        return None
