"""The file sink: its log, and the files that the log names."""

from __future__ import annotations

import json
import os
import re
from array import array
from bisect import bisect_left
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import PurePosixPath
from urllib.parse import unquote

from sluicegate.checkpoint.file_edits import Place
from sluicegate.checkpoint.format.log import (
    SINK_DIRECTORY,
    LogListing,
    SinkFile,
    list_log,
    missing_numbers,
    needed_files,
    read_sink_files,
)
from sluicegate.checkpoint.rules import layout
from sluicegate.checkpoint.rules.fixes import (
    Case,
    Solution,
    and_more,
    files_before,
    first_of,
    no_files,
    other_files,
    read_entries,
    rebuild_compact,
    rendered,
    shown,
    write_entry,
)
from sluicegate.checkpoint.rules.source_log import check_growth
from sluicegate.checkpoint.truncate import Log, expects_compact
from sluicegate.checkpoint.view import Look, newest_batch
from sluicegate.errors import Corrupt, NotFound, SluicegateError, UnsupportedFormat
from sluicegate.findings import Finding, LogPattern, Severity, Site, fixes, rule
from sluicegate.plan import Choice
from sluicegate.storage import Storage
from sluicegate.units import command, counted

_MOST_NAMED = 5
_AUDIT_FIRST = (
    "Readers may already be missing rows: audit that first. The lost entry can be rebuilt from "
    "the part files that no entry names."
)
_AUDIT = "audit {checkpoint} --sink {sink}"

SINK_LOG_GAP = rule(
    "SG-SINK-LOG-GAP",
    Severity.ERROR,
    "an entry of the file sink's log is missing or cut",
    "Readers of the output silently drop the rows of that batch, and the query dies at the next "
    "compaction. The entry can be rebuilt from the part files that no entry names.",
    LogPattern(
        _AUDIT_FIRST,
        _AUDIT,
        texts=(
            rf"(?:{layout.UNREADABLE_LOG}|{layout.BATCH_NOT_FOUND})/_spark_metadata/",
            r"/_spark_metadata/\d{1,19}\.compact doesn't exist",
        ),
        family=layout.LOG_FAMILY,
    ),
    LogPattern(
        _AUDIT_FIRST,
        _AUDIT,
        texts=(*layout.JSON_CUT, r"Incomplete log file"),
        sites=(Site.SINK,),
        family=layout.LOG_FAMILY,
    ),
)
SINK_NO_LOG = rule(
    "SG-SINK-NO-LOG",
    Severity.WARNING,
    "the sink directory has no file sink log",
    "There is no `_spark_metadata` in it: it is not the output of Spark's file sink, but of "
    "another kind of sink, or a wrong path; or the log was removed, and readers then also see the "
    "files of failed batches.",
)
SINK_UNLISTED = rule(
    "SG-SINK-UNLISTED",
    Severity.WARNING,
    "the output holds files that the sink's log does not name",
    "Spark's readers do not see their rows. After a failed batch this is normal; if an entry was "
    "lost, rows are missing.",
)
SINK_MISSING_FILE = rule(
    "SG-SINK-MISSING-FILE",
    Severity.ERROR,
    "the sink's log names a file that is missing",
    "Readers of the output fail or lose the rows of that file.",
)
SINK_AHEAD = rule(
    "SG-SINK-AHEAD",
    Severity.ERROR,
    "the sink has committed batches that the checkpoint does not know",
    "The query will use those batch ids again, and the sink will skip them as already written: "
    "rows are silently lost. It happens with a fresh checkpoint and an old sink, or after a "
    "rollback without its sink.",
)


def check(case: Case) -> Iterator[Finding]:
    """The sink, if it is known."""
    if case.sink is not None:
        yield from check_sink(case.look, case.sink)


def check_sink(look: Look, sink: Storage) -> Iterator[Finding]:
    """The sink's log must be complete, have no future batch, and name all and only its files."""
    listing = list_log(sink, SINK_DIRECTORY)
    if not listing.exists:
        yield SINK_NO_LOG.at(sink.uri)
        return
    repair = command("checkpoint", "repair", look.storage.uri, "--sink", sink.uri)
    yield from _check_batches(look, sink, listing, repair)
    yield from check_growth(sink, SINK_DIRECTORY, listing)
    yield from _check_files(look, sink, listing, repair)


