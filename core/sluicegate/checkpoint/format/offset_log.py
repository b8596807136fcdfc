"""The offset log: the planned end of each batch, and its fixed settings.

Version 1 has one line per source in the order of the plan, `-` for none. Version 2 (Spark 4.2+)
has `<source id>:<offset>` lines in any order. Both have a JSON line of batch metadata first.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from sluicegate.checkpoint.format.log import integer, parse_json, parse_object, read_lines
from sluicegate.errors import Corrupt, SluicegateError
from sluicegate.storage import Storage

if TYPE_CHECKING:
    from sluicegate.positions import Positions


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
    return tuple(SourceOffset(str(number), _offset_or_none(line, place)) for number, line in enumerate(lines))


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
