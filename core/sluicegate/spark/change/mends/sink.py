"""Mends of the file sink's log: a lost entry is worked out again from the files it named."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from shlex import quote
from urllib.parse import unquote

from sluicegate.errors import NotFound, SluicegateError
from sluicegate.findings import Finding
from sluicegate.plan import Choice
from sluicegate.spark.change.edits import Place
from sluicegate.spark.change.logs import Log, expects_compact
from sluicegate.spark.change.mends import Case, Remedy
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
from sluicegate.spark.file_log import SINK_DIRECTORY
from sluicegate.spark.log import list_log
from sluicegate.storage import Storage

_PART = re.compile(r"part-(\d+)-[0-9a-f-]{36}")
_NAME = re.compile(r"(?P<number>\d+)(?P<compact>\.compact)?")


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
        return no_files(case, name)
    log = Log(sink, Place.SINK, SINK_DIRECTORY, list_log(sink, SINK_DIRECTORY))
    number = int(found["number"])
    committed = _committed_ns(case, number)
    if found["compact"] or expects_compact(log, number):
        before = files_before(log, number)
        return compact_again(
            case, log, number, before, _sink_lines(log, number, committed, before or ())
        )
    lines = _sink_lines(log, number, committed)
    if lines is None:
        return no_files(case, f"{SINK_DIRECTORY}/{name}")
    return write_entry(log, name, lines, f"It names {shown(lines)} again.")


def _sink_lines(
    log: Log, number: int, committed_ns: int | None, besides: Iterable[str] = ()
) -> list[bytes] | None:
    """Entries for the output files that no entry names, written between the neighbours.

    None if there are none, or if a failed attempt has left some of its own among them.
    """
    names, after, before = [], 0, committed_ns or 1 << 63
    sample: bytes | None = None
    for name in other_files(log, number, besides):
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
        for _, entry in read_entries(log, name):
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
        for line, entry in read_entries(log, name):
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
    return rendered(entry)


def _data_files(sink: Storage, directory: str = "") -> Iterator[tuple[str, int, int]]:
    for entry in sink.list(directory):
        key = f"{directory}/{entry.name}" if directory else entry.name
        if entry.name.startswith(("_", ".")):
            continue
        if entry.kind == "directory":
            yield from _data_files(sink, key)
        elif found := sink.stat(key):
            yield key, found.size, found.modified_ns
