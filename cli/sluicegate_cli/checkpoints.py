"""Spark checkpoints as commands change them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from sluicegate.spark.change.journal import CheckpointJournal
from sluicegate.target import Target, TargetKind
from sluicegate_cli.session import Session, expect_kind


def checkpoint_journal(session: Session, target: Target, sink: str | None) -> CheckpointJournal:
    """The journal of a target that must be a Spark checkpoint."""
    expect_kind(target, TargetKind.SPARK_CHECKPOINT)
    journal = session.journal(target, sink=sink)
    assert isinstance(journal, CheckpointJournal)
    return journal


def change_checkpoint(
    session: Session, target: Target, sink: str | None, work: Mapping[str, Any]
) -> None:
    """Plan some work on a checkpoint and take it to its end."""
    journal = checkpoint_journal(session, target, sink)
    plan = journal.plan(work)
    session.change(plan, lambda approval: journal.apply(plan, approval))
