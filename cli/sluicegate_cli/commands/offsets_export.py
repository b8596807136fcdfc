"""`sluicegate offsets export`."""

from __future__ import annotations

from typing import Annotated

import typer

from sluicegate.checkpoint.inspect import exported_positions, read_point
from sluicegate.detection import TargetKind
from sluicegate.errors import NotFound
from sluicegate.offsets import legacy
from sluicegate.positions import Positions, PositionsForm, render, to_spark
from sluicegate.target import Target
from sluicegate_cli.options import AsOption, ConsumerOption, TargetArgument, refuse_option
from sluicegate_cli.output import View
from sluicegate_cli.session import Session
from sluicegate_cli.stores import is_reference, open_store, read_reference
from sluicegate_cli.streams import stream_of

CHANGES = True
EXAMPLES = (
    ("offsets export orders", "Spark's JSON, for startingOffsets"),
    ("offsets export orders --format csv", "for kafka-consumer-groups --reset-offsets --from-file"),
    ("offsets export orders --format rpk", "for rpk group seek --to-file"),
    ("offsets export /data/offsets --consumer billing --into old", "as the reference layout"),
)


def run(
    ctx: typer.Context,
    target: TargetArgument = None,
    form: Annotated[
        PositionsForm, typer.Option("--format", help="how to write them")
    ] = PositionsForm.SPARK,
    batch: Annotated[int | None, typer.Option(metavar="N", help="of batch or link N")] = None,
    consumer: ConsumerOption = None,
    into: Annotated[
        str | None,
        typer.Option(metavar="DIR", help="write topic-<t>-consumer-<c>.offset files there"),
    ] = None,
    as_: AsOption = None,
) -> None:
    """Write the positions of a target to standard output, in a form that other tools read.

    Only offsets that are positions can be exported: topic, partition and number, as Kafka's.
    With --into they become files in the reference layout instead, for topics that are numbers.
    """
    session = Session.of(ctx)
    found = session.target(target, as_)
    if found.kind is TargetKind.OFFSET_STORE:
        refuse_option("--batch", batch, "Spark checkpoints")
        origin, positions = _of_store(session, found, consumer)
    elif found.kind is TargetKind.STREAM:
        refuse_option("--consumer", consumer, "offset stores")
        chain = stream_of(found).chain
        link = chain.head() if batch is None else chain.read(batch)
        origin, positions = {"link": link.number}, link.positions
    else:
        refuse_option("--consumer", consumer, "offset stores")
        point = read_point(session.spark_checkpoint(target, as_), batch)
        origin, positions = {"batch": point.entry.batch}, exported_positions(point)
    if into is not None:
        plan = legacy.plan_write(into, positions)
        session.change(plan, lambda _: legacy.write(into, positions))
        return
    document = {**origin, "positions": to_spark(positions)}
    text = render(positions, form)
    session.sink.show(View(schema="sluicegate.positions", document=document, text=text))


def _of_store(
    session: Session, target: Target, consumer: str | None
) -> tuple[dict[str, str | int], Positions]:
    if is_reference(target):
        return {}, read_reference(target)
    store = open_store(session, target)
    name = store.choose(consumer)
    record = store.load(name)
    if record is None:
        raise NotFound(f"consumer {name} has no positions", place=store.uri)
    return {"consumer": name, "sequence": record.sequence}, record.positions