def _check_batches(
    look: Look, sink: Storage, listing: LogListing, repair: str
) -> Iterator[Finding]:
    directory = f"{sink.uri}/{SINK_DIRECTORY}"
    numbers, more = first_of(missing_numbers(listing), _MOST_NAMED)
    gaps = [SINK_LOG_GAP.at(f"{directory}/{number}", repair=repair) for number in numbers]
    yield from and_more(gaps, more, "entry", "entries")
    last = -1 if listing.last is None else listing.last
    # Missing offsets have a finding of their own, from which this would follow. And a running job
    # may have planned further batches since the offsets were listed.
    if look.last_batch is not None and last > look.last_batch:
        planned = newest_batch(look.storage)
        if last > planned:
            detail = f"the sink has batch {last}, the checkpoint's newest is {planned}"
            yield SINK_AHEAD.at(directory, detail)
    if look.last_commit is not None and last < look.last_commit:
        detail = f"batch {look.last_commit} is committed, but the sink's newest is {last}"
        yield SINK_LOG_GAP.at(f"{directory}/{look.last_commit}", detail, repair=repair)


def _check_files(look: Look, sink: Storage, listing: LogListing, repair: str) -> Iterator[Finding]:
    named = _Named(sink)
    for file in needed_files(listing):
        key = f"{SINK_DIRECTORY}/{file}"
        try:
            for entry in read_sink_files(sink, key):
                named.add(entry)
        except NotFound:
            continue
        except UnsupportedFormat as e:
            yield layout.UNKNOWN_VERSION.at(f"{sink.uri}/{key}", e.message)
        except Corrupt as e:
            yield SINK_LOG_GAP.at(f"{sink.uri}/{key}", e.message, repair=repair)
    if named.elsewhere:
        detail = (
            f"{counted(named.elsewhere, 'path')} outside this directory, such as {named.sample}"
        )
        yield layout.PATHS_MOVED.at(f"{sink.uri}/{SINK_DIRECTORY}", detail)
    named.freeze()
    yield from _check_unlisted(look, sink, listing, named)
    yield from _check_missing(sink, listing, named)


class _Named:
    """Which files a sink's log names: as eight bytes each, because logs name millions of them."""

    def __init__(self, sink: Storage) -> None:
        self._roots = sink.spellings()
        self._sums = array("Q")
        self._deleted: set[int] = set()
        self.elsewhere = 0
        self.sample = ""

    def add(self, entry: SinkFile) -> None:
        """Take an entry of the log into account."""
        path = unquote(entry.path.removeprefix("file:"))
        inside = _key_in_sink(path)
        if entry.action == "delete":
            self._deleted.add(_sum(inside))
            return
        self._sums.append(_sum(inside))
        if entry.path.startswith("file:") and not self._is_inside(path, inside):
            self.elsewhere += 1
            self.sample = self.sample or entry.path

    def freeze(self) -> None:
        """Prepare for lookups, after the last entry."""
        self._sums = array("Q", sorted(self._sums))

    def is_deleted(self, key: str) -> bool:
        """Whether the log has an entry that deletes a file."""
        return bool(self._deleted) and _sum(key) in self._deleted

    def __contains__(self, key: str) -> bool:
        wanted = _sum(key)
        at = bisect_left(self._sums, wanted)
        return at < len(self._sums) and self._sums[at] == wanted and not self.is_deleted(key)

    def _is_inside(self, path: str, inside: str) -> bool:
        clean = os.path.normpath("/" + path.lstrip("/"))
        return not self._roots or any(clean == f"{root}/{inside}" for root in self._roots)


def _sum(key: str) -> int:
    import xxhash

    return xxhash.xxh3_64_intdigest(key.encode())


def _check_unlisted(
    look: Look, sink: Storage, listing: LogListing, named: _Named
) -> Iterator[Finding]:
    since = _in_progress_since(look, sink, listing)
    count, sample = 0, ""
    for file in _data_files(sink, ""):
        if file in named:
            continue
        written = sink.stat(file)
        if written and (since is None or written.modified_ns <= since):
            count += 1
            sample = min(sample or file, file)
    if count:
        yield SINK_UNLISTED.at(sink.uri, f"{counted(count, 'file')}, such as {sample}")


def _check_missing(sink: Storage, listing: LogListing, named: _Named) -> Iterator[Finding]:
    """Files that the log names, missing or of another size; a few are named, the others counted."""
    found: list[Finding] = []
    more = 0
    for entry in _all_entries(sink, listing):
        file = _key_in_sink(unquote(entry.path.removeprefix("file:")))
        if entry.action == "delete" or named.is_deleted(file):
            continue
        present = sink.stat(file)
        if present is not None and present.size == entry.size:
            continue
        if len(found) == _MOST_NAMED:
            more += 1
            continue
        there = "is missing" if present is None else f"has {present.size} bytes"
        detail = f"the sink's log names it with {entry.size} bytes; it {there}"
        found.append(SINK_MISSING_FILE.at(f"{sink.uri}/{file}", detail))
    yield from and_more(found, more, "file", "files")


