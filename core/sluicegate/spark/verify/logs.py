"""Checks of `metadata`, the offset log and the commit log."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterator
from itertools import pairwise

from sluicegate.errors import Corrupt, NotFound, UnsupportedFormat
from sluicegate.findings import Finding, Rule
from sluicegate.spark import rules
from sluicegate.spark.checkpoint import METADATA, Look, Standing, read_query_id
from sluicegate.spark.commit_log import read_commit
from sluicegate.spark.offset_log import OffsetEntry, read_offsets


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
