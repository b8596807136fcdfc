"""Mends of the state: what is of an abandoned timeline goes, stale checksums go."""

from __future__ import annotations

from shlex import quote

from sluicegate.findings import Finding
from sluicegate.plan import Choice
from sluicegate.spark.change.edits import drop_sums, remove_with_sums
from sluicegate.spark.change.mends import Case, Mend, Remedy
from sluicegate.spark.change.rollback import candidates
from sluicegate.spark.crc import hidden_name, visible_name
from sluicegate.spark.state import find_stores
from sluicegate.spark.state_chain import Chain, StateFile, parse_name
from sluicegate.spark.verify.data import ChainReader


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
