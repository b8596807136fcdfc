"""Mends of the file source's and the file sink's logs: lost entries are worked out again.

An entry that a compact file above it repeats is taken from there. Otherwise it is worked out from
the files themselves: those that no entry names, and whose times fit. The plan names them, because
no log says so.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from shlex import quote
from typing import Any
from urllib.parse import unquote

from sluicegate.errors import NotFound, SluicegateError
from sluicegate.findings import Finding
from sluicegate.plan import Choice
from sluicegate.spark.change.edits import Edit, Place, drop_sums
from sluicegate.spark.change.logs import Log, cut_back, expects_compact, repeated
from sluicegate.spark.change.mends import Case, Mend, Remedy
from sluicegate.spark.change.paths import as_uri
from sluicegate.spark.checkpoint import SOURCES
from sluicegate.spark.file_log import SINK_DIRECTORY, needed_files, read_source_files
from sluicegate.spark.log import LogListing, list_log, stream_lines
from sluicegate.spark.offset_log import OffsetKind, read_offsets
from sluicegate.storage import Storage

_SHOWN = 3
_PART = re.compile(r"part-(\d+)-[0-9a-f-]{36}")
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
        before = _before(log, number)
        files = _source_files(log, number, planned, before or ())
        return _compact_again(case, log, number, before, _source_lines(files, number))
    known = _from_compact(log, number)
    lines = known or _source_lines(_source_files(log, number, planned), number)
    if lines is None:
        return _no_files(case, f"{directory}/{name}")
    return _write(log, name, lines, f"It names {_shown(lines)} again.")


def mend_sink_ahead(case: Case, _finding: Finding) -> Remedy:
    """A sink with batches that the checkpoint does not know: two stories, so a person decides."""
    newest = case.look.last_batch
    uri = quote(case.storage.uri)
    sink = quote(case.sink.uri) if case.sink is not None else "SINK"
    return (
        Choice(
            "",
            "the checkpoint was rolled back without its sink: roll the sink's log back, too",
            f"sluicegate checkpoint rollback {uri} --to {newest} --sink {sink}",
            "what the later batches wrote is no longer seen; they write it again",
        ),
        Choice(
            "",
            "the checkpoint is new and the output is of another query: write elsewhere",
            "",
            "nothing; give the query an output directory of its own",
        ),
    )


def mend_sink_gap(case: Case, finding: Finding) -> Remedy:
    """An entry of the sink's log that is lost or cut: rebuilt from files that no entry names."""
    sink = case.sink
    name = case.key_of(finding).rpartition("/")[2]
    found = _NAME.fullmatch(name)
    if sink is None or found is None:
        return _no_files(case, name)
    log = Log(sink, Place.SINK, SINK_DIRECTORY, list_log(sink, SINK_DIRECTORY))
    number = int(found["number"])
    committed = _committed_ns(case, number)
    if found["compact"] or expects_compact(log, number):
        before = _before(log, number)
        return _compact_again(
            case, log, number, before, _sink_lines(log, number, committed, before or ())
        )
    lines = _sink_lines(log, number, committed)
    if lines is None:
        return _no_files(case, f"{SINK_DIRECTORY}/{name}")
    return _write(log, name, lines, f"It names {_shown(lines)} again.")


def _write(log: Log, name: str, lines: list[bytes], told: str) -> Mend:
    key = log.key(name)
    data = b"\n".join([b"v1", *lines])
    edits = (Edit(log.place, key, data), *drop_sums(log.storage, key, log.place))
    return Mend(f"write {key} anew", told, edits)


def _compact_again(
    case: Case, log: Log, number: int, before: list[str] | None, own: list[bytes] | None
) -> Remedy:
    """A compact file, from the files with the entries before it and its own, worked out."""
    if before is None or own is None:
        return _no_files(case, log.key(f"{number}.compact"))
    key = log.key(f"{number}.compact")
    edits = (
        Edit(log.place, key, repeated(log, before, own)),
        *drop_sums(log.storage, key, log.place),
    )
    told = f"It repeats the entries of {_listed(before)} and names {_shown(own)}."
    return Mend(f"write {key} anew", told, edits)


def _before(log: Log, number: int) -> list[str] | None:
    """The files that together hold all entries below a number; None if some of them are gone."""
    compacts = (n for n in reversed(log.listing.compacts) if n < number)
    base = next((n for n in compacts if _is_whole(log, f"{n}.compact")), -1)
    names = [f"{base}.compact"] if base >= 0 else []
    # One by one, because a stray name can be a huge number.
    for each in range(base + 1, number):
        if not _is_whole(log, str(each)):
            return None
        names.append(str(each))
    return names


def _from_compact(log: Log, number: int) -> list[bytes]:
    """The entries of one number, from the first compact file above that can be read."""
    for compact in (n for n in log.listing.compacts if n > number):
        try:
            entries = _entries(log, f"{compact}.compact")
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
    for name in _others(log, number, besides):
        try:
            for file in read_source_files(log.storage, log.key(name)):
                directory = file.path.rpartition("/")[0]
                if directory not in directories:
                    directories.add(directory)
                    unnamed |= {p: at for p, at in _files_in(directory) if at <= planned}
                unnamed.pop(file.path, None)
        except SluicegateError:
            continue
    return unnamed


