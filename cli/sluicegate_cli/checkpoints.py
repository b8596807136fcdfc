"""Spark checkpoints as commands change them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from sluicegate.target import Target, TargetKind
from sluicegate_cli.session import Session, expect_kind


def change_checkpoint(
    session: Session, target: Target, sink: str | None, work: Mapping[str, Any]
) -> None:
    """Plan some work on a checkpoint and take it to its end."""
    expect_kind(target, TargetKind.SPARK_CHECKPOINT)
    journal = session.journal(target, sink=sink)
    plan = journal.plan(work)
    session.change(plan, lambda approval: journal.apply(plan, approval))
