"""Is a checkpoint sound? Everything SPARK.md's damage table and traps know, as findings.

A running job is not damage: what is found wrong is looked at a second time, and only what is
still wrong then is reported.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from sluicegate.checkpoint import rules
from sluicegate.checkpoint.format.commit_log import read_commit
from sluicegate.checkpoint.format.log import LogListing
from sluicegate.checkpoint.rules.offsets import check_commits, check_metadata, check_offsets
from sluicegate.checkpoint.rules.source_log import check_sources
from sluicegate.checkpoint.view import Look, look_at
from sluicegate.errors import SluicegateError, StorageFailed
from sluicegate.findings import Finding, Severity, worst_first
from sluicegate.storage import Storage

Progress = Callable[[int, int], None]


def verify(
    storage: Storage,
    sink: Storage | None = None,
    *,
    read_data: bool = False,
    on_progress: Progress = lambda _done, _of: None,
) -> list[Finding]:
    """All that is wrong with a checkpoint (and its file sink), worst first.

    `read_data` decodes every state file and every log entry, which takes as long as reading all
    of the checkpoint.
    """
    try:
        return _verify(storage, sink, read_data=read_data, on_progress=on_progress)
    except StorageFailed as e:
        # What the operating system refuses hides the rest, so it is all there is to say.
        return [rules.UNREADABLE.at(e.place or storage.uri, e.message)]


def _verify(
    storage: Storage, sink: Storage | None, *, read_data: bool, on_progress: Progress
) -> list[Finding]:
    if interrupted := _check_interrupted(storage):
        # What else is odd now follows from it.
        return [interrupted]
    found = list(_examine(storage, sink, read_data=read_data))
    if unmade := _check_unfinished(storage, found):
        return [unmade]
    if any(finding.severity is not Severity.NOTE for finding in found):
        again = {(f.code, f.place) for f in _examine(storage, sink, read_data=read_data)}
        found = [f for f in found if (f.code, f.place) in again]
    if read_data:
        from sluicegate.checkpoint.rules.state_data import check_state_data

        known = {(f.code, f.place) for f in found}
        data = check_state_data(look_at(storage), on_progress)
        found += [f for f in data if (f.code, f.place) not in known]
    return worst_first(found)


def _check_interrupted(storage: Storage) -> Finding | None:
    if storage.stat("_sluicegate") is None:
        return None
    from sluicegate.checkpoint.edit import interrupted
    from sluicegate.checkpoint.file_edits import Place

    found = interrupted({Place.CHECKPOINT: storage})
    if found is None:
        return None
    detail = f"{found.record.id} ({found.record.kind}): {found.progress.value}"
    repair = f"sluicegate checkpoint repair {storage.uri}"
    return rules.CHANGE_INTERRUPTED.at(storage.uri, detail, repair=repair)


def _check_unfinished(storage: Storage, found: list[Finding]) -> Finding | None:
    """A directory that was to become a checkpoint; what is unreadable there is the barrier."""
    if all(finding.code != rules.OFFSETS_EMPTY.code for finding in found):
        return None
    from sluicegate.checkpoint import barrier

    told = barrier.told_by(storage)
    if told is None:
        return None
    detail = "making it was interrupted; Spark refuses to start"
    return rules.COPY_INCOMPLETE.at(storage.uri, detail, repair=barrier.advice(told))


def _examine(storage: Storage, sink: Storage | None, *, read_data: bool) -> Iterator[Finding]:
    look = look_at(storage)
    yield from check_metadata(look)
    yield from check_offsets(look)
    yield from check_commits(look)
    yield from check_sources(look, read_data=read_data)
    yield from _check_temporary(look)
    yield from _check_left_sums(look)
    # What a checkpoint does not have need not be imported: `status` runs this for every target.
    if look.operators or _has_state_ids(look):
        from sluicegate.checkpoint.rules.state import check_state

        yield from check_state(look)
    if sink is not None:
        from sluicegate.checkpoint.rules.sink_log import check_sink

        yield from check_sink(look, sink)


def _has_state_ids(look: Look) -> bool:
    try:
        return look.last_commit is not None and bool(
            read_commit(look.storage, look.last_commit).state_ids
        )
    except SluicegateError:
        return False


def _logs(look: Look) -> dict[str, LogListing]:
    logs = {"offsets": look.offsets, "commits": look.commits}
    return logs | {f"sources/{name}": listing for name, listing in look.sources.items()}


def _check_left_sums(look: Look) -> Iterator[Finding]:
    """Checksums of entries that will be written again, and cannot be."""
    repair = f"sluicegate checkpoint repair {look.storage.uri}"
    for directory, listing in _logs(look).items():
        newest = -1 if listing.last is None else listing.last
        for number in (n for n in listing.deleted if n > newest):
            place = f"{look.storage.uri}/{directory}/.{number}.crc"
            yield rules.LOG_SUM_LEFT.at(place, repair=repair)


def _check_temporary(look: Look) -> Iterator[Finding]:
    for directory, listing in _logs(look).items():
        if listing.temporary:
            detail = f"{len(listing.temporary)} files, such as {listing.temporary[0]}"
            yield rules.TEMPORARY_FILES.at(f"{look.storage.uri}/{directory}", detail)
