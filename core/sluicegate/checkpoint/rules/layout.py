"""The checkpoint as a directory: its `metadata`, unreadable and temporary files, our own edits.

Also the error texts that all of Spark's logs share, for the log patterns of the other areas.
"""

from __future__ import annotations

import json
from collections.abc import Iterator

from sluicegate.checkpoint.file_edits import Edit, Place, drop_sums, put
from sluicegate.checkpoint.format.log import LogListing
from sluicegate.checkpoint.rules.fixes import Case, Fix, Solution, repair_command
from sluicegate.checkpoint.view import METADATA, Look, read_query_id
from sluicegate.errors import Corrupt, NotFound, UnsupportedFormat
from sluicegate.findings import Finding, LogPattern, Rule, Severity, Site, fixes, rule
from sluicegate.plan import Choice
from sluicegate.storage import Storage
from sluicegate.units import command, counted

LOG_FAMILY = "log"
UNREADABLE_LOG = r"Failed to read log file \S{1,1024}"
BATCH_NOT_FOUND = r"Unable to find batch \S{1,1024}"
JSON_CUT = (
    r"JsonEOFException",
    r"JsonParseException",
    r"MismatchedInputException",
    r"exception: Unexpected end-of-input",
)
NO_BATCH = r"\bbatch (?P<batch>\d{1,19}) doesn't exist"
# The texts of our own barriers, which Spark repeats; the place is quoted for a shell.
_PLACE = r"""(?P<checkpoint_word>(?:'[^']{0,1024}'|"'"|[^\s;'"\\]){1,1024})"""
_INTERRUPTED = (
    r"sluicegate: op-\d{1,19} \(\S{1,20}\) was interrupted; finish it with: "
    rf"{command('checkpoint', 'repair')} {_PLACE}"
)
_NOT_COMPLETE = (
    r"sluicegate: this checkpoint is not complete; remove it and make it again: "
    rf"rm -r {_PLACE}"
)

CHANGE_INTERRUPTED = rule(
    "SG-CHANGE-INTERRUPTED",
    Severity.ERROR,
    "an operation of Sluicegate was interrupted",
    "A repair, rollback or reset was killed half-way. Spark refuses to start, because the newest "
    "offsets file is Sluicegate's barrier and not a log entry. Nothing is lost: the operation can "
    "be finished with `sluicegate checkpoint repair`, or reverted with `sluicegate undo`.",
    LogPattern(
        "Finish it, or revert it with `sluicegate undo`. Until then Spark refuses to start on "
        "purpose; do not remove the offsets file that it cannot read.",
        "checkpoint repair {checkpoint}",
        texts=(_INTERRUPTED,),
        first=True,
    ),
)
COPY_INCOMPLETE = rule(
    "SG-COPY-INCOMPLETE",
    Severity.ERROR,
    "the checkpoint is incomplete: making it was interrupted",
    "`sluicegate checkpoint seed` or `relocate`, or a change with `--into`, was killed before the "
    "new directory was complete. Spark refuses to start from it, because the newest offsets file "
    "is Sluicegate's barrier and not a log entry. Remove the directory and make it again; the "
    "original is unchanged.",
    LogPattern(
        "Remove the directory and make it again: the log has the command. The original is "
        "unchanged. Do not remove the offsets file that Spark cannot read: it keeps the job from "
        "starting on an incomplete checkpoint.",
        texts=(_NOT_COMPLETE,),
        first=True,
    ),
)
UNKNOWN_VERSION = rule(
    "SG-UNKNOWN-VERSION",
    Severity.WARNING,
    "a log has a version that this release does not know",
    "A newer Spark wrote it. Its content is not checked; upgrade Sluicegate.",
    LogPattern(
        "Start the job with the Spark version that wrote the checkpoint, or a later one. If the "
        "version was not changed, the first line of the file is damaged.",
        classes=("INVALID_LOG_VERSION", "INVALID_CHANGE_LOG_READER_VERSION"),
        texts=(r"UnsupportedLogVersion", r"(?:maximum|only) supported log version is v\d"),
    ),
)
UNREADABLE = rule(
    "SG-CHECKPOINT-UNREADABLE",
    Severity.ERROR,
    "a part of the checkpoint cannot be read",
    "The operating system refuses (permission, I/O error), or there is a file where a directory "
    "belongs, or a symbolic link, which is not followed.",
)
PATHS_MOVED = rule(
    "SG-PATHS-MOVED",
    Severity.WARNING,
    "the checkpoint refers to paths elsewhere",
    "Absolute paths in it point outside its current directory: it was moved or is a copy. Reading "
    "a copy is safe; before a job is started on it, it must be relocated.",
)
TEMPORARY_FILES = rule(
    "SG-TEMPORARY-FILES",
    Severity.NOTE,
    "temporary files of interrupted writes are left",
    "Spark ignores them. If the job runs, they may also be a write in progress.",
)
LOG_SUM_LEFT = rule(
    "SG-LOG-SUM-LEFT",
    Severity.ERROR,
    "the checksum of a deleted log entry is left",
    "An entry of a log was deleted by hand, and Hadoop's hidden `.N.crc` of it was not. Spark "
    "cannot write that entry again: the query dies with `Multiple streaming queries are "
    "concurrently using` or CONCURRENT_STREAM_LOG_UPDATE. Remove the checksum, too.",
)


def check(case: Case) -> Iterator[Finding]:
    """Temporary files and stale checksums in the directories of the logs."""
    yield from _check_temporary(case.look)
    yield from _check_left_sums(case.look)
    yield from _check_metadata(case)


