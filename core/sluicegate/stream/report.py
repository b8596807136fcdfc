"""Reports on gated streams: summary, snapshots, positions, verify, audit."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from sluicegate import units
from sluicegate.findings import count_findings, has_errors
from sluicegate.positions import Positions, to_spark
from sluicegate.report import Cell, Report, Table
from sluicegate.stream.snapshot import Snapshot

if TYPE_CHECKING:
    from sluicegate.stream.audit import AuditedEpoch, StreamAudit
    from sluicegate.stream.inspect import StreamSummary
    from sluicegate.stream.verify import Reading, Verified


def stream_report(summary: StreamSummary) -> Report:
    """Everything about a stream, or about one of its snapshots."""
    snapshot = summary.head
    positions = [(p.topic, p.partition, p.offset) for p in snapshot.positions]
    operators = [(name, units.size(size)) for name, size in sorted(summary.operators.items())]
    pinned = [(f"{name} = {_plain(value)}",) for name, value in sorted(snapshot.pins.items())]
    return Report(
        schema="sluicegate.stream",
        document=snapshot_document(snapshot)
        | {
            "home_path": summary.uri,
            "writer_alive": summary.living,
            "snapshots_kept": summary.kept,
            "state": {
                "shards": summary.state.shards,
                "deltas": summary.state.deltas,
                "bytes": summary.state.bytes,
            },
            "operators": summary.operators,
        },
        tables=[
            Table(("field", "value"), _facts(summary), header=False),
            Table(("topic", "partition", "next offset"), positions),
            Table(("operator", "state"), operators),
            Table(("setting",), pinned, title="Fixed settings", header=False),
        ],
    )


def snapshots_report(found: list[Snapshot | str], kept: int) -> Report:
    """The newest snapshots of a stream."""
    rows = [_row(each) if isinstance(each, Snapshot) else _bad(each) for each in found]
    hidden = kept - len(found)
    older = f"{units.counted(hidden, 'older snapshot')}; show them with --last {kept}"
    columns = ("snapshot", "made", "kind", "events", "summary", "by")
    return Report(
        schema="sluicegate.snapshots",
        document={
            "kept": kept,
            "snapshots": [
                snapshot_document(each) if isinstance(each, Snapshot) else {"problem": each}
                for each in found
            ],
        },
        tables=[Table(columns, rows)],
        lines=[older] if hidden > 0 else [],
    )


def snapshot_document(snapshot: Snapshot) -> dict[str, Any]:
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


def positions_report(uri: str, snapshot: Snapshot) -> Report:
    """The positions at a snapshot."""
    rows = [(p.topic, p.partition, p.offset) for p in snapshot.positions]
    return Report(
        schema="sluicegate.stream-offsets",
        document={
            "stream": uri,
            "snapshot": snapshot.number,
            "positions": to_spark(snapshot.positions),
        },
        tables=[Table(("topic", "partition", "next offset"), rows)],
        lines=[f"At snapshot {snapshot.number}, {units.ago(snapshot.created_at)}."],
    )


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
    return Report(
        schema="sluicegate.verify-stream",
        document={
            "stream": uri,
            "snapshots": result.snapshots,
            "blobs": result.blobs,
            "read_blobs": result.read_blobs,
            "read_bytes": result.read_bytes,
            "complete": not result.resume,
        },
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


def audit_report(uri: str, result: StreamAudit) -> Report:
    """Every epoch with its counts; on a screen only the newest, and the sum of all."""
    columns = ("epoch", "snapshot", "committed", *_COUNTS)
    left_out = len(result.epochs) - _SHOWN_EPOCHS
    older = f"{units.counted(left_out, 'older epoch')} not shown; see --json."
    lines = [older] if left_out > 0 else []
    shown = result.epochs[-_SHOWN_EPOCHS:]
    return Report(
        schema="sluicegate.audit-stream",
        document={"stream": uri, "epochs": [_epoch_document(each) for each in result.epochs]},
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


def _epoch_document(epoch: AuditedEpoch) -> dict[str, object]:
    return {
        "epoch": epoch.snapshot.epoch,
        "snapshot": epoch.snapshot.number,
        "committed_at": units.utc(epoch.snapshot.created_at),
        "moved": epoch.moved,
        "events": epoch.events,
        "counts": epoch.counts,
    }
