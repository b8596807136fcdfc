"""The offset log: the planned range of each batch."""

from __future__ import annotations

import json
from bisect import bisect_left, bisect_right
from collections.abc import Iterator
from itertools import pairwise

from sluicegate.checkpoint.edit import SIGN
from sluicegate.checkpoint.file_edits import drop_sums, put, remove_with_sums
from sluicegate.checkpoint.format.log import (
    NO_OFFSET,
    SINK_DIRECTORY,
    OffsetEntry,
    OffsetKind,
    SourceOffset,
    list_log,
    read_commit,
    read_offsets,
    render,
)
from sluicegate.checkpoint.rules import layout
from sluicegate.checkpoint.rules.fixes import Case, Fix, Solution, repair_command
from sluicegate.checkpoint.view import Look
from sluicegate.errors import Corrupt, NotFound, SluicegateError, UnsupportedFormat
from sluicegate.findings import Finding, LogPattern, Severity, Site, fixes, rule
from sluicegate.plan import Choice
from sluicegate.positions import Positions, to_spark
from sluicegate.units import command

_KEEP_OFFSETS = (
    "Do not delete the offsets file: with a file source that silently loses rows. It can be "
    "rewritten from the one before it."
)
_REWRITE_GAP = (
    "The missing file can be rewritten, which loses nothing. Do not delete the newest one, even "
    "if Spark's message suggests it."
)

OFFSETS_EMPTY = rule(
    "SG-OFFSETS-EMPTY",
    Severity.ERROR,
    "an offsets file that Spark will read is empty or cut",
    "Spark reads the newest two offsets files when it starts and fails on one that it cannot "
    "parse. Rewriting it from its neighbour with the true end offset loses nothing. Deleting it is "
    "not the same: with a file source the next batch merges files that the sink may already have.",
    LogPattern(
        _KEEP_OFFSETS,
        classes=("MALFORMED_LOG_FILE",),
        texts=(
            rf"{layout.UNREADABLE_LOG}/offsets/(?P<batch>\d{{1,19}})",
            r"There are \[0\] sources in the checkpoint offsets",
            r"Log file was malformed: failed to read correct log version",
        ),
        family=layout.LOG_FAMILY,
    ),
    LogPattern(
        _KEEP_OFFSETS,
        texts=(r"Incomplete log file", r"next on empty iterator", *layout.JSON_CUT),
        sites=(Site.OFFSETS,),
        bare=True,
        family=layout.LOG_FAMILY,
        also=("SG-COMMIT-EMPTY", "SG-SOURCE-LOG-GAP", "SG-METADATA-DAMAGED"),
    ),
)
OFFSETS_GAP = rule(
    "SG-OFFSETS-GAP",
    Severity.ERROR,
    "the offsets file before the newest is missing",
    "Spark needs the newest offsets file and the one before it, and stops with `batch N-1 doesn't "
    "exist`. Rewriting the missing one loses nothing.",
    LogPattern(
        _REWRITE_GAP,
        texts=(r"The offset log for batch (?P<batch>\d{1,19}) doesn't exist",),
        family=layout.LOG_FAMILY,
    ),
    LogPattern(
        _REWRITE_GAP,
        texts=(layout.NO_BATCH,),
        sites=(Site.START,),
        bare=True,
        family=layout.LOG_FAMILY,
        also=("SG-SOURCE-LOG-GAP",),
    ),
)
OFFSETS_GAP_OLD = rule(
    "SG-OFFSETS-GAP-OLD",
    Severity.NOTE,
    "an older offsets file is missing",
    "Spark does not read it again, and with asynchronous progress tracking such gaps are normal. "
    "A rollback to a batch inside the gap is not possible.",
)
OFFSETS_MISSING = rule(
    "SG-OFFSETS-MISSING",
    Severity.ERROR,
    "there are no offsets files, but there are commits or state",
    "Spark 3.5 and 4.0 would process everything again as batch 0 and then fail; 4.3 stops with an "
    "assertion. Restore offsets/ from a backup before the job is started.",
    LogPattern(
        "Restore offsets/ from a backup before the job is started again. Spark 3.5 and 4.0 have "
        "by now processed everything again as batch 0: look for duplicated rows.",
        texts=(r"Multiple streaming jobs detected for (?P<batch>0)\b",),
        also=("SG-WRITERS-TWO",),
    ),
    LogPattern(
        "Restore offsets/ from a backup before the job is started again.",
        texts=(r"assertion failed(?: SQLSTATE|$)",),
        sites=(Site.START,),
        bare=True,
    ),
)
OFFSETS_BEHIND_COMMIT = rule(
    "SG-OFFSETS-BEHIND-COMMIT",
    Severity.ERROR,
    "a batch is committed but its offsets file is missing",
    "Spark runs the batch before it again and then fails with CONCURRENT_STREAM_LOG_UPDATE. Either "
    "remove the commit, too, or rewrite the offsets file.",
)
WRITERS_TWO = rule(
    "SG-WRITERS-TWO",
    Severity.ERROR,
    "two queries write to one checkpoint",
    "A second query ran one batch again, then one of the two died on the log file the other had "
    "written. Find the other one and stop it before anything is repaired.",
    LogPattern(
        "Look for the other query: a driver that the cluster manager started again, a second "
        "deployment. Stop one of them; then have the checkpoint checked.",
        "status {checkpoint}",
        classes=("CONCURRENT_QUERY",),
        texts=(
            r"as another query with same id is already active",
            r"Multiple streaming queries are concurrently using",
            r"rename destination (?P<checkpoint>\S{1,1024})/metadata already exists",
        ),
    ),
    LogPattern(
        "If verify finds the checkpoint intact, another query writes there: a driver that the "
        "cluster manager started again, a second deployment. Otherwise a batch is committed whose "
        "offsets file is gone.",
        classes=("CONCURRENT_STREAM_LOG_UPDATE",),
        texts=(r"Multiple streaming jobs detected for (?P<batch>\d{1,19})",),
        also=("SG-OFFSETS-BEHIND-COMMIT",),
    ),
)


