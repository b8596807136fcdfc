"""What a stream must come to, computed from the produced records without anything of the product.

The records are read from the files of the log with `open` and `json`, duplicates are dropped with a
set, aggregates are kept in dictionaries. What was published is read with nothing but Parquet.
"""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq

STAMP = ("producer", "partition", "seq")
KINDS: dict[str, Any] = {
    "string": str,
    "long": int,
    "double": (int, float),
    "boolean": bool,
}
MOST = sys.float_info.max
Place = tuple[int, int]
Row = dict[str, Any]


@dataclass(frozen=True)
class Table:
    """What the truth has to know of a stream's table."""

    columns: Mapping[str, str] = field(default_factory=lambda: {"price": "long"})
    stamp: Sequence[str] = STAMP
    key: str | None = "user"
    aggregates: Mapping[str, str] = field(default_factory=dict)

    @property
    def types(self) -> dict[str, str]:
        """Every column with its type, those of stamp and key, too."""
        own = dict(zip(self.stamp, ("string", "long", "long"), strict=False))
        return {**self.columns, **own, **({self.key: "string"} if self.key else {})}


@dataclass
class Truth:
    """What must have been counted, what must have been written, and what cannot be applied."""

    state: dict[str, Row]
    rows: dict[Any, Row]
    """Stamp → the event, of the smallest position."""
    places: dict[Any, list[Place]]
    """Stamp → where it is, the smallest position first."""
    duplicates: int
    rejects: set[Place]
    read: int


def records(log: Path) -> dict[Place, bytes]:
    """Every whole line of every partition, by partition and offset."""
    found: dict[Place, bytes] = {}
    for partition in log.glob("partition-*"):
        number = int(partition.name.removeprefix("partition-"))
        for segment in partition.glob("*.jsonl"):
            lines = segment.read_bytes().split(b"\n")[:-1]
            found |= {(number, int(segment.stem) + at): line for at, line in enumerate(lines)}
    return dict(sorted(found.items()))


def truth(produced: Mapping[Place, bytes], table: Table) -> Truth:
    """What a stream of this table must come to when it has read everything."""
    rows: dict[Any, Row] = {}
    places: dict[Any, list[Place]] = {}
    rejects = set()
    for place, line in sorted(produced.items()):
        row = event(line, table)
        if row is None:
            rejects.add(place)
            continue
        stamp = tuple(row[name] for name in table.stamp) if table.stamp else place
        rows.setdefault(stamp, row)
        places.setdefault(stamp, []).append(place)
    duplicates = len(produced) - len(rejects) - len(rows)
    state = aggregated(rows.values(), table)
    return Truth(state, rows, places, duplicates, rejects, len(produced))


def event(line: bytes, table: Table) -> Row | None:
    """The columns of a record, or None if it has to be rejected."""
    try:
        pairs = json.loads(line.decode(), object_pairs_hook=_Pairs, parse_float=_number)
        # Half of a pair of surrogates is no text.
        json.dumps(pairs, ensure_ascii=False).encode()
    except ValueError:
        return None
    known = [(n, v) for n, v in pairs if n in table.types] if type(pairs) is _Pairs else None
    if known is None or len(dict(known)) != len(known):
        return None
    row: Row = {name: dict(known).get(name) for name in table.types}
    if not all(_fits(row[name], kind) for name, kind in table.types.items()):
        return None
    for name, kind in table.types.items():
        if kind == "double" and row[name] is not None:
            row[name] = float(row[name])
    needed = [row[name] for name in (*table.stamp, *([table.key] if table.key else []))]
    if any(value is None for value in needed):
        return None
    if table.stamp and not _is_stamp(*(row[name] for name in table.stamp)):
        return None
    return row


class _Pairs(list[tuple[str, Any]]):
    """An object of JSON, in which a name may come twice."""


def _number(text: str) -> float:
    if math.isinf(float(text)):
        raise ValueError(f"{text} is too large")
    return float(text)


def _fits(value: Any, kind: str) -> bool:
    if value is None:
        return True
    if kind != "boolean" and isinstance(value, bool):
        return False
    if kind == "long":
        return type(value) is int and -(2**63) <= value < 2**63
    if kind == "double" and isinstance(value, (int, float)):
        return abs(value) <= MOST
    return isinstance(value, KINDS[kind])


def _is_stamp(producer: str, partition: int, sequence: int) -> bool:
    return len(producer.encode()) <= 65536 and 0 <= partition < 2**31 and sequence >= 0


def aggregated(rows: Iterable[Row], table: Table) -> dict[str, Row]:
    """The aggregates of every key, one event after the other."""
    if table.key is None:
        return {}
    by_key: dict[str, list[Row]] = {}
    for row in rows:
        by_key.setdefault(row[table.key], []).append(row)
    return {key: _aggregate(rows, table.aggregates) for key, rows in by_key.items()}


def _aggregate(rows: list[Row], aggregates: Mapping[str, str]) -> Row:
    found: Row = {"events": len(rows)}
    for name, text in aggregates.items():
        how, _, column = text.rstrip(")").partition("(")
        values: list[Any] = rows
        if column:
            values = [row[column] for row in rows if row[column] is not None]
        if how == "count":
            found[name] = len(values)
        elif not values:
            found[name] = None
        elif how == "avg":
            found[name] = sum(values) / len(values)
        else:
            function: Any = {"sum": sum, "min": min, "max": max}[how]
            found[name] = function(values)
    return found


def same(found: Any, wanted: Any) -> bool:
    """Whether two values are equal, but for the rounding of sums in another order."""
    if isinstance(found, float) and isinstance(wanted, (int, float)):
        return math.isclose(found, wanted, rel_tol=1e-9, abs_tol=1e-9)
    if isinstance(found, dict) and isinstance(wanted, dict):
        return found.keys() == wanted.keys() and all(same(found[k], wanted[k]) for k in wanted)
    return bool(found == wanted)


def published(sink: Path, kind: str) -> list[Row]:
    """The rows of everything that is published, in the order of the snapshots."""
    found: list[Row] = []
    for file in sorted((sink / kind).glob("snapshot=*/*.parquet")):
        found += pq.ParquetFile(file).read().to_pylist()
    return found
