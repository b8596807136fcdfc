"""Mends of the file source's log: a lost entry is worked out again.

An entry that a compact file above it repeats is taken from there. Otherwise it is worked out from
the input files themselves: those that no entry names, and whose times fit. The plan names them,
because no log says so.
"""

from __future__ import annotations

import os
import re
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path
from urllib.parse import unquote

from sluicegate.errors import SluicegateError
from sluicegate.findings import Finding
from sluicegate.spark.change.edits import Place
from sluicegate.spark.change.logs import Log, cut_back, expects_compact
from sluicegate.spark.change.mends import Case, Mend, Remedy
from sluicegate.spark.change.mends.entries import (
    compact_again,
    files_before,
    no_files,
    other_files,
    read_entries,
    rendered,
    shown,
    write_entry,
)
from sluicegate.spark.change.paths import as_uri
from sluicegate.spark.checkpoint import SOURCES
from sluicegate.spark.file_log import read_source_files
from sluicegate.spark.log import LogListing
from sluicegate.spark.offset_log import OffsetKind, read_offsets

_NAME = re.compile(r"(?P<number>\d+)(?P<compact>\.compact)?")


def mend_source_ahead(case: Case, finding: Finding) -> Remedy:
    """A source log that is ahead of the newest offset: cut back to it."""
    name = case.key_of(finding).removeprefix(f"{SOURCES}/").partition("/")[0]
    newest = case.look.last_batch
    offset = _offset_of(case, newest, name)
    listing = case.look.sources.get(name)
    if offset is None or listing is None:
        return ()
    log = Log(case.storage, Place.CHECKPOINT, f"{SOURCES}/{name}", listing)
    edits = tuple(cut_back(log, offset, numbered=True))
    told = "The files it named are found again by the next batches, as new ones."
    return Mend(f"cut {SOURCES}/{name} back to {offset}", told, edits)


def mend_source_gap(case: Case, finding: Finding) -> Remedy:
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
        return compact_again(case, log, number, before, _source_lines(files, number))
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

    Only what lies in the directories is held in memory, whatever the size of the log.
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
    # More than any other batch took: some are still to be read, and which ones is not known.
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
    """When the batch was planned that took this entry of the source's log."""
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
    if batch is None:
        return None
    try:
        entry = read_offsets(case.storage, batch)
    except SluicegateError:
        return None
    for each in entry.offsets:
        if each.source == source and each.kind is OffsetKind.FILE:
            return each.number
    return None
