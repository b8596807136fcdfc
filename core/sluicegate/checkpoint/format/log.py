"""The grammar that all of Spark's metadata logs share.

A log is a directory of files named by batch number, `N`, some of them `N.compact`. A file is text
without a final newline: a version line (`v1`), then lines whose meaning is the log's own. Files
are created by renaming `.N.<uuid>.tmp`; `.N.crc` is Hadoop's checksum, which Spark does not check.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, BinaryIO

from sluicegate.errors import Corrupt, NotFound, UnsupportedFormat
from sluicegate.storage import Storage

MAX_FILE = 64 * 1024 * 1024
_CHUNK = 1 << 20
_MAX_LINE = 16 << 20
_NAME = re.compile(r"(0|[1-9][0-9]{0,18})(\.compact)?")
_SUM = re.compile(r"\.(0|[1-9][0-9]{0,18})(?:\.compact)?\.crc")
TEMPORARY = re.compile(r"\..*\.tmp(\.crc)?")
_VERSION = re.compile(r"v([0-9]{1,9})")


@dataclass(frozen=True, slots=True)
class LogListing:
    """The content of a log's directory; all numbers ascending.

    `deleted` are batches of which only Hadoop's checksum is left: they were removed by hand, since
    Spark removes both.
    """

    batches: tuple[int, ...] = ()
    compacts: tuple[int, ...] = ()
    temporary: tuple[str, ...] = ()
    deleted: tuple[int, ...] = ()
    exists: bool = True

    @property
    def last(self) -> int | None:
        """The newest batch, compact or not."""
        newest = (*self.batches[-1:], *self.compacts[-1:])
        return max(newest) if newest else None

    @property
    def last_compact(self) -> int | None:
        return self.compacts[-1] if self.compacts else None


def list_log(storage: Storage, directory: str) -> LogListing:
    """The batches of a log; a missing directory is an empty log that does not exist."""
    batches: list[int] = []
    compacts: list[int] = []
    temporary: list[str] = []
    sums: set[int] = set()
    try:
        entries = storage.list(directory)
    except NotFound:
        return LogListing(exists=False)
    for entry in entries:
        if entry.kind != "file":
            continue
        if name := _NAME.fullmatch(entry.name):
            (compacts if name[2] else batches).append(int(name[1]))
        elif TEMPORARY.fullmatch(entry.name):
            temporary.append(entry.name)
        elif checksum := _SUM.fullmatch(entry.name):
            sums.add(int(checksum[1]))
    deleted = sums.difference(batches, compacts)
    return LogListing(
        tuple(sorted(batches)),
        tuple(sorted(compacts)),
        tuple(sorted(temporary)),
        tuple(sorted(deleted)),
    )


def read_lines(storage: Storage, key: str, newest_known: int) -> tuple[int, list[str]]:
    """Version and remaining lines of a small log file."""
    data = storage.get(key, limit=MAX_FILE)
    place = f"{storage.uri}/{key}"
    try:
        lines = data.decode().split("\n")
    except UnicodeDecodeError as e:
        raise Corrupt(f"{place}, byte {e.start}: not UTF-8", place=place) from e
    return parse_version(lines[0], place, newest_known), lines[1:]


def parse_version(line: str, place: str, newest_known: int) -> int:
    """The number in a version line; a newer one than is known is `UnsupportedFormat`."""
    if not line:
        raise Corrupt(f"{place}: the file is empty", place=place)
    found = _VERSION.fullmatch(line)
    if found is None or int(found[1]) < 1:
        raise Corrupt(f"{place}: {line[:40]!r} is not a version line", place=place)
    version = int(found[1])
    if version > newest_known:
        raise UnsupportedFormat(
            f"{place} has log version {version}; this release reads up to {newest_known}",
            place=place,
        )
    return version


def parse_json(text: str, place: str) -> Any:
    """A JSON value, or `Corrupt`; numbers that JSON does not have are refused."""
    try:
        return json.loads(text, parse_constant=_no_constant)
    except (ValueError, RecursionError) as e:
        raise Corrupt(f"{place}: not valid JSON: {e}", place=place) from e


def parse_object(text: str, place: str) -> dict[str, Any]:
    """A JSON object, or `Corrupt`."""
    value = parse_json(text, place)
    if not isinstance(value, dict):
        raise Corrupt(f"{place}: expected a JSON object", place=place)
    return value


def integer(fields: dict[str, Any], name: str, place: str, default: int | None = None) -> int:
    """An integer of a JSON object, or `Corrupt`."""
    value = fields.get(name, default)
    if not isinstance(value, int) or isinstance(value, bool) or not -(2**63) <= value < 2**63:
        raise Corrupt(f"{place}: {name} is {value!a:.60}, not an integer", place=place)
    return value


def stream_lines(stream: BinaryIO, place: str) -> Iterator[bytes]:
    """The lines of a file of any size, one chunk in memory; the last may lack its newline."""
    rest = b""
    while chunk := stream.read(_CHUNK):
        *lines, rest = (rest + chunk).split(b"\n")
        yield from lines
        if len(rest) > _MAX_LINE:
            raise Corrupt(f"{place}: a line is longer than {_MAX_LINE} bytes", place=place)
    yield rest


def count_lines(stream: BinaryIO) -> int:
    """How many lines follow the version line, without looking at them."""
    newlines = 0
    while chunk := stream.read(_CHUNK):
        newlines += chunk.count(b"\n")
    return newlines


def _no_constant(name: str) -> None:
    raise ValueError(f"{name} is not a number")
