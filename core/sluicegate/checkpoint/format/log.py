"""Spark's metadata logs: offsets, commits, files read by a source, files written by a sink.

A log is a directory of files named by batch number, `N`, some of them `N.compact`. A file is text
without a final newline: a version line (`v1`), then lines whose meaning is the log's own. Files
are created by renaming `.N.<uuid>.tmp`; `.N.crc` is Hadoop's checksum, which Spark does not check.

Version 1 has one line per source in the order of the plan, `-` for none. Version 2 (Spark 4.2+)
has `<source id>:<offset>` lines in any order. Both have a JSON line of batch metadata first.

Both are compactible: every `interval`-th file is `N.compact` and repeats all entries so far, so
the newest compact file and the files after it hold all entries. Compact files grow forever and
reach gigabytes, so they are streamed, never loaded.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from enum import Enum
from functools import lru_cache
from itertools import pairwise
from typing import TYPE_CHECKING, Any, BinaryIO

from sluicegate.errors import Corrupt, NotFound, SluicegateError, UnsupportedFormat
from sluicegate.storage import Storage

if TYPE_CHECKING:
    from sluicegate.positions import Positions


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


COMMITS = "commits"
COMMITS_VERSION = 3

StateIds = Mapping[int, tuple[tuple[str, ...], ...]]
"""Operator → partition → the ids of its stores' files (state format 2)."""


@dataclass(frozen=True, slots=True)
class CommitEntry:
    """One file of the commit log."""

    batch: int
    version: int
    next_watermark_ms: int
    state_ids: StateIds = field(default_factory=dict)
    extra: Mapping[str, Any] = field(default_factory=dict)


def read_commit(storage: Storage, batch: int) -> CommitEntry:
    """The commit of a batch, or `NotFound`, `Corrupt`, `UnsupportedFormat`."""
    key = f"{COMMITS}/{batch}"
    version, lines = read_lines(storage, key, COMMITS_VERSION)
    place = f"{storage.uri}/{key}"
    text = lines[0] if lines else ""
    if not text:
        # A bare version line is how early releases wrote a commit, and Spark accepts it.
        return CommitEntry(batch, version, 0)
    fields = parse_object(text, place)
    known = ("nextBatchWatermarkMs", "stateUniqueIds")
    return CommitEntry(
        batch=batch,
        version=version,
        next_watermark_ms=integer(fields, "nextBatchWatermarkMs", place, default=0),
        state_ids=_state_ids(fields.get("stateUniqueIds") or {}, place),
        extra={name: value for name, value in fields.items() if name not in known},
    )


def _state_ids(value: Any, place: str) -> dict[int, tuple[tuple[str, ...], ...]]:
    try:
        return {
            int(operator): tuple(tuple(str(i) for i in ids) for ids in partitions)
            for operator, partitions in value.items()
        }
    except (AttributeError, TypeError, ValueError) as e:
        raise Corrupt(f"{place}: stateUniqueIds has an unknown form", place=place) from e


OFFSETS = "offsets"
OFFSETS_VERSION = 2
PARTITIONS = "spark.sql.shuffle.partitions"
NO_OFFSET = "-"


class OffsetKind(Enum):
    """The form of an offset's JSON, which depends on the source."""

    KAFKA = "kafka"
    FILE = "file"
    NUMBER = "number"
    OTHER = "other"
    NONE = "none"


@dataclass(frozen=True, slots=True)
class SourceOffset:
    """The position of one source at the end of a batch; `text` is the exact text in the log."""

    source: str
    text: str | None

    @property
    def kind(self) -> OffsetKind:
        return self._interpret()[0]

    @property
    def positions(self) -> Positions | None:
        """The positions, if the offset is in Kafka's form."""
        value = self._interpret()[1]
        return None if isinstance(value, int) else value

    @property
    def number(self) -> int | None:
        """The log offset of a file source, or the number of a counting source."""
        value = self._interpret()[1]
        return value if isinstance(value, int) else None

    def _interpret(self) -> tuple[OffsetKind, Positions | int | None]:
        return _interpret(self.text)


