"""`sluicegate offsets lag`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, TypedDict

import typer

from sluicegate import units
from sluicegate.errors import EXIT_DONE, ProblemsFound
from sluicegate.findings import Finding
from sluicegate.lag import Lag, problems, total
from sluicegate.report import FindingDocument, Report, Table, document
from sluicegate_cli.inputs import read_positions
from sluicegate_cli.options import AsOption, ConsumerOption, TargetArgument
from sluicegate_cli.session import Session, refuse_options

EXAMPLES = (
    ("offsets lag clicks", "a gated stream on an embedded log"),
    (
        "offsets lag orders --end-offsets ends.csv",
        "a Spark checkpoint, with end offsets from the broker",
    ),
    ("offsets lag /data/offsets --consumer billing --end-offsets -", "from standard input"),
)
DOCUMENTS = ("sluicegate.lag",)
FINDINGS = ("SG-LAG-",)


class LagPartitionDocument(TypedDict):
    """One partition."""

    topic: str
    partition: int
    position: int | None  # null: none yet, so that all events count as lag
    earliest: int | None  # the oldest offset of the source; null: not known
    latest: int | None  # the end of the source; null: not known
    lag: int | None  # null: the end is not known


class LagFields(TypedDict):
    """The lag without its findings, which the console adds."""

    target: str
    total: int  # of the partitions whose end is known
    partitions: list[LagPartitionDocument]


@document("sluicegate.lag", version=1)
class LagDocument(LagFields):
    """How far positions are behind the end of their topics."""

    findings: list[FindingDocument]


def run(
    ctx: typer.Context,
    target: TargetArgument = None,
    end_offsets: Annotated[
        str | None,
        typer.Option(metavar="FILE", help="end offsets (JSON, CSV, rpk); - for standard input"),
    ] = None,
    consumer: ConsumerOption = None,
    as_: AsOption = None,
) -> int:
    """Show how far each position is behind the end of its topic, and the total.

    For gated streams on an embedded log, the end comes from the log. Only the broker knows where a
    Kafka topic ends, and this command does not ask it: pass the end offsets with --end-offsets, as
    Spark's JSON, CSV or rpk's text. Positions that the source does not hold are findings.
    """
    session = Session.of(ctx)
    found = session.target(target, as_, consumer=consumer)
    refuse_options(found, consumer=consumer)
    rows = found.lag(read_positions(end_offsets) if end_offsets is not None else None)
    again = units.command("offsets", "reset", found.name, "--to-earliest", "--skip-seen")
    wrong = problems(rows, again)
    session.sink.show(_report(found.uri, rows, wrong))
    return ProblemsFound.exit_code if wrong else EXIT_DONE


def _report(uri: str, found: Sequence[Lag], wrong: Sequence[Finding]) -> Report:
    """Every partition with its position, its end and its lag."""
    lines = [f"Total lag: {units.events(total(found))}."]
    if unknown := [each.place for each in found if each.latest is None]:
        lines.append(f"Not in the total, because the end offset is missing: {', '.join(unknown)}.")
    if new := [each.place for each in found if each.position is None]:
        lines.append(f"No position yet, so all events count as lag: {', '.join(new)}.")
    document: LagFields = {
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
    }
    return Report(
        schema="sluicegate.lag",
        document=document,
        tables=[
            Table(
                ("topic", "partition", "position", "end", "lag"),
                [(e.topic, e.partition, e.position, e.latest, e.behind) for e in found],
            )
        ],
        findings=wrong,
        lines=lines,
    )