def _all_entries(sink: Storage, listing: LogListing) -> Iterator[SinkFile]:
    """All readable entries of the log; unreadable files have a finding of their own."""
    for file in needed_files(listing):
        try:
            yield from read_sink_files(sink, f"{SINK_DIRECTORY}/{file}")
        except (NotFound, UnsupportedFormat, Corrupt):
            continue


def _in_progress_since(look: Look, sink: Storage, listing: LogListing) -> int | None:
    """Files younger than this may belong to the batch that is planned but not yet committed."""
    if look.last_batch is None or look.last_batch == look.last_commit or listing.last is None:
        return None
    names = (str(listing.last), f"{listing.last}.compact")
    logged = [found.modified_ns for n in names if (found := sink.stat(f"{SINK_DIRECTORY}/{n}"))]
    return max(logged, default=None)


def _key_in_sink(path: str) -> str:
    """The file's name with the partition directories (`key=value`) above it, wherever they lie."""
    *above, name = PurePosixPath(path).parts
    depth = len(above)
    while depth and "=" in above[depth - 1]:
        depth -= 1
    return "/".join([*above[depth:], name])


def _data_files(sink: Storage, directory: str) -> Iterator[str]:
    """Files that a reader takes for data: hidden names are not, nor `_…` unless a partition."""
    for entry in sink.list(directory):
        if entry.name.startswith(".") or (entry.name.startswith("_") and "=" not in entry.name):
            continue
        key = f"{directory}/{entry.name}" if directory else entry.name
        if entry.kind == "directory":
            yield from _data_files(sink, key)
        elif entry.kind == "file":
            yield key


_PART = re.compile(r"part-(\d+)-[0-9a-f-]{36}")
_NAME = re.compile(r"(?P<number>\d+)(?P<compact>\.compact)?")


@fixes(SINK_AHEAD)
def choose_history(case: Case, _finding: Finding) -> Solution:
    """A sink with batches that the checkpoint does not know: the operator has to decide."""
    newest = case.look.last_batch
    uri = case.storage.uri
    sink = "SINK" if case.sink is None else case.sink.uri
    return (
        Choice(
            "",
            "the checkpoint was rolled back without its sink: roll the sink's log back, too",
            command("checkpoint", "rollback", uri, "--to", str(newest), "--sink", sink),
            "readers no longer see the output of the later batches until they have run again",
        ),
        Choice(
            "",
            "the checkpoint is new and the output belongs to another query: write elsewhere",
            "",
            "nothing; give the query an output directory of its own",
        ),
    )


@fixes(SINK_LOG_GAP)
def rebuild_sink_entry(case: Case, finding: Finding) -> Solution:
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
        return rebuild_compact(
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

    None if there are none, or if files of a failed attempt are among them.
    """
    names, after, before = [], 0, committed_ns or 1 << 63
    sample: bytes | None = None
    for name in other_files(log, number, besides):
        span = _span(log, name)
        if span is None:
            continue
        names.append(name)
        sample = span.sample or sample
        # By the times in the log's entries: the log files themselves may have been copied since.
        if int(name.partition(".")[0]) < number:
            after = max(after, span.last_ns)
        else:
            before = min(before, span.first_ns)
    found = {file[0]: file for file in _written_files(log.storage) if after < file[2] <= before}
    by_name = {key.rpartition("/")[2]: key for key in found}
    for name in names:
        for _, entry in read_entries(log, name):
            found.pop(by_name.get(unquote(entry["path"]).rpartition("/")[2], ""), None)
    parts = {key: _PART.match(key.rpartition("/")[2]) for key in found}
    tasks = {(key.rpartition("/")[0], part and part[1]) for key, part in parts.items()}
    # The same task twice: one of them belongs to a failed attempt.
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
    """None if the log file is missing or cannot be read completely."""
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


def _written_files(sink: Storage, directory: str = "") -> Iterator[tuple[str, int, int]]:
    for entry in sink.list(directory):
        key = f"{directory}/{entry.name}" if directory else entry.name
        if entry.name.startswith(("_", ".")):
            continue
        if entry.kind == "directory":
            yield from _written_files(sink, key)
        elif found := sink.stat(key):
            yield key, found.size, found.modified_ns
