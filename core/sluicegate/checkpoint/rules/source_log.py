"""The file source's log: the files it has read.

A lost entry that a compact file above it repeats is taken from there. Otherwise it is derived from
the input files themselves: those that no entry names, and whose times fit. The plan names them,
because no log confirms them.
"""

from __future__ import annotations

import os
import re
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path
from urllib.parse import unquote

from sluicegate.checkpoint.file_edits import Place
from sluicegate.checkpoint.format.log import (
    FILES_VERSION,
    LogListing,
    OffsetKind,
    missing_numbers,
    needed_files,
    parse_version,
    read_offsets,
    read_source_files,
)
from sluicegate.checkpoint.paths import as_uri
from sluicegate.checkpoint.rules import layout
from sluicegate.checkpoint.rules.fixes import (
    Case,
    Fix,
    Solution,
    and_more,
    files_before,
    first_of,
    no_files,
    other_files,
    read_entries,
    rebuild_compact,
    rendered,
    repair_command,
    shown,
    write_entry,
)
from sluicegate.checkpoint.truncate import Log, cut_back, expects_compact
from sluicegate.checkpoint.view import SOURCES, Look, newest_batch
from sluicegate.errors import Corrupt, NotFound, SluicegateError, UnsupportedFormat
from sluicegate.findings import Finding, LogPattern, Severity, Site, fixes, rule
from sluicegate.storage import Storage

LARGE_COMPACT = 64 * 1024 * 1024
_TAIL = 64 * 1024
_MOST_LOST = 5

_KEEP_SOURCE_LOG = (
    "Do not delete the source's log: it records which files were read. The lost entry can be "
    "rebuilt from path, time and batch id."
)

SOURCE_LOG_GAP = rule(
    "SG-SOURCE-LOG-GAP",
    Severity.ERROR,
    "an entry of the file source's log is missing or cut",
    "The file source remembers which files it has read. Spark stops with `batch N doesn't exist` "
    "or `N.compact doesn't exist`. The entry can be rebuilt from path, time and batch id.",
    LogPattern(
        _KEEP_SOURCE_LOG,
        texts=(
            rf"(?:{layout.UNREADABLE_LOG}|{layout.BATCH_NOT_FOUND})/sources/",
            r"/sources/\S{1,200}\.compact doesn't exist",
        ),
        family=layout.LOG_FAMILY,
    ),
    LogPattern(
        _KEEP_SOURCE_LOG,
        texts=(
            layout.NO_BATCH,
            r"\bbatches \((?P<first>\d{1,19}), ",
            r"Incomplete log file",
            *layout.JSON_CUT,
        ),
        sites=(Site.SOURCE,),
        family=layout.LOG_FAMILY,
    ),
)
SOURCE_LOG_AHEAD = rule(
    "SG-SOURCE-LOG-AHEAD",
    Severity.ERROR,
    "the file source's log is ahead of the offsets",
    "An offsets file was deleted and the source's log was not trimmed. The next batch merges those "
    "files, and if the sink has already committed that batch id, their rows are silently "
    "lost. Trim the source's log to the newest offset.",
    follows=("SG-OFFSETS-BEHIND-COMMIT",),
)
SOURCE_LOG_UNPLANNED = rule(
    "SG-SOURCE-LOG-UNPLANNED",
    Severity.WARNING,
    "the file source's log has entries that no batch has planned",
    "Normal after a crash while a batch was being planned: the next batch includes those files. "
    "But if an offsets file was deleted by hand and the sink already has that batch, their rows "
    "will be lost; name the sink with --sink to check.",
)
COMPACT_GROWTH = rule(
    "SG-COMPACT-GROWTH",
    Severity.WARNING,
    "a compact log file is growing large",
    "File sources and sinks carry every file they ever saw into each compact file, so batches "
    "become slower over time. Source: set maxFileAge; sink: `retention`, or another table format.",
)


