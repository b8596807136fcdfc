"""`sluicegate status`."""

from __future__ import annotations

from typing import Annotated

import typer

from sluicegate.errors import EXIT_DONE, ProblemsFound
from sluicegate.findings import has_errors
from sluicegate.target import Sighting, Target, TargetKind, resolve, survey
from sluicegate_cli.output import Table, View
from sluicegate_cli.session import Session

EXAMPLES = (
    ("status", "everything that sluicegate.toml names"),
    ("status orders", "one named target"),
    ("status /data/orders/checkpoint", "what is this directory?"),
)
FINDINGS = ("SG-TARGET-",)


def run(
    ctx: typer.Context,
    target: Annotated[
        str | None, typer.Argument(metavar="TARGET", help="name or path; all names if omitted")
    ] = None,
    as_: Annotated[TargetKind | None, typer.Option("--as", help="do not detect the kind")] = None,
) -> int:
    """Show every named target, those that need a person first; or one target in depth.

    A target is a name from sluicegate.toml or a path. What it is, is detected and said.
    """
    session = Session.of(ctx)
    if target is not None:
        session.sink.show(_one(resolve(target, session.config, session.home, as_)))
        return EXIT_DONE
    seen = survey(session.config, session.home)
    session.sink.show(_all(seen))
    problems = any(has_errors(sighting.findings) for sighting in seen)
    return ProblemsFound.exit_code if problems else EXIT_DONE


def _one(target: Target) -> View:
    fields = _fields(target)
    return View(
        schema="sluicegate.status",
        document={"targets": [fields]},
        tables=[Table(("field", "value"), list(fields.items()), header=False)],
    )


def _all(seen: list[Sighting]) -> View:
    rows = [(s.name, _state(s), s.target.kind.value if s.target else None, s.uri) for s in seen]
    nothing = "No targets are named. Name them in sluicegate.toml, or give a path."
    return View(
        schema="sluicegate.status",
        document={"targets": [_fields(s.target or s) for s in seen]},
        tables=[Table(("target", "state", "kind", "where"), rows)],
        findings=[finding for sighting in seen for finding in sighting.findings],
        lines=[] if seen else [nothing],
    )


def _fields(found: Target | Sighting) -> dict[str, str | None]:
    known = found if isinstance(found, Target) else None
    return {
        "target": found.name,
        "kind": known.kind.value if known else None,
        "where": found.uri,
        "why": known.why if known else None,
    }


def _state(sighting: Sighting) -> str:
    return sighting.findings[0].severity.value if sighting.findings else "ok"
