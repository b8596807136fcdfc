"""Gated streams in words and tables: summary, links, positions, verify, audit."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from sluicegate import units
from sluicegate.findings import has_errors
from sluicegate.positions import Positions, to_spark
from sluicegate.report import Cell, Report, Table, count_findings
from sluicegate.stream.snapshot import Link

if TYPE_CHECKING:
    from sluicegate.stream.audit import AuditedEpoch, StreamAudit
    from sluicegate.stream.inspect import StreamSummary
    from sluicegate.stream.verify import Reading, Verified


def stream_report(summary: StreamSummary) -> Report:
    """Everything about a stream, or about one of its links."""
    link = summary.head
    positions = [(p.topic, p.partition, p.offset) for p in link.positions]
    operators = [(name, units.size(size)) for name, size in sorted(summary.operators.items())]
    pinned = [(f"{name} = {_plain(value)}",) for name, value in sorted(link.pins.items())]
    return Report(
        schema="sluicegate.stream",
        document=link_document(link)
        | {
            "home_path": summary.uri,
            "writer_alive": summary.living,
            "links_kept": summary.kept,
            "state": {
                "shards": summary.state.shards,
                "partials": summary.state.partials,
                "bytes": summary.state.bytes,
            },
            "operators": summary.operators,
        },
        tables=[
            Table(("field", "value"), _facts(summary), header=False),
            Table(("topic", "partition", "next offset"), positions),
            Table(("operator", "state"), operators),
            Table(("setting",), pinned, title="Fixed when the stream began", header=False),
        ],
    )


def links_report(found: list[Link | str], kept: int) -> Report:
    """The newest links of a stream."""
    rows = [_row(each) if isinstance(each, Link) else _bad(each) for each in found]
    hidden = kept - len(found)
    older = f"{units.counted(hidden, 'older link')}; show them with --last {kept}"
    columns = ("link", "made", "kind", "included", "what, or where it was then", "by")
    return Report(
        schema="sluicegate.links",
        document={
            "kept": kept,
            "links": [
                link_document(each) if isinstance(each, Link) else {"problem": each}
                for each in found
            ],
        },
        tables=[Table(columns, rows)],
        lines=[older] if hidden > 0 else [],
    )


def link_document(link: Link) -> dict[str, Any]:
    """A link as plain values."""
    return {
        "stream": link.stream,
        "stream_id": link.stream_id,
        "link": link.number,
        "kind": link.kind.value,
        "digest": link.digest,
        "parent": link.parent,
        "generation": link.generation,
        "epoch": link.epoch,
        "writer": link.writer,
        "by": link.by.fields(),
        "app": link.app,
        "reason": link.reason,
        "created_at": units.utc(link.created_at),
        "sequence": link.sequence,
        "positions": to_spark(link.positions),
        "watermark_ns": link.watermark_ns,
        "counters": dict(link.counters),
        "assignment_version": link.version,
        "floor": link.floor,
        "lineage": [list(span) for span in link.lineage],
        "pins": dict(link.pins),
        "details": dict(link.details),
    }


def positions_text(positions: Positions) -> str:
    """Positions on one line."""
    return ", ".join(f"{p.topic}[{p.partition}] {p.offset:,}" for p in positions)


def positions_report(uri: str, link: Link) -> Report:
    """The positions at a link."""
    rows = [(p.topic, p.partition, p.offset) for p in link.positions]
    return Report(
        schema="sluicegate.stream-offsets",
        document={"stream": uri, "link": link.number, "positions": to_spark(link.positions)},
        tables=[Table(("topic", "partition", "next offset"), rows)],
        lines=[f"At link {link.number}, {units.ago(link.created_at)}."],
    )


def verify_report(uri: str, result: Verified, reading: Reading | None) -> Report:
    """What a check of a stream found, and how much of it was looked at."""
    looked = f"{result.links:,} links and {result.blobs:,} blobs"
    told = count_findings(result.findings) or "sound"
    lines = [f"{uri}: {told}. Looked at {looked}."]
    if reading is None:
        lines.append("Blobs were judged by name and size; --read-data reads them.")
    else:
        read = f"Read {result.read_blobs:,} blobs, {units.size(result.read_bytes)}"
        complete = units.utc(result.last_complete) if result.last_complete else "never"
        lines.append(
            f"{read}; the time was up. Run it again to go on; all was last read: {complete}."
            if result.resume
            else f"{read}."
        )
    return Report(
        schema="sluicegate.verify-stream",
        document={
            "stream": uri,
            "links": result.links,
            "blobs": result.blobs,
            "read_blobs": result.read_blobs,
            "read_bytes": result.read_bytes,
            "complete": not result.resume,
        },
        findings=result.findings,
        lines=lines,
    )


def _facts(summary: StreamSummary) -> list[tuple[str, str | int | None]]:
    link, state = summary.head, summary.state
    kind = f"{link.kind.value}, {units.utc(link.created_at)} ({units.ago(link.created_at)})"
    counters = ", ".join(f"{name} {count:,}" for name, count in sorted(link.counters.items()))
    return [
        ("stream", f"{link.stream} in {summary.uri}"),
        ("newest link", f"{link.number}: {kind}"),
        ("made by", str(link.by)),
        ("reason", link.reason),
        ("generation", link.generation),
        ("epochs sealed", link.epoch),
        ("events included", link.sequence),
        ("counters", counters or None),
        ("watermark", _watermark(link.watermark_ns)),
        ("job", summary.living or _resting(link)),
        ("state", _state_text(state.shards, state.partials, state.bytes)),
        ("assignment", f"version {link.version}" if link.version else None),
        ("rollback", f"possible to link {link.floor} or later"),
    ]


def _resting(link: Link) -> str:
    if link.writer is None:
        return "none has run yet"
    return "none is at work; the next start goes on from here"


def _state_text(shards: int, partials: int, size: int) -> str | None:
    return f"{units.size(size)} in {partials} partials of {shards} shards" if shards else None


def _row(link: Link) -> tuple[Any, ...]:
    told = link.details.get("summary") or positions_text(link.positions)
    who = link.app or str(link.by).partition(" ")[0]
    made = units.utc(link.created_at)
    return link.number, made, link.kind.value, link.sequence, told, who


def _bad(problem: str) -> tuple[Any, ...]:
    number, _, what = problem.partition(": ")
    return int(number), None, "damaged", None, what, None


def _watermark(nanoseconds: int | None) -> str | None:
    return units.utc(nanoseconds / 1e9) if nanoseconds else None


def _plain(value: Any) -> str:
    """A setting as it stands in the configuration, more or less: never as Python would show it."""
    return value if isinstance(value, str) else json.dumps(value)


_COUNTS = ("read", "applied", "duplicates", "rejected", "written")
_SHOWN_EPOCHS = 50


def audit_report(uri: str, result: StreamAudit) -> Report:
    """Every epoch with its counts; on a screen only the newest, and the sum of all."""
    columns = ("epoch", "link", "sealed", *_COUNTS)
    left_out = len(result.epochs) - _SHOWN_EPOCHS
    lines = [f"{left_out:,} older epochs are not shown; see --json."] if left_out > 0 else []
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
        return "something does not add up; see the findings"
    total = {name: result.total(name) for name in _COUNTS}
    return (
        f"{total['read']:,} read = {total['applied']:,} applied + {total['duplicates']:,} "
        f"duplicates + {total['rejected']:,} rejected, in every epoch"
    )


def _epoch_row(epoch: AuditedEpoch) -> tuple[Cell, ...]:
    counts = epoch.counts or {"applied": epoch.events}
    sealed = units.utc(epoch.link.created_at)
    return (epoch.link.epoch, epoch.link.number, sealed, *(counts.get(name) for name in _COUNTS))


def _epoch_document(epoch: AuditedEpoch) -> dict[str, object]:
    return {
        "epoch": epoch.link.epoch,
        "link": epoch.link.number,
        "sealed_at": units.utc(epoch.link.created_at),
        "moved": epoch.moved,
        "events": epoch.events,
        "counts": epoch.counts,
    }
