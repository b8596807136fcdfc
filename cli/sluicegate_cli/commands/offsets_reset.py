"""`sluicegate offsets reset`."""

from __future__ import annotations

from typing import Annotated

import typer

from sluicegate.offsets import operations
from sluicegate.spark.change.reset import known_topics, wanted_offsets
from sluicegate.target import TargetKind
from sluicegate_cli.checkpoints import change_checkpoint, checkpoint_journal
from sluicegate_cli.options import (
    AllTopicsOption,
    AsOption,
    ConsumerOption,
    ForceOption,
    IntoOption,
    SinkOption,
    TargetArgument,
    TopicOption,
    WriterGoneOption,
    refuse_option,
)
from sluicegate_cli.scenario import reset_spec
from sluicegate_cli.session import Session
from sluicegate_cli.stores import change_store, open_store, scope_of

CHANGES = True
SAVES_PLAN = True
EXAMPLES = (
    ("offsets reset billing --shift-by -100 --dry-run", "what would going back 100 events mean?"),
    ("offsets reset billing --topic orders:0,1 --to-offset 12000", "two partitions"),
    ("offsets reset orders --to-datetime 2026-11-16T02:00:00Z", "where it was at that time"),
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
    sink: SinkOption = None,
    into: IntoOption = None,
    writer_gone: WriterGoneOption = False,
    as_: AsOption = None,
) -> None:
    """Move positions. Exactly one scenario says where to; the plan shows old, new and delta.

    A Spark checkpoint without state gets a committed batch that ends at the new offsets, so that
    batch numbers are never re-used; one with state is rolled back to the nearest batch. Times are
    looked up in the offset log, or in the commits that a store keeps. What the broker holds is not
    known here: --to-earliest and --to-latest work for file sources only. A file for --from-file
    may be Spark's JSON, Kafka's CSV or rpk's text; - reads standard input.
    """
    session = Session.of(ctx)
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
    found = session.target(target, as_)
    if found.kind is TargetKind.SPARK_CHECKPOINT:
        refuse_option("--consumer", consumer, "offset stores")
        storage = session.spark_checkpoint(target, as_)
        scope = scope_of(topic, all_topics, [] if from_file else known_topics(storage))
        spec = reset_spec(given, scope, clamp=clamp)
        work = {"operation": "reset", "to": wanted_offsets(storage, spec), "note": str(spec)}
        journal = checkpoint_journal(session, found, sink, writer_gone=writer_gone)
        change_checkpoint(session, found, journal, work, into)
        return
    refuse_option("--sink", sink, "Spark checkpoints")
    refuse_option("--into", into, "Spark checkpoints")
    store = open_store(session, found)
    name = store.choose(consumer)
    known = [] if from_file else operations.topics(store, name)
    scope = scope_of(topic, all_topics, known)
    change = operations.reset(store, name, reset_spec(given, scope, clamp=clamp), force=force)
    change_store(session, found, store, change)
