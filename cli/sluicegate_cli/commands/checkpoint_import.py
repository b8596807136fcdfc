"""`sluicegate checkpoint import`."""

from __future__ import annotations

from typing import Annotated

import typer

from sluicegate.errors import NotFound
from sluicegate.stream.operations.begin import begin_from_v1, plan_begin_from_v1
from sluicegate.stream.operations.changes import IMPORT, StreamChange
from sluicegate.stream.operations.import_v1 import read_v1
from sluicegate_cli.options import ForceOption
from sluicegate_cli.session import Session
from sluicegate_cli.streams import change_stream

CHANGES = True
SAVES_PLAN = True
EXAMPLES = (
    ("checkpoint import old/checkpoint-42.bin clicks", "a new stream that goes on from there"),
    ("checkpoint import old/checkpoint-42.bin clicks --dry-run", "what is in it?"),
)


def run(
    ctx: typer.Context,
    file: Annotated[str, typer.Argument(metavar="FILE", help="a v1 checkpoint file")],
    stream: Annotated[str, typer.Argument(metavar="STREAM", help="a gated stream, old or new")],
    force: ForceOption = False,
) -> None:
    """Take over a v1 checkpoint of the reference design into a gated stream.

    A stream that does not exist is begun with it. In one that exists, positions, watermark and
    operator states become those of the file; what it counted itself can be brought back by undo.
    The file's states are kept as they are; they are not taken apart.
    """
    session = Session.of(ctx)
    checkpoint, data = read_v1(file)
    try:
        found = session.target(stream)
    except NotFound:
        plan = plan_begin_from_v1(session.home, stream, checkpoint)
        home = session.home
        session.change(plan, lambda approval: begin_from_v1(home, stream, checkpoint, approval))
        return
    change = StreamChange(IMPORT, data=data, force=force, note=f"import at {checkpoint.sequence}")
    change_stream(session, found, change)
