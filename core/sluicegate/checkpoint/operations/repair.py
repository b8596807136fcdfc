"""Repair of a checkpoint: the fixes of its findings as one plan, and options for the others."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar

from sluicegate.checkpoint.file_edits import (
    CheckpointOperation,
    Draft,
    Place,
    Roots,
    newest_after,
    newest_preconditions,
    text_in,
)
from sluicegate.checkpoint.operations.rollback import candidates
from sluicegate.checkpoint.rules.fixes import Case, Fix, merged
from sluicegate.checkpoint.rules.state_data import ChainReader
from sluicegate.checkpoint.verify import verify
from sluicegate.checkpoint.view import look_at
from sluicegate.errors import Corrupt
from sluicegate.findings import Finding, Severity
from sluicegate.plan import Action, Choice
from sluicegate.positions import Positions, PositionsInvalid, from_spark


@dataclass(frozen=True, slots=True)
class Diagnosis:
    """A finding with its fix or its options; it may have neither."""

    finding: Finding
    fix: Fix | None
    choices: tuple[Choice, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Repair(CheckpointOperation):
    """All lossless fixes together; findings without one get options instead.

    Only the operator knows the `offsets` of the damaged batch and the `query_id`.
    """

    name: ClassVar = "repair"
    read_data: bool = False
    offsets: Mapping[str, Any] | None = None
    query_id: str | None = None
    sink: str | None = None

    @classmethod
    def from_work(cls, work: Mapping[str, Any]) -> Repair:
        query_id = work.get("query_id")
        if query_id is not None and not isinstance(query_id, str):
            raise Corrupt("the plan's work has no valid query id")
        return cls(
            read_data=bool(work.get("read_data")),
            offsets=work.get("offsets"),
            query_id=query_id,
            sink=text_in(work, "sink"),
        )

    def plan(self, roots: Roots) -> Draft:
        everything = diagnose(roots, self)
        found = [each for each in everything if each.fix is not None]
        fixes = list({each.fix.summary: each.fix for each in found if each.fix}.values())
        look = look_at(roots[Place.CHECKPOINT])
        codes = sorted({each.finding.code for each in found})
        edits = tuple(merged(fixes))
        return Draft(
            title="Repair the checkpoint",
            summary=", ".join(codes),
            actions=tuple(
                Action("fix", each.finding.code, each.fix.summary) for each in found if each.fix
            ),
            consequences=tuple(dict.fromkeys(fix.consequence for fix in fixes)),
            edits=edits,
            newest=newest_after(look.offsets.batches, edits),
            preconditions=newest_preconditions(look),
            choices=tuple(dict.fromkeys(_options(everything))),
        )


def diagnose(roots: Roots, asked: Repair) -> list[Diagnosis]:
    """All findings of verify that need a repair, worst first."""
    storage = roots[Place.CHECKPOINT]
    found = verify(storage, roots.get(Place.SINK), read_data=asked.read_data)
    look = look_at(storage)
    case = Case(
        roots,
        look,
        positions=_positions(asked.offsets),
        query_id=asked.query_id,
        rollbacks=lambda: candidates(look, ChainReader(storage)),
    )
    codes = {finding.code for finding in found}
    return [
        _diagnosis(case, finding)
        for finding in found
        if (finding.severity is Severity.ERROR or finding.rule.fix)
        and codes.isdisjoint(finding.rule.follows)
    ]


def _options(found: list[Diagnosis]) -> Iterator[Choice]:
    """The options for findings without a fix, also for those without any known option."""
    for each in found:
        if each.fix is None:
            about = each.finding.code
            yield from (replace(choice, about=about) for choice in each.choices)
            if not each.choices:
                yield Choice(about, each.finding.detail, "", "see docs/reference/findings.md")


def _diagnosis(case: Case, finding: Finding) -> Diagnosis:
    solution = finding.rule.fix(case, finding) if finding.rule.fix else ()
    if isinstance(solution, Fix):
        return Diagnosis(finding, solution if solution.edits else None)
    return Diagnosis(finding, None, solution)


def _positions(given: Mapping[str, Any] | None) -> Positions | None:
    if given is None:
        return None
    try:
        return from_spark(given)
    except PositionsInvalid as e:
        raise Corrupt(f"the plan's work has no valid offsets: {e.message}") from e
