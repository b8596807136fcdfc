"""`sluicegate offsets reset`."""

from __future__ import annotations

from typing import Annotated

import typer

from sluicegate.reset import ResetSpec
from sluicegate.target import Reset
from sluicegate_cli.inputs import reset_spec, scope_of
from sluicegate_cli.options import (
    AllTopicsOption,
    AsOption,
    ConsumerOption,
    ForceOption,
    IntoOption,
    SinkOption,
    TargetArgument,
    TopicOption,
    UncheckedOption,
    WriterGoneOption,
)
from sluicegate_cli.session import Session, refuse_options

CHANGES = True
SAVES_PLAN = True
EXAMPLES = (
    ("offsets reset billing --shift-by -100 --dry-run", "what would moving back 100 events do?"),
    ("offsets reset billing --topic orders:0,1 --to-offset 12000", "two partitions"),
    ("offsets reset orders --to-datetime 2026-11-16T02:00:00Z", "where it was at that time"),
    ("offsets reset clicks --shift-by -1000 --skip-seen", "a gated stream: fill gaps only"),
    (
        "offsets reset billing --from-file new.csv --plan-out reset.json --reason 'bad deploy'",
        "for approval; apply it with `sluicegate apply reset.json`",
    ),
)
DOCUMENTS = ("sluicegate.plan",)


def run(
    ctx: typer.Context,
    target: TargetArgument = None,
    consumer: ConsumerOption = None,
    topic: TopicOption = None,
    all_topics: AllTopicsOption = False,
    to_earliest: Annotated[
        bool, typer.Option("--to-earliest", help="to the oldest event in the log")
    ] = False,
    to_latest: Annotated[bool, typer.Option("--to-latest", help="to the end of the log")] = False,
    to_current: Annotated[
        bool, typer.Option("--to-current", help="to the current position")
    ] = False,
    to_offset: Annotated[int | None, typer.Option(metavar="N", help="to this offset")] = None,
    shift_by: Annotated[
        int | None, typer.Option(metavar="±N", help="back or forward by this many events")
    ] = None,
    to_datetime: Annotated[
        str | None,
        typer.Option(metavar="TIME", help="to the position at a time: 2026-11-16T02:00:00Z"),
    ] = None,
    by_duration: Annotated[
        str | None,
        typer.Option(metavar="DURATION", help="to the position this long ago: PT1H, 90min"),
    ] = None,
    from_file: Annotated[
        str | None, typer.Option(metavar="FILE", help="to the positions in a file: JSON, CSV, rpk")
    ] = None,
    clamp: Annotated[
        bool, typer.Option("--clamp", help="stop at the first or last offset instead of refusing")
    ] = False,
    skip_seen: Annotated[
        bool, typer.Option("--skip-seen", help="gated streams only: apply only new events")
    ] = False,
    reprocess: Annotated[
        bool,
        typer.Option("--reprocess", help="gated streams only: roll back and apply events again"),
    ] = False,
    force: ForceOption = False,
    unchecked: UncheckedOption = False,
    sink: SinkOption = None,
    into: IntoOption = None,
    writer_gone: WriterGoneOption = False,
    as_: AsOption = None,
) -> None:
    """Move positions. Choose exactly one scenario; the plan shows old, new and delta.

    A Spark checkpoint without state gets a committed batch that ends at the new offsets, so that
    batch numbers are never re-used; one with state is rolled back to the nearest batch. Times are
    looked up in the offset log, or in the commits that a store keeps. This command does not ask a
    broker: --to-earliest and --to-latest work for file sources and embedded logs only. A file for
    --from-file may be Spark's JSON, Kafka's CSV or rpk's text; - reads standard input.

    A gated stream needs one of two options: --skip-seen moves the positions, and the dedup log
    drops events that were applied before; --reprocess rolls the stream back to the newest snapshot
    before the positions.
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
    found = session.target(
        target, as_, consumer=consumer, sink=sink, into=into, writer_gone=writer_gone
    )
    refuse_options(found, consumer=consumer, sink=sink, into=into, unchecked=unchecked or None)

    def spec_of(known: list[str]) -> ResetSpec:
        scope = scope_of(topic, all_topics, [] if from_file else known)
        return reset_spec(given, scope, clamp=clamp)

    session.carry_out(Reset(spec_of, skip_seen, reprocess, force, unchecked).of(found))
