"""Mends of the file source's and the file sink's logs: lost entries are worked out again.

An entry that a compact file above it repeats is taken from there. Otherwise it is worked out from
the files themselves: those that no entry names, and whose times fit. The plan names them, because
no log says so.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from shlex import quote
from urllib.parse import unquote

from sluicegate.errors import NotFound, SluicegateError
from sluicegate.findings import Finding
from sluicegate.plan import Choice
from sluicegate.spark.change.edits import Edit, Place, drop_sums
from sluicegate.spark.change.logs import Log, cut_back, expects_compact
from sluicegate.spark.change.mends import Case, Mend, Remedy
from sluicegate.spark.checkpoint import SOURCES
from sluicegate.spark.file_log import SINK_DIRECTORY, needed_files, read_source_files
from sluicegate.spark.log import LogListing, list_log, stream_lines
from sluicegate.spark.offset_log import OffsetKind, read_offsets
from sluicegate.storage import Storage

_SHOWN = 3
_PART = re.compile(r"part-(\d+)-[0-9a-f-]{36}")
_NAME = re.compile(r"(?P<number>\d+)(?P<compact>\.compact)?")


@dataclass(frozen=True, slots=True)
class _Lines:
    """The lines of a log file below its version line, as bytes."""

    version: bytes
    entries: tuple[bytes, ...]


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
    if found["compact"] or expects_compact(log, number):
        lines = _source_lines(case, log, number, source, besides=_before(log, number) or ())
        return _compact_again(case, log, number, lines)
    lines = _from_compact(log, number) or _source_lines(case, log, number, source)
    if not lines:
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
    lines = _sink_lines(log, number, _committed_ns(case, number))
    if found["compact"] or expects_compact(log, number):
        return _compact_again(case, log, number, lines)
    if lines is None:
        return _no_files(case, f"{SINK_DIRECTORY}/{name}")
    return _write(log, name, lines, f"It names {_shown(lines)} again.")


def _write(log: Log, name: str, lines: list[bytes], told: str) -> Mend:
    key = log.key(name)
    data = b"\n".join([b"v1", *lines])
    edits = (Edit(log.place, key, data), *drop_sums(log.storage, key, log.place))
    return Mend(f"write {key} anew", told, edits)


def _compact_again(case: Case, log: Log, number: int, own: list[bytes] | None) -> Remedy:
    """A compact file, from the entries before it and its own, which were worked out."""
    before = _before(log, number)
    if before is None or own is None:
        return _no_files(case, log.key(f"{number}.compact"))
    told = f"It repeats the {len(before)} entries before it, and names {_shown(own)}."
    return _write(log, f"{number}.compact", [*before, *own], told)


def _before(log: Log, number: int) -> list[bytes] | None:
    """All entries below a number; None if some of them are gone, too."""
    entries: list[bytes] = []
    for each in range(number):
        part = _read(log, str(each))
        if part is None and (part := _read(log, f"{each}.compact")) is not None:
            entries = []
        if part is None:
            return None
        entries += part.entries
    return entries


def _from_compact(log: Log, number: int) -> list[bytes]:
    """The entries of one number, from the first compact file above that can be read."""
    for compact in (n for n in log.listing.compacts if n > number):
        part = _read(log, f"{compact}.compact")
        if part is not None:
            return [e for e in part.entries if json.loads(e).get("batchId") == number]
    return []


def _source_lines(
    case: Case, log: Log, number: int, source: str, besides: Iterable[bytes] = ()
) -> list[bytes] | None:
    """Entries for the input files that no entry names and that were there in time."""
    known, directories = set(), set()
    sample = None
    for name in needed_files(log.listing):
        try:
            for file in read_source_files(log.storage, log.key(name)):
                known.add(file.path)
                directories.add(file.path.rpartition("/")[0])
                sample = file.path
        except SluicegateError:
            continue
    for line in besides:
        path = json.loads(line)["path"]
        known.add(path)
        directories.add(path.rpartition("/")[0])
        sample = path
    planned = _planned_ms(case, source, number)
    if sample is None or planned is None:
        return None
    found = []
    for directory in sorted(directories):
        for path, modified in _files_in(directory):
            if path not in known and modified <= planned:
                entry = {"path": path, "timestamp": modified, "batchId": number}
                found.append(json.dumps(entry, separators=(",", ":")).encode())
    return found or None


def _sink_lines(log: Log, number: int, committed_ns: int | None) -> list[bytes] | None:
    """Entries for the output files that no entry names, written between the neighbours.

    None if there are none, or if a failed attempt has left some of its own among them.
    """
    named: set[str] = set()
    samples: list[bytes] = []
    after, before = 0, committed_ns or 1 << 63
    for name in needed_files(log.listing):
        part = _read(log, name)
        if part is None:
            continue
        samples = list(part.entries) or samples
        entries = [json.loads(entry) for entry in part.entries]
        named |= {unquote(entry["path"]).rpartition("/")[2] for entry in entries}
        # By what the log says of its files: the log itself may have been copied since.
        times = [entry["modificationTime"] * 10**6 for entry in entries]
        if int(name.partition(".")[0]) < number:
            after = max([after, *(t + 10**6 - 1 for t in times)])
        else:
            before = min([before, *times])
    found = [
        file
        for file in _data_files(log.storage)
        if file[0].rpartition("/")[2] not in named and after < file[2] <= before
    ]
    parts = [_PART.match(name.rpartition("/")[2]) for name, _, _ in found]
    pairs = zip(parts, found, strict=True)
    tasks = {(name.rpartition("/")[0], part and part[1]) for part, (name, _, _) in pairs}
    # The same task twice: one of them is of an attempt that failed.
    if not found or not samples or None in parts or len(tasks) != len(found):
        return None
    return [_sink_entry(json.loads(samples[-1]), each) for each in sorted(found)]


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
    return json.dumps(entry, separators=(",", ":")).encode()


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
        entries = sorted(os.scandir(root), key=lambda entry: entry.name)
    except OSError:
        return
    for entry in entries:
        if entry.is_file() and not entry.name.startswith(("_", ".")):
            yield f"{directory}/{quote_path(entry.name)}", entry.stat().st_mtime_ns // 10**6


def quote_path(name: str) -> str:
    """A file name as Hadoop writes it in a URI."""
    from urllib.parse import quote as percent

    return percent(name, safe="!$&'()*+,;=:@-._~/")


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


def _read(log: Log, name: str) -> _Lines | None:
    """A log file, if it is there and every line of it parses."""
    key = log.key(name)
    try:
        with log.storage.open(key) as stream:
            version, *entries = list(stream_lines(stream, key))
            for entry in entries:
                json.loads(entry)
    except (NotFound, ValueError, SluicegateError):
        return None
    return _Lines(version, tuple(entries)) if version == b"v1" else None


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
