"""Spark checkpoints as text and tables: summary, batches, positions, verify, audit."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from sluicegate import units
from sluicegate.checkpoint.view import NextStart
from sluicegate.findings import has_errors
from sluicegate.positions import to_spark
from sluicegate.report import Cell, Report, Table

if TYPE_CHECKING:
    from sluicegate.checkpoint.audit import Audit
    from sluicegate.checkpoint.format.log import OffsetEntry, SourceOffset
    from sluicegate.checkpoint.inspect import Batch, SourceSummary, StoreSummary, Summary


def inspect_report(summary: Summary) -> Report:
    """Everything about a checkpoint."""
    tables = [
        Table(("field", "value"), _facts(summary), header=False),
        Table(("source", "kind", "offset", "log"), [_source_row(s) for s in summary.sources]),
        Table(
            ("operator", "name", "store", "partitions", "provider", "versions", "size"),
            _operator_rows(summary),
        ),
        Table(
            ("setting",),
            [(f"{name} = {value}",) for name, value in sorted(summary.conf.items())],
            title="Pinned settings, which override the session's",
            header=False,
        ),
    ]
    return Report(
        schema="sluicegate.checkpoint",
        document=_document(summary),
        tables=tables,
        lines=[f"Could not be read: {problem}" for problem in summary.problems],
    )


def offset_text(offset: SourceOffset) -> str:
    """An offset as text for the operator."""
    if offset.positions is not None:
        return ", ".join(f"{p.topic}[{p.partition}] {p.offset:,}" for p in offset.positions)
    if offset.number is not None:
        return str(offset.number)
    return offset.text if offset.text is not None else "none yet"


def moment(milliseconds: int | None) -> str | None:
    """A time of Spark's logs; 0 means that there is none."""
    return units.utc(milliseconds / 1000) if milliseconds else None


def _facts(summary: Summary) -> list[tuple[str, str | int | None]]:
    entry, commit = summary.offsets, summary.commit
    planned = moment(entry.timestamp_ms) if entry else None
    age = (
        f", planned {planned} ({units.ago(entry.timestamp_ms / 1000)})" if entry and planned else ""
    )
    versions = [
        f"offsets v{entry.version}" if entry else "",
        f"commits v{commit.version}" if commit else "",
    ]
    return [
        ("checkpoint", summary.uri),
        ("query id", summary.query_id),
        ("status", _status(summary)),
        ("last batch", None if summary.last_batch is None else f"{summary.last_batch}{age}"),
        ("last commit", summary.last_commit),
        ("watermark", moment(summary.watermark_ms)),
        ("log versions", ", ".join(version for version in versions if version)),
        ("batches kept", _kept(summary)),
        ("rollback", _rollback(summary)),
        (
            "state size",
            units.size(sum(s.bytes for s in summary.stores)) if summary.stores else None,
        ),
    ]


def _status(summary: Summary) -> str:
    if summary.next_start is NextStart.REPLAY:
        return f"batch {summary.last_batch} was not finished; the next start runs it again"
    if summary.next_start is NextStart.CLEAN and summary.last_batch is not None:
        return f"clean; the next start begins with batch {summary.last_batch + 1}"
    if summary.next_start is NextStart.BROKEN:
        return (
            f"{summary.next_start.value}; run: {units.command('checkpoint', 'verify', summary.uri)}"
        )
    return str(summary.next_start.value)


def _kept(summary: Summary) -> str | None:
    if summary.oldest_batch is None:
        return None
    return f"{summary.batches}, from {summary.oldest_batch} to {summary.last_batch}"


def _rollback(summary: Summary) -> str:
    if summary.oldest_rollback is None:
        return "not possible"
    return f"possible to batch {summary.oldest_rollback} or later"


def _source_row(source: SourceSummary) -> tuple[str, str, str, str | None]:
    log = source.log
    size = f", {units.size(log.compact_bytes)} compacted" if log and log.compact_bytes else ""
    return (
        source.offset.source,
        source.offset.kind.value,
        offset_text(source.offset),
        units.counted(log.entries, "file") + size if log else None,
    )


def _operator_rows(summary: Summary) -> list[tuple[str | int | None, ...]]:
    """One row per store of an operator, over all partitions."""
    names = {operator.id: operator.name for operator in summary.operators}
    groups: dict[tuple[int, str], list[StoreSummary]] = {}
    for store in summary.stores:
        groups.setdefault((store.operator, store.store), []).append(store)
    rows: list[tuple[str | int | None, ...]] = []
    for (operator, name), stores in groups.items():
        newest = [s.newest for s in stores if s.newest is not None]
        oldest = [s.oldest for s in stores if s.oldest is not None]
        formats = {f"{s.provider} v{s.format}" for s in stores if s.provider}
        rows.append(
            (
                operator,
                names.get(operator),
                name,
                len(stores),
                ", ".join(sorted(formats)),
                f"{max(oldest)} to {min(newest)}" if oldest and newest else None,
                units.size(sum(s.bytes for s in stores)),
            )
        )
    return rows


