"""Checks of a file sink's log and its files against the checkpoint."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import PurePosixPath
from urllib.parse import unquote

from sluicegate.errors import Corrupt, NotFound, UnsupportedFormat
from sluicegate.findings import Finding
from sluicegate.spark import rules
from sluicegate.spark.checkpoint import Look
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


def check_sink(look: Look, sink: Storage) -> Iterator[Finding]:
    """The sink's log must be whole, know no future batch, and name all and only its files."""
    listing = list_log(sink, SINK_DIRECTORY)
    if not listing.exists:
        return
    repair = f"sluicegate checkpoint repair {look.storage.uri} --sink {sink.uri}"
    yield from _check_batches(look, sink, listing, repair)
    yield from check_growth(sink, SINK_DIRECTORY, listing)
    yield from _check_files(look, sink, listing, repair)


def _check_batches(
    look: Look, sink: Storage, listing: LogListing, repair: str
) -> Iterator[Finding]:
    directory = f"{sink.uri}/{SINK_DIRECTORY}"
    for number in missing_files(listing)[:5]:
        yield rules.SINK_LOG_GAP.at(f"{directory}/{number}", repair=repair)
    last = -1 if listing.last is None else listing.last
    # Without any offsets that is the finding, and this would only follow from it.
    if look.last_batch is not None and last > look.last_batch:
        detail = f"the sink has batch {last}, the checkpoint's newest is {look.last_batch}"
        yield rules.SINK_AHEAD.at(directory, detail)
    if look.last_commit is not None and last < look.last_commit:
        detail = f"batch {look.last_commit} is committed, but the sink's newest is {last}"
        yield rules.SINK_LOG_GAP.at(f"{directory}/{look.last_commit}", detail, repair=repair)


def _check_files(look: Look, sink: Storage, listing: LogListing, repair: str) -> Iterator[Finding]:
    named: set[str] = set()
    whole = not missing_files(listing)
    for file in needed_files(listing):
        key = f"{SINK_DIRECTORY}/{file}"
        place = f"{sink.uri}/{key}"
        try:
            _collect(read_sink_files(sink, key), named)
        except NotFound:
            continue
        except UnsupportedFormat as e:
            whole = False
            yield rules.UNKNOWN_VERSION.at(place, e.message)
        except Corrupt as e:
            whole = False
            yield rules.SINK_LOG_GAP.at(place, e.message, repair=repair)
    present = set(_data_files(sink, ""))
    by_name = {PurePosixPath(unquote(path)).name for path in named}
    moved = [path for path in named if not _is_inside(path, sink)]
    if moved:
        detail = f"{len(moved)} of {len(named)} entries point elsewhere, such as {moved[0]}"
        yield rules.PATHS_MOVED.at(f"{sink.uri}/{SINK_DIRECTORY}", detail)
    unlisted = sorted(
        file
        for file in present
        if PurePosixPath(file).name not in by_name and not _in_progress(look, sink, listing, file)
    )
    if unlisted:
        detail = f"{len(unlisted)} files, such as {unlisted[0]}"
        yield rules.SINK_UNLISTED.at(sink.uri, detail, repair="" if whole else repair)
    names = {PurePosixPath(f).name for f in present}
    for gone in sorted(by_name - names)[:5]:
        yield rules.SINK_MISSING_FILE.at(f"{sink.uri}/{gone}", "the sink's log names it")


def _in_progress(look: Look, sink: Storage, listing: LogListing, file: str) -> bool:
    """Whether a file may belong to the batch that is planned but not yet committed."""
    if look.last_batch is None or look.last_batch == look.last_commit or listing.last is None:
        return False
    names = (str(listing.last), f"{listing.last}.compact")
    logged = [found for n in names if (found := sink.stat(f"{SINK_DIRECTORY}/{n}"))]
    written = sink.stat(file)
    return written is None or any(written.modified_ns > entry.modified_ns for entry in logged)


def _collect(files: Iterator[SinkFile], named: set[str]) -> None:
    for file in files:
        (named.discard if file.action == "delete" else named.add)(file.path)


def _data_files(sink: Storage, directory: str) -> Iterator[str]:
    """Files that a reader would take for data: hidden names and `_…` are not."""
    for entry in sink.list(directory):
        if entry.name.startswith((".", "_")):
            continue
        key = f"{directory}/{entry.name}" if directory else entry.name
        if entry.kind == "directory":
            yield from _data_files(sink, key)
        elif entry.kind == "file":
            yield key


def _is_inside(path: str, sink: Storage) -> bool:
    root = sink.local_path()
    if root is None or not path.startswith("file:"):
        return True
    return PurePosixPath(unquote(path.removeprefix("file:").replace("///", "/"))).is_relative_to(
        root.absolute()
    )
