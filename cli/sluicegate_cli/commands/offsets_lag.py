"""`sluicegate offsets lag`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated

import typer

from sluicegate import units
from sluicegate.errors import EXIT_DONE, ProblemsFound
from sluicegate.findings import Finding
from sluicegate.lag import Lag, problems, total
from sluicegate.report import Report, Table
from sluicegate_cli.inputs import read_positions
from sluicegate_cli.options import AsOption, ConsumerOption, TargetArgument, refuse_options
from sluicegate_cli.session import Session

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
    found = session.target(target, as_, consumer=consumer)
    refuse_options(found, consumer=consumer)
    rows = found.lag(read_positions(end_offsets) if end_offsets is not None else None)
    again = units.command("offsets", "reset", found.name, "--to-earliest", "--skip-seen")
    wrong = problems(rows, again)
    session.sink.show(_report(found.uri, rows, wrong))
    return ProblemsFound.exit_code if wrong else EXIT_DONE


def _report(uri: str, found: Sequence[Lag], wrong: Sequence[Finding]) -> Report:
    """Every partition with its position, its end and what lies between."""
    lines = [f"{units.events(total(found))} behind in all."]
    if unknown := [each.place for each in found if each.latest is None]:
        lines.append(f"Not counted, because its end was not given: {', '.join(unknown)}.")
    if new := [each.place for each in found if each.position is None]:
        lines.append(f"Without a position yet, so all of it counts: {', '.join(new)}.")
    return Report(
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
