"""Checks and fixes of `metadata`, the offset log and the commit log."""

from __future__ import annotations

import json
from bisect import bisect_left, bisect_right
from collections.abc import Iterator
from itertools import pairwise
from shlex import quote

from sluicegate.checkpoint import rules
from sluicegate.checkpoint.barrier import SIGN
from sluicegate.checkpoint.file_edits import Edit, Place, drop_sums, put, remove_with_sums
from sluicegate.checkpoint.format.commit_log import read_commit
from sluicegate.checkpoint.format.file_log import SINK_DIRECTORY
from sluicegate.checkpoint.format.log import list_log
from sluicegate.checkpoint.format.offset_log import (
    OffsetEntry,
    OffsetKind,
    SourceOffset,
    read_offsets,
)
from sluicegate.checkpoint.rules.fixes import Case, Mend, Remedy
from sluicegate.checkpoint.view import METADATA, Look, Standing, read_query_id
from sluicegate.errors import Corrupt, NotFound, SluicegateError, UnsupportedFormat
from sluicegate.findings import Finding, Rule
from sluicegate.plan import Choice
from sluicegate.positions import Positions, to_spark


def check_metadata(look: Look) -> Iterator[Finding]:
    """The query id must be there once anything has run."""
    place = f"{look.storage.uri}/{METADATA}"
    try:
        read_query_id(look.storage)
    except NotFound:
        if look.last_batch is not None or look.last_commit is not None:
            yield rules.METADATA_MISSING.at(place, repair=_repair(look))
    except Corrupt as e:
        yield rules.METADATA_DAMAGED.at(place, e.message, repair=_repair(look))


def check_offsets(look: Look) -> Iterator[Finding]:
    """The offsets files that the next start reads: the newest two."""
    last = look.last_batch
    if last is None:
        if look.last_commit is not None or look.operators:
            place = f"{look.storage.uri}/offsets"
            yield rules.OFFSETS_MISSING.at(place, repair=_repair(look))
        return
    yield from _check_commit_has_offsets(look, last)
    yield from _check_gaps(look, last)
    yield from _check_readable(look, last)


def check_commits(look: Look) -> Iterator[Finding]:
    """The newest commit must parse; several uncommitted batches are worth a word."""
    if look.last_commit is not None:
        try:
            read_commit(look.storage, look.last_commit)
        except NotFound:
            return
        except (Corrupt, UnsupportedFormat) as e:
            yield _unreadable(look, rules.COMMIT_EMPTY, e)
    if look.standing is Standing.BEHIND and not looks_asynchronous(look):
        done = -1 if look.last_commit is None else look.last_commit
        open_batches = [batch for batch in look.offsets.batches if batch > done]
        detail = (
            f"batches {open_batches[0]} to {open_batches[-1]} are not committed; the next start "
            f"replays {open_batches[-1]} only"
        )
        yield rules.COMMITS_BEHIND.at(f"{look.storage.uri}/commits", detail)


def looks_asynchronous(look: Look) -> bool:
    """Whether both logs have the same wide gaps, as asynchronous progress tracking leaves them."""
    # Where a checksum is left of what is missing, somebody has deleted it.
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
        yield rules.OFFSETS_BEHIND_COMMIT.at(place, detail, repair=_repair(look))


def _check_gaps(look: Look, last: int) -> Iterator[Finding]:
    batches = look.offsets.batches
    missing_before = len(batches) > 1 and batches[-2] != last - 1
    lonely = len(batches) == 1 and last > 0
    asynchronous = looks_asynchronous(look)
    if (missing_before or lonely) and not asynchronous:
        place = f"{look.storage.uri}/offsets/{last - 1}"
        yield rules.OFFSETS_GAP.at(place, repair=_repair(look))
    older = [(a, b) for a, b in pairwise(batches[:-1]) if b > a + 1]
    if asynchronous and missing_before:
        older.append((batches[-2], last))
    if older:
        ranges = ", ".join(f"{a + 1}" if b == a + 2 else f"{a + 1}-{b - 1}" for a, b in older[:5])
        more = f" and {len(older) - 5} more ranges" if len(older) > 5 else ""
        why = "; as with asynchronous progress tracking" if asynchronous else ""
        yield rules.OFFSETS_GAP_OLD.at(
            f"{look.storage.uri}/offsets", f"missing: {ranges}{more}{why}"
        )


def _check_readable(look: Look, last: int) -> Iterator[Finding]:
    entries: dict[int, OffsetEntry] = {}
    for batch in look.offsets.batches[-2:]:
        try:
            entries[batch] = read_offsets(look.storage, batch)
        except NotFound:
            continue
        except (Corrupt, UnsupportedFormat) as e:
            yield _unreadable(look, rules.OFFSETS_EMPTY, e)
    before, newest = entries.get(last - 1), entries.get(last)
    if before and newest and newest.version == before.version == 1:
        wanted, found = len(before.offsets), len(newest.offsets)
        if found < wanted:
            place = f"{look.storage.uri}/offsets/{last}"
            detail = f"it names {found} of the {wanted} sources that batch {last - 1} has"
            yield rules.OFFSETS_EMPTY.at(place, detail, repair=_repair(look))