def check(case: Case) -> Iterator[Finding]:
    """Every file source's log must end exactly at the newest offset."""
    look = case.look
    for name, offset in _newest_file_offsets(look).items():
        listing = look.sources.get(name, LogListing(exists=False))
        yield from _check_reach(look, name, listing, offset)
        yield from _check_files(look, name, listing, read_data=case.read_data)
        yield from check_growth(look.storage, f"{SOURCES}/{name}", listing)


def check_growth(storage: Storage, directory: str, listing: LogListing) -> Iterator[Finding]:
    """Compact files that have become too large."""
    if listing.last_compact is None:
        return
    key = f"{directory}/{listing.last_compact}.compact"
    found = storage.stat(key)
    if found and found.size > LARGE_COMPACT:
        from sluicegate import units

        yield COMPACT_GROWTH.at(f"{storage.uri}/{key}", f"it has {units.size(found.size)}")


def check_entries(storage: Storage, key: str) -> str | None:
    """The fault at either end of a large log file, without reading all of it."""
    try:
        with storage.open(key) as stream:
            first = stream.readline(64).rstrip(b"\n")
            size = stream.seek(0, 2)
            stream.seek(max(0, size - _TAIL))
            tail = stream.read(_TAIL)
    except NotFound:
        return None
    last = tail.rsplit(b"\n", 1)[-1]
    parse_version(first.decode(errors="replace"), f"{storage.uri}/{key}", FILES_VERSION)
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
    yield from _check_lost(look, name, listing, offset)
    if last > offset and look.last_batch in (None, newest_batch(look.storage)):
        detail = f"its newest entry is {last}, but the newest offset is {offset}"
        newest = -1 if look.last_batch is None else look.last_batch
        removed = {*look.offsets.deleted, *look.commits.deleted, *look.commits.batches}
        # A crash between the source's log and the offsets also leaves it ahead: Spark merges those.
        if any(batch > newest for batch in removed):
            yield SOURCE_LOG_AHEAD.at(directory, detail, repair=repair_command(look))
        else:
            yield SOURCE_LOG_UNPLANNED.at(directory, detail)


def _check_lost(look: Look, name: str, listing: LogListing, offset: int) -> Iterator[Finding]:
    """Entries that the offsets need; a few are named, the others are counted."""
    end = offset + 1
    last = -1 if listing.last is None else listing.last
    inside = [range(each.start, min(each.stop, end)) for each in missing_numbers(listing)]
    lost = [each for each in (*inside, range(last + 1, end)) if each]
    if not lost:
        return
    numbers, more = first_of(lost, _MOST_LOST)
    directory = f"{look.storage.uri}/{SOURCES}/{name}"
    need = f"is missing; the offsets need entries up to {offset}"
    gaps = [
        SOURCE_LOG_GAP.at(
            f"{directory}/{number}", f"entry {number} {need}", repair=repair_command(look)
        )
        for number in numbers
    ]
    yield from and_more(gaps, more, "entry", "entries")


def _check_files(
    look: Look, name: str, listing: LogListing, *, read_data: bool
) -> Iterator[Finding]:
    for file in needed_files(listing):
        key = f"{SOURCES}/{name}/{file}"
        place = f"{look.storage.uri}/{key}"
        try:
            if file.endswith(".compact") and not read_data:
                if fault := check_entries(look.storage, key):
                    yield SOURCE_LOG_GAP.at(place, fault, repair=repair_command(look))
                continue
            for _ in read_source_files(look.storage, key):
                pass
        except NotFound:
            continue
        except UnsupportedFormat as e:
            yield layout.UNKNOWN_VERSION.at(place, e.message)
        except Corrupt as e:
            yield SOURCE_LOG_GAP.at(place, e.message, repair=repair_command(look))


_NAME = re.compile(r"(?P<number>\d+)(?P<compact>\.compact)?")


@fixes(SOURCE_LOG_AHEAD)
def cut_source_log(case: Case, finding: Finding) -> Solution:
    """A source log that is ahead of the newest offset: cut back to it."""
    name = case.key_of(finding).removeprefix(f"{SOURCES}/").partition("/")[0]
    newest = case.look.last_batch
    offset = _offset_of(case, newest, name)
    listing = case.look.sources.get(name)
    if offset is None or listing is None:
        return ()
    log = Log(case.storage, Place.CHECKPOINT, f"{SOURCES}/{name}", listing)
    edits = tuple(cut_back(log, offset, numbered=True))
    consequence = "The next batches find the files of the removed entries again, as new ones."
    return Fix(f"cut {SOURCES}/{name} back to {offset}", consequence, edits)


