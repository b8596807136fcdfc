"""Audit: chain and output prove, epoch by epoch, that nothing is lost or duplicated.

For every epoch: positions moved by as many records as were read; every record was applied,
recognised as a duplicate or rejected; all applied events are counted; all output is published,
once.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from sluicegate import units
from sluicegate.errors import Corrupt
from sluicegate.findings import Finding, Severity, rule
from sluicegate.positions import Positions
from sluicegate.sinks.base import DATA, KINDS, PENDING, PUBLISHED, REJECTS, Output, Sink
from sluicegate.sources.base import needs_broker
from sluicegate.stream.history import discarded
from sluicegate.stream.output import OUTPUT, compare, name_of, read_output
from sluicegate.stream.snapshot import Kind, Snapshot, SnapshotDamaged, has
from sluicegate.stream.stream import Stream

COUNTS = rule(
    "SG-AUDIT-COUNTS",
    Severity.ERROR,
    "the records of an epoch do not add up",
    "The records that an epoch read are not the sum of those that it applied, recognised as "
    "duplicates and rejected, or its positions moved by another number. Do not trust the job that "
    "committed it.",
)
MOVED = rule(
    "SG-AUDIT-MOVED",
    Severity.WARNING,
    "positions were changed by an operator",
    "A reset, rollback, repair or import changed the positions between two epochs. Records that "
    "were skipped are not in the state; those that are read again are recognised by their stamps.",
)
UNPUBLISHED = rule(
    "SG-AUDIT-OUTPUT-PENDING",
    Severity.NOTE,
    "output of a committed epoch is not published yet",
    "The job ended after it committed the epoch and before it published the output, or a rollback "
    "that had unpublished it was undone. Nothing is lost: the next start publishes it.",
)
STRAY = rule(
    "SG-AUDIT-OUTPUT-STRAY",
    Severity.WARNING,
    "published output is no longer part of the stream",
    "The stream was rolled back since, and its job has not started yet. Readers still see the "
    "output of epochs that were discarded; the next start unpublishes it.",
)
GAP = rule(
    "SG-AUDIT-GAP",
    Severity.WARNING,
    "an epoch cannot be audited",
    "A repair has discarded a snapshot, or the list of files that it wrote. Its changes are part "
    "of the stream, but the counts of this epoch and the next can no longer be verified.",
)
NO_SINK = rule(
    "SG-AUDIT-SINK-MISSING",
    Severity.ERROR,
    "the sink of a stream is missing",
    "The stream has written output, but its sink is not at the configured path. Its disk may not "
    "be mounted, or the path has changed.",
)
_COUNTED = ("read", "applied", "duplicates", "rejected", "written")


@dataclass(frozen=True, slots=True)
class AuditedEpoch:
    """One epoch; counts are None if the writer did not count."""

    snapshot: Snapshot
    moved: int | None
    events: int
    counts: dict[str, int] | None


@dataclass(slots=True)
class StreamAudit:
    """The audited epochs, their findings, and their totals."""

    epochs: list[AuditedEpoch] = field(default_factory=list)
    findings: list[Finding] = field(default_factory=list)

    def total(self, name: str) -> int:
        """A count over all epochs."""
        return sum((each.counts or {}).get(name, 0) for each in self.epochs)


def audit_stream(
    stream: Stream, sink: Sink | None, since: float = 0.0, *, read_data: bool = False
) -> StreamAudit:
    """Audit the epochs committed at or after a time that are part of the stream."""
    head = stream.chain.head()
    first = stream.chain.first(
        head.floor, head.number, lambda snapshot: snapshot.created_at >= since
    )
    if head.created_at < since:
        first = head.number + 1
    audit = _Audit(stream, sink, head, read_data=read_data)
    audit.run(max(first - 1, head.floor))
    result = audit.result
    if sink:
        result.findings += _published(stream, sink)
    elif any(each.snapshot.output for each in result.epochs):
        result.findings.append(NO_SINK.at(stream.uri, "its published output cannot be checked"))
    return result


class _Audit:
    """Compares snapshots with those before them, up to a head."""

    def __init__(
        self, stream: Stream, sink: Sink | None, head: Snapshot, *, read_data: bool
    ) -> None:
        self._stream = stream
        self._sink = sink
        self._head = head
        self._read_data = read_data
        self._discarded = list(discarded(stream, head))
        self.result = StreamAudit()

    def run(self, first: int) -> None:
        """Look at all snapshots after the first."""
        before = self._snapshot(first)
        for number in range(first + 1, self._head.number + 1):
            snapshot = self._snapshot(number)
            if snapshot is None and self._head.includes(number):
                self._not_auditable(number, "it is damaged")
            if before is not None and snapshot is not None:
                self._compare(before, snapshot)
            before = snapshot

    def _compare(self, before: Snapshot, snapshot: Snapshot) -> None:
        if snapshot.kind is not Kind.EPOCH:
            if snapshot.positions != before.positions:
                self.result.findings.append(_moved(self._stream, before, snapshot))
            return
        if not self._head.includes(snapshot.number):
            return
        epoch = _epoch(self._stream, before, snapshot, self.result.findings)
        self.result.epochs.append(epoch)
        try:
            output = read_output(self._stream, snapshot.output) if snapshot.output else Output({})
        except Corrupt as e:
            if not has(self._discarded, snapshot.number):
                raise
            self._not_auditable(snapshot.number, e.message)
            return
        if not before.adopting:
            # What was adopted had been published before.
            self.result.findings += _counted(self._stream, epoch, output)
        if self._sink:
            read = self._read_data
            found = _output(self._stream, self._sink, epoch.snapshot, output, read_data=read)
            self.result.findings += found

    def _snapshot(self, number: int) -> Snapshot | None:
        """A snapshot; None if a repair has discarded it."""
        try:
            return self._stream.chain.read(number)
        except SnapshotDamaged:
            if has(self._discarded, number):
                return None
            raise

    def _not_auditable(self, number: int, why: str) -> None:
        self.result.findings.append(GAP.at(f"{self._stream.uri}, snapshot {number}", why))


def _epoch(
    stream: Stream, before: Snapshot, snapshot: Snapshot, findings: list[Finding]
) -> AuditedEpoch:
    events = snapshot.sequence - before.sequence
    known = {n: snapshot.counters.get(n, 0) - before.counters.get(n, 0) for n in _COUNTED}
    counts = known if "read" in snapshot.counters else None
    moved = _distance(before.positions, snapshot.positions)
    place = f"{stream.uri}, snapshot {snapshot.number}"
    if counts:
        parts = counts["applied"] + counts["duplicates"] + counts["rejected"]
        if counts["read"] != parts or counts["applied"] != events:
            text = ", ".join(f"{name} {count:,}" for name, count in counts.items())
            findings.append(COUNTS.at(place, f"{text}; counted {events:,}"))
        elif moved is not None and moved != counts["read"] and _is_dense(snapshot):
            detail = f"positions moved by {moved:,}, but {counts['read']:,} were read"
            findings.append(COUNTS.at(place, detail))
    return AuditedEpoch(snapshot, moved, events, counts)


def _is_dense(snapshot: Snapshot) -> bool:
    """Whether the distance of positions is a number of records."""
    return not needs_broker(str(snapshot.pins.get("source")))


def _distance(start: Positions, end: Positions) -> int | None:
    """How many records lie between; None if a partition is new, whose beginning is not known."""
    if any(start.get(each.topic, each.partition) is None for each in end):
        return None
    return sum(each.offset - (start.get(each.topic, each.partition) or 0) for each in end)


def _counted(stream: Stream, epoch: AuditedEpoch, output: Output) -> Iterator[Finding]:
    """Whether as many rows are listed as were counted."""
    snapshot, counts = epoch.snapshot, epoch.counts or {}
    for kind, counted in ((DATA, counts.get("written", 0)), (REJECTS, counts.get("rejected", 0))):
        if output.rows(kind) != counted:
            detail = f"{output.rows(kind):,} rows of {kind} are listed, {counted:,} were counted"
            yield COUNTS.at(f"{stream.uri}, snapshot {snapshot.number}", detail)


def _output(
    stream: Stream, sink: Sink, snapshot: Snapshot, output: Output, *, read_data: bool
) -> Iterator[Finding]:
    """Whether all files are published, and are as they were written."""
    for kind in KINDS:
        for file in output.files.get(kind, ()):
            status = sink.status(name_of(snapshot), kind, file, read=read_data)
            place = f"{sink.uri}, {kind} of snapshot {snapshot.number}, {file.name}"
            if status == PENDING:
                yield UNPUBLISHED.at(place, "the next start publishes it")
            elif status != PUBLISHED:
                back = ("checkpoint", "rollback", stream.uri, "--to", snapshot.number - 1)
                yield OUTPUT.at(place, status, repair=units.command(*back))


def _published(stream: Stream, sink: Sink) -> Iterator[Finding]:
    """What is published and should not be."""
    found = compare(stream, sink)
    yield from found.findings(stream, sink)
    for name in found.lost:
        place = f"{sink.uri}, snapshot {name.number}"
        yield OUTPUT.at(place, "it was adopted by a repair, and is missing")
    if strays := sorted({name.number for name in found.disowned}):
        numbers = ", ".join(map(str, strays[:5])) + (", …" if len(strays) > 5 else "")
        repair = units.command("submit", stream.name)
        yield STRAY.at(sink.uri, f"of snapshots {numbers}", repair=repair)


def _moved(stream: Stream, before: Snapshot, snapshot: Snapshot) -> Finding:
    moved = []
    for each in snapshot.positions:
        was = before.positions.get(each.topic, each.partition)
        if was is not None and was != each.offset:
            moved.append(f"{each.topic}[{each.partition}] {was} → {each.offset}")
    when = units.utc(snapshot.created_at)
    detail = f"{snapshot.kind.value} of {when} by {snapshot.by}: {', '.join(moved[:5])}"
    return MOVED.at(f"{stream.uri}, snapshot {snapshot.number}", detail)