def _unreadable(look: Look, rule: Rule, error: Corrupt | UnsupportedFormat) -> Finding:
    place = error.place or look.storage.uri
    if isinstance(error, UnsupportedFormat):
        return rules.UNKNOWN_VERSION.at(place, error.message)
    return rule.at(place, error.message, repair=_repair(look))


def _repair(look: Look) -> str:
    return f"sluicegate checkpoint repair {look.storage.uri}"


_NO_OFFSET = "-"
_COPY_AGAIN = Choice(
    "",
    "remove this copy: the checkpoint was being changed when it was made; finish or undo that in "
    "the original, then copy it again",
    "sluicegate checkpoint relocate ORIGINAL NEW_DIR",
    "nothing",
)


def mend_offsets(case: Case, finding: Finding) -> Remedy:
    """An offsets file that is empty, cut or missing: written anew where its content is known."""
    batch = _batch(case, finding)
    if _is_barrier(case, batch):
        return (_COPY_AGAIN,)
    text = rewritten(case, batch)
    if text is not None:
        key = f"offsets/{batch}"
        edits = (put(key, text), *drop_sums(case.storage, key))
        return Mend(
            f"write offsets/{batch} anew", "It says again what it said; nothing is lost.", edits
        )
    newest = case.look.last_batch
    if batch == newest and batch not in case.look.commits.batches and not _sink_has(case, batch):
        edits = tuple(remove_with_sums(case.storage, f"offsets/{batch}"))
        told = f"Batch {batch} was never finished; it is planned anew from where {batch - 1} ended."
        if case.sink is None:
            told += " A sink that has got it already and recognises it by its number would skip it."
        return Mend(f"remove offsets/{batch}", told, edits)
    return _choices(case, batch)


def mend_commit(case: Case, finding: Finding) -> Remedy:
    """A commit that cannot be read: taken away, so that its batch runs again as after a crash."""
    batch = _batch(case, finding)
    if _entry(case, batch) is None and rewritten(case, batch) is None:
        # What it would run again with is not known.
        return _choices(case, batch)
    edits = tuple(remove_with_sums(case.storage, f"commits/{batch}"))
    return Mend(
        f"remove commits/{batch}",
        f"Batch {batch} runs again with the same input, as after a crash; a sink that recognises "
        "batches skips it.",
        edits,
    )


def mend_metadata(case: Case, _finding: Finding) -> Remedy:
    """The file with the query id: only somebody who knows the id can mend it."""
    if case.query_id is not None:
        text = json.dumps({"id": case.query_id}, separators=(",", ":"))
        edits = (put(METADATA, text), *drop_sums(case.storage, METADATA))
        return Mend(f"write {METADATA}", f"The query's id is {case.query_id}.", edits)
    repair = f"sluicegate checkpoint repair {quote(case.storage.uri)} --query-id UUID"
    return (
        Choice(
            "",
            "give the id that the query had",
            repair,
            "nothing; the driver's log has it: `id = …` where the query starts",
        ),
        Choice(
            "",
            "give a new id",
            repair,
            "sinks that recognise batches by query id and number (Delta) no longer do",
        ),
    )


def mend_repartition(case: Case, finding: Finding) -> Remedy:
    """The offsets of an offline repartition that failed before the state was rewritten."""
    batch = _batch(case, finding)
    edits = tuple(remove_with_sums(case.storage, f"offsets/{batch}"))
    told = "The repartition did not happen; the query goes on with the partitions it had."
    return Mend(f"remove offsets/{batch}", told, edits)


def mend_left_sum(case: Case, finding: Finding) -> Remedy:
    """The checksum of an entry that was deleted: it keeps Spark from writing the entry again."""
    directory, _, name = case.key_of(finding).rpartition("/")
    number = name.strip(".").partition(".")[0]
    keys = [f"{directory}/.{number}.crc", f"{directory}/.{number}.compact.crc"]
    edits = [Edit(Place.CHECKPOINT, key) for key in keys if case.storage.stat(key) is not None]
    told = "Checksums of entries that are no longer there, which would stop the query."
    return Mend(f"remove {directory}/.{number}.crc", told, tuple(edits))


def mend_partitions(case: Case, _finding: Finding) -> Remedy:
    """A partition count that was edited by hand: set back to what the batch before says."""
    newest = case.look.last_batch
    before = _entry(case, None if newest is None else newest - 1)
    entry = _entry(case, newest)
    if entry and before and before.partitions and before.partitions != entry.partitions:
        conf = {**entry.conf, "spark.sql.shuffle.partitions": str(before.partitions)}
        key = f"offsets/{entry.batch}"
        text = render(entry, conf=conf)
        return Mend(
            f"set the partitions in offsets/{entry.batch} back to {before.partitions}",
            f"As batch {before.batch} says; the state has that many.",
            (put(key, text), *drop_sums(case.storage, key)),
        )
    return (
        Choice(
            "",
            "restore the state of the missing partitions from a backup",
            "",
            "nothing; without it their keys are lost",
        ),
    )


