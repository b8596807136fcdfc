"""`sluicegate checkpoint verify`."""

from __future__ import annotations

from typing import Annotated

import typer

from sluicegate.errors import EXIT_DONE, ProblemsFound
from sluicegate.findings import has_errors
from sluicegate.target import Reading
from sluicegate.units import parse_duration
from sluicegate_cli.options import AsOption, SinkOption, TargetArgument
from sluicegate_cli.session import Session, refuse_options

EXAMPLES = (
    ("checkpoint verify /data/orders/checkpoint", "logs, state files by name, source logs"),
    ("checkpoint verify orders --sink /data/orders/out", "with the file sink's log and files"),
    ("checkpoint verify orders --read-data", "decode every state file to its last byte"),
    ("checkpoint verify clicks --read-data-subset 1/7", "a gated stream: a seventh of its blobs"),
    ("checkpoint verify clicks --read-data --max-duration 10min", "the next run continues there"),
)
DOCUMENTS = ("sluicegate.verify", "sluicegate.verify-stream")
FINDINGS = (
    "SG-OFFSETS-",
    "SG-COMMIT",
    "SG-METADATA-",
    "SG-STATE-",
    "SG-SOURCE-",
    "SG-SINK-",
    "SG-PARTITIONS-",
    "SG-PATHS-",
    "SG-TEMPORARY-",
    "SG-COMPACT-",
    "SG-CRC-",
    "SG-UNKNOWN-",
    "SG-REPARTITION-",
    "SG-CHAIN-",
    "SG-BLOB-",
    "SG-STREAM-",
)


def run(
    ctx: typer.Context,
    target: TargetArgument = None,
    sink: SinkOption = None,
    read_data: Annotated[bool, typer.Option("--read-data", help="decode all state files")] = False,
    read_data_subset: Annotated[
        str | None, typer.Option(metavar="N/M|P%", help="gated streams only: read this part")
    ] = None,
    max_duration: Annotated[
        str | None,
        typer.Option(
            metavar="DURATION", help="gated streams only: stop after this time, continue next time"
        ),
    ] = None,
    as_: AsOption = None,
) -> int:
    """Check that a checkpoint is intact and that the next start will work.

    Findings of severity error result in exit code 3 and name the command that repairs them;
    warnings alone in 0. A running job is not a finding. Nothing is changed.
    """
    session = Session.of(ctx)
    found = session.target(target, as_, sink=sink)
    refuse_options(found, read_data_subset=read_data_subset, max_duration=max_duration)
    seconds = parse_duration(max_duration) if max_duration else None
    result = found.verify(Reading(read_data, read_data_subset, seconds))
    session.sink.show(result)
    return ProblemsFound.exit_code if has_errors(result.findings or ()) else EXIT_DONE
