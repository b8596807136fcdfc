"""Gated streams as commands get at them."""

from __future__ import annotations

from sluicegate.detection import TargetKind
from sluicegate.stream.journal import StreamJournal
from sluicegate.stream.operations.changes import StreamChange
from sluicegate.stream.stream import Stream, open_stream
from sluicegate.target import Target
from sluicegate_cli.session import Session, expect_kind


def stream_of(target: Target) -> Stream:
    """The stream that a target is, to be read."""
    expect_kind(target, TargetKind.STREAM)
    return open_stream(target.uri, read_only=True)


def change_stream(session: Session, target: Target, change: StreamChange) -> bool:
    """Plan a change of a stream and take it to its end; whether there was anything to do."""
    expect_kind(target, TargetKind.STREAM)
    journal = session.journal(target)
    assert isinstance(journal, StreamJournal)
    with session.showing_progress(journal):
        plan = journal.plan(change.to_work())
    session.carry_out(journal, plan)
    return bool(plan.actions)