def _others(log: Log, number: int, besides: Iterable[str]) -> list[str]:
    """The files that hold all entries but the lost one; what is left of that one tells nothing."""
    lost = (str(number), f"{number}.compact")
    names = dict.fromkeys([*needed_files(log.listing), *besides])
    return [name for name in names if name not in lost]


def _source_lines(files: dict[str, int], number: int) -> list[bytes] | None:
    entries = [
        {"path": path, "timestamp": files[path], "batchId": number} for path in sorted(files)
    ]
    return [_rendered(entry) for entry in entries] or None


def _rendered(entry: Mapping[str, object]) -> bytes:
    """A line of a log, as Spark writes it."""
    return json.dumps(entry, separators=(",", ":"), ensure_ascii=False).encode()


def _sink_lines(
    log: Log, number: int, committed_ns: int | None, besides: Iterable[str] = ()
) -> list[bytes] | None:
    """Entries for the output files that no entry names, written between the neighbours.

    None if there are none, or if a failed attempt has left some of its own among them.
    """
    names, after, before = [], 0, committed_ns or 1 << 63
    sample: bytes | None = None
    for name in _others(log, number, besides):
        span = _span(log, name)
        if span is None:
            continue
        names.append(name)
        sample = span.sample or sample
        # By what the log says of its files: the log itself may have been copied since.
        if int(name.partition(".")[0]) < number:
            after = max(after, span.last_ns)
        else:
            before = min(before, span.first_ns)
    found = {file[0]: file for file in _data_files(log.storage) if after < file[2] <= before}
    by_name = {key.rpartition("/")[2]: key for key in found}
    for name in names:
        for _, entry in _entries(log, name):
            found.pop(by_name.get(unquote(entry["path"]).rpartition("/")[2], ""), None)
    parts = {key: _PART.match(key.rpartition("/")[2]) for key in found}
    tasks = {(key.rpartition("/")[0], part and part[1]) for key, part in parts.items()}
    # The same task twice: one of them is of an attempt that failed.
    if not found or sample is None or None in parts.values() or len(tasks) != len(found):
        return None
    return [_sink_entry(json.loads(sample), found[key]) for key in sorted(found)]


@dataclass(frozen=True, slots=True)
class _Span:
    """When the files that a sink's log file names were written, and one of its lines."""

    first_ns: int
    last_ns: int
    sample: bytes | None


def _span(log: Log, name: str) -> _Span | None:
    """None if the log file is not there, or not whole."""
    first, last, sample = 1 << 63, 0, None
    try:
        for line, entry in _entries(log, name):
            at = entry["modificationTime"] * 10**6
            first, last, sample = min(first, at), max(last, at + 10**6 - 1), line
    except (NotFound, ValueError, SluicegateError):
        return None
    return _Span(first, last, sample)


def _committed_ns(case: Case, batch: int) -> int | None:
    """When a batch was committed: the sink has written all of it by then."""
    found = case.storage.stat(f"commits/{batch}")
    return found.modified_ns if found else None


def _sink_entry(sample: dict[str, object], file: tuple[str, int, int]) -> bytes:
    name, size, modified = file
    root = str(sample["path"]).rpartition("/")[0]
    while "=" in root.rpartition("/")[2]:
        root = root.rpartition("/")[0]
    entry = sample | {
        "path": f"{root}/{name}",
        "size": size,
        "isDir": False,
        "modificationTime": modified // 10**6,
        "action": "add",
    }
    return _rendered(entry)


def _data_files(sink: Storage, directory: str = "") -> Iterator[tuple[str, int, int]]:
    for entry in sink.list(directory):
        key = f"{directory}/{entry.name}" if directory else entry.name
        if entry.name.startswith(("_", ".")):
            continue
        if entry.kind == "directory":
            yield from _data_files(sink, key)
        elif found := sink.stat(key):
            yield key, found.size, found.modified_ns


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


def _entries(log: Log, name: str) -> Iterator[tuple[bytes, dict[str, Any]]]:
    """The lines of a log file with what they say; `ValueError` where one does not parse."""
    key = log.key(name)
    with log.storage.open(key) as stream:
        lines = stream_lines(stream, key)
        if next(lines) != b"v1":
            raise ValueError("not a log file of version 1")
        for line in lines:
            if line:
                entry = json.loads(line)
                if not isinstance(entry, dict):
                    raise ValueError("not an entry")
                yield line, entry


def _is_whole(log: Log, name: str) -> bool:
    """Whether a log file is there and every line of it parses."""
    try:
        for _ in _entries(log, name):
            pass
    except (NotFound, ValueError, SluicegateError):
        return False
    return True


def _listed(names: list[str]) -> str:
    return names[0] if len(names) == 1 else f"{names[0]} to {names[-1]}" if names else "none"


def _shown(lines: list[bytes]) -> str:
    names = [json.loads(line)["path"].rpartition("/")[2] for line in lines[:_SHOWN]]
    more = f" and {len(lines) - _SHOWN} more" if len(lines) > _SHOWN else ""
    return ", ".join(names) + more


def _no_files(case: Case, key: str) -> tuple[Choice, ...]:
    uri = quote(case.storage.uri)
    sink = "" if case.sink is None else f" --sink {quote(case.sink.uri)}"
    return (
        Choice(
            "",
            f"restore {key} from a backup",
            "",
            "nothing",
        ),
        Choice(
            "",
            "go back to a batch before it",
            f"sluicegate checkpoint rollback {uri} --to BATCH{sink}",
            "what came since is read and written again",
        ),
    )
