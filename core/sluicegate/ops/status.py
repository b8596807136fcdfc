"""Every named target on one screen: what it is, where it stands, what is wrong with it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from sluicegate import units
from sluicegate.checkpoint.format.commit_log import read_commit
from sluicegate.checkpoint.format.offset_log import read_offsets
from sluicegate.checkpoint.verify import verify
from sluicegate.checkpoint.view import Standing, look_at
from sluicegate.config import Config
from sluicegate.detection import TargetKind
from sluicegate.errors import SluicegateError
from sluicegate.findings import Finding, Severity, has_errors, worst_first
from sluicegate.storage import open_storage
from sluicegate.target import UNREADABLE, Sighting, Target, survey

if TYPE_CHECKING:
    from sluicegate.stream.snapshot import Link


@dataclass(frozen=True, slots=True)
class TargetStatus:
    """One target: its last batch or epoch and when that was; of a store, its newest commit."""

    sighting: Sighting
    last_batch: int | None
    updated_ms: int | None
    standing: str | None
    findings: tuple[Finding, ...]

    @property
    def worst(self) -> Severity | None:
        """The severity that decides how urgent this target is."""
        return self.findings[0].severity if self.findings else None


def overview(config: Config, home: str) -> list[TargetStatus]:
    """All named targets, those that need a person first."""
    found = [status_of(config, sighting) for sighting in survey(config, home)]
    order = [*Severity, None]
    return sorted(found, key=lambda s: (order.index(s.worst), s.sighting.name))


def status_of(config: Config, sighting: Sighting) -> TargetStatus:
    """The status of one target, as far as its kind can be looked into."""
    target = sighting.target
    try:
        match target:
            case Target(kind=TargetKind.SPARK_CHECKPOINT):
                return _checkpoint_status(config, sighting, target.uri)
            case Target(kind=TargetKind.OFFSET_STORE):
                return _store_status(sighting, target.uri)
            case Target(kind=TargetKind.STREAM):
                return _stream_status(sighting, target.uri)
    except SluicegateError as e:
        # One target that cannot be read must not hide the others.
        finding = UNREADABLE.at(sighting.uri, e.message)
        return TargetStatus(sighting, None, None, None, (*sighting.findings, finding))
    return TargetStatus(sighting, None, None, None, sighting.findings)


def _checkpoint_status(config: Config, sighting: Sighting, uri: str) -> TargetStatus:
    storage = open_storage(uri, read_only=True)
    named = config.targets.get(sighting.name)
    sink = open_storage(named.sink, read_only=True) if named and named.sink else None
    look = look_at(storage)
    planned, standing = None, look.standing
    try:
        if look.last_batch is not None:
            planned = read_offsets(storage, look.last_batch).timestamp_ms
        if look.last_commit is not None:
            read_commit(storage, look.last_commit)
    except SluicegateError:
        # Names alone may look clean, but the next start will fail on this.
        standing = Standing.BROKEN
    findings = worst_first([*sighting.findings, *verify(storage, sink)])
    return TargetStatus(sighting, look.last_batch, planned, standing.value, tuple(findings))


def _store_status(sighting: Sighting, uri: str) -> TargetStatus:
    # Imported here: most installations have checkpoints only, and `status` starts often.
    from sluicegate.offsets import LockFileOffsetStore, legacy
    from sluicegate.offsets import verify as check

    storage = open_storage(uri, read_only=True)
    if legacy.is_reference(storage):
        standing = f"reference layout, positions: {len(legacy.read(storage))}"
        return TargetStatus(sighting, None, None, standing, sighting.findings)
    look = check.look_at(LockFileOffsetStore(storage))
    count = sum(len(record.positions) for record in look.records)
    standing = f"consumers: {len(look.records)}, positions: {count}"
    newest = round(look.newest_at * 1000) if look.newest_at else None
    findings = tuple(worst_first([*sighting.findings, *look.findings]))
    return TargetStatus(sighting, None, newest, standing, findings)


def _stream_status(sighting: Sighting, uri: str) -> TargetStatus:
    from sluicegate.stream.stream import open_stream
    from sluicegate.stream.verify import verify
    from sluicegate.stream.writer import Gate

    stream = open_stream(uri, read_only=True)
    findings = tuple(worst_first([*sighting.findings, *verify(stream).findings]))
    try:
        head = stream.chain.head()
    except SluicegateError:
        return TargetStatus(sighting, None, None, Standing.BROKEN.value, findings)
    writer = "a job is at work" if Gate(stream).living_writer(head) else "no job is at work"
    where = f"link {head.number}, generation {head.generation}"
    standing = f"{where}, {units.events(head.sequence)}{_behind(head)}; {writer}"
    at = round(head.created_at * 1000)
    return TargetStatus(sighting, head.epoch, at, standing, findings)


def _behind(head: Link) -> str:
    """How far a stream is behind its source, where that can be asked."""
    from sluicegate import lag
    from sluicegate.stream.spec import range_of

    try:
        earliest, latest = range_of(head)
    except SluicegateError:
        return ""
    return f", {lag.total(lag.lags(head.positions, latest, earliest)):,} behind"


def needs_a_person(found: list[TargetStatus]) -> bool:
    """Whether any target has a finding of severity error."""
    return any(has_errors(status.findings) for status in found)
