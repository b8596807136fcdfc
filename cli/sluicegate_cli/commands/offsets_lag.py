"""`sluicegate offsets lag`."""

from __future__ import annotations

from collections.abc import Sequence
from shlex import quote
from typing import Annotated

import typer

from sluicegate import units
from sluicegate.checkpoint.inspect import read_point
from sluicegate.detection import TargetKind
from sluicegate.errors import EXIT_DONE, NotFound, ProblemsFound
from sluicegate.findings import Finding
from sluicegate.lag import EndsUnknown, Lag, lags, problems, total
from sluicegate.positions import Positions
from sluicegate.sources.log.source import BrokerNeeded
from sluicegate.storage import open_storage
from sluicegate.stream.spec import range_of
from sluicegate.target import Target
from sluicegate_cli.options import AsOption, ConsumerOption, TargetArgument, refuse_option
from sluicegate_cli.output import Table, View
from sluicegate_cli.session import Session, expect_kind
from sluicegate_cli.stores import is_reference, open_store, read_positions, read_reference
from sluicegate_cli.streams import stream_of


def lag_view(uri: str, found: Sequence[Lag], wrong: Sequence[Finding]) -> View:
    """Every partition with its position, its end and what lies between."""
    lines = [f"{units.events(total(found))} behind in all."]
    if unknown := [each.place for each in found if each.latest is None]:
        lines.append(f"Not counted, because its end was not given: {', '.join(unknown)}.")
    if new := [each.place for each in found if each.position is None]:
        lines.append(f"Without a position yet, so all of it counts: {', '.join(new)}.")
    return View(
        schema="sluicegate.lag",
        document={
            "target": uri,
            "total": total(found),
            "partitions": [
                {
                    "topic": each.topic,
                    "partition": each.partition,
                    "position": each.position,
                    "earliest": each.earliest,
                    "latest": each.latest,
                    "lag": each.behind,
                }
                for each in found
            ],
        },
        tables=[
            Table(
                ("topic", "partition", "position", "end", "lag"),
                [(e.topic, e.partition, e.position, e.latest, e.behind) for e in found],
            )
        ],
        findings=wrong,
        lines=lines,
    )


EXAMPLES = (
    ("offsets lag clicks", "a gated stream on an embedded log"),
    ("offsets lag orders --end-offsets ends.csv", "a Spark checkpoint, with what the broker said"),
    ("offsets lag /data/offsets --consumer billing --end-offsets -", "from standard input"),
)
FINDINGS = ("SG-LAG-",)


def run(
    ctx: typer.Context,
    target: TargetArgument = None,
    end_offsets: Annotated[
        str | None,
        typer.Option(metavar="FILE", help="where the topics end (JSON, CSV, rpk), - for stdin"),
    ] = None,
    consumer: ConsumerOption = None,
    as_: AsOption = None,
) -> int:
    """Show how far each position is behind the end of its topic, and in all.

    Of a gated stream on an embedded log, the log is asked. Where a topic of Kafka ends is known to
    its broker only, which is not asked: give its answer with --end-offsets, as Spark's JSON, CSV or
    rpk's text. Positions that the source does not hold are findings.
    """
    session = Session.of(ctx)
    found = session.target(target, as_)
    if found.kind is not TargetKind.OFFSET_STORE:
        refuse_option("--consumer", consumer, "offset stores")
    ends = read_positions(end_offsets) if end_offsets is not None else None
    rows = _of_stream(found, ends) if found.kind is TargetKind.STREAM else None
    if rows is None:
        positions = _positions(session, found, consumer)
        if ends is None:
            raise _unknown(f"{', '.join(sorted(positions.by_topic))} of {found.uri}")
        rows = lags(positions, ends)
    wrong = problems(
        rows, f"sluicegate offsets reset {quote(found.name)} --to-earliest --skip-seen"
    )
    session.sink.show(lag_view(found.uri, rows, wrong))
    return ProblemsFound.exit_code if wrong else EXIT_DONE


def _of_stream(target: Target, ends: Positions | None) -> list[Lag]:
    head = stream_of(target).chain.head()
    if ends is not None:
        return lags(head.positions, ends)
    try:
        earliest, latest = range_of(head)
    except BrokerNeeded as e:
        raise _unknown(f"{', '.join(sorted(head.positions.by_topic))} of {target.uri}") from e
    return lags(head.positions, latest, earliest)


def _positions(session: Session, target: Target, consumer: str | None) -> Positions:
    """The positions of what is no gated stream."""
    if target.kind is TargetKind.OFFSET_STORE:
        if is_reference(target):
            return read_reference(target)
        store = open_store(session, target)
        record = store.load(store.choose(consumer))
        return record.positions if record else Positions({})
    expect_kind(target, TargetKind.SPARK_CHECKPOINT)
    entry = read_point(open_storage(target.uri, read_only=True), None).entry
    found = Positions({})
    for offset in entry.offsets:
        found = found.updated(offset.positions) if offset.positions else found
    if not len(found):
        raise NotFound(
            f"{target.uri} reads no topic: its sources are files or count for themselves",
            hint=f"see them with: sluicegate offsets show {quote(target.name)}",
            place=target.uri,
        )
    return found


def _unknown(what: str) -> EndsUnknown:
    return EndsUnknown(f"the end of {what} is known to the broker only, which is not asked here")