def check(case: Case) -> Iterator[Finding]:
    """The offsets files that the next start reads: the newest two."""
    look = case.look
    last = look.last_batch
    if last is None:
        if look.last_commit is not None or look.operators:
            place = f"{look.storage.uri}/offsets"
            yield OFFSETS_MISSING.at(place, repair=repair_command(look))
        return
    yield from _check_commit_has_offsets(look, last)
    yield from _check_gaps(look, last)
    yield from _check_readable(look, last)


def looks_asynchronous(look: Look) -> bool:
    """Whether both logs have the same wide gaps, as asynchronous progress tracking leaves them."""
    # If only the checksum of an entry is left, the entry was deleted by hand.
    others = sorted({*look.commits.batches, *look.offsets.deleted, *look.commits.deleted})
    shared = [
        (before, after)
        for before, after in pairwise(look.offsets.batches)
        if after > before + 1 and bisect_right(others, before) == bisect_left(others, after)
    ]
    wide = [gap for gap in shared if gap[1] - gap[0] > 2]
    return bool(wide) or len(shared) > 1


def _check_commit_has_offsets(look: Look, last: int) -> Iterator[Finding]:
    if look.last_commit is not None and look.last_commit > last:
        place = f"{look.storage.uri}/offsets/{look.last_commit}"
        detail = f"batch {look.last_commit} is committed, but the newest offsets file is {last}"
        yield OFFSETS_BEHIND_COMMIT.at(place, detail, repair=repair_command(look))


def _check_gaps(look: Look, last: int) -> Iterator[Finding]:
    batches = look.offsets.batches
    missing_before = len(batches) > 1 and batches[-2] != last - 1
    lonely = len(batches) == 1 and last > 0
    asynchronous = looks_asynchronous(look)
    if (missing_before or lonely) and not asynchronous:
        place = f"{look.storage.uri}/offsets/{last - 1}"
        yield OFFSETS_GAP.at(place, repair=repair_command(look))
    older = [(a, b) for a, b in pairwise(batches[:-1]) if b > a + 1]
    if asynchronous and missing_before:
        older.append((batches[-2], last))
    if older:
        ranges = ", ".join(f"{a + 1}" if b == a + 2 else f"{a + 1}-{b - 1}" for a, b in older[:5])
        more = f" and {len(older) - 5} more ranges" if len(older) > 5 else ""
        why = "; as with asynchronous progress tracking" if asynchronous else ""
        yield OFFSETS_GAP_OLD.at(f"{look.storage.uri}/offsets", f"missing: {ranges}{more}{why}")


def _check_readable(look: Look, last: int) -> Iterator[Finding]:
    entries: dict[int, OffsetEntry] = {}
    for batch in look.offsets.batches[-2:]:
        try:
            entries[batch] = read_offsets(look.storage, batch)
        except NotFound:
            continue
        except (Corrupt, UnsupportedFormat) as e:
            yield layout.unreadable(look, OFFSETS_EMPTY, e)
    before, newest = entries.get(last - 1), entries.get(last)
    if before and newest and newest.version == before.version == 1:
        wanted, found = len(before.offsets), len(newest.offsets)
        if found < wanted:
            place = f"{look.storage.uri}/offsets/{last}"
            detail = f"it names {found} of the {wanted} sources that batch {last - 1} has"
            yield OFFSETS_EMPTY.at(place, detail, repair=repair_command(look))


_COPY_AGAIN = Choice(
    "",
    "remove this copy: the checkpoint was being changed when it was made; finish or undo that in "
    "the original, then copy it again",
    command("checkpoint", "relocate", "ORIGINAL", "NEW_DIR"),
    "nothing",
)


