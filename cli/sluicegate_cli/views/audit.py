"""The audit of a gated stream on the screen."""

from __future__ import annotations

from sluicegate import units
from sluicegate.findings import has_errors
from sluicegate.gate.audit import AuditedEpoch, StreamAudit
from sluicegate_cli.output import Table, View
from sluicegate_cli.output.view import Cell

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