@dataclass(frozen=True, slots=True)
class OffsetEntry:
    """One file of the offset log."""

    batch: int
    version: int
    watermark_ms: int
    timestamp_ms: int
    conf: Mapping[str, str]
    offsets: tuple[SourceOffset, ...]
    extra: Mapping[str, Any] = field(default_factory=dict)

    @property
    def partitions(self) -> int | None:
        """The number of shuffle partitions, if the entry has it."""
        text = self.conf.get(PARTITIONS, "")
        return int(text) if text.isascii() and text.isdigit() and len(text) <= 10 else None


def read_offsets(storage: Storage, batch: int) -> OffsetEntry:
    """The offsets of a batch, or `NotFound`, `Corrupt`, `UnsupportedFormat`."""
    key = f"{OFFSETS}/{batch}"
    version, lines = read_lines(storage, key, OFFSETS_VERSION)
    place = f"{storage.uri}/{key}"
    if not lines or not any(lines):
        raise Corrupt(f"{place}: the batch metadata is missing", place=place)
    # Spark accepts an empty line of metadata, as its oldest releases wrote it.
    fields = parse_object(lines[0], place) if lines[0] else {}
    known = ("batchWatermarkMs", "batchTimestampMs", "conf")
    offsets = [line for line in lines[1:] if line]
    return OffsetEntry(
        batch=batch,
        version=version,
        watermark_ms=integer(fields, "batchWatermarkMs", place, default=0),
        timestamp_ms=integer(fields, "batchTimestampMs", place, default=0),
        conf=_conf(fields.get("conf", {}), place),
        offsets=_named(offsets, place) if version >= 2 else _ordered(offsets, place),
        extra={name: value for name, value in fields.items() if name not in known},
    )


def render(entry: OffsetEntry, *, conf: object = None) -> str:
    """The text of an entry of the offset log, as Spark writes it."""
    fields = {
        "batchWatermarkMs": entry.watermark_ms,
        "batchTimestampMs": entry.timestamp_ms,
        "conf": entry.conf if conf is None else conf,
        **entry.extra,
    }
    lines = [f"v{entry.version}", json.dumps(fields, separators=(",", ":"))]
    for each in entry.offsets:
        if entry.version == 1:
            lines.append(each.text or NO_OFFSET)
        elif each.text is not None:
            lines.append(f"{each.source}:{each.text}")
    return "\n".join(lines)


def _ordered(lines: list[str], place: str) -> tuple[SourceOffset, ...]:
    if not lines:
        raise Corrupt(f"{place}: there are no sources", place=place)
    return tuple(
        SourceOffset(str(number), _offset_or_none(line, place)) for number, line in enumerate(lines)
    )


def _named(lines: list[str], place: str) -> tuple[SourceOffset, ...]:
    found: dict[str, SourceOffset] = {}
    for line in lines:
        source, colon, text = line.partition(":")
        if not colon or not source or source in found:
            raise Corrupt(f"{place}: {line[:60]!r} is not a source and its offset", place=place)
        found[source] = SourceOffset(source, _offset_or_none(text, place))
    if not found:
        raise Corrupt(f"{place}: there are no sources", place=place)
    return tuple(found[source] for source in sorted(found))


def _offset_or_none(line: str, place: str) -> str | None:
    if line == NO_OFFSET:
        return None
    if not line:
        raise Corrupt(f"{place}: a source has an empty offset", place=place)
    # Nearly every source writes JSON, so a cut line shows here; other text cannot be checked.
    if line[0] in '{["':
        parse_json(line, place)
    return line


def _conf(value: Any, place: str) -> dict[str, str]:
    if not isinstance(value, dict) or not all(isinstance(v, str) for v in value.values()):
        raise Corrupt(f"{place}: conf is not an object of texts", place=place)
    return value


@lru_cache(maxsize=32)
def _interpret(text: str | None) -> tuple[OffsetKind, Positions | int | None]:
    if text is None:
        return OffsetKind.NONE, None
    try:
        return _interpret_value(parse_json(text, ""))
    except SluicegateError:
        return OffsetKind.OTHER, None


