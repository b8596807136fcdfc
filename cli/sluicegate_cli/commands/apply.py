"""`sluicegate apply`."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import Annotated, Any

import typer

from sluicegate import units
from sluicegate.errors import Drifted
from sluicegate.journal import Approval, Entry, Journal, review
from sluicegate.plan import Plan, Subject
from sluicegate.saved_plan import SavedPlan, load
from sluicegate.target import Change, Target, TargetKind
from sluicegate_cli.options import WriterGoneOption
from sluicegate_cli.output.plan import plan_view
from sluicegate_cli.session import Session

CHANGES = True
EXAMPLES = (
    ("apply reset.json --dry-run", "what would it do, and is it still valid?"),
    ("apply reset.json --expect 3f2a…e9f6 --yes", "exactly the plan that was approved"),
)
DOCUMENTS = ("sluicegate.plan",)


def run(
    ctx: typer.Context,
    plan: Annotated[str, typer.Argument(metavar="PLAN", help="a file made with --plan-out")],
    expect: Annotated[
        str | None, typer.Option(metavar="DIGEST", help="refuse any other plan than this one")
    ] = None,
    writer_gone: WriterGoneOption = False,
) -> None:
    """Apply a saved plan, on this host or another.

    The target is found by its configured name, or by its path if the plan has no name. A plan is
    refused if it has expired, was edited, or if one of its preconditions no longer holds (exit
    code 5). A plan that was already applied is not applied twice.
    """
    saved = load(plan)
    if expect is not None:
        saved.expect(expect)
    session = Session.of(ctx)
    session = replace(session, reason=session.reason or saved.reason)
    journal = _target(session, saved, writer_gone=writer_gone).journal()
    found = review(journal, saved)
    if isinstance(found, Plan):
        session.carry_out(Change(journal, found, partial(_apply, journal, saved, found)))
    else:
        session.sink.note(f"Already applied, as {found.id} at {units.utc(found.at)}.")
        done = replace(saved.plan, actions=())
        session.sink.show(plan_view(done, applied=True, entry=found))


def _apply(journal: Journal[Any], saved: SavedPlan, plan: Plan, approval: Approval) -> Entry:
    approval = replace(approval, plan_digest=saved.digest, planned_by=saved.by)
    try:
        return journal.apply(plan, approval)
    except Drifted:
        # Perhaps because another process has applied this same plan in the meantime.
        found = review(journal, saved)
        if isinstance(found, Entry):
            return found
        raise


def _target(session: Session, saved: SavedPlan, *, writer_gone: bool) -> Target:
    subject, work = saved.plan.subject, saved.plan.work
    assert isinstance(subject, Subject)
    kind = next((kind for kind in TargetKind if kind.value == subject.kind), None)
    named = subject.name in {*session.config.targets, *session.config.streams}
    found = session.target(
        subject.name if named else subject.uri,
        kind,
        consumer=_text(work.get("consumer")),
        sink=_text(work.get("sink")),
        writer_gone=writer_gone,
    )
    return found if named else replace(found, configured_name=subject.name)


def _text(value: object) -> str | None:
    return value if isinstance(value, str) else None
