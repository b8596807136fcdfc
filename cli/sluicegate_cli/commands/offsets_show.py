"""`sluicegate offsets show`."""

from __future__ import annotations

from typing import Annotated

import typer

from sluicegate.errors import EXIT_DONE, ProblemsFound
from sluicegate.findings import has_errors
from sluicegate_cli.options import AsOption, ConsumerOption, TargetArgument
from sluicegate_cli.session import Session, refuse_options

EXAMPLES = (
    ("offsets show orders", "where the next batch begins to read"),
    ("offsets show /data/orders/checkpoint --batch 41", "where batch 41 ended"),
    ("offsets show /data/offsets --consumer billing", "an offset store, with ages"),
)
DOCUMENTS = ("sluicegate.offsets", "sluicegate.stream-offsets", "sluicegate.store")
FINDINGS = ("SG-STORE-",)


def run(
    ctx: typer.Context,
    target: TargetArgument = None,
    batch: Annotated[
        int | None, typer.Option(metavar="N", help="positions of batch or snapshot N")
    ] = None,
    consumer: ConsumerOption = None,
    as_: AsOption = None,
) -> int:
    """Show the positions of a target: the next offset to read, per topic and partition.

    For an offset store, shows all consumers or one, with the commit time of each position.
    """
    session = Session.of(ctx)
    found = session.target(target, as_, consumer=consumer)
    refuse_options(found, batch=batch, consumer=consumer)
    result = found.show_positions(batch)
    session.sink.show(result)
    return ProblemsFound.exit_code if has_errors(result.findings or ()) else EXIT_DONE
