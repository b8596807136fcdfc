"""`sluicegate offsets delete`."""

from __future__ import annotations

import typer

from sluicegate.errors import UsageError
from sluicegate.offsets.operations import Delete
from sluicegate.offsets.target import OffsetStoreTarget
from sluicegate_cli.inputs import scope_of
from sluicegate_cli.options import (
    AllTopicsOption,
    AsOption,
    ConsumerOption,
    ForceOption,
    TargetArgument,
    TopicOption,
)
from sluicegate_cli.session import Session

CHANGES = True
SAVES_PLAN = True
EXAMPLES = (
    ("offsets delete billing --topic retired", "a topic that is no longer read"),
    ("offsets delete /data/offsets --consumer old --all-topics", "everything of a consumer"),
)
DOCUMENTS = ("sluicegate.plan",)


def run(
    ctx: typer.Context,
    target: TargetArgument = None,
    consumer: ConsumerOption = None,
    topic: TopicOption = None,
    all_topics: AllTopicsOption = False,
    force: ForceOption = False,
    as_: AsOption = None,
) -> None:
    """Delete positions of a consumer. The consumer decides where it starts without one.

    The history keeps the offsets, so that `sluicegate undo` restores them.
    """
    session = Session.of(ctx)
    if not topic and not all_topics:
        raise UsageError("nothing selected for deletion", hint="add --topic TOPIC or --all-topics")
    found = session.open(OffsetStoreTarget, target, as_, consumer=consumer)
    store = found.store()
    scope = scope_of(topic, all_topics, [])
    operation = Delete.of(store, store.choose(consumer), scope, force=force)
    session.carry_out(found.change(store, operation))
