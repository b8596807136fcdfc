"""`sluicegate demo`."""

from __future__ import annotations

from dataclasses import asdict
from typing import Annotated

import typer

from sluicegate import demo, units
from sluicegate.errors import EXIT_DONE, ProblemsFound
from sluicegate_cli.output import Table, View
from sluicegate_cli.session import Session

EXAMPLES = (
    ("demo", "ten kills, a few seconds"),
    ("demo --kills 100 --json", "more of them, for a script"),
)
_ABOUT = (
    "This release does not have the Spark job yet. What is shown is the promise the rest stands "
    "on: writers commit to one offset store and are killed with SIGKILL at random moments."
)


def run(
    ctx: typer.Context,
    kills: Annotated[
        int, typer.Option(metavar="N", min=1, max=10000, help="how often to kill a writer")
    ] = 10,
) -> int:
    """Show on this machine that killing writers loses nothing that was acknowledged.

    Three processes commit to one consumer of an offset store, and are killed with SIGKILL at
    random moments. Afterwards every acknowledged commit must be there once, no reader may have
    seen half a file or an older position than before, and the lock must be free. The gated Spark
    job is not part of this release, and this demonstration does not run Spark.
    """
    session = Session.of(ctx)
    session.sink.note(_ABOUT)
    outcome = demo.run(kills, lambda n: session.sink.note(f"kill {n} of {kills}"))
    session.sink.show(_view(outcome))
    return EXIT_DONE if outcome.well else ProblemsFound.exit_code


def _view(outcome: demo.Outcome) -> View:
    rows = [
        ("kills", outcome.kills),
        ("commits acknowledged", outcome.acknowledged),
        ("commits in the store", outcome.committed),
        ("acknowledged but lost", outcome.lost),
        ("counted twice", outcome.doubled),
        ("reads while killing", outcome.reads),
        ("torn or older positions read", outcome.bad_reads),
        ("lock left held", "yes" if outcome.lock_left_held else "no"),
    ]
    verdict = "Nothing was lost, doubled or torn" if outcome.well else "The promise was broken"
    return View(
        schema="sluicegate.demo",
        document=asdict(outcome),
        tables=[Table(("what", "count"), rows, header=False)],
        lines=[f"{verdict}, in {units.duration(outcome.seconds)}."],
    )
