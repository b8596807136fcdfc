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
    ("checkpoint import old/checkpoint-42.bin clicks", "a new stream that continues from there"),
    ("checkpoint import old/checkpoint-42.bin clicks --dry-run", "what is in it?"),
)
DOCUMENTS = ("sluicegate.plan",)


def run(
    ctx: typer.Context,
    file: Annotated[str, typer.Argument(metavar="FILE", help="a legacy checkpoint file")],
    stream: Annotated[str, typer.Argument(metavar="STREAM", help="a gated stream, old or new")],
    force: ForceOption = False,
) -> None:
    """Import a legacy checkpoint file (format v1) into a gated stream.

    A stream that does not exist is created from the file. In an existing stream, positions,
    watermark and operator states are replaced by those of the file; `sluicegate undo` restores
    the current ones. Operator states are kept as opaque bytes; they are not decoded.
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
