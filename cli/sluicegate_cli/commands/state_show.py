"""`sluicegate state show`."""

from __future__ import annotations

from typing import Annotated, TypedDict

import typer

from sluicegate import units
from sluicegate.report import Report, Table, document
from sluicegate.state import manifest
from sluicegate.stream.state import shards_of
from sluicegate.stream.target import GatedStream
from sluicegate_cli.options import AsOption, TargetArgument
from sluicegate_cli.session import Session

EXAMPLES = (
    ("state show clicks", "keys and bytes of every shard"),
    ("state show clicks --snapshot 41 --shard 3", "one shard, as it was at snapshot 41"),
)
DOCUMENTS = ("sluicegate.state",)


class ShardDocument(TypedDict):
    """One shard."""

    shard: int
    keys: int
    deltas: int
    bytes: int


@document("sluicegate.state", version=1)
class StateDocument(TypedDict):
    """The state of a gated stream, by shard."""

    stream: str
    snapshot: int
    shards: list[ShardDocument]


def run(
    ctx: typer.Context,
    target: TargetArgument = None,
    snapshot: Annotated[
        int | None, typer.Option(metavar="N", help="at snapshot N; default: the newest")
    ] = None,
    shard: Annotated[int | None, typer.Option(metavar="N", help="only this shard")] = None,
    as_: AsOption = None,
) -> None:
    """Show the state of a gated stream: keys, bytes and deltas of every shard.

    Compaction merges the deltas of every shard into one; the job also does so regularly.
    """
    session = Session.of(ctx)
    stream, at = session.open(GatedStream, target, as_).snapshot(snapshot)
    rows = []
    for number, refs in sorted(shards_of(stream, at).items()):
        if shard is None or number == shard:
            content = manifest.contents(stream.blobs, refs)
            keys = content.num_rows if content else 0
            rows.append((number, keys, len(refs), sum(ref.size for ref in refs)))
    session.sink.show(_view(stream.uri, at.number, rows))


def _view(uri: str, snapshot: int, rows: list[tuple[int, int, int, int]]) -> Report:
    total = sum(row[3] for row in rows)
    keys = sum(row[1] for row in rows)
    document: StateDocument = {
        "stream": uri,
        "snapshot": snapshot,
        "shards": [
            {"shard": shard, "keys": keys, "deltas": deltas, "bytes": size}
            for shard, keys, deltas, size in rows
        ],
    }
    return Report(
        schema="sluicegate.state",
        document=document,
        tables=[Table(("shard", "keys", "deltas", "bytes"), rows)],
        lines=[f"At snapshot {snapshot}: {units.counted(keys, 'key')}, {units.size(total)}."],
    )
