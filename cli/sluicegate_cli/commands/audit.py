"""`sluicegate audit`."""

from __future__ import annotations

from typing import Annotated

import typer

from sluicegate import units
from sluicegate.detection import TargetKind
from sluicegate.errors import EXIT_DONE, ProblemsFound
from sluicegate.findings import has_errors
from sluicegate.moments import parse_moment
from sluicegate.spark.audit import Audit, audit
from sluicegate.target import Target
from sluicegate_cli.options import AsOption, SinkOption, TargetArgument
from sluicegate_cli.output import Table, View
from sluicegate_cli.session import Session
from sluicegate_cli.streams import stream_of
from sluicegate_cli.views.checkpoint import moment

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
    from sluicegate.gate.audit import audit_stream
    from sluicegate.gate.sink import look_at_sink
    from sluicegate_cli.views.audit import stream_audit_view

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
