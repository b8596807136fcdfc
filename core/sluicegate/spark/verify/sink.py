"""Checks of a file sink's log and its files against the checkpoint."""

from __future__ import annotations

import os
from array import array
from bisect import bisect_left
from collections.abc import Iterator
from pathlib import PurePosixPath
from urllib.parse import unquote

import xxhash

from sluicegate.errors import Corrupt, NotFound, UnsupportedFormat
from sluicegate.findings import Finding
from sluicegate.spark import rules
from sluicegate.spark.checkpoint import Look, newest_batch
from sluicegate.spark.file_log import (
    SINK_DIRECTORY,
    SinkFile,
    missing_files,
    needed_files,
    read_sink_files,
)
from sluicegate.spark.log import LogListing, list_log
from sluicegate.spark.verify.sources import check_growth
from sluicegate.storage import Storage

_MOST_NAMED = 5


def check_sink(look: Look, sink: Storage) -> Iterator[Finding]:
    """The sink's log must be whole, know no future batch, and name all and only its files."""
    listing = list_log(sink, SINK_DIRECTORY)
    if not listing.exists:
        yield rules.SINK_NO_LOG.at(sink.uri)
        return
    repair = f"sluicegate checkpoint repair {look.storage.uri} --sink {sink.uri}"
    yield from _check_batches(look, sink, listing, repair)
    yield from check_growth(sink, SINK_DIRECTORY, listing)
    yield from _check_files(look, sink, listing, repair)


def _check_batches(
    look: Look, sink: Storage, listing: LogListing, repair: str
) -> Iterator[Finding]:
    directory = f"{sink.uri}/{SINK_DIRECTORY}"
    for number in missing_files(listing)[:_MOST_NAMED]:
        yield rules.SINK_LOG_GAP.at(f"{directory}/{number}", repair=repair)
    last = -1 if listing.last is None else listing.last
    # Without any offsets that is the finding, and this would only follow from it. And a running
    # job may have planned further batches since the offsets were listed.
    if look.last_batch is not None and last > look.last_batch:
        planned = newest_batch(look.storage)
        if last > planned:
            detail = f"the sink has batch {last}, the checkpoint's newest is {planned}"
            yield rules.SINK_AHEAD.at(directory, detail)
    if look.last_commit is not None and last < look.last_commit:
        detail = f"batch {look.last_commit} is committed, but the sink's newest is {last}"
        yield rules.SINK_LOG_GAP.at(f"{directory}/{look.last_commit}", detail, repair=repair)


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
            yield rules.UNKNOWN_VERSION.at(f"{sink.uri}/{key}", e.message)
        except Corrupt as e:
            yield rules.SINK_LOG_GAP.at(f"{sink.uri}/{key}", e.message, repair=repair)
    if named.elsewhere:
        detail = f"{named.elsewhere} entries point elsewhere, such as {named.sample}"
        yield rules.PATHS_MOVED.at(f"{sink.uri}/{SINK_DIRECTORY}", detail)
    named.freeze()
    yield from _check_unlisted(look, sink, listing, named)
    yield from _check_missing(sink, listing, named)


class _Named:
    """Which files a sink's log names: as eight bytes each, because logs name millions of them."""

    def __init__(self, sink: Storage) -> None:
        root = sink.local_path()
        # As it was named, and as it really is: either may be what Spark was given.
        self._roots = {os.path.normpath(root.absolute()), str(root.resolve())} if root else set()
        self._sums = array("Q")
        self._withdrawn: set[int] = set()
        self.elsewhere = 0
        self.sample = ""

    def add(self, entry: SinkFile) -> None:
        """Take an entry of the log into account."""
        path = unquote(entry.path.removeprefix("file:"))
        inside = _key_in_sink(path)
        if entry.action == "delete":
            self._withdrawn.add(_sum(inside))
            return
        self._sums.append(_sum(inside))
        if entry.path.startswith("file:") and not self._is_inside(path, inside):
            self.elsewhere += 1
            self.sample = self.sample or entry.path

    def freeze(self) -> None:
        """No more entries come; from now on it can be asked."""
        self._sums = array("Q", sorted(self._sums))

    def is_withdrawn(self, key: str) -> bool:
        """Whether the log has taken a file back."""
        return bool(self._withdrawn) and _sum(key) in self._withdrawn

    def __contains__(self, key: str) -> bool:
        wanted = _sum(key)
        at = bisect_left(self._sums, wanted)
        return at < len(self._sums) and self._sums[at] == wanted and not self.is_withdrawn(key)

    def _is_inside(self, path: str, inside: str) -> bool:
        clean = os.path.normpath("/" + path.lstrip("/"))
        return not self._roots or any(clean == f"{root}/{inside}" for root in self._roots)


def _sum(key: str) -> int:
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
        yield rules.SINK_UNLISTED.at(sink.uri, f"{count} files, such as {sample}")


def _check_missing(sink: Storage, listing: LogListing, named: _Named) -> Iterator[Finding]:
    """Files that the log names, gone or of another size; a few of each are enough to tell."""
    told = 0
    for entry in _all_entries(sink, listing):
        file = _key_in_sink(unquote(entry.path.removeprefix("file:")))
        if entry.action == "delete" or named.is_withdrawn(file):
            continue
        found = sink.stat(file)
        if found is not None and found.size == entry.size:
            continue
        there = "is not there" if found is None else f"has {found.size} bytes"
        detail = f"the sink's log names it with {entry.size} bytes; it {there}"
        yield rules.SINK_MISSING_FILE.at(f"{sink.uri}/{file}", detail)
        told += 1
        if told == _MOST_NAMED:
            return


def _all_entries(sink: Storage, listing: LogListing) -> Iterator[SinkFile]:
    """All that can be read of the log; what cannot be is told elsewhere."""
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
