"""`sluicegate init`."""

from __future__ import annotations

from enum import Enum
from pathlib import Path
from typing import Annotated

import typer

from sluicegate.config import FILE_NAME
from sluicegate.errors import NotFound, UsageError
from sluicegate.ops.setup import apply_init, plan_init, plan_store
from sluicegate.positions import Positions
from sluicegate.sources.base import BrokerNeeded
from sluicegate.stream.operations.begin import begin, plan_begin, start_of
from sluicegate_cli.inputs import read_positions
from sluicegate_cli.session import Session

CHANGES = True
MAKES_CONFIG = True
EXAMPLES = (
    ("init", "in this directory: ./.sluicegate and ./sluicegate.toml"),
    ("init --home /srv/streams --yes", "elsewhere, without being asked"),
    ("init --store /data/billing/offsets", "an offset store for consumers"),
    ("init --stream clicks", "create a gated stream that starts at the oldest record of its log"),
    ("init --stream clicks --offsets start.json", "start it at the offsets in a file"),
)
DOCUMENTS = ("sluicegate.plan",)


class Edge(Enum):
    """An end of a log."""

    EARLIEST = "earliest"
    LATEST = "latest"


def run(
    ctx: typer.Context,
    store: Annotated[
        str | None, typer.Option(metavar="DIR", help="create an offset store there instead")
    ] = None,
    stream: Annotated[
        str | None,
        typer.Option(metavar="NAME", help="create this stream instead"),
    ] = None,
    offsets: Annotated[
        str | None, typer.Option(metavar="FILE", help="start offsets of the stream: JSON, CSV, rpk")
    ] = None,
    from_: Annotated[
        Edge | None, typer.Option("--from", help="where the stream starts in its log")
    ] = None,
) -> None:
    """Create a home for gated streams and a commented sluicegate.toml, or an offset store.

    Only missing files are created; existing files are never overwritten, so it is safe to run
    this again. Offset stores are never created implicitly: a consumer whose disk is not mounted
    must not find an empty store and start from the beginning. A stream starts at the oldest record
    of its embedded log, at the end of the log, or at the offsets in a file, which Kafka needs. The
    offsets are stored as numbers. The stream's table in sluicegate.toml is fixed from then on.
    """
    session = Session.of(ctx)
    if stream is not None:
        _begin(session, stream, offsets, from_)
        return
    config_path = session.config_path or Path(FILE_NAME)
    home = session.home
    plan = plan_init(home, config_path) if store is None else plan_store(store)
    session.change(plan, lambda approval: apply_init(plan, approval.reason, home))


def _begin(session: Session, name: str, offsets: str | None, edge: Edge | None) -> None:
    named = session.config.streams.get(name)
    if named is None:
        raise NotFound(
            f"sluicegate.toml has no table [streams.{name}]",
            hint="describe the stream there first; see sluicegate.toml(5)",
        )
    if offsets is not None and edge is not None:
        raise UsageError("--offsets and --from exclude each other", hint="use one of them")
    home = session.home
    positions = read_positions(offsets) if offsets is not None else _edge_of(named.source, edge)
    plan = plan_begin(home, named, positions)
    session.change(plan, lambda approval: begin(home, named, positions, approval))


def _edge_of(source: str, edge: Edge | None) -> Positions:
    try:
        return start_of(source, (edge or Edge.EARLIEST).value)
    except (BrokerNeeded, NotFound) as e:
        hint = "create the log first, or set the start offsets with --offsets FILE"
        raise type(e)(e.message, hint=hint, place=e.place) from e
