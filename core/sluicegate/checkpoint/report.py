"""Spark checkpoints as text and tables: summary, batches, positions, verify, audit."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, TypedDict

from sluicegate import units
from sluicegate.checkpoint.view import NextStart
from sluicegate.findings import has_errors
from sluicegate.positions import to_spark
from sluicegate.report import Cell, FindingDocument, Report, Table, document

if TYPE_CHECKING:
    from sluicegate.checkpoint.audit import Audit
    from sluicegate.checkpoint.format.log import OffsetEntry, SourceOffset
    from sluicegate.checkpoint.inspect import Batch, SourceSummary, StoreSummary, Summary


class OffsetDocument(TypedDict):
    """The offset of one source."""

    source: str
    kind: str
    offset: str | None  # the exact text in the log; null: none yet
    positions: dict[str, dict[str, int]] | None  # by topic and partition, if it has them


class SourceDocument(OffsetDocument):
    """The offset of one source, and the size of its own log."""

    log_entries: int | None  # null: the source has no log of its own
    log_compact_bytes: int | None


class StoreDocument(TypedDict):
    """A state store of an operator."""

    name: str
    partitions: int


class OperatorDocument(TypedDict):
    """A stateful operator."""

    id: int
    name: str | None  # null: Spark wrote none (3.5)
    stores: list[StoreDocument]


class StateDocument(TypedDict):
    """The state of one store in one partition."""

    operator: int
    partition: int
    store: str
    provider: str | None
    format: int
    oldest_version: int | None
    newest_version: int | None
    bytes: int


@document("sluicegate.checkpoint", version=1)
class CheckpointDocument(TypedDict):
    """The position and content of a Spark checkpoint."""

    checkpoint: str
    query_id: str | None
    status: str  # what the next start will do
    last_batch: int | None
    last_commit: int | None
    planned_at_ms: int | None  # of the last batch, in ms since 1970
    watermark_ms: int | None  # of the next batch, in ms since 1970; 0: none
    offset_log_version: int | None
    commit_log_version: int | None
    batches_kept: int
    oldest_batch: int | None
    oldest_rollback: int | None  # the oldest batch that can be restored; null: none
    sources: list[SourceDocument]
    operators: list[OperatorDocument]
    state: list[StateDocument]
    conf: dict[str, str]  # settings that override the session's
    problems: list[str]  # parts that could not be read


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


def _document(summary: Summary) -> CheckpointDocument:
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
            {
                **offset_document(s.offset),
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


def offset_document(offset: SourceOffset) -> OffsetDocument:
    """An offset for machines: the exact text in the log, and the positions if it has them."""
    return {
        "source": offset.source,
        "kind": offset.kind.value,
        "offset": offset.text,
        "positions": to_spark(offset.positions) if offset.positions is not None else None,
    }


class BatchDocument(TypedDict):
    """One batch of a query."""

    batch: int
    planned_at_ms: int | None  # in ms since 1970
    committed: bool
    events: int | None  # null: the offsets do not count events
    sources: list[OffsetDocument]  # at the end of the batch
    problem: str | None  # why it could not be read


@document("sluicegate.batches", version=1)
class BatchesDocument(TypedDict):
    """The newest batches of a Spark checkpoint."""

    kept: int  # how many there are
    batches: list[BatchDocument]  # newest last


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
    document: BatchesDocument = {
        "kept": of,
        "batches": [_batch_document(batch) for batch in batches],
    }
    return Report(
        schema="sluicegate.batches",
        document=document,
        tables=[Table(("batch", "planned", "committed", "events", "offsets at its end"), rows)],
        lines=[f"{older}; show all with --last {of}"] if hidden else [],
    )


def _batch_document(batch: Batch) -> BatchDocument:
    return {
        "batch": batch.number,
        "planned_at_ms": batch.planned_ms,
        "committed": batch.committed,
        "events": batch.events,
        "sources": [offset_document(offset) for offset in batch.offsets],
        "problem": batch.problem,
    }


@document("sluicegate.offsets", version=1)
class OffsetsDocument(TypedDict):
    """The offsets at the end of a batch of a Spark checkpoint."""

    checkpoint: str
    batch: int
    planned_at_ms: int  # in ms since 1970
    sources: list[OffsetDocument]


def positions_report(uri: str, entry: OffsetEntry) -> Report:
    """The offsets at the end of a batch."""
    rows = [row for offset in entry.offsets for row in _position_rows(offset)]
    document: OffsetsDocument = {
        "checkpoint": uri,
        "batch": entry.batch,
        "planned_at_ms": entry.timestamp_ms,
        "sources": [offset_document(offset) for offset in entry.offsets],
    }
    return Report(
        schema="sluicegate.offsets",
        document=document,
        tables=[Table(("source", "kind", "topic", "partition", "next offset"), rows)],
        lines=[f"At the end of batch {entry.batch}, planned {moment(entry.timestamp_ms)}."],
    )


def _position_rows(offset: SourceOffset) -> list[tuple[Cell, ...]]:
    kind = offset.kind.value
    if offset.positions is None:
        return [(offset.source, kind, None, None, offset_text(offset))]
    return [(offset.source, kind, p.topic, p.partition, p.offset) for p in offset.positions]


class AuditedBatchDocument(TypedDict):
    """One batch by its logs."""

    batch: int
    planned_at_ms: int  # in ms since 1970
    committed: bool
    contiguous: bool  # it begins where the batch before it ended; false: not known
    events: int | None  # null: the offsets do not count events
    files: int | None  # written by the file sink; null: its log does not show it
    bytes: int | None  # written by the file sink; null: its log does not show it


class AuditFields(TypedDict):
    """An audit without its findings, which the console adds."""

    checkpoint: str
    batches: list[AuditedBatchDocument]


@document("sluicegate.audit", version=1)
class AuditDocument(AuditFields):
    """The batches of a Spark checkpoint, and whether data was lost or duplicated."""

    findings: list[FindingDocument]


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
    document: AuditFields = {
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
    }
    return Report(
        schema="sluicegate.audit",
        document=document,
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
