"""Cutting Spark's compactible logs back: the file source's and the file sink's.

Every `interval`-th file of such a log is `N.compact` and repeats all entries before it; Spark
removes the files it covers after a while. Cutting a log back below its newest compact file may
therefore need files that are gone. Entries of the source's log carry their number, so these files
can be rebuilt from the compact file above; those of the sink's log do not.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain

from sluicegate.checkpoint.file_edits import Edit, Pieces, Place, remove_with_sums
from sluicegate.checkpoint.format.log import (
    LogListing,
    integer,
    needed_files,
    parse_object,
    stream_lines,
)
from sluicegate.errors import NotFound
from sluicegate.storage import Storage

# Spark's default; the compact files of a log show its own.
_INTERVAL = 10
_BLOCK = 1 << 20


class CannotCut(NotFound):
    """A log cannot be cut back that far: the files it would need are gone."""


@dataclass(frozen=True, slots=True)
class Log:
    """One compactible log: its place and its listing."""

    storage: Storage
    place: Place
    directory: str
    listing: LogListing

    def key(self, name: str) -> str:
        """The key of one of its files."""
        return f"{self.directory}/{name}"


def cut_back(log: Log, keep: int, *, numbered: bool) -> list[Edit]:
    """The edits after which `keep` is the newest entry; -1 keeps none.

    With `numbered` entries, needed files that Spark has cleaned up are rebuilt.
    """
    listing = log.listing
    surplus = [str(n) for n in (*listing.batches, *listing.deleted) if n > keep]
    surplus += [f"{n}.compact" for n in (*listing.compacts, *listing.deleted) if n > keep]
    missing = missing_below(listing, keep)
    made: list[Edit] = []
    if missing:
        if not numbered or not any(n > keep for n in listing.compacts):
            raise CannotCut(
                f"{log.storage.uri}/{log.directory} cannot be cut back to {keep}: "
                f"{missing[0]} is needed for it, and Spark has cleaned it up",
                hint=f"the oldest it can be cut back to is {oldest_cut(listing)}",
                place=f"{log.storage.uri}/{log.directory}",
            )
        made = _rebuilt(log, keep, missing)
        surplus += [str(keep)] if f"{keep}.compact" in {_name(edit) for edit in made} else []
    edits = [
        edit for name in surplus for edit in remove_with_sums(log.storage, log.key(name), log.place)
    ]
    return edits + made


def missing_below(listing: LogListing, keep: int) -> list[str]:
    """The files that a log ending with `keep` needs and does not have."""
    there = {str(n) for n in listing.batches}
    base = max((n for n in listing.compacts if n <= keep), default=-1)
    return [str(n) for n in range(base + 1, keep + 1) if str(n) not in there]


def oldest_cut(listing: LogListing) -> int:
    """The oldest entry that the log can end with, by the files it has."""
    oldest = -1 if listing.last is None else listing.last
    while oldest > 0 and not missing_below(listing, oldest - 1):
        oldest -= 1
    return oldest


def _rebuilt(log: Log, keep: int, missing: list[str]) -> list[Edit]:
    """The files that Spark cleaned up, from the entries of the compact file above them.

    Without any compact file left, everything goes into one with the number `keep`: Spark takes its
    interval from the only compact file there is, so this one is right whatever the interval was.
    """
    source = f"{min(n for n in log.listing.compacts if n > keep)}.compact"
    if not any(n <= keep for n in log.listing.compacts):
        return [Edit(log.place, log.key(f"{keep}.compact"), _entries(log, source, range(keep + 1)))]
    return [
        Edit(log.place, log.key(name), _entries(log, source, range(int(name), int(name) + 1)))
        for name in missing
    ]


def _name(edit: Edit) -> str:
    return edit.key.rpartition("/")[2]


def _entries(log: Log, compact: str, wanted: range) -> Pieces:
    place = f"{log.storage.uri}/{log.key(compact)}"

    def pieces() -> Iterator[bytes]:
        yield b"v1"
        for line in _lines(log, compact):
            if integer(parse_object(line.decode(), place), "batchId", place) in wanted:
                yield b"\n" + line

    return lambda: in_blocks(pieces())


def repeated(log: Log, names: Sequence[str], own: Sequence[bytes] = ()) -> Pieces:
    """The content of a compact file that repeats other files of the log and adds some lines."""

    def pieces() -> Iterator[bytes]:
        yield b"v1"
        for line in chain(chain.from_iterable(_lines(log, name) for name in names), own):
            yield b"\n" + line

    return lambda: in_blocks(pieces())


def _lines(log: Log, name: str) -> Iterator[bytes]:
    """The lines below the version line of a file of the log."""
    key = log.key(name)
    with log.storage.open(key) as stream:
        lines = stream_lines(stream, key)
        next(lines)
        yield from (line for line in lines if line)


def in_blocks(pieces: Iterable[bytes]) -> Iterator[bytes]:
    """The same bytes in blocks: a compact file has millions of lines, and each is a write."""
    block = bytearray()
    for piece in pieces:
        block += piece
        if len(block) >= _BLOCK:
            yield bytes(block)
            block.clear()
    yield bytes(block)


def expects_compact(log: Log, number: int) -> bool:
    """Whether Spark expects a compact file of that number."""
    if log.storage.stat(log.key(f".{number}.compact.crc")) is not None:
        return True
    compacts = log.listing.compacts
    interval = compacts[-1] - compacts[-2] if len(compacts) > 1 else _INTERVAL
    if len(compacts) == 1:
        interval = compacts[0] + 1
    return (number + 1) % interval == 0


def empty_entry(log: Log, number: int) -> Edit:
    """An entry without files, which keeps the log's numbers without a gap."""
    if not expects_compact(log, number):
        return Edit(log.place, log.key(str(number)), b"v1")
    content = repeated(log, needed_files(log.listing))
    return Edit(log.place, log.key(f"{number}.compact"), content)
