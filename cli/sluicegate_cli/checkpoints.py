"""Spark checkpoints as commands change them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from sluicegate.journal import Approval, Entry
from sluicegate.plan import Action, Plan
from sluicegate.spark.change import fresh
from sluicegate.spark.change.journal import CheckpointJournal
from sluicegate.storage import local_root, open_storage
from sluicegate.target import Target, TargetKind
from sluicegate_cli.session import Session, expect_kind


def checkpoint_journal(
    session: Session, target: Target, sink: str | None, *, writer_gone: bool = False
) -> CheckpointJournal:
    """The journal of a target that must be a Spark checkpoint."""
    expect_kind(target, TargetKind.SPARK_CHECKPOINT)
    journal = session.journal(target, sink=sink, writer_gone=writer_gone)
    assert isinstance(journal, CheckpointJournal)
    return journal


def change_checkpoint(
    session: Session,
    target: Target,
    journal: CheckpointJournal,
    work: Mapping[str, Any],
    into: str | None,
) -> None:
    """Plan some work on a checkpoint, or on a copy of it, and take it to its end."""
    plan = journal.plan(work)
    if into is None:
        session.carry_out(journal, plan)
    else:
        journal.preflight(plan)
        _change_copy(session, target, plan, into)


def _change_copy(session: Session, target: Target, plan: Plan, into: str) -> None:
    """The same work on a copy; the original is only read."""
    source = open_storage(str(local_root(target.uri).absolute()), read_only=True)
    copy = fresh.plan_relocate(source, into, {})
    where = Action("then", into, "the following, in the copy")
    whole = replace(
        plan,
        title=f"{plan.title}, in a copy at {into}, of the checkpoint",
        actions=(*copy.actions, where, *plan.actions),
        consequences=(*copy.consequences, *plan.consequences),
    )

    def apply(approval: Approval) -> Entry:
        # The copy is young because it was just made; of the original it was asked before.
        journal = CheckpointJournal(fresh.relocate(source, into, {}), writer_gone=True)
        return journal.apply(journal.plan(plan.work), approval)

    session.change(whole, apply)
    for line in fresh.cut_over(target.uri, into) if not session.only_plans else ():
        session.sink.note(line)