@fixes(SOURCE_LOG_GAP)
def rebuild_source_entry(case: Case, finding: Finding) -> Solution:
    """An entry of a source log that is lost or cut."""
    directory, _, name = case.key_of(finding).rpartition("/")
    source = directory.rpartition("/")[2]
    listing = case.look.sources.get(source, LogListing())
    log = Log(case.storage, Place.CHECKPOINT, directory, listing)
    found = _NAME.fullmatch(name)
    if found is None:
        return ()
    number = int(found["number"])
    planned = _planned_ms(case, source, number)
    if found["compact"] or expects_compact(log, number):
        before = files_before(log, number)
        files = _source_files(log, number, planned, before or ())
        return rebuild_compact(case, log, number, before, _source_lines(files, number))
    known = _from_compact(log, number)
    lines = known or _source_lines(_source_files(log, number, planned), number)
    if lines is None:
        return no_files(case, f"{directory}/{name}")
    return write_entry(log, name, lines, f"It names {shown(lines)} again.")


def _from_compact(log: Log, number: int) -> list[bytes]:
    """The entries of one number, from the first compact file above that can be read."""
    for compact in (n for n in log.listing.compacts if n > number):
        try:
            entries = read_entries(log, f"{compact}.compact")
            return [line for line, entry in entries if entry.get("batchId") == number]
        except (ValueError, SluicegateError):
            continue
    return []


def _source_files(
    log: Log, number: int, planned: int | None, besides: Iterable[str] = ()
) -> dict[str, int]:
    """The input files that no other entry names and that were there in time, with their times.

    Memory holds only the files of the directories, whatever the size of the log.
    """
    unnamed: dict[str, int] = {}
    if planned is None:
        return unnamed
    directories: set[str] = set()
    read: Counter[tuple[str, int]] = Counter()
    for name in other_files(log, number, besides):
        try:
            for file in read_source_files(log.storage, log.key(name)):
                read[name, file.batch] += 1
                directory = file.path.rpartition("/")[0]
                if directory not in directories:
                    directories.add(directory)
                    unnamed |= {p: at for p, at in _files_in(directory) if at <= planned}
                unnamed.pop(file.path, None)
        except SluicegateError:
            continue
    # More than any other batch read: some are not read yet, and which ones is not known.
    return unnamed if len(unnamed) <= max(read.values(), default=0) else {}


def _source_lines(files: dict[str, int], number: int) -> list[bytes] | None:
    entries = [
        {"path": path, "timestamp": files[path], "batchId": number} for path in sorted(files)
    ]
    return [rendered(entry) for entry in entries] or None


def _files_in(directory: str) -> Iterator[tuple[str, int]]:
    """The files of an input directory as the log writes them, with their times in milliseconds."""
    local = unquote(directory.removeprefix("file:"))
    root = Path("/" + local.lstrip("/"))
    try:
        with os.scandir(root) as entries:
            for entry in entries:
                if entry.is_file() and not entry.name.startswith(("_", ".")):
                    yield f"{directory}/{as_uri(entry.name)}", entry.stat().st_mtime_ns // 10**6
    except OSError:
        return


def _planned_ms(case: Case, source: str, number: int) -> int | None:
    """The planning time of the batch that read this entry of the source's log."""
    for batch in case.look.offsets.batches:
        try:
            entry = read_offsets(case.storage, batch)
        except SluicegateError:
            continue
        for offset in entry.offsets:
            if offset.source == source and offset.number is not None and offset.number >= number:
                return entry.timestamp_ms
    return None


def _offset_of(case: Case, batch: int | None, source: str) -> int | None:
    entry = case.offsets_of(batch)
    for each in entry.offsets if entry else ():
        if each.source == source and each.kind is OffsetKind.FILE:
            return each.number
    return None
