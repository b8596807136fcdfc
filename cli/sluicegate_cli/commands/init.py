"""`sluicegate init`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from sluicegate.config import FILE_NAME
from sluicegate.init import apply_init, plan_init, plan_store
from sluicegate_cli.session import Session

CHANGES = True
MAKES_CONFIG = True
EXAMPLES = (
    ("init", "in this directory: ./.sluicegate and ./sluicegate.toml"),
    ("init --home /srv/streams --yes", "elsewhere, without being asked"),
    ("init --store /data/billing/offsets", "an offset store for consumers"),
)


def run(
    ctx: typer.Context,
    store: Annotated[
        str | None, typer.Option(metavar="DIR", help="make an offset store there instead")
    ] = None,
) -> None:
    """Make a home for gated streams and a commented sluicegate.toml, or an offset store.

    Only what is missing is made; nothing is ever overwritten, so running it again is safe. An
    offset store is made on purpose only: a consumer whose disk is not mounted must not find an
    empty store and start from nothing.
    """
    session = Session.of(ctx)
    config_path = session.config_path or Path(FILE_NAME)
    plan = plan_init(session.home, config_path) if store is None else plan_store(store)
    session.change(plan, lambda approval: apply_init(plan, approval.reason))
