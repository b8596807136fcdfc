"""`sluicegate checkpoint import`."""

from __future__ import annotations

from base64 import b64encode
from typing import Annotated

import typer

from sluicegate.errors import NotFound
from sluicegate.legacy import v1
from sluicegate.stream.operations.begin import begin_from_v1, plan_begin_from_v1
from sluicegate.stream.operations.import_v1 import ImportV1
from sluicegate.stream.target import GatedStream
from sluicegate_cli.options import ForceOption
from sluicegate_cli.session import Session

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
    checkpoint, data = v1.read(file)
    try:
        found = session.open(GatedStream, stream)
    except NotFound:
        plan = plan_begin_from_v1(session.home, stream, checkpoint)
        home = session.home
        session.change(plan, lambda approval: begin_from_v1(home, stream, checkpoint, approval))
        return
    text = b64encode(data).decode("ascii")
    note = f"import at {checkpoint.sequence}"
    session.carry_out(found.change(ImportV1(data=text, force=force, note=note)))
