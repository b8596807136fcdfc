"""Spark checkpoints as commands change them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from sluicegate.checkpoint.journal import CheckpointJournal
from sluicegate.checkpoint.operations import relocate
from sluicegate.detection import TargetKind
from sluicegate.storage import local_root
from sluicegate.target import Target
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
    if into is None:
        session.carry_out(journal, journal.plan(work))
        return
    plan = journal.plan_into(work, into)
    session.carry_out(journal, plan, lambda approval: journal.apply_into(plan, approval))
    for line in relocate.cut_over(target.uri, into) if not session.only_plans else ():
        session.sink.note(line)


def named_sink(sink: str | None, into: str | None = None) -> dict[str, str]:
    """The sink that an option named, as part of the plan: whoever applies it needs it, too.

    A change of a copy leaves the sink alone.
    """
    return {"sink": str(local_root(sink).absolute())} if sink and into is None else {}
