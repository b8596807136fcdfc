"""`sluicegate audit`."""

from __future__ import annotations

from typing import Annotated

import typer

from sluicegate.errors import EXIT_DONE, ProblemsFound
from sluicegate.findings import has_errors
from sluicegate.units import parse_moment
from sluicegate_cli.options import AsOption, SinkOption, TargetArgument
from sluicegate_cli.session import Session

EXAMPLES = (
    ("audit orders --since 2026-11-15T22:00:00Z", "was data lost or duplicated since then?"),
    ("audit /data/orders/checkpoint --sink /data/orders/out", "with the file sink it writes to"),
    ("audit clicks --since 2026-11-15T22:00:00Z", "the epochs of a gated stream"),
)
DOCUMENTS = ("sluicegate.audit", "sluicegate.audit-stream")
FINDINGS = ("SG-AUDIT-", "SG-SINK-")


def run(
    ctx: typer.Context,
    target: TargetArgument = None,
    sink: SinkOption = None,
    since: Annotated[
        str | None, typer.Option(metavar="TIME", help="batches or epochs since, as ISO 8601")
    ] = None,
    read_data: Annotated[
        bool, typer.Option("--read-data", help="gated streams only: read every byte of the output")
    ] = False,
    as_: AsOption = None,
) -> int:
    """Check whether data was lost or duplicated, by the logs of a query and its file sink.

    Every batch must begin where the one before it ended, no position may move backwards, the sink
    must have written each committed batch after it was planned, and its log must name all and
    only the files that exist. Batches that cannot be verified are reported.

    For gated streams, the counts of every epoch must add up: positions moved by the number of
    events read; each event was applied, a duplicate or rejected; and all output is published,
    once.
    """
    session = Session.of(ctx)
    found = session.target(target, as_, sink=sink)
    result = found.audit(parse_moment(since) if since else 0, read_data=read_data)
    session.sink.show(result)
    return ProblemsFound.exit_code if has_errors(result.findings or ()) else EXIT_DONE