def _interpret_value(value: Any) -> tuple[OffsetKind, Positions | int | None]:
    if isinstance(value, int) and not isinstance(value, bool):
        return OffsetKind.NUMBER, value
    if not isinstance(value, dict):
        return OffsetKind.OTHER, None
    if set(value) == {"logOffset"} and isinstance(value["logOffset"], int):
        return OffsetKind.FILE, value["logOffset"]
    if value and all(isinstance(partitions, dict) for partitions in value.values()):
        # Imported when a Kafka offset is met: not every checkpoint has one.
        from sluicegate.positions import from_spark

        try:
            return OffsetKind.KAFKA, from_spark(value)
        except SluicegateError:
            pass
    return OffsetKind.OTHER, None


SINK_DIRECTORY = "_spark_metadata"
FILES_VERSION = 1


@dataclass(frozen=True, slots=True)
class SourceFile:
    """A file that the file source has read, and in which of its own log's batches."""

    path: str
    timestamp_ms: int
    batch: int


@dataclass(frozen=True, slots=True)
class SinkFile:
    """A file that the file sink has written (`add`) or deleted (`delete`)."""

    path: str
    size: int
    modified_ms: int
    action: str


@dataclass(frozen=True, slots=True)
class LogSize:
    """The size of a compactible log: its newest compact file and the entries after it."""

    entries: int
    compact_bytes: int


def needed_files(listing: LogListing) -> tuple[str, ...]:
    """The names of the files that together hold every entry, oldest first."""
    start = listing.last_compact
    after = [str(n) for n in listing.batches if start is None or n > start]
    return (*([] if start is None else [f"{start}.compact"]), *after)


def missing_numbers(listing: LogListing) -> list[range]:
    """The entries that reading the log back to its newest compact file needs and does not find.

    As ranges, because a stray name can be a huge number.
    """
    before = -1 if listing.last_compact is None else listing.last_compact
    after = [number for number in listing.batches if number > before]
    return [range(a + 1, b) for a, b in pairwise([before, *after]) if b > a + 1]


def read_source_files(storage: Storage, key: str) -> Iterator[SourceFile]:
    """The entries of one file of a file source's log."""
    place = f"{storage.uri}/{key}"
    for number, line in _entries(storage, key, place):
        where = f"{place}, line {number}"
        fields = parse_object(line, where)
        yield SourceFile(
            _path(fields.get("path"), where),
            integer(fields, "timestamp", where),
            integer(fields, "batchId", where),
        )


def read_sink_files(storage: Storage, key: str) -> Iterator[SinkFile]:
    """The entries of one file of a file sink's log."""
    place = f"{storage.uri}/{key}"
    for number, line in _entries(storage, key, place):
        where = f"{place}, line {number}"
        fields = parse_object(line, where)
        yield SinkFile(
            _path(fields.get("path"), where),
            integer(fields, "size", where),
            integer(fields, "modificationTime", where, default=0),
            str(fields.get("action", "add")),
        )


def measure(storage: Storage, directory: str, listing: LogListing) -> LogSize:
    """Count the entries of a log without parsing them."""
    entries = 0
    for name in needed_files(listing):
        with storage.open(f"{directory}/{name}") as stream:
            entries += count_lines(stream)
    compact = 0
    if listing.last_compact is not None:
        found = storage.stat(f"{directory}/{listing.last_compact}.compact")
        compact = found.size if found else 0
    return LogSize(entries, compact)


def _entries(storage: Storage, key: str, place: str) -> Iterator[tuple[int, str]]:
    with storage.open(key) as stream:
        lines = stream_lines(stream, place)
        parse_version(_decoded(next(lines), place), place, FILES_VERSION)
        for number, line in enumerate(lines, 2):
            if line:
                yield number, _decoded(line, place)


def _decoded(line: bytes, place: str) -> str:
    try:
        return line.decode()
    except UnicodeDecodeError as e:
        raise Corrupt(f"{place}: not UTF-8", place=place) from e


def _path(value: object, where: str) -> str:
    if not isinstance(value, str) or not value:
        raise Corrupt(f"{where}: the path is missing", place=where)
    return value