@fixes(OFFSETS_EMPTY, OFFSETS_GAP, OFFSETS_BEHIND_COMMIT)
def restore_offsets(case: Case, finding: Finding) -> Solution:
    """An offsets file that is empty, cut or missing: rewritten where its content is known."""
    batch = case.batch_of(finding)
    if _is_barrier(case, batch):
        return (_COPY_AGAIN,)
    text = rewritten(case, batch)
    if text is not None:
        key = f"offsets/{batch}"
        edits = (put(key, text), *drop_sums(case.storage, key))
        return Fix(
            f"rewrite offsets/{batch}",
            "Rewrites the entry with its original content. No data is lost.",
            edits,
        )
    newest = case.look.last_batch
    if batch == newest and batch not in case.look.commits.batches and not _sink_has(case, batch):
        edits = tuple(remove_with_sums(case.storage, f"offsets/{batch}"))
        before = batch - 1
        consequence = (
            f"Batch {batch} did not complete. Spark plans it again from the end of {before}."
        )
        if case.sink is None:
            consequence += f" An idempotent sink that already has batch {batch} will skip it."
        return Fix(f"remove offsets/{batch}", consequence, edits)
    return end_of_batch(case, batch)


def rewritten(case: Case, batch: int) -> str | None:
    """The text of a lost offsets file, if every part of it is known; else None."""
    before, after = case.offsets_of(batch - 1), case.offsets_of(batch + 1)
    template = before or after
    if template is None:
        return None
    offsets = []
    for source in template.offsets:
        text = _true_offset(case, batch, source.source, before, after)
        if text is None:
            return None
        offsets.append(SourceOffset(source.source, None if text == NO_OFFSET else text))
    entry = OffsetEntry(
        batch=batch,
        version=template.version,
        watermark_ms=_watermark(case, batch, template),
        timestamp_ms=template.timestamp_ms,
        conf=template.conf,
        offsets=tuple(offsets),
        extra=template.extra,
    )
    return render(entry)


def end_of_batch(case: Case, batch: int) -> tuple[Choice, ...]:
    """The options for a batch whose end offsets are not known."""
    uri = case.storage.uri
    return (
        Choice(
            "",
            f"set the end offsets of batch {batch}, which the driver's log shows (`endOffset`)",
            command("checkpoint", "repair", uri, "--offsets", "FILE"),
            "nothing",
        ),
        Choice(
            "",
            f"roll back to the end of batch {batch - 1}",
            command("checkpoint", "rollback", uri, "--to", batch - 1),
            f"nothing in Spark's own file sink (--sink); other sinks get the rows of batch {batch} "
            "twice, or skip them",
        ),
    )


def _true_offset(
    case: Case, batch: int, source: str, before: OffsetEntry | None, after: OffsetEntry | None
) -> str | None:
    """The offset of a source at the end of a batch; None if it is not known."""
    first, last = _of(before, source), _of(after, source)
    kind = next((each.kind for each in (first, last) if each and each.text), OffsetKind.NONE)
    if case.positions is not None and kind is OffsetKind.KAFKA:
        return _given(case.positions, [each for each in (first, last) if each])
    if last and (batch + 1 in case.look.commits.batches or (first and first.text == last.text)):
        # No doubt is left: the batch after it has been read, or nothing moved.
        return last.text or NO_OFFSET
    if kind is OffsetKind.FILE:
        number = _file_offset(case, batch, source, first, last)
        return None if number is None else json.dumps({"logOffset": number}, separators=(",", ":"))
    return None


def _given(positions: Positions, known: list[SourceOffset]) -> str | None:
    """The operator's offset of one source: its topics, with all partitions that it had."""
    had = [each for offset in known for each in offset.positions or ()]
    topics = {each.topic for each in had}
    own = Positions.of(each for each in positions if each.topic in topics)
    if any(own.get(each.topic, each.partition) is None for each in had):
        return None
    return json.dumps(to_spark(own), separators=(",", ":"))


def _file_offset(
    case: Case, batch: int, source: str, first: SourceOffset | None, last: SourceOffset | None
) -> int | None:
    """By the file source's own log, which it writes first; each batch adds one entry or none."""
    listing = case.look.sources.get(source)
    if batch == case.look.last_batch or case.look.last_batch == batch - 1:
        if listing is None or listing.last is None:
            return None
        # More than one entry: Spark was about to plan the next batch.
        is_ahead = first and first.number is not None and listing.last - first.number > 1
        return None if is_ahead else listing.last
    if first and last and first.number is not None and last.number is not None:
        return first.number + 1 if last.number - first.number == 2 else None
    return None


def _watermark(case: Case, batch: int, template: OffsetEntry) -> int:
    try:
        return read_commit(case.storage, batch - 1).next_watermark_ms
    except SluicegateError:
        return template.watermark_ms


def _is_barrier(case: Case, batch: int) -> bool:
    """Whether a file is a barrier that keeps Spark from an inconsistent checkpoint."""
    try:
        return case.storage.get(f"offsets/{batch}").startswith(SIGN.encode())
    except SluicegateError:
        return False


def _sink_has(case: Case, batch: int) -> bool:
    if case.sink is None:
        return False
    newest = list_log(case.sink, SINK_DIRECTORY).last
    return newest is not None and newest >= batch


def _of(entry: OffsetEntry | None, source: str) -> SourceOffset | None:
    found = (each for each in entry.offsets if each.source == source) if entry else ()
    return next(iter(found), None)