def rewritten(case: Case, batch: int) -> str | None:
    """The text of a lost offsets file, if every part of it is known; else None."""
    before, after = _entry(case, batch - 1), _entry(case, batch + 1)
    template = before or after
    if template is None:
        return None
    offsets = []
    for source in template.offsets:
        text = _true_offset(case, batch, source.source, before, after)
        if text is None:
            return None
        offsets.append(SourceOffset(source.source, None if text == _NO_OFFSET else text))
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


def render(entry: OffsetEntry, *, conf: object = None) -> str:
    """The text of an entry of the offset log, as Spark writes it."""
    fields = {
        "batchWatermarkMs": entry.watermark_ms,
        "batchTimestampMs": entry.timestamp_ms,
        "conf": entry.conf if conf is None else conf,
        **entry.extra,
    }
    lines = [f"v{entry.version}", json.dumps(fields, separators=(",", ":"))]
    for each in entry.offsets:
        if entry.version == 1:
            lines.append(each.text or _NO_OFFSET)
        elif each.text is not None:
            lines.append(f"{each.source}:{each.text}")
    return "\n".join(lines)


def _true_offset(
    case: Case, batch: int, source: str, before: OffsetEntry | None, after: OffsetEntry | None
) -> str | None:
    """Where a source stood at the end of a batch; None if nothing tells."""
    first, last = _of(before, source), _of(after, source)
    kind = next((each.kind for each in (first, last) if each and each.text), OffsetKind.NONE)
    if case.positions is not None and kind is OffsetKind.KAFKA:
        return _given(case.positions, [each for each in (first, last) if each])
    if last and (batch + 1 in case.look.commits.batches or (first and first.text == last.text)):
        # What lies between is settled: the batch after it has been read, or nothing moved.
        return last.text or _NO_OFFSET
    if kind is OffsetKind.FILE:
        number = _file_offset(case, batch, source, first, last)
        return None if number is None else json.dumps({"logOffset": number}, separators=(",", ":"))
    return None


def _given(positions: Positions, known: list[SourceOffset]) -> str | None:
    """What the operator says of one source: its topics, and all partitions that it had."""
    had = [each for offset in known for each in offset.positions or ()]
    topics = {each.topic for each in had}
    own = Positions.of(each for each in positions if each.topic in topics)
    if any(own.get(each.topic, each.partition) is None for each in had):
        return None
    return json.dumps(to_spark(own), separators=(",", ":"))


def _file_offset(
    case: Case, batch: int, source: str, first: SourceOffset | None, last: SourceOffset | None
) -> int | None:
    """A file source writes its own log first, so that tells; each batch adds one entry or none."""
    listing = case.look.sources.get(source)
    if batch == case.look.last_batch or case.look.last_batch == batch - 1:
        if listing is None or listing.last is None:
            return None
        # More than one: the batch after it was about to be planned, and is ahead of it.
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


def _choices(case: Case, batch: int) -> tuple[Choice, ...]:
    uri = quote(case.storage.uri)
    return (
        Choice(
            "",
            f"give the end offsets of batch {batch}, which the driver's log has (`endOffset`)",
            f"sluicegate checkpoint repair {uri} --offsets FILE",
            "nothing",
        ),
        Choice(
            "",
            f"go back to the end of batch {batch - 1}",
            f"sluicegate checkpoint rollback {uri} --to {batch - 1}",
            f"nothing in Spark's own file sink (--sink); other sinks get the rows of batch {batch} "
            "twice, or skip them",
        ),
    )


def _batch(case: Case, finding: Finding) -> int:
    name = case.key_of(finding).rpartition("/")[2]
    if not name.isdigit():
        raise NotFound(f"{finding.place} is not a batch")
    return int(name)


def _is_barrier(case: Case, batch: int) -> bool:
    """Whether a file keeps Spark from a checkpoint that is changed half way."""
    try:
        return case.storage.get(f"offsets/{batch}").startswith(SIGN.encode())
    except SluicegateError:
        return False


def _sink_has(case: Case, batch: int) -> bool:
    if case.sink is None:
        return False
    newest = list_log(case.sink, SINK_DIRECTORY).last
    return newest is not None and newest >= batch


def _entry(case: Case, batch: int | None) -> OffsetEntry | None:
    if batch is None or batch < 0:
        return None
    try:
        return read_offsets(case.storage, batch)
    except SluicegateError:
        return None


def _of(entry: OffsetEntry | None, source: str) -> SourceOffset | None:
    found = (each for each in entry.offsets if each.source == source) if entry else ()
    return next(iter(found), None)
