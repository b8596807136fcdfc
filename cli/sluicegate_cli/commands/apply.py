"""`sluicegate apply`."""

from __future__ import annotations

from dataclasses import replace
from typing import Annotated

import typer

from sluicegate import units
from sluicegate.journal import Entry, review
from sluicegate.plan import Subject
from sluicegate.saved_plan import SavedPlan, load
from sluicegate.target import Target, TargetKind
from sluicegate_cli.session import Session
from sluicegate_cli.views.plan import plan_view

CHANGES = True
EXAMPLES = (
    ("apply reset.json --dry-run", "what would it do, and does it still hold?"),
    ("apply reset.json --expect 3f2a…e9f6 --yes", "exactly the plan that was approved"),
)


def run(
    ctx: typer.Context,
    plan: Annotated[str, typer.Argument(metavar="PLAN", help="a file made with --plan-out")],
    expect: Annotated[
        str | None, typer.Option(metavar="DIGEST", help="refuse any other plan than this one")
    ] = None,
) -> None:
    """Apply a saved plan, on this host or another.

    The target is found by its configured name, or by its path if the plan has no name. A plan is
    refused if it has expired, was edited, or if what it depends on has changed since (exit code
    5). A plan that was applied already is not applied twice.
    """
    saved = load(plan)
    saved.check(expect)
    session = Session.of(ctx)
    session = replace(session, reason=session.reason or saved.reason)
    journal = session.journal(_target(session, saved))
    found = review(journal, saved)
    if isinstance(found, Entry):
        session.sink.note(f"Applied already, as {found.id} at {units.utc(found.at)}.")
        session.sink.show(plan_view(replace(saved.plan, actions=()), entry=found))
        return
    session.change(
        found,
        lambda approval: journal.apply(
            found, replace(approval, plan_digest=saved.digest, planned_by=saved.by)
        ),
    )


def _target(session: Session, saved: SavedPlan) -> Target:
    subject = saved.plan.subject
    assert isinstance(subject, Subject)
    kind = next((kind for kind in TargetKind if kind.value == subject.kind), None)
    if subject.name in session.config.targets:
        return session.target(subject.name, kind)
    found = session.target(subject.uri, kind)
    return replace(found, configured_name=subject.name)
