"""Checks a checkpoint for every kind of damage that the rules know.

A running job is not damage: the checks run a second time, and only findings of both runs are
reported.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from importlib import import_module

from sluicegate.checkpoint import rules
from sluicegate.checkpoint.file_edits import Place
from sluicegate.checkpoint.format.log import read_commit
from sluicegate.checkpoint.rules import layout
from sluicegate.checkpoint.rules.fixes import Case
from sluicegate.checkpoint.view import look_at
from sluicegate.errors import SluicegateError, StorageFailed
from sluicegate.findings import Finding, Severity, count_findings, has_errors, worst_first
from sluicegate.report import Report, VerifyFields
from sluicegate.storage import Storage

Progress = Callable[[int, int], None]


def verify(
    storage: Storage,
    sink: Storage | None = None,
    *,
    read_data: bool = False,
    on_progress: Progress = lambda _done, _of: None,
) -> list[Finding]:
    """All findings of a checkpoint (and its file sink), worst first.

    `read_data` decodes every state file and every log entry, which takes as long as reading all
    of the checkpoint.
    """
    try:
        return _verify(storage, sink, read_data=read_data, on_progress=on_progress)
    except StorageFailed as e:
        # An unreadable directory hides everything else, so it is the only finding.
        return [layout.UNREADABLE.at(e.place or storage.uri, e.message)]


def _verify(
    storage: Storage, sink: Storage | None, *, read_data: bool, on_progress: Progress
) -> list[Finding]:
    if interrupted := layout.check_interrupted(storage):
        # All other findings follow from it.
        return [interrupted]
    found = _examine(storage, sink, read_data=read_data)
    if unfinished := layout.check_unfinished(storage, found):
        return [unfinished]
    if any(finding.severity is not Severity.NOTE for finding in found):
        again = {(f.code, f.place) for f in _examine(storage, sink, read_data=read_data)}
        found = [f for f in found if (f.code, f.place) in again]
    if read_data:
        from sluicegate.checkpoint.rules.state_data import check_state_data

        known = {(f.code, f.place) for f in found}
        data = check_state_data(look_at(storage), on_progress)
        found += [f for f in data if (f.code, f.place) not in known]
    return worst_first(found)


def _examine(storage: Storage, sink: Storage | None, *, read_data: bool) -> list[Finding]:
    roots = {Place.CHECKPOINT: storage} | ({} if sink is None else {Place.SINK: sink})
    case = Case(roots, look_at(storage), read_data=read_data)
    needed = [area for area in rules.AREAS if area not in _ONLY_IF or _ONLY_IF[area](case)]
    return [finding for area in needed for finding in import_module(area).check(case)]


def _has_state(case: Case) -> bool:
    look = case.look
    if look.operators or look.last_commit is None:
        return bool(look.operators)
    try:
        return bool(read_commit(look.storage, look.last_commit).state_ids)
    except SluicegateError:
        return False


# Rules for parts that a checkpoint lacks are not imported: `status` runs this for every target.
# State data is read separately, because that takes long.
_ONLY_IF: Mapping[str, Callable[[Case], bool]] = {
    f"{rules.__name__}.sink_log": lambda case: Place.SINK in case.roots,
    f"{rules.__name__}.state": _has_state,
    f"{rules.__name__}.state_data": lambda _case: False,
}


def verify_report(uri: str, found: Sequence[Finding], *, read_data: bool) -> Report:
    """The findings of a checkpoint, and whether its state data was read."""
    depth = (
        ""
        if read_data
        else " State files were checked by name and size only; use --read-data to read them."
    )
    document: VerifyFields = {
        "checkpoint": uri,
        "read_data": read_data,
        "intact": not has_errors(found),
    }
    return Report(
        schema="sluicegate.verify",
        document=document,
        findings=found,
        lines=[f"{uri}: {count_findings(found) or 'intact'}.{depth}"],
    )
