"""`sluicegate state query`."""

from __future__ import annotations

from itertools import islice
from typing import Annotated, Any, TypedDict

import typer

from sluicegate import units
from sluicegate.report import Cell, Report, Table, document
from sluicegate.stream.history import restorable
from sluicegate.stream.state import Found, look_up, scan
from sluicegate.stream.target import GatedStream
from sluicegate_cli.options import AsOption
from sluicegate_cli.session import Session

EXAMPLES = (
    ("state query clicks alice bob", "the aggregates of two keys"),
    ("state query clicks --snapshot 41 alice", "as it was at snapshot 41"),
    ("state query clicks --limit 0 --json", "all of it, for a script"),
)
DOCUMENTS = ("sluicegate.state-query",)


class KeyDocument(TypedDict):
    """One key."""

    key: str
    shard: int
    values: dict[str, Any] | None  # by aggregate; null: the stream has not seen the key


@document("sluicegate.state-query", version=1)
class StateQueryDocument(TypedDict):
    """The aggregates of a gated stream, by key."""

    stream: str
    snapshot: int
    more: bool  # there are more keys than `--limit`
    keys: list[KeyDocument]


def run(
    ctx: typer.Context,
    target: Annotated[str, typer.Argument(metavar="STREAM", help="name or path of the stream")],
    keys: Annotated[
        list[str] | None, typer.Argument(metavar="KEY", help="keys to look up; default: all")
    ] = None,
    snapshot: Annotated[
        int | None, typer.Option(metavar="N", help="at snapshot N; default: the newest")
    ] = None,
    shard: Annotated[int | None, typer.Option(metavar="N", help="only this shard")] = None,
    limit: Annotated[
        int, typer.Option(metavar="N", min=0, help="at most this many keys; 0 for all")
    ] = 20,
    as_: AsOption = None,
) -> None:
    """Show the aggregates of a gated stream, by key.

    Only the shards of the keys are read. The values are those of committed epochs, at the newest
    snapshot or at an older one that is still kept.
    """
    session = Session.of(ctx)
    stream, head = session.open(GatedStream, target, as_).snapshot(None)
    at = head if snapshot is None else restorable(stream, head, snapshot)
    more = False
    if keys:
        found = look_up(stream, at, keys)
    else:
        found = list(islice(scan(stream, at, shard), limit + 1 if limit else None))
        more = 0 < limit < len(found)
    session.sink.show(_view(stream.uri, at.number, found[:limit] if more else found, more=more))


def _view(uri: str, snapshot: int, found: list[Found], *, more: bool) -> Report:
    names = list(dict.fromkeys(name for each in found for name in each.values or ()))
    rows: list[tuple[Cell, ...]] = [
        (each.key, each.shard, *(_cell((each.values or {}).get(name)) for name in names))
        for each in found
    ]
    document: StateQueryDocument = {
        "stream": uri,
        "snapshot": snapshot,
        "more": more,
        "keys": [{"key": f.key, "shard": f.shard, "values": _plain(f.values)} for f in found],
    }
    return Report(
        schema="sluicegate.state-query",
        document=document,
        tables=[Table(("key", "shard", *names), rows)],
        lines=[
            f"At snapshot {snapshot}: {_count(found)}.",
            *(["More keys exist; use --limit 0 to list all."] if more else []),
        ],
    )


def _count(found: list[Found]) -> str:
    unknown = [each.key for each in found if each.values is None]
    count = units.counted(len(found), "key")
    return f"{count}; never seen: {', '.join(unknown)}" if unknown else count


def _plain(values: dict[str, Any] | None) -> dict[str, Any] | None:
    return values and {name: _cell(value) for name, value in values.items()}


def _cell(value: Any) -> Any:
    return value.hex() if isinstance(value, bytes) else value