def check_interrupted(storage: Storage) -> Finding | None:
    """An operation of ours that was killed half-way."""
    if storage.stat("_sluicegate") is None:
        return None
    from sluicegate.checkpoint.edit import interrupted

    found = interrupted({Place.CHECKPOINT: storage})
    if found is None:
        return None
    detail = f"{found.record.id} ({found.record.kind}): {found.progress.value}"
    repair = command("checkpoint", "repair", storage.uri)
    return CHANGE_INTERRUPTED.at(storage.uri, detail, repair=repair)


def check_unfinished(storage: Storage, found: list[Finding]) -> Finding | None:
    """An incomplete checkpoint, whose unreadable file is the barrier."""
    if all(finding.code != "SG-OFFSETS-EMPTY" for finding in found):
        return None
    from sluicegate.checkpoint import edit

    text = edit.barrier_text(storage)
    if text is None:
        return None
    detail = "making it was interrupted; Spark refuses to start"
    return COPY_INCOMPLETE.at(storage.uri, detail, repair=edit.advice(text))


def unreadable(look: Look, found: Rule, error: Corrupt | UnsupportedFormat) -> Finding:
    """A finding about an unreadable log file; files of a newer Spark are not checked."""
    place = error.place or look.storage.uri
    if isinstance(error, UnsupportedFormat):
        return UNKNOWN_VERSION.at(place, error.message)
    return found.at(place, error.message, repair=repair_command(look))


def _logs(look: Look) -> dict[str, LogListing]:
    logs = {"offsets": look.offsets, "commits": look.commits}
    return logs | {f"sources/{name}": listing for name, listing in look.sources.items()}


def _check_left_sums(look: Look) -> Iterator[Finding]:
    """Checksums of entries that will be written again, and cannot be."""
    for directory, listing in _logs(look).items():
        newest = -1 if listing.last is None else listing.last
        for number in (n for n in listing.deleted if n > newest):
            place = f"{look.storage.uri}/{directory}/.{number}.crc"
            yield LOG_SUM_LEFT.at(place, repair=repair_command(look))


def _check_temporary(look: Look) -> Iterator[Finding]:
    for directory, listing in _logs(look).items():
        if listing.temporary:
            detail = f"{counted(len(listing.temporary), 'file')}, such as {listing.temporary[0]}"
            yield TEMPORARY_FILES.at(f"{look.storage.uri}/{directory}", detail)


@fixes(LOG_SUM_LEFT)
def remove_left_sum(case: Case, finding: Finding) -> Solution:
    """The checksum of a deleted entry: it keeps Spark from writing the entry again."""
    directory, _, name = case.key_of(finding).rpartition("/")
    number = name.strip(".").partition(".")[0]
    keys = [f"{directory}/.{number}.crc", f"{directory}/.{number}.compact.crc"]
    edits = [Edit(Place.CHECKPOINT, key) for key in keys if case.storage.stat(key) is not None]
    consequence = "Checksums of deleted entries, which would stop the query, are removed."
    return Fix(f"remove {directory}/.{number}.crc", consequence, tuple(edits))


_WRITE_ID = (
    "Rewrite `metadata` with the original id, which older driver logs show as the query's id. "
    "With a new id, a sink that recognises repeated batches by query id writes them twice."
)

METADATA_MISSING = rule(
    "SG-METADATA-MISSING",
    Severity.ERROR,
    "the file `metadata` with the query id is missing",
    "Spark 4.2 and later refuse to start. 3.5 and 4.0 silently take a new query id, and a sink "
    "that recognises repeated batches by query id then writes them twice. Rewrite it with the "
    "original id.",
    LogPattern(
        _WRITE_ID,
        classes=("STREAMING_CHECKPOINT_MISSING_METADATA_FILE",),
    ),
)
METADATA_DAMAGED = rule(
    "SG-METADATA-DAMAGED",
    Severity.ERROR,
    "the file `metadata` cannot be read",
    'It should hold `{"id":"<uuid>"}`. Rewrite it with the original id, which the driver log '
    "shows as the query's id.",
    LogPattern(
        _WRITE_ID,
        texts=(r"Error reading stream metadata from (?P<checkpoint>\S{1,1024})/metadata",),
        family=LOG_FAMILY,
    ),
    LogPattern(
        _WRITE_ID,
        texts=(*JSON_CUT, r"MappingException"),
        sites=(Site.METADATA,),
        family=LOG_FAMILY,
    ),
)


def _check_metadata(case: Case) -> Iterator[Finding]:
    """The query id must be there once anything has run."""
    look = case.look
    place = f"{look.storage.uri}/{METADATA}"
    try:
        read_query_id(look.storage)
    except NotFound:
        if look.last_batch is not None or look.last_commit is not None:
            yield METADATA_MISSING.at(place, repair=repair_command(look))
    except Corrupt as e:
        yield METADATA_DAMAGED.at(place, e.message, repair=repair_command(look))


@fixes(METADATA_MISSING, METADATA_DAMAGED)
def write_query_id(case: Case, _finding: Finding) -> Solution:
    """The file with the query id: the operator has to supply the id."""
    if case.query_id is not None:
        text = json.dumps({"id": case.query_id}, separators=(",", ":"))
        edits = (put(METADATA, text), *drop_sums(case.storage, METADATA))
        return Fix(f"write {METADATA}", f"The query's id is {case.query_id}.", edits)
    repair = command("checkpoint", "repair", case.storage.uri, "--query-id", "UUID")
    return (
        Choice(
            "",
            "set the original id of the query",
            repair,
            "nothing; the driver's log shows it as `id = …` where the query starts",
        ),
        Choice(
            "",
            "set a new id",
            repair,
            "sinks that recognise batches by query id and number (Delta) no longer do",
        ),
    )
