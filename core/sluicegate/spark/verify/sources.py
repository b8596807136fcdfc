"""Checks of the file source's log against the offsets."""

from __future__ import annotations

from collections.abc import Iterator

from sluicegate.errors import Corrupt, NotFound, SluicegateError, UnsupportedFormat
from sluicegate.findings import Finding
from sluicegate.spark import rules
from sluicegate.spark.checkpoint import SOURCES, Look, newest_batch
from sluicegate.spark.file_log import (
    NEWEST_VERSION,
    missing_files,
    needed_files,
    read_source_files,
)
from sluicegate.spark.log import LogListing, parse_version
from sluicegate.spark.offset_log import OffsetKind, read_offsets
from sluicegate.storage import Storage

LARGE_COMPACT = 64 * 1024 * 1024
_TAIL = 64 * 1024
_MOST_LOST = 5


def check_sources(look: Look, *, read_data: bool) -> Iterator[Finding]:
    """Every file source's log must reach exactly as far as the newest offset says."""
    for name, offset in _newest_file_offsets(look).items():
        listing = look.sources.get(name, LogListing(exists=False))
        yield from _check_reach(look, name, listing, offset)
        yield from _check_files(look, name, listing, read_data=read_data)
        yield from check_growth(look.storage, f"{SOURCES}/{name}", listing)


def check_growth(storage: Storage, directory: str, listing: LogListing) -> Iterator[Finding]:
    """Compact files that have become a burden."""
    if listing.last_compact is None:
        return
    key = f"{directory}/{listing.last_compact}.compact"
    found = storage.stat(key)
    if found and found.size > LARGE_COMPACT:
        from sluicegate import units

        yield rules.COMPACT_GROWTH.at(f"{storage.uri}/{key}", f"it has {units.size(found.size)}")


def check_entries(storage: Storage, key: str) -> str | None:
    """What is wrong with the two ends of a large log file, without reading all of it."""
    try:
        with storage.open(key) as stream:
            first = stream.readline(64).rstrip(b"\n")
            size = stream.seek(0, 2)
            stream.seek(max(0, size - _TAIL))
            tail = stream.read(_TAIL)
    except NotFound:
        return None
    last = tail.rsplit(b"\n", 1)[-1]
    parse_version(first.decode(errors="replace"), f"{storage.uri}/{key}", NEWEST_VERSION)
    if size <= _TAIL and b"\n" not in tail:
        return None
    return None if last.startswith(b"{") and last.endswith(b"}") else "the last line is cut"


def _newest_file_offsets(look: Look) -> dict[str, int]:
    """Source → log offset, by the newest readable offsets file."""
    for batch in reversed(look.offsets.batches[-2:]):
        try:
            entry = read_offsets(look.storage, batch)
        except SluicegateError:
            continue
        return {
            each.source: each.number
            for each in entry.offsets
            if each.kind is OffsetKind.FILE and each.number is not None
        }
    return {}


def _check_reach(look: Look, name: str, listing: LogListing, offset: int) -> Iterator[Finding]:
    directory = f"{look.storage.uri}/{SOURCES}/{name}"
    last = -1 if listing.last is None else listing.last
    repair = f"sluicegate checkpoint repair {look.storage.uri}"
    lost = [number for number in missing_files(listing) if int(number) <= offset]
    lost += [str(number) for number in range(last + 1, min(offset, last + _MOST_LOST) + 1)]
    for number in lost[:_MOST_LOST]:
        detail = f"entry {number} is missing; the offsets need entries up to {offset}"
        yield rules.SOURCE_LOG_GAP.at(f"{directory}/{number}", detail, repair=repair)
    if last > offset and look.last_batch in (None, newest_batch(look.storage)):
        detail = f"its newest entry is {last}, but the newest offset is {offset}"
        newest = -1 if look.last_batch is None else look.last_batch
        removed = {*look.offsets.deleted, *look.commits.deleted, *look.commits.batches}
        # A crash between the source's log and the offsets leaves it ahead, too: Spark merges that.
        if any(batch > newest for batch in removed):
            yield rules.SOURCE_LOG_AHEAD.at(directory, detail, repair=repair)
        else:
            yield rules.SOURCE_LOG_UNPLANNED.at(directory, detail)


def _check_files(
    look: Look, name: str, listing: LogListing, *, read_data: bool
) -> Iterator[Finding]:
    repair = f"sluicegate checkpoint repair {look.storage.uri}"
    for file in needed_files(listing):
        key = f"{SOURCES}/{name}/{file}"
        place = f"{look.storage.uri}/{key}"
        try:
            if file.endswith(".compact") and not read_data:
                if fault := check_entries(look.storage, key):
                    yield rules.SOURCE_LOG_GAP.at(place, fault, repair=repair)
                continue
            for _ in read_source_files(look.storage, key):
                pass
        except NotFound:
            continue
        except UnsupportedFormat as e:
            yield rules.UNKNOWN_VERSION.at(place, e.message)
        except Corrupt as e:
            yield rules.SOURCE_LOG_GAP.at(place, e.message, repair=repair)
