"""`sluicegate offsets reset`."""

from __future__ import annotations

from typing import Annotated

import typer

from sluicegate.offsets import operations
from sluicegate_cli.options import (
    AllTopicsOption,
    AsOption,
    ConsumerOption,
    ForceOption,
    TargetArgument,
    TopicOption,
)
from sluicegate_cli.scenario import reset_spec
from sluicegate_cli.session import Session
from sluicegate_cli.stores import change_store, open_store, scope_of

CHANGES = True
SAVES_PLAN = True
EXAMPLES = (
    ("offsets reset billing --shift-by -100 --dry-run", "what would going back 100 events mean?"),
    ("offsets reset billing --topic orders:0,1 --to-offset 12000", "two partitions"),
    ("offsets reset billing --to-datetime 2026-11-16T02:00:00Z", "where it was at that time"),
    (
        "offsets reset billing --from-file new.csv --plan-out reset.json --reason 'bad deploy'",
        "for approval; applied with `sluicegate apply reset.json`",
    ),
)


def run(
    ctx: typer.Context,
    target: TargetArgument = None,
    consumer: ConsumerOption = None,
    topic: TopicOption = None,
    all_topics: AllTopicsOption = False,
    to_earliest: Annotated[
        bool, typer.Option("--to-earliest", help="to the oldest that the log holds")
    ] = False,
    to_latest: Annotated[bool, typer.Option("--to-latest", help="to the end of the log")] = False,
    to_current: Annotated[bool, typer.Option("--to-current", help="to where it is now")] = False,
    to_offset: Annotated[int | None, typer.Option(metavar="N", help="to this offset")] = None,
    shift_by: Annotated[
        int | None, typer.Option(metavar="±N", help="back or forward by so many events")
    ] = None,
    to_datetime: Annotated[
        str | None, typer.Option(metavar="TIME", help="to where it was at 2026-11-16T02:00:00Z")
    ] = None,
    by_duration: Annotated[
        str | None, typer.Option(metavar="DURATION", help="to where it was PT1H or 90min ago")
    ] = None,
    from_file: Annotated[
        str | None, typer.Option(metavar="FILE", help="to what a file says (JSON, CSV, rpk)")
    ] = None,
    clamp: Annotated[
        bool, typer.Option("--clamp", help="stop at the edge instead of refusing")
    ] = False,
    force: ForceOption = False,
    as_: AsOption = None,
) -> None:
    """Move positions. Exactly one scenario says where to; the plan shows old, new and delta.

    An offset store does not know what the broker or log holds: --to-earliest and --to-latest
    are refused, and other positions are not checked against it. Times are looked up in the
    commits that the store keeps. A file for --from-file may be Spark's JSON, Kafka's CSV or
    rpk's text; - reads standard input.
    """
    session = Session.of(ctx)
    found = session.target(target, as_)
    store = open_store(session, found)
    name = store.choose(consumer)
    given = {
        "to-earliest": to_earliest,
        "to-latest": to_latest,
        "to-current": to_current,
        "to-offset": to_offset,
        "shift-by": shift_by,
        "to-datetime": to_datetime,
        "by-duration": by_duration,
        "from-file": from_file,
    }
    spec = reset_spec(
        given, scope_of(topic, all_topics, operations.topics(store, name)), clamp=clamp
    )
    change_store(session, found, store, operations.reset(store, name, spec, force=force))
