"""Repairing a checkpoint: what verify finds, with the mend of each."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

from sluicegate.errors import Corrupt
from sluicegate.findings import Finding, Severity
from sluicegate.plan import Action, Choice
from sluicegate.positions import Positions, PositionsInvalid, from_spark
from sluicegate.spark import rules
from sluicegate.spark.change.draft import Draft, newest_after, standing
from sluicegate.spark.change.edits import Place, Roots
from sluicegate.spark.change.mends import Case, Healer, Mend, logs, merged, sink, sources, state
from sluicegate.spark.checkpoint import look_at
from sluicegate.spark.verify import verify

HEALERS: dict[str, Healer] = {
    rules.OFFSETS_EMPTY.code: logs.mend_offsets,
    rules.OFFSETS_GAP.code: logs.mend_offsets,
    rules.OFFSETS_BEHIND_COMMIT.code: logs.mend_offsets,
    rules.COMMIT_EMPTY.code: logs.mend_commit,
    rules.METADATA_MISSING.code: logs.mend_metadata,
    rules.METADATA_DAMAGED.code: logs.mend_metadata,
    rules.REPARTITION_HALF_DONE.code: logs.mend_repartition,
    rules.PARTITIONS_CHANGED.code: logs.mend_partitions,
    rules.LOG_SUM_LEFT.code: logs.mend_left_sum,
    rules.STATE_AHEAD.code: state.mend_ahead,
    rules.STATE_MISSING.code: state.mend_state,
    rules.STATE_CORRUPT.code: state.mend_state,
    rules.CRC_STALE.code: state.mend_checksum,
    rules.CRC_HIDDEN.code: state.mend_checksum,
    rules.SOURCE_LOG_AHEAD.code: sources.mend_source_ahead,
    rules.SOURCE_LOG_GAP.code: sources.mend_source_gap,
    rules.SINK_LOG_GAP.code: sink.mend_sink_gap,
    rules.SINK_AHEAD.code: sink.mend_sink_ahead,
}

_FOLLOWERS = (rules.SOURCE_LOG_AHEAD.code, rules.STATE_AHEAD.code)


@dataclass(frozen=True, slots=True)
class Diagnosis:
    """A finding with what can be done: a mend, or choices; nothing at all is possible, too."""

    finding: Finding
    mend: Mend | None
    choices: tuple[Choice, ...] = ()


def diagnose(roots: Roots, work: Mapping[str, Any]) -> list[Diagnosis]:
    """Everything that verify finds and that needs doing, worst first."""
    storage = roots[Place.CHECKPOINT]
    found = verify(storage, roots.get(Place.SINK), read_data=bool(work.get("read_data")))
    case = Case(roots, look_at(storage), _positions(work), _query_id(work))
    codes = {finding.code for finding in found}
    # What is ahead of an offsets file that is missing is right again once that is there.
    followed = _FOLLOWERS if rules.OFFSETS_BEHIND_COMMIT.code in codes else ()
    return [
        _diagnosis(case, finding)
        for finding in found
        if (finding.severity is Severity.ERROR or finding.code in HEALERS)
        and finding.code not in followed
    ]


def draft(roots: Roots, work: Mapping[str, Any]) -> Draft:
    """All lossless mends together; what has none is left as it is."""
    everything = diagnose(roots, work)
    found = [each for each in everything if each.mend is not None]
    mends = list({each.mend.what: each.mend for each in found if each.mend}.values())
    look = look_at(roots[Place.CHECKPOINT])
    codes = sorted({each.finding.code for each in found})
    edits = tuple(merged(mends))
    return Draft(
        title="Repair the checkpoint",
        summary=", ".join(codes),
        actions=tuple(
            Action("mend", each.finding.code, each.mend.what) for each in found if each.mend
        ),
        consequences=tuple(dict.fromkeys(mend.meaning for mend in mends)),
        edits=edits,
        newest=newest_after(look.offsets.batches, edits),
        preconditions=standing(look),
        choices=tuple(dict.fromkeys(_left(everything))),
    )


def _left(found: list[Diagnosis]) -> Iterator[Choice]:
    """What is not mended, with what can be done about it; nothing known is said, too."""
    for each in found:
        if each.mend is None:
            about = each.finding.code
            yield from (replace(choice, about=about) for choice in each.choices)
            if not each.choices:
                yield Choice(about, each.finding.detail, "", "see docs/findings.md")


def _diagnosis(case: Case, finding: Finding) -> Diagnosis:
    healer = HEALERS.get(finding.code)
    remedy = healer(case, finding) if healer else ()
    if isinstance(remedy, Mend):
        return Diagnosis(finding, remedy if remedy.edits else None)
    return Diagnosis(finding, None, remedy)


def _positions(work: Mapping[str, Any]) -> Positions | None:
    given = work.get("offsets")
    if given is None:
        return None
    try:
        return from_spark(given)
    except PositionsInvalid as e:
        raise Corrupt(f"the plan's work has no valid offsets: {e.message}") from e


def _query_id(work: Mapping[str, Any]) -> str | None:
    given = work.get("query_id")
    if given is not None and not isinstance(given, str):
        raise Corrupt("the plan's work has no valid query id")
    return given
