"""`sluicegate checkpoint verify`."""

from __future__ import annotations

from typing import Annotated

import typer

from sluicegate.errors import EXIT_DONE, ProblemsFound
from sluicegate.findings import Finding, Severity, has_errors
from sluicegate.spark.verify import verify
from sluicegate_cli.options import AsOption, SinkOption, TargetArgument
from sluicegate_cli.output import View
from sluicegate_cli.session import Session

EXAMPLES = (
    ("checkpoint verify /data/orders/checkpoint", "logs, state files by name, source logs"),
    ("checkpoint verify orders --sink /data/orders/out", "with the file sink's log and files"),
    ("checkpoint verify orders --read-data", "decode every state file to its last byte"),
)
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
)


def run(
    ctx: typer.Context,
    target: TargetArgument = None,
    sink: SinkOption = None,
    read_data: Annotated[bool, typer.Option("--read-data", help="decode all state files")] = False,
    as_: AsOption = None,
) -> int:
    """Check that a checkpoint is sound and that the next start will work.

    Findings of severity error give exit code 3 and name the command that repairs them; warnings
    alone give 0. A running job is no finding. Nothing is changed.
    """
    session = Session.of(ctx)
    storage = session.spark_checkpoint(target, as_)
    with session.sink.progress("decoding state files") as on_progress:
        found = verify(
            storage, session.sink_of(target, sink), read_data=read_data, on_progress=on_progress
        )
    session.sink.show(_view(storage.uri, found, read_data=read_data))
    return ProblemsFound.exit_code if has_errors(found) else EXIT_DONE


def _view(uri: str, found: list[Finding], *, read_data: bool) -> View:
    counts = {severity: sum(f.severity is severity for f in found) for severity in Severity}
    told = ", ".join(f"{n} {s.value}{'s' * (n != 1)}" for s, n in counts.items() if n)
    depth = "" if read_data else " State was judged by name and size; --read-data decodes it."
    return View(
        schema="sluicegate.verify",
        document={"checkpoint": uri, "read_data": read_data, "sound": not has_errors(found)},
        findings=found,
        lines=[f"{uri}: {told or 'sound'}.{depth}"],
    )
