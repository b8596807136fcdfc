"""Repair of a checkpoint: the fixes of its findings, as one plan; and what is left to choose."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from shlex import quote
from typing import Any

from sluicegate.checkpoint import rules
from sluicegate.checkpoint.file_edits import (
    Draft,
    Place,
    Roots,
    drop_sums,
    newest_after,
    remove_with_sums,
    standing,
)
from sluicegate.checkpoint.format.checksums import hidden_name, visible_name
from sluicegate.checkpoint.format.state_store import Chain, StateFile, parse_name
from sluicegate.checkpoint.operations.rollback import candidates
from sluicegate.checkpoint.rules import offsets, sink_log, source_log
from sluicegate.checkpoint.rules.fixes import Case, Healer, Mend, Remedy, merged
from sluicegate.checkpoint.rules.state_data import ChainReader
from sluicegate.checkpoint.stores import find_stores
from sluicegate.checkpoint.verify import verify
from sluicegate.checkpoint.view import look_at
from sluicegate.errors import Corrupt
from sluicegate.findings import Finding, Severity
from sluicegate.plan import Action, Choice
from sluicegate.positions import Positions, PositionsInvalid, from_spark


def mend_ahead(case: Case, _finding: Finding) -> Remedy:
    """State of batches that the log does not have."""
    # A commit above the newest offsets needs its state, should its offsets be written anew.
    newest = [n for n in (case.look.last_batch, case.look.last_commit) if n is not None]
    limit = max(newest, default=-2) + 1
    keys = [
        f"{store.directory}/{file.name}"
        for store in find_stores(case.look)
        for file in store.listing.files
        if file.version > limit
    ]
    edits = tuple(edit for key in keys for edit in remove_with_sums(case.storage, key))
    told = f"{len(keys)} files of an abandoned timeline, which a later restart would have loaded."
    return Mend(f"remove state above version {limit}", told, edits)


def mend_checksum(case: Case, finding: Finding) -> Remedy:
    """A checksum that does not match: it is stale if the file itself is sound."""
    key = case.key_of(finding)
    if _is_sound(case, key):
        directory, _, name = key.rpartition("/")
        stale = {f"{directory}/{hidden_name(name)}", f"{directory}/{visible_name(name)}"}
        stale.add(f"{directory}/{hidden_name(visible_name(name))}")
        edits = tuple(edit for edit in drop_sums(case.storage, key) if edit.key in stale)
        return Mend(f"remove the checksum of {key}", "The file itself decodes to its end.", edits)
    return go_back(case)


def mend_state(case: Case, _finding: Finding) -> Remedy:
    """State that does not load: only older state helps."""
    return go_back(case)


def go_back(case: Case) -> tuple[Choice, ...]:
    """The newest batch whose state loads, as a choice."""
    able = next(candidates(case.look, ChainReader(case.storage)), None)
    uri = quote(case.storage.uri)
    if able is None:
        return (
            Choice(
                "",
                "start a fresh checkpoint from the last offsets, with empty state",
                f"sluicegate checkpoint seed NEW_DIR --offsets FILE  # from: sluicegate offsets "
                f"export {uri}",
                "all state: counts, windows and seen keys begin anew",
            ),
        )
    sink = f" --sink {quote(case.sink.uri)}" if case.sink is not None else ""
    return (
        Choice(
            "",
            f"go back to batch {able}, the newest whose state loads",
            f"sluicegate checkpoint rollback {uri} --to {able}{sink}",
            "nothing in Spark's own file sink, if the source still holds what came since; other "
            "sinks get those rows twice, or skip them",
        ),
    )


def _is_sound(case: Case, key: str) -> bool:
    """Whether a state file decodes to its end, whatever its checksums say."""
    directory, _, name = key.rpartition("/")
    file: StateFile | None = parse_name(name)
    store = next((s for s in find_stores(case.look) if s.directory == directory), None)
    if file is None or store is None:
        return False
    lone = Chain(file.version, None, (file,), ())
    return ChainReader(case.storage, check_sums=False).fault(store, lone) is None


HEALERS: dict[str, Healer] = {
    rules.OFFSETS_EMPTY.code: offsets.mend_offsets,
    rules.OFFSETS_GAP.code: offsets.mend_offsets,
    rules.OFFSETS_BEHIND_COMMIT.code: offsets.mend_offsets,
    rules.COMMIT_EMPTY.code: offsets.mend_commit,
    rules.METADATA_MISSING.code: offsets.mend_metadata,
    rules.METADATA_DAMAGED.code: offsets.mend_metadata,
    rules.REPARTITION_HALF_DONE.code: offsets.mend_repartition,
    rules.PARTITIONS_CHANGED.code: offsets.mend_partitions,
    rules.LOG_SUM_LEFT.code: offsets.mend_left_sum,
    rules.STATE_AHEAD.code: mend_ahead,
    rules.STATE_MISSING.code: mend_state,
    rules.STATE_CORRUPT.code: mend_state,
    rules.CRC_STALE.code: mend_checksum,
    rules.CRC_HIDDEN.code: mend_checksum,
    rules.SOURCE_LOG_AHEAD.code: source_log.mend_source_ahead,
    rules.SOURCE_LOG_GAP.code: source_log.mend_source_gap,
    rules.SINK_LOG_GAP.code: sink_log.mend_sink_gap,
    rules.SINK_AHEAD.code: sink_log.mend_sink_ahead,
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
                yield Choice(about, each.finding.detail, "", "see docs/reference/findings.md")


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