def _document(summary: Summary) -> dict[str, Any]:
    entry, commit = summary.offsets, summary.commit
    return {
        "checkpoint": summary.uri,
        "query_id": summary.query_id,
        "status": summary.next_start.name.lower(),
        "last_batch": summary.last_batch,
        "last_commit": summary.last_commit,
        "planned_at_ms": entry.timestamp_ms if entry else None,
        "watermark_ms": summary.watermark_ms,
        "offset_log_version": entry.version if entry else None,
        "commit_log_version": commit.version if commit else None,
        "batches_kept": summary.batches,
        "oldest_batch": summary.oldest_batch,
        "oldest_rollback": summary.oldest_rollback,
        "sources": [
            offset_document(s.offset)
            | {
                "log_entries": s.log.entries if s.log else None,
                "log_compact_bytes": s.log.compact_bytes if s.log else None,
            }
            for s in summary.sources
        ],
        "operators": [
            {
                "id": operator.id,
                "name": operator.name,
                "stores": [
                    {"name": store.name, "partitions": store.partitions}
                    for store in operator.stores
                ],
            }
            for operator in summary.operators
        ],
        "state": [
            {
                "operator": s.operator,
                "partition": s.partition,
                "store": s.store,
                "provider": s.provider,
                "format": s.format,
                "oldest_version": s.oldest,
                "newest_version": s.newest,
                "bytes": s.bytes,
            }
            for s in summary.stores
        ],
        "conf": dict(summary.conf),
        "problems": list(summary.problems),
    }


def offset_document(offset: SourceOffset) -> dict[str, Any]:
    """An offset for machines: the exact text in the log, and the positions if it has them."""
    return {
        "source": offset.source,
        "kind": offset.kind.value,
        "offset": offset.text,
        "positions": to_spark(offset.positions) if offset.positions is not None else None,
    }


def batches_report(batches: Sequence[Batch], of: int) -> Report:
    """The newest batches, of how many."""
    rows = [
        (
            batch.number,
            moment(batch.planned_ms),
            "yes" if batch.committed else "no",
            batch.events,
            batch.problem or "; ".join(offset_text(offset) for offset in batch.offsets),
        )
        for batch in batches
    ]
    hidden = of - len(batches)
    older = units.counted(hidden, "older batch", "older batches")
    return Report(
        schema="sluicegate.batches",
        document={"kept": of, "batches": [_batch_document(batch) for batch in batches]},
        tables=[Table(("batch", "planned", "committed", "events", "offsets at its end"), rows)],
        lines=[f"{older}; show all with --last {of}"] if hidden else [],
    )


def _batch_document(batch: Batch) -> dict[str, object]:
    return {
        "batch": batch.number,
        "planned_at_ms": batch.planned_ms,
        "committed": batch.committed,
        "events": batch.events,
        "sources": [offset_document(offset) for offset in batch.offsets],
        "problem": batch.problem,
    }


def positions_report(uri: str, entry: OffsetEntry) -> Report:
    """The offsets at the end of a batch."""
    rows = [row for offset in entry.offsets for row in _position_rows(offset)]
    return Report(
        schema="sluicegate.offsets",
        document={
            "checkpoint": uri,
            "batch": entry.batch,
            "planned_at_ms": entry.timestamp_ms,
            "sources": [offset_document(offset) for offset in entry.offsets],
        },
        tables=[Table(("source", "kind", "topic", "partition", "next offset"), rows)],
        lines=[f"At the end of batch {entry.batch}, planned {moment(entry.timestamp_ms)}."],
    )


def _position_rows(offset: SourceOffset) -> list[tuple[Cell, ...]]:
    kind = offset.kind.value
    if offset.positions is None:
        return [(offset.source, kind, None, None, offset_text(offset))]
    return [(offset.source, kind, p.topic, p.partition, p.offset) for p in offset.positions]


def audit_report(uri: str, result: Audit) -> Report:
    """Every batch with the data it read and wrote, and whether anything is missing."""
    rows = [
        (
            batch.number,
            moment(batch.planned_ms),
            "yes" if batch.committed else "no",
            "yes" if batch.contiguous else "unknown",
            batch.events,
            batch.files,
            None if batch.bytes is None else units.size(batch.bytes),
        )
        for batch in result.batches
    ]
    columns = ("batch", "planned", "committed", "contiguous", "events", "files", "written")
    return Report(
        schema="sluicegate.audit",
        document={
            "checkpoint": uri,
            "batches": [
                {
                    "batch": b.number,
                    "planned_at_ms": b.planned_ms,
                    "committed": b.committed,
                    "contiguous": b.contiguous,
                    "events": b.events,
                    "files": b.files,
                    "bytes": b.bytes,
                }
                for b in result.batches
            ],
        },
        tables=[Table(columns, rows)],
        findings=result.findings,
        lines=[f"{uri}: {units.counted(len(rows), 'batch', 'batches')}; {_verdict(result)}."],
    )


def _verdict(result: Audit) -> str:
    if has_errors(result.findings):
        return "data was lost or duplicated, or will be; see the findings"
    if result.findings:
        return "some batches could not be verified; see the findings"
    return "no lost or duplicated data found"
