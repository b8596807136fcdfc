"""`sluicegate dedup stats`."""

from __future__ import annotations

from typing import TypedDict

import typer

from sluicegate import units
from sluicegate.report import Report, Table, document
from sluicegate.stream.dedup_log import LogStats, look
from sluicegate.stream.target import GatedStream
from sluicegate_cli.options import AsOption, TargetArgument
from sluicegate_cli.session import Session

EXAMPLES = (("dedup stats clicks", "how large is the dedup log, and why?"),)
DOCUMENTS = ("sluicegate.dedup-stats",)


@document("sluicegate.dedup-stats", version=1)
class DedupStatsDocument(TypedDict):
    """The content and size of the dedup log of a gated stream."""

    stream: str
    snapshot: int
    segments: int
    bytes: int
    compacted_bytes: int  # its size after a compaction
    producers: int
    partitions: int
    stamps: int
    intervals: int
    floors: int
    gaps: int
    missing: int  # stamps in gaps
    oldest_gap_at: int | None  # in ms since 1970; null: there are no gaps
    widest: tuple[str, int, int] | None  # producer, partition, and its intervals: the most


def run(ctx: typer.Context, target: TargetArgument = None, as_: AsOption = None) -> None:
    """Show the content and size of the dedup log of a gated stream.

    Consecutive sequence numbers are one interval, however many they are. The log grows with gaps,
    which only close when the missing messages arrive, and with producers that were seen once:
    those never compact, and only `dedup compact --retain` drops them.
    """
    session = Session.of(ctx)
    chosen = session.open(GatedStream, target, as_)
    stream = chosen.stream
    session.sink.show(_view(chosen.name, stream.uri, look(stream)))


def _view(name: str, uri: str, found: LogStats) -> Report:
    s = found.statistics
    gap = units.utc(s.oldest_gap_at / 1000) if s.oldest_gap_at is not None else None
    per_epoch = round(found.bytes / found.snapshot.epoch) if found.snapshot.epoch else None
    facts: list[tuple[str, str | int | None]] = [
        ("stream", uri),
        ("at snapshot", found.snapshot.number),
        ("producers", f"{s.producers:,}, with {units.counted(s.partitions, 'partition')}"),
        ("stamps known", f"{s.stamps:,}"),
        ("intervals", f"{s.intervals:,}"),
        ("gaps", f"{s.gaps:,}, with {units.counted(s.missing, 'missing stamp')}"),
        ("oldest gap", gap),
        ("retention floors", f"{s.floors:,}" if s.floors else None),
        ("most intervals", f"{s.widest[0]}/{s.widest[1]}: {s.widest[2]:,}" if s.widest else None),
        ("log", f"{units.size(found.bytes)} in {units.counted(found.segments, 'segment')}"),
        ("per epoch", units.size(per_epoch) if per_epoch is not None else None),
        ("after compaction", units.size(found.compacted_bytes)),
    ]
    document: DedupStatsDocument = {
        "stream": uri,
        "snapshot": found.snapshot.number,
        "segments": found.segments,
        "bytes": found.bytes,
        "compacted_bytes": found.compacted_bytes,
        "producers": s.producers,
        "partitions": s.partitions,
        "stamps": s.stamps,
        "intervals": s.intervals,
        "floors": s.floors,
        "gaps": s.gaps,
        "missing": s.missing,
        "oldest_gap_at": s.oldest_gap_at,
        "widest": s.widest,
    }
    return Report(
        schema="sluicegate.dedup-stats",
        document=document,
        tables=[Table(("field", "value"), facts, header=False)],
        lines=_why(name, found),
    )


def _why(name: str, found: LogStats) -> list[str]:
    s = found.statistics
    if not s.intervals:
        return ["This stream has seen no stamps."]
    lines = []
    if s.gaps:
        lines.append("A gap separates two intervals until the missing stamps arrive.")
    if found.bytes > 2 * found.compacted_bytes:
        lines.append(f"Worth compacting: {units.command('dedup', 'compact', name)}")
    return lines
