"""`sluicegate init`."""

from __future__ import annotations

from pathlib import Path

import typer

from sluicegate.config import FILE_NAME
from sluicegate.init import apply_init, plan_init
from sluicegate_cli.session import Session

CHANGES = True
MAKES_CONFIG = True
EXAMPLES = (
    ("init", "in this directory: ./.sluicegate and ./sluicegate.toml"),
    ("init --home /srv/streams --yes", "elsewhere, without being asked"),
)


def run(ctx: typer.Context) -> None:
    """Make a home for gated streams and a commented sluicegate.toml.

    Only what is missing is made; nothing is ever overwritten, so running it again is safe.
    """
    session = Session.of(ctx)
    plan = plan_init(session.home, session.config_path or Path(FILE_NAME))
    session.change(plan, lambda: apply_init(plan))
