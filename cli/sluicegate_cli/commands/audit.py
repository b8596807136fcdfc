"""`sluicegate audit`."""

from __future__ import annotations

from typing import Annotated

import typer

from sluicegate import units
from sluicegate.checkpoint.audit import Audit, audit
from sluicegate.detection import TargetKind
from sluicegate.errors import EXIT_DONE, ProblemsFound
from sluicegate.findings import has_errors
from sluicegate.stream.audit import AuditedEpoch, StreamAudit
from sluicegate.target import Target
from sluicegate.units import parse_moment
from sluicegate_cli.options import AsOption, SinkOption, TargetArgument
from sluicegate_cli.output import Table, View
from sluicegate_cli.output.checkpoint import moment
from sluicegate_cli.output.result import Cell
from sluicegate_cli.session import Session
from sluicegate_cli.streams import stream_of

_COUNTS = ("read", "applied", "duplicates", "rejected", "written")
_SHOWN = 50


def stream_audit_view(uri: str, result: StreamAudit) -> View:
    """Every epoch with its counts; on a screen only the newest, and the sum of all."""
    columns = ("epoch", "link", "sealed", *_COUNTS)
    left_out = len(result.epochs) - _SHOWN
    lines = [f"{left_out:,} older epochs are not shown; see --json."] if left_out > 0 else []
    return View(
        schema="sluicegate.audit-stream",
        document={"stream": uri, "epochs": [_document(each) for each in result.epochs]},
        tables=[Table(columns, [_row(each) for each in result.epochs[-_SHOWN:]])],
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


def _row(epoch: AuditedEpoch) -> tuple[Cell, ...]:
    counts = epoch.counts or {"applied": epoch.events}
    sealed = units.utc(epoch.link.created_at)
    return (epoch.link.epoch, epoch.link.number, sealed, *(counts.get(name) for name in _COUNTS))


def _document(epoch: AuditedEpoch) -> dict[str, object]:
    return {
        "epoch": epoch.link.epoch,
        "link": epoch.link.number,
        "sealed_at": units.utc(epoch.link.created_at),
        "moved": epoch.moved,
        "events": epoch.events,
        "counts": epoch.counts,
    }


EXAMPLES = (
    ("audit orders --since 2026-11-15T22:00:00Z", "did last night lose or double anything?"),
    ("audit /data/orders/checkpoint --sink /data/orders/out", "with the file sink it writes to"),
    ("audit clicks --since 2026-11-15T22:00:00Z", "the epochs of a gated stream"),
)
FINDINGS = ("SG-AUDIT-", "SG-SINK-")


def run(
    ctx: typer.Context,
    target: TargetArgument = None,
    sink: SinkOption = None,
    since: Annotated[
        str | None, typer.Option(metavar="TIME", help="batches or epochs since, as ISO 8601")
    ] = None,
    read_data: Annotated[
        bool, typer.Option("--read-data", help="stream: read every byte of its output")
    ] = False,
    as_: AsOption = None,
) -> int:
    """Did it lose or double anything? What the logs of a query and its file sink can prove.

    Every batch must begin where the one before it ended, no position may go backwards, the sink
    must have written each committed batch after it was planned, and its log must name all and
    only the files that are there. What cannot be told is said to be so.

    Of a gated stream every epoch must add up: positions moved by what was read; what was read was
    applied, a duplicate or rejected; and what was written is published, once.
    """
    session = Session.of(ctx)
    found = session.target(target, as_)
    if found.kind is TargetKind.STREAM:
        return _audit_stream(session, found, sink, since, read_data=read_data)
    storage = session.spark_checkpoint(target, as_)
    result = audit(storage, session.sink_of(target, sink), parse_moment(since) if since else 0)
    session.sink.show(_view(storage.uri, result))
    return ProblemsFound.exit_code if has_errors(result.findings) else EXIT_DONE


def _audit_stream(
    session: Session, target: Target, sink: str | None, since: str | None, *, read_data: bool
) -> int:
    # Imported here: a checkpoint's audit needs none of it.
    from sluicegate.stream.audit import audit_stream
    from sluicegate.stream.output import look_at_sink

    stream = stream_of(target)
    named = session.config.streams.get(target.configured_name or stream.name)
    place = look_at_sink(stream, sink or (named.sink if named else None))
    when = parse_moment(since) / 1000 if since else 0.0
    result = audit_stream(stream, place, when, read_data=read_data)
    session.sink.show(stream_audit_view(stream.uri, result))
    return ProblemsFound.exit_code if has_errors(result.findings) else EXIT_DONE


def _verdict(result: Audit) -> str:
    if has_errors(result.findings):
        return "something was lost or doubled, or will be; see the findings"
    if result.findings:
        return "not everything can be told; see the findings"
    return "nothing shows that anything was lost or doubled"


def _view(uri: str, result: Audit) -> View:
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
    verdict = _verdict(result)
    return View(
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
        lines=[f"{uri}: {len(rows)} batches; {verdict}."],
    )
