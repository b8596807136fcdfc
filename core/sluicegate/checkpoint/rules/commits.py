"""The commit log: the committed batches."""

from __future__ import annotations

from collections.abc import Iterator

from sluicegate.checkpoint.file_edits import remove_with_sums
from sluicegate.checkpoint.format.log import read_commit
from sluicegate.checkpoint.rules import layout
from sluicegate.checkpoint.rules.fixes import Case, Fix, Solution
from sluicegate.checkpoint.rules.offsets import end_of_batch, looks_asynchronous, rewritten
from sluicegate.checkpoint.view import NextStart
from sluicegate.errors import Corrupt, NotFound, UnsupportedFormat
from sluicegate.findings import LAST_RESORT, Finding, LogPattern, Severity, Site, fixes, rule

_COMMIT_REMOVABLE = (
    "No row is lost: without that commit file Spark runs the batch again. With state format 2 a "
    "commit holds ids and has to be rewritten instead."
)

COMMIT_EMPTY = rule(
    "SG-COMMIT-EMPTY",
    Severity.ERROR,
    "the newest commit file is empty or cut",
    "Spark stops with `Incomplete log file in the offset commit log`. Deleting it makes Spark run "
    "that batch again, which is normal; a version 2 commit can be rewritten, because its ids are "
    "in the names of the state files.",
    LogPattern(
        _COMMIT_REMOVABLE,
        texts=(
            r"Incomplete log file in the offset commit log",
            rf"{layout.UNREADABLE_LOG}/commits/(?P<batch>\d{{1,19}})",
        ),
        family=layout.LOG_FAMILY,
    ),
    LogPattern(
        _COMMIT_REMOVABLE,
        texts=(*layout.JSON_CUT, r"Incomplete log file"),
        sites=(Site.COMMITS,),
        family=layout.LOG_FAMILY,
    ),
)
COMMITS_BEHIND = rule(
    "SG-COMMITS-BEHIND",
    Severity.WARNING,
    "more than one batch is not committed",
    "Spark runs only the newest of them again, so this is not a rewind: Spark takes the others as "
    "written. It is normal with asynchronous progress tracking.",
    LogPattern(
        "If commits were deleted to rewind the query: Spark runs only the newest batch again. To "
        "roll back, use `sluicegate checkpoint rollback`.",
        texts=(r"latest batch id is \d{1,19}, which is not trailing batchid (?P<batch>\d{1,19})",),
        weak=True,
        family=LAST_RESORT,
    ),
)


def check(case: Case) -> Iterator[Finding]:
    """The newest commit must parse; several uncommitted batches are reported."""
    look = case.look
    if look.last_commit is not None:
        try:
            read_commit(look.storage, look.last_commit)
        except NotFound:
            return
        except (Corrupt, UnsupportedFormat) as e:
            yield layout.unreadable(look, COMMIT_EMPTY, e)
    if look.next_start is NextStart.BEHIND and not looks_asynchronous(look):
        done = -1 if look.last_commit is None else look.last_commit
        open_batches = [batch for batch in look.offsets.batches if batch > done]
        detail = (
            f"batches {open_batches[0]} to {open_batches[-1]} are not committed; the next start "
            f"replays {open_batches[-1]} only"
        )
        yield COMMITS_BEHIND.at(f"{look.storage.uri}/commits", detail)


@fixes(COMMIT_EMPTY)
def remove_commit(case: Case, finding: Finding) -> Solution:
    """An unreadable commit: removed, so that its batch runs again as after a crash."""
    batch = case.batch_of(finding)
    if case.offsets_of(batch) is None and rewritten(case, batch) is None:
        # The input that it would run again with is not known.
        return end_of_batch(case, batch)
    edits = tuple(remove_with_sums(case.storage, f"commits/{batch}"))
    return Fix(
        f"remove commits/{batch}",
        f"Batch {batch} runs again with the same input, as after a crash; an idempotent "
        "sink skips it.",
        edits,
    )
