"""Positions: topic → partition → next offset to read. One type for every kind of target.

Three interchange forms are read and written: Spark's JSON (`{"orders":{"0":123}}`), Kafka's CSV
(`topic,partition,offset`, as kafka-consumer-groups exports and resets) and rpk's text
(`topic partition offset`, as `rpk group seek --to-file` reads).
"""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Any

from sluicegate.errors import UsageError

MAX_OFFSET = 2**63 - 1
_MAX_PARTITION = 2**31 - 1
_TOPIC_BYTES = 1024


class PositionsInvalid(UsageError):
    """A text does not describe positions."""

    default_hint = "positions are integers from 0 to 2^63-1, per topic and partition"


class PositionsForm(Enum):
    """A text format of positions."""

    SPARK = "spark"
    CSV = "csv"
    RPK = "rpk"


@dataclass(frozen=True, slots=True)
class Position:
    """The next offset to read of one partition."""

    topic: str
    partition: int
    offset: int


@dataclass(frozen=True, slots=True)
class Positions:
    """Positions by topic and partition; equality does not depend on the order."""

    by_topic: Mapping[str, Mapping[int, int]]

    def __iter__(self) -> Iterator[Position]:
        for topic in sorted(self.by_topic):
            for partition, offset in sorted(self.by_topic[topic].items()):
                yield Position(topic, partition, offset)

    def __len__(self) -> int:
        return sum(len(partitions) for partitions in self.by_topic.values())

    def get(self, topic: str, partition: int) -> int | None:
        """The position of one partition, or None."""
        return self.by_topic.get(topic, {}).get(partition)

    @classmethod
    def of(cls, positions: Iterable[Position]) -> Positions:
        """Positions from single ones; the same partition twice is an error."""
        by_topic: dict[str, dict[int, int]] = {}
        for each in positions:
            partitions = by_topic.setdefault(each.topic, {})
            if each.partition in partitions:
                raise PositionsInvalid(f"{each.topic}[{each.partition}] occurs twice")
            partitions[each.partition] = each.offset
        return cls(by_topic).checked()

    def updated(self, other: Positions) -> Positions:
        """These positions, replaced or extended by those of the other."""
        by_topic = {topic: dict(partitions) for topic, partitions in self.by_topic.items()}
        for each in other:
            by_topic.setdefault(each.topic, {})[each.partition] = each.offset
        return Positions(by_topic).checked()

    def covers(self, other: Positions) -> bool:
        """Whether everything up to the other positions lies before these."""
        return all((self.get(p.topic, p.partition) or 0) >= p.offset for p in other)

    def highest(self, other: Positions) -> Positions:
        """For each partition the higher of both."""
        higher = (p for p in other if (self.get(p.topic, p.partition) or 0) < p.offset)
        return self.updated(Positions.of(higher))

    def checked(self) -> Positions:
        """These positions, if every topic, partition and offset is valid."""
        for topic, partitions in self.by_topic.items():
            if not _is_name(topic):
                raise PositionsInvalid(f"topic {topic!a} is not a name")
            if not partitions:
                raise PositionsInvalid(f"topic {topic!r} has no partitions")
            for partition, offset in partitions.items():
                # A float or bool would pass the comparison, and could not be read again.
                if type(partition) is not int or type(offset) is not int:
                    raise PositionsInvalid(f"{topic}[{partition!a}]: not integers")
                if not 0 <= partition <= _MAX_PARTITION:
                    raise PositionsInvalid(f"{topic}[{partition}]: the partition is out of range")
                if not 0 <= offset <= MAX_OFFSET:
                    raise PositionsInvalid(f"{topic}[{partition}]: {offset} is not a position")
        return self


def from_spark(value: Any) -> Positions:
    """Positions from Spark's JSON, parsed; -1 and -2 are starting points, not positions."""
    if not isinstance(value, dict):
        raise PositionsInvalid("positions must be a JSON object of topics")
    return Positions.of(
        Position(topic, _number(partition, f"{topic}: partition"), _integer(offset, topic))
        for topic, partitions in value.items()
        for partition, offset in _partitions(topic, partitions)
    )


def to_spark(positions: Positions) -> dict[str, dict[str, int]]:
    """Positions as the value of Spark's JSON."""
    result: dict[str, dict[str, int]] = {topic: {} for topic in sorted(positions.by_topic)}
    for each in positions:
        result[each.topic][str(each.partition)] = each.offset
    return result


def parse(text: str, form: PositionsForm | None = None) -> Positions:
    """Positions from any of the three forms; without `form` it is detected."""
    form = form or _guess(text)
    if form is PositionsForm.SPARK:
        try:
            return from_spark(json.loads(text, object_pairs_hook=_unique))
        except (ValueError, RecursionError) as e:
            raise PositionsInvalid(f"not valid JSON: {e}") from e
    if form is PositionsForm.CSV:
        try:
            rows = list(csv.reader(io.StringIO(text), strict=True))
        except csv.Error as e:
            raise PositionsInvalid(f"not valid CSV: {e}") from e
    else:
        rows = [line.split() for line in text.splitlines()]
    return Positions.of(_position(number, row) for number, row in enumerate(rows, 1) if any(row))


def render(positions: Positions, form: PositionsForm) -> str:
    """The text of positions in one of the forms, with a final newline."""
    if form is PositionsForm.SPARK:
        return json.dumps(to_spark(positions), separators=(",", ":")) + "\n"
    if form is PositionsForm.RPK:
        for each in positions:
            if not each.topic or each.topic.split() != [each.topic]:
                raise PositionsInvalid(f"topic {each.topic!r} has blanks, which rpk cannot read")
        return "".join(f"{p.topic} {p.partition} {p.offset}\n" for p in positions)
    out = io.StringIO()
    csv.writer(out, lineterminator="\n").writerows(
        (p.topic, p.partition, p.offset) for p in positions
    )
    return out.getvalue()


def _guess(text: str) -> PositionsForm:
    if text.lstrip().startswith("{"):
        return PositionsForm.SPARK
    return PositionsForm.CSV if "," in text else PositionsForm.RPK


def _position(number: int, row: list[str]) -> Position:
    if len(row) != 3:
        raise PositionsInvalid(f"line {number}: expected topic, partition and offset, got {row!r}")
    topic, partition, offset = row
    where = f"line {number}:"
    return Position(topic, _number(partition, where), _number(offset, where))


def _is_name(topic: object) -> bool:
    try:
        return isinstance(topic, str) and 0 < len(topic.encode()) <= _TOPIC_BYTES
    except UnicodeEncodeError:
        return False


def _partitions(topic: str, value: Any) -> Iterable[tuple[str, Any]]:
    if not isinstance(value, dict):
        raise PositionsInvalid(f"{topic}: expected an object of partitions, got {value!r}")
    return value.items()


def _integer(value: Any, topic: str) -> int:
    if not isinstance(value, int) or isinstance(value, bool):
        raise PositionsInvalid(f"{topic}: {value!r} is not an integer")
    return value


def _number(text: str, where: str) -> int:
    # int() also takes blanks, underscores and other digits, which no Kafka tool writes.
    if not (text.isascii() and text.isdigit() and len(text) <= 20):
        raise PositionsInvalid(f"{where} {text!r} is not an integer")
    return int(text)


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    result = dict(pairs)
    if len(result) != len(pairs):
        raise PositionsInvalid("a topic or partition occurs twice")
    return result
