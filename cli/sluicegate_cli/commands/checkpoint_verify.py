"""`sluicegate checkpoint verify`."""

from __future__ import annotations

from dataclasses import replace
from typing import Annotated

import typer

from sluicegate.checkpoint.verify import verify
from sluicegate.detection import TargetKind
from sluicegate.errors import EXIT_DONE, ProblemsFound
from sluicegate.findings import Finding, Severity, has_errors
from sluicegate.storage import open_storage
from sluicegate.stream import verify as streams
from sluicegate.stream.operations.import_v1 import read_v1
from sluicegate.stream.verify import Reading, Subset
from sluicegate.target import Target
from sluicegate.units import parse_duration
from sluicegate_cli.options import AsOption, SinkOption, TargetArgument, refuse_option
from sluicegate_cli.output import View
from sluicegate_cli.output.stream import verified_view
from sluicegate_cli.session import Session
from sluicegate_cli.streams import stream_of

EXAMPLES = (
    ("checkpoint verify /data/orders/checkpoint", "logs, state files by name, source logs"),
    ("checkpoint verify orders --sink /data/orders/out", "with the file sink's log and files"),
    ("checkpoint verify orders --read-data", "decode every state file to its last byte"),
    ("checkpoint verify clicks --read-data-subset 1/7", "a gated stream: a seventh of its blobs"),
    ("checkpoint verify clicks --read-data --max-duration 10min", "go on from there next time"),
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
        str | None, typer.Option(metavar="N/M|P%", help="of a gated stream: read this part of it")
    ] = None,
    max_duration: Annotated[
        str | None,
        typer.Option(metavar="DURATION", help="of a gated stream: read so long, go on next time"),
    ] = None,
    as_: AsOption = None,
) -> int:
    """Check that a checkpoint is sound and that the next start will work.

    Findings of severity error give exit code 3 and name the command that repairs them; warnings
    alone give 0. A running job is no finding. Nothing is changed.
    """
    session = Session.of(ctx)
    named = session.target(target, as_)
    if named.kind is TargetKind.STREAM:
        reading = _reading(read_data, read_data_subset, max_duration)
        return _verify_stream(session, named, reading)
    if named.kind is TargetKind.V1_CHECKPOINT:
        read_v1(named.uri)
        session.sink.show(_view(named.uri, [], read_data=True))
        return EXIT_DONE
    refuse_option("--read-data-subset", read_data_subset, "gated streams")
    refuse_option("--max-duration", max_duration, "gated streams")
    storage = session.spark_checkpoint(target, as_)
    with session.sink.progress("decoding state files") as on_progress:
        found = verify(
            storage, session.sink_of(target, sink), read_data=read_data, on_progress=on_progress
        )
    session.sink.show(_view(storage.uri, found, read_data=read_data))
    return ProblemsFound.exit_code if has_errors(found) else EXIT_DONE


def _reading(read_data: bool, subset: str | None, max_duration: str | None) -> Reading | None:
    if not (read_data or subset or max_duration):
        return None
    return Reading(
        Subset.parse(subset) if subset else Subset(),
        parse_duration(max_duration) if max_duration else None,
    )


def _verify_stream(session: Session, target: Target, reading: Reading | None) -> int:
    stream = stream_of(target)
    if reading and reading.max_duration is not None:
        # How far it came is remembered beside the stream, though that is only read.
        reading = replace(reading, notes=open_storage(stream.uri))
    with session.sink.progress("reading blobs") as on_progress:
        result = streams.verify(stream, reading, on_progress)
    told = _told(result.findings) or "sound"
    session.sink.show(verified_view(stream.uri, result, reading, told))
    return ProblemsFound.exit_code if has_errors(result.findings) else EXIT_DONE


def _told(found: list[Finding]) -> str:
    counts = {severity: sum(f.severity is severity for f in found) for severity in Severity}
    return ", ".join(f"{n} {s.value}{'s' * (n != 1)}" for s, n in counts.items() if n)


def _view(uri: str, found: list[Finding], *, read_data: bool) -> View:
    told = _told(found)
    depth = "" if read_data else " State was judged by name and size; --read-data decodes it."
    return View(
        schema="sluicegate.verify",
        document={"checkpoint": uri, "read_data": read_data, "sound": not has_errors(found)},
        findings=found,
        lines=[f"{uri}: {told or 'sound'}.{depth}"],
    )
