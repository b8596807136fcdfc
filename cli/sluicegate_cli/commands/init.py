"""`sluicegate init`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from sluicegate.config import FILE_NAME
from sluicegate.errors import NotFound, UsageError
from sluicegate.gate.begin import begin, plan_begin
from sluicegate.init import apply_init, plan_init, plan_store
from sluicegate_cli.session import Session
from sluicegate_cli.stores import read_positions

CHANGES = True
MAKES_CONFIG = True
EXAMPLES = (
    ("init", "in this directory: ./.sluicegate and ./sluicegate.toml"),
    ("init --home /srv/streams --yes", "elsewhere, without being asked"),
    ("init --store /data/billing/offsets", "an offset store for consumers"),
    ("init --stream clicks --offsets start.json", "begin a gated stream"),
)


def run(
    ctx: typer.Context,
    store: Annotated[
        str | None, typer.Option(metavar="DIR", help="make an offset store there instead")
    ] = None,
    stream: Annotated[
        str | None,
        typer.Option(metavar="NAME", help="begin this stream instead"),
    ] = None,
    offsets: Annotated[
        str | None, typer.Option(metavar="FILE", help="where the stream starts (JSON, CSV, rpk)")
    ] = None,
) -> None:
    """Make a home for gated streams and a commented sluicegate.toml, or an offset store.

    Only what is missing is made; nothing is ever overwritten, so running it again is safe. An
    offset store is made on purpose only: a consumer whose disk is not mounted must not find an
    empty store and start from nothing. A stream is begun at the offsets of a file; its table in
    sluicegate.toml is fixed from then on.
    """
    session = Session.of(ctx)
    if stream is not None:
        _begin(session, stream, offsets)
        return
    config_path = session.config_path or Path(FILE_NAME)
    plan = plan_init(session.home, config_path) if store is None else plan_store(store)
    session.change(plan, lambda approval: apply_init(plan, approval.reason))


def _begin(session: Session, name: str, offsets: str | None) -> None:
    named = session.config.streams.get(name)
    if named is None:
        raise NotFound(
            f"sluicegate.toml has no table [streams.{name}]",
            hint="describe the stream there first; see sluicegate.toml(5)",
        )
    if offsets is None:
        raise UsageError("say where the stream starts with --offsets FILE")
    positions, home = read_positions(offsets), session.home
    plan = plan_begin(home, name, positions)
    session.change(plan, lambda approval: begin(home, named, positions, approval))
