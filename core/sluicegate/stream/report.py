"""Reports on gated streams: summary, snapshots, positions, verify, audit."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, TypedDict

from sluicegate import units
from sluicegate.findings import count_findings, has_errors
from sluicegate.positions import Positions, to_spark
from sluicegate.process import WhoFields
from sluicegate.report import Cell, FindingDocument, Report, Table, document
from sluicegate.stream.snapshot import Snapshot

if TYPE_CHECKING:
    from sluicegate.stream.audit import AuditedEpoch, StreamAudit
    from sluicegate.stream.inspect import StreamSummary
    from sluicegate.stream.verify import Reading, Verified


class SnapshotDocument(TypedDict):
    """One snapshot of a gated stream."""

    stream: str
    stream_id: str
    snapshot: int
    kind: str
    digest: str
    parent: str | None  # the digest of the snapshot before it; null: it is the first
    generation: int
    epoch: int  # epochs ever committed
    writer: str | None  # null: no job has run yet
    by: WhoFields
    app: str | None
    reason: str | None
    created_at: str
    sequence: int  # events included
    positions: dict[str, dict[str, int]]  # topic, partition, next offset
    watermark_ns: int | None  # ns since 1970
    counters: dict[str, int]
    assignment_version: int
    floor: int  # the oldest snapshot that a rollback can restore
    ancestry: list[list[int]]  # first and last number of ranges of snapshots that are part of it
    pins: dict[str, Any]  # settings that were fixed when the stream began
    details: dict[str, Any]  # of the operation that made it


class StateDocument(TypedDict):
    """The size of the state."""

    shards: int
    deltas: int
    bytes: int


@document("sluicegate.stream", version=1)
class StreamDocument(SnapshotDocument):
    """A gated stream at its newest snapshot, or at another."""

    home_path: str
    writer_alive: str | None  # the job that runs; null: none does
    snapshots_kept: int
    state: StateDocument
    operators: dict[str, int]  # bytes of the state of each


def stream_report(summary: StreamSummary) -> Report:
    """Everything about a stream, or about one of its snapshots."""
    snapshot = summary.head
    positions = [(p.topic, p.partition, p.offset) for p in snapshot.positions]
    operators = [(name, units.size(size)) for name, size in sorted(summary.operators.items())]
    pinned = [(f"{name} = {_plain(value)}",) for name, value in sorted(snapshot.pins.items())]
    document: StreamDocument = {
        **snapshot_document(snapshot),
        "home_path": summary.uri,
        "writer_alive": summary.living,
        "snapshots_kept": summary.kept,
        "state": {
            "shards": summary.state.shards,
            "deltas": summary.state.deltas,
            "bytes": summary.state.bytes,
        },
        "operators": summary.operators,
    }
    return Report(
        schema="sluicegate.stream",
        document=document,
        tables=[
            Table(("field", "value"), _facts(summary), header=False),
            Table(("topic", "partition", "next offset"), positions),
            Table(("operator", "state"), operators),
            Table(("setting",), pinned, title="Fixed settings", header=False),
        ],
    )


class DamagedDocument(TypedDict):
    """A snapshot that cannot be read."""

    problem: str  # in place of all other fields


@document("sluicegate.snapshots", version=1)
class SnapshotsDocument(TypedDict):
    """The newest snapshots of a gated stream."""

    kept: int  # how many there are
    snapshots: list[SnapshotDocument | DamagedDocument]  # newest last


def snapshots_report(found: list[Snapshot | str], kept: int) -> Report:
    """The newest snapshots of a stream."""
    rows = [_row(each) if isinstance(each, Snapshot) else _bad(each) for each in found]
    hidden = kept - len(found)
    older = f"{units.counted(hidden, 'older snapshot')}; show them with --last {kept}"
    columns = ("snapshot", "made", "kind", "events", "summary", "by")
    document: SnapshotsDocument = {
        "kept": kept,
        "snapshots": [
            snapshot_document(each) if isinstance(each, Snapshot) else {"problem": each}
            for each in found
        ],
    }
    return Report(
        schema="sluicegate.snapshots",
        document=document,
        tables=[Table(columns, rows)],
        lines=[older] if hidden > 0 else [],
    )


def snapshot_document(snapshot: Snapshot) -> SnapshotDocument:
    """A snapshot as plain values."""
    return {
        "stream": snapshot.stream,
        "stream_id": snapshot.stream_id,
        "snapshot": snapshot.number,
        "kind": snapshot.kind.value,
        "digest": snapshot.digest,
        "parent": snapshot.parent,
        "generation": snapshot.generation,
        "epoch": snapshot.epoch,
        "writer": snapshot.writer,
        "by": snapshot.by.fields(),
        "app": snapshot.app,
        "reason": snapshot.reason,
        "created_at": units.utc(snapshot.created_at),
        "sequence": snapshot.sequence,
        "positions": to_spark(snapshot.positions),
        "watermark_ns": snapshot.watermark_ns,
        "counters": dict(snapshot.counters),
        "assignment_version": snapshot.version,
        "floor": snapshot.floor,
        "ancestry": [list(span) for span in snapshot.ancestry],
        "pins": dict(snapshot.pins),
        "details": dict(snapshot.details),
    }


def positions_text(positions: Positions) -> str:
    """Positions on one line."""
    return ", ".join(f"{p.topic}[{p.partition}] {p.offset:,}" for p in positions)


@document("sluicegate.stream-offsets", version=1)
class StreamOffsetsDocument(TypedDict):
    """The positions of a gated stream at a snapshot."""

    stream: str
    snapshot: int
    positions: dict[str, dict[str, int]]  # topic, partition, next offset


def positions_report(uri: str, snapshot: Snapshot) -> Report:
    """The positions at a snapshot."""
    rows = [(p.topic, p.partition, p.offset) for p in snapshot.positions]
    document: StreamOffsetsDocument = {
        "stream": uri,
        "snapshot": snapshot.number,
        "positions": to_spark(snapshot.positions),
    }
    return Report(
        schema="sluicegate.stream-offsets",
        document=document,
        tables=[Table(("topic", "partition", "next offset"), rows)],
        lines=[f"At snapshot {snapshot.number}, {units.ago(snapshot.created_at)}."],
    )


class VerifyStreamFields(TypedDict):
    """What `verify` says of a stream besides its findings, which the console adds."""

    stream: str
    snapshots: int  # how many were checked
    blobs: int  # how many were checked by name and size
    read_blobs: int  # how many were read
    read_bytes: int
    complete: bool  # false: the time limit was reached; the next run continues


@document("sluicegate.verify-stream", version=1)
class VerifyStreamDocument(VerifyStreamFields):
    """How much of a gated stream was checked, and what is not intact."""

    findings: list[FindingDocument]


def verify_report(uri: str, result: Verified, reading: Reading | None) -> Report:
    """The findings of a check of a stream, and how much was checked."""
    blobs = units.counted(result.blobs, "blob")
    checked = f"{units.counted(result.snapshots, 'snapshot')} and {blobs}"
    outcome = count_findings(result.findings) or "intact"
    lines = [f"{uri}: {outcome}. Checked {checked}."]
    if reading is None:
        lines.append(
            "Blobs were checked by name and size only; use --read-data to verify their content."
        )
    else:
        read_blobs = units.counted(result.read_blobs, "blob")
        read = f"Read {read_blobs}, {units.size(result.read_bytes)}"
        complete = units.utc(result.last_complete) if result.last_complete else "never"
        lines.append(
            f"{read}; the time limit was reached. Run it again to continue; the last complete "
            f"read was: {complete}."
            if result.resume
            else f"{read}."
        )
    document: VerifyStreamFields = {
        "stream": uri,
        "snapshots": result.snapshots,
        "blobs": result.blobs,
        "read_blobs": result.read_blobs,
        "read_bytes": result.read_bytes,
        "complete": not result.resume,
    }
    return Report(
        schema="sluicegate.verify-stream",
        document=document,
        findings=result.findings,
        lines=lines,
    )


def _facts(summary: StreamSummary) -> list[tuple[str, str | int | None]]:
    snapshot, state = summary.head, summary.state
    at = snapshot.created_at
    kind = f"{snapshot.kind.value}, {units.utc(at)} ({units.ago(at)})"
    counters = ", ".join(f"{name} {count:,}" for name, count in sorted(snapshot.counters.items()))
    return [
        ("stream", f"{snapshot.stream} in {summary.uri}"),
        ("newest snapshot", f"{snapshot.number}: {kind}"),
        ("made by", str(snapshot.by)),
        ("reason", snapshot.reason),
        ("generation", snapshot.generation),
        ("epochs committed", snapshot.epoch),
        ("events included", snapshot.sequence),
        ("counters", counters or None),
        ("watermark", _watermark(snapshot.watermark_ns)),
        ("job", summary.living or _no_writer(snapshot)),
        ("state", _state_text(state.shards, state.deltas, state.bytes)),
        ("assignment", f"version {snapshot.version}" if snapshot.version else None),
        ("rollback", f"possible to snapshot {snapshot.floor} or later"),
    ]


def _no_writer(snapshot: Snapshot) -> str:
    if snapshot.writer is None:
        return "none has run yet"
    return "no active writer; the next run resumes here"


def _state_text(shards: int, deltas: int, size: int) -> str | None:
    if not shards:
        return None
    pieces = f"{units.counted(deltas, 'delta')} of {units.counted(shards, 'shard')}"
    return f"{units.size(size)} in {pieces}"


def _row(snapshot: Snapshot) -> tuple[Any, ...]:
    summary = snapshot.details.get("summary") or positions_text(snapshot.positions)
    who = snapshot.app or str(snapshot.by).partition(" ")[0]
    made = units.utc(snapshot.created_at)
    return snapshot.number, made, snapshot.kind.value, snapshot.sequence, summary, who


def _bad(problem: str) -> tuple[Any, ...]:
    number, _, what = problem.partition(": ")
    return int(number), None, "damaged", None, what, None


def _watermark(nanoseconds: int | None) -> str | None:
    return units.utc(nanoseconds / 1e9) if nanoseconds else None


def _plain(value: Any) -> str:
    """A setting roughly as in the configuration, never as Python would show it."""
    return value if isinstance(value, str) else json.dumps(value)


_COUNTS = ("read", "applied", "duplicates", "rejected", "written")
_SHOWN_EPOCHS = 50


class EpochDocument(TypedDict):
    """One committed epoch."""

    epoch: int
    snapshot: int
    committed_at: str
    moved: int | None  # how far positions moved; null: not known
    events: int  # applied
    counts: dict[str, int] | None  # events by outcome; null: the writer did not count


class AuditStreamFields(TypedDict):
    """An audit without its findings, which the console adds."""

    stream: str
    epochs: list[EpochDocument]


@document("sluicegate.audit-stream", version=1)
class AuditStreamDocument(AuditStreamFields):
    """The epochs of a gated stream, and whether data was lost or duplicated."""

    findings: list[FindingDocument]


def audit_report(uri: str, result: StreamAudit) -> Report:
    """Every epoch with its counts; on a screen only the newest, and the sum of all."""
    columns = ("epoch", "snapshot", "committed", *_COUNTS)
    left_out = len(result.epochs) - _SHOWN_EPOCHS
    older = f"{units.counted(left_out, 'older epoch')} not shown; see --json."
    lines = [older] if left_out > 0 else []
    shown = result.epochs[-_SHOWN_EPOCHS:]
    document: AuditStreamFields = {
        "stream": uri,
        "epochs": [_epoch_document(each) for each in result.epochs],
    }
    return Report(
        schema="sluicegate.audit-stream",
        document=document,
        tables=[Table(columns, [_epoch_row(each) for each in shown])],
        findings=tuple(result.findings),
        lines=[*lines, f"{uri}: {units.counted(len(result.epochs), 'epoch')}; {_sum(result)}."],
    )


def _sum(result: StreamAudit) -> str:
    if has_errors(result.findings):
        return "problems were found; see the findings"
    total = {name: result.total(name) for name in _COUNTS}
    return (
        f"{total['read']:,} read = {total['applied']:,} applied + {total['duplicates']:,} "
        f"duplicates + {total['rejected']:,} rejected, in every epoch"
    )


def _epoch_row(epoch: AuditedEpoch) -> tuple[Cell, ...]:
    counts = epoch.counts or {"applied": epoch.events}
    committed = units.utc(epoch.snapshot.created_at)
    return (
        epoch.snapshot.epoch,
        epoch.snapshot.number,
        committed,
        *(counts.get(name) for name in _COUNTS),
    )


def _epoch_document(epoch: AuditedEpoch) -> EpochDocument:
    return {
        "epoch": epoch.snapshot.epoch,
        "snapshot": epoch.snapshot.number,
        "committed_at": units.utc(epoch.snapshot.created_at),
        "moved": epoch.moved,
        "events": epoch.events,
        "counts": epoch.counts,
    }
