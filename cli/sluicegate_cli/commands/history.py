"""`sluicegate history`."""

from __future__ import annotations

from typing import Annotated, TypedDict

import typer

from sluicegate import units
from sluicegate.journal import Entry, EntryFields
from sluicegate.report import Report, Table, document
from sluicegate_cli.options import AsOption, ConsumerOption, TargetArgument
from sluicegate_cli.session import Session

EXAMPLES = (
    ("history billing", "changes with their authors, and whether they can be undone"),
    ("history /data/offsets --consumer billing --limit 5", "changes of one consumer"),
)
DOCUMENTS = ("sluicegate.history",)


@document("sluicegate.history", version=1)
class HistoryDocument(TypedDict):
    """The changes of a target, newest first."""

    target: str
    entries: list[EntryFields]
    hidden: int  # older entries that `--limit` left out


def run(
    ctx: typer.Context,
    target: TargetArgument = None,
    consumer: ConsumerOption = None,
    limit: Annotated[int, typer.Option(metavar="N", min=1, help="newest entries to show")] = 50,
    as_: AsOption = None,
) -> None:
    """List the changes of a target, newest first, with author, reason and undo.

    An offset store keeps the last commits of each consumer, and changes by operators for longer.
    """
    session = Session.of(ctx)
    found = session.target(target, as_, consumer=consumer)
    entries = found.journal().history()
    session.sink.show(_view(found.uri, entries, limit))


def _view(uri: str, entries: list[Entry], limit: int) -> Report:
    shown = entries[:limit]
    columns = ("operation", "when", "kind", "what", "by", "reason", "undo")
    rows = [
        (e.id, units.utc(e.at) if e.at else None, e.kind, e.summary, _user(e), e.reason, e.undo)
        for e in shown
    ]
    hidden = len(entries) - len(shown)
    older = units.counted(hidden, "older entry", "older entries")
    more = [f"{older}; use --limit {len(entries)} to list all"] if hidden else []
    document: HistoryDocument = {
        "target": uri,
        "entries": [e.fields() for e in shown],
        "hidden": hidden,
    }
    return Report(
        schema="sluicegate.history",
        document=document,
        tables=[Table(columns, rows)],
        lines=more if entries else ["No commits or changes yet."],
    )


def _user(entry: Entry) -> str:
    """The author in one word; pid and command are in the JSON."""
    return entry.by.partition(" ")[0]
