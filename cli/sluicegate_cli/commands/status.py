"""`sluicegate status`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, TypedDict

import typer

from sluicegate import units
from sluicegate.errors import EXIT_DONE, ProblemsFound
from sluicegate.ops.status import TargetStatus, needs_a_person, overview, status_of
from sluicegate.report import FindingDocument, Report, Table, document
from sluicegate.resolve import TargetEntry
from sluicegate.target import TargetKind
from sluicegate_cli.options import AsOption
from sluicegate_cli.session import Session

EXAMPLES = (
    ("status", "every target in sluicegate.toml"),
    ("status orders", "one named target"),
    ("status --watch", "all targets, refreshed"),
    ("status /data/orders/checkpoint", "what is this directory?"),
)
DOCUMENTS = ("sluicegate.status",)
FINDINGS = ("SG-TARGET-",)
_EVERY = 2.0


class TargetDocument(TypedDict):
    """One target."""

    target: str
    state: str  # `ok`, or the worst severity of its findings
    kind: str | None  # null: it could not be detected
    where: str
    why: str | None  # it is of this kind
    last_batch: int | None  # or epoch
    updated_at: str | None
    summary: str | None


class StatusFields(TypedDict):
    """The targets without their findings, which the console adds."""

    targets: list[TargetDocument]


@document("sluicegate.status", version=1)
class StatusDocument(StatusFields):
    """Every named target, those with problems first; or one."""

    findings: list[FindingDocument]


def run(
    ctx: typer.Context,
    target: Annotated[
        str | None, typer.Argument(metavar="TARGET", help="name or path; all targets by default")
    ] = None,
    watch: Annotated[
        bool, typer.Option("--watch", "-w", help="refresh every 2 s until Ctrl-C")
    ] = False,
    as_: AsOption = None,
) -> int:
    """Show every named target, those with problems first; or one target in detail.

    A target is a name from sluicegate.toml or a path. Its kind is detected and shown. Spark
    checkpoints are verified by file names and logs only.
    """
    session = Session.of(ctx)
    if watch:
        session.sink.watch(lambda: _view(_look(session, target, as_), target), _EVERY)
        return EXIT_DONE
    found = _look(session, target, as_)
    session.sink.show(_view(found, target))
    return ProblemsFound.exit_code if needs_a_person(found) else EXIT_DONE


def _look(session: Session, target: str | None, kind: TargetKind | None) -> list[TargetStatus]:
    if target is None:
        return overview(session.config, session.home)
    known = session.target(target, kind)
    return [status_of(TargetEntry(target, known.uri, known, ()))]


def _view(found: list[TargetStatus], target: str | None) -> Report:
    return _all(found) if target is None else _one(found[0])


def _one(status: TargetStatus) -> Report:
    fields = _fields(status)
    cells: Mapping[str, Any] = fields
    document: StatusFields = {"targets": [fields]}
    return Report(
        schema="sluicegate.status",
        document=document,
        tables=[Table(("field", "value"), list(cells.items()), header=False)],
        findings=status.findings,
    )


def _all(found: list[TargetStatus]) -> Report:
    rows = [
        (
            each.entry.name,
            each.worst.value if each.worst else "ok",
            each.entry.target.kind.value if each.entry.target else None,
            each.status.last_batch,
            units.ago(each.status.updated_ms / 1000) if each.status.updated_ms else None,
            each.entry.uri,
        )
        for each in found
    ]
    nothing = "No targets in sluicegate.toml. Add them there, or name a path."
    document: StatusFields = {"targets": [_fields(each) for each in found]}
    return Report(
        schema="sluicegate.status",
        document=document,
        tables=[Table(("target", "state", "kind", "batch", "updated", "where"), rows)],
        findings=[finding for each in found for finding in each.findings],
        lines=[] if found else [nothing],
    )


def _fields(each: TargetStatus) -> TargetDocument:
    target, status = each.entry.target, each.status
    return {
        "target": each.entry.name,
        "state": each.worst.value if each.worst else "ok",
        "kind": target.kind.value if target else None,
        "where": each.entry.uri,
        "why": target.why if target else None,
        "last_batch": status.last_batch,
        "updated_at": units.utc(status.updated_ms / 1000) if status.updated_ms else None,
        "summary": status.summary,
    }
