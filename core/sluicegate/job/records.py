"""Records: lines of JSON as columns, and the reasons to reject a line.

Arrow's parser takes an entire piece at once and refuses all of it for one bad line, so a piece with
bad lines is halved until they are alone. Every line that is given to it begins and ends with a
brace, so no object continues in the next line: then as many rows as lines means one row for each.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.json as pj

from sluicegate.dedup.stamp import MAX_PARTITION, MAX_PRODUCER_BYTES, Column

PARTITION, OFFSET, VALUE, REASON = "_partition", "_offset", "_value", "_reason"
TYPES = {
    "string": pa.string(),
    "long": pa.int64(),
    "double": pa.float64(),
    "boolean": pa.bool_(),
}
REJECT_COLUMNS = pa.schema(
    [
        (PARTITION, pa.int32()),
        (OFFSET, pa.int64()),
        (VALUE, pa.binary()),
        (REASON, pa.string()),
    ]
)
_OPEN, _CLOSE, _RETURN, _NEWLINE = b"{}\r\n"
_SPACE = b" \t\r"
_LONGEST_REASON = 200


@dataclass(frozen=True, slots=True)
class Shape:
    """What a record must have: columns by type, its stamp (or none: the position), its key."""

    columns: Mapping[str, str]
    stamp: tuple[str, ...]
    key: str | None

    @property
    def schema(self) -> pa.Schema:
        """The columns of a parsed record."""
        return pa.schema([(name, TYPES[kind]) for name, kind in self.columns.items()])

    @property
    def rows(self) -> pa.Schema:
        """The same with its place in the source."""
        return pa.schema([*self.schema, (PARTITION, pa.int32()), (OFFSET, pa.int64())])


@dataclass(frozen=True, slots=True)
class Records:
    """The valid records of a piece, and the rejected ones with the reason."""

    rows: pa.Table
    rejects: pa.Table


def parse(data: bytes, partition: int, first: int, shape: Shape) -> Records:
    """The records in complete lines; the first one has the offset `first`."""
    octets = np.frombuffer(data, np.uint8)
    ends = np.flatnonzero(octets == _NEWLINE) + 1
    starts = np.concatenate([np.zeros(1, np.int64), ends[:-1]])
    reader = _Reader(data, starts, ends, shape.schema)
    odd = (octets[starts] != _OPEN) | (octets[_last(octets, starts, ends)] != _CLOSE)
    if odd.any():
        reader.read_parts(np.flatnonzero(odd))
    else:
        reader.read(0, len(starts))
    return _sorted_out(reader, partition, first, shape)


def checked(rows: pa.Table, shape: Shape) -> Records:
    """Records that are columns already, sorted out like those that were parsed."""
    faults = _faults(rows, shape)
    rows = rows.select(shape.rows.names).cast(shape.rows)
    if faults is None:
        return Records(rows.combine_chunks(), REJECT_COLUMNS.empty_table())
    bad = rows.filter(pa.array(faults != 0))
    reasons = [_WHY[int(fault)] for fault in faults[faults != 0]]
    columns = [bad[PARTITION], bad[OFFSET], as_json(bad), pa.array(reasons, pa.string())]
    rejects = pa.table(columns, schema=REJECT_COLUMNS)
    return Records(rows.filter(pa.array(faults == 0)).combine_chunks(), rejects)


def as_json(rows: pa.Table) -> pa.Array:
    """Rejected records as lines again; only the named columns, as the others were not parsed."""
    plain = rows.drop_columns([PARTITION, OFFSET]).to_pylist()
    return pa.array([json.dumps(row, ensure_ascii=False).encode() for row in plain], pa.binary())


def _last(octets: Column, starts: Column, ends: Column) -> Column:
    """Where the last character of each line is; a carriage return before its end is none."""
    last = np.maximum(ends - 2, starts)
    found: Column = last - (octets[last] == _RETURN)
    return found


class _Reader:
    """Parses lines by halving; remembers tables with the numbers of their lines, and bad lines."""

    def __init__(self, data: bytes, starts: Column, ends: Column, schema: pa.Schema) -> None:
        self._data = memoryview(data)
        self._starts, self._ends = starts, ends
        self._schema = schema
        self.tables: list[pa.Table] = []
        self.lines: list[Column] = []
        self.bad: list[tuple[int, str]] = []

    def line(self, number: int) -> bytes:
        """One line, without its end."""
        return bytes(self._data[self._starts[number] : self._ends[number] - 1])

    def read_parts(self, odd: Column) -> None:
        """Read the lines between unusual ones together, and unusual ones alone."""
        begin = 0
        for number in odd.tolist():
            self.read(begin, number)
            self._read_alone(number)
            begin = number + 1
        self.read(begin, len(self._starts))

    def read(self, begin: int, end: int) -> None:
        """Read lines that all begin and end with a brace."""
        if begin == end:
            return
        table, error = self._try(self._data[self._starts[begin] : self._ends[end - 1]], end - begin)
        if table is not None:
            self.tables.append(table)
            self.lines.append(np.arange(begin, end))
        elif end - begin == 1:
            self.bad.append((begin, error))
        else:
            middle = (begin + end) // 2
            self.read(begin, middle)
            self.read(middle, end)

    def _read_alone(self, number: int) -> None:
        stripped = self.line(number).strip(_SPACE)
        if not stripped.startswith(b"{"):
            self.bad.append((number, "it is not a JSON object"))
            return
        table, error = self._try(memoryview(stripped), 1)
        if table is None:
            self.bad.append((number, error))
        else:
            self.tables.append(table)
            self.lines.append(np.array([number]))

    def _try(self, data: memoryview, count: int) -> tuple[pa.Table | None, str]:
        options = pj.ParseOptions(explicit_schema=self._schema, unexpected_field_behavior="ignore")
        try:
            # Arrow's parser does not check whether texts are valid UTF-8.
            _as_text(data).validate(full=True)
            table = pj.read_json(
                pa.BufferReader(pa.py_buffer(data)),
                # One block, so that a line is never too long for it.
                read_options=pj.ReadOptions(use_threads=False, block_size=len(data) + 1),
                parse_options=options,
            )
        except pa.ArrowException as e:
            return None, str(e)[:_LONGEST_REASON]
        if table.num_rows != count:
            return None, "it is more than one JSON object"
        if not len(self._schema):
            table = pa.table({VALUE: pa.nulls(count)})
        return table, ""


def _as_text(data: memoryview) -> pa.Array:
    """All of it as one text, not copied."""
    ends = pa.py_buffer(np.array([0, len(data)], np.int64))
    return pa.Array.from_buffers(pa.large_string(), 1, [None, ends, pa.py_buffer(data)])


def _sorted_out(reader: _Reader, partition: int, first: int, shape: Shape) -> Records:
    empty = shape.schema.empty_table()
    rows = pa.concat_tables([t.select(shape.schema.names) for t in reader.tables] or [empty])
    lines = np.concatenate([*reader.lines, np.empty(0, np.int64)]).astype(np.int64)
    bad = list(reader.bad)
    faults = _faults(rows, shape)
    if faults is not None:
        wrong = np.flatnonzero(faults)
        bad += [(int(lines[n]), _WHY[int(faults[n])]) for n in wrong.tolist()]
        rows, lines = rows.filter(pa.array(faults == 0)), lines[faults == 0]
    # Not appended to the rows: a table without columns has no rows.
    place = [pa.array(np.full(len(lines), partition, np.int32)), pa.array(lines + first)]
    placed = pa.table([*rows.columns, *place], schema=shape.rows)
    return Records(placed.combine_chunks(), _rejects(reader, bad, partition, first))


def _rejects(
    reader: _Reader, bad: Sequence[tuple[int, str]], partition: int, first: int
) -> pa.Table:
    ordered = sorted(bad)
    return pa.table(
        [
            pa.array([partition] * len(ordered), pa.int32()),
            pa.array([first + number for number, _ in ordered], pa.int64()),
            pa.array([reader.line(number) for number, _ in ordered], pa.binary()),
            pa.array([reason for _, reason in ordered], pa.string()),
        ],
        schema=REJECT_COLUMNS,
    )


_NO_KEY, _NO_STAMP, _BAD_STAMP, _BAD_NUMBER = 1, 2, 3, 4
_WHY = {
    _NO_KEY: "it has no key",
    _NO_STAMP: "it has no stamp",
    _BAD_STAMP: "its stamp is out of range",
    _BAD_NUMBER: "it has a number that is not finite",
}


def _faults(rows: pa.Table, shape: Shape) -> Column | None:
    """The fault of each record, 0 for none; None if there are no faults."""
    needed = [*([shape.key] if shape.key else []), *shape.stamp]
    missing = any(rows[name].null_count for name in needed)
    wrong, endless = _out_of_range(rows, shape), _not_finite(rows)
    if not missing and not wrong.any() and not endless.any():
        return None
    faults = np.zeros(rows.num_rows, np.uint8)
    faults[endless] = _BAD_NUMBER
    faults[wrong] = _BAD_STAMP
    for name in shape.stamp:
        faults[_null(rows, name)] = _NO_STAMP
    if shape.key:
        faults[_null(rows, shape.key)] = _NO_KEY
    return faults


def _out_of_range(rows: pa.Table, shape: Shape) -> Column:
    """Which stamps cannot be one."""
    if not shape.stamp or not rows.num_rows:
        return np.zeros(rows.num_rows, bool)
    producer, partition, sequence = (rows[name] for name in shape.stamp)
    size = pc.binary_length(producer)
    checks = [
        pc.greater(size, MAX_PRODUCER_BYTES),
        pc.less(partition, 0),
        pc.greater(partition, MAX_PARTITION),
        pc.less(sequence, 0),
    ]
    wrong = np.zeros(rows.num_rows, bool)
    for check in checks:
        wrong |= pc.fill_null(check, False).to_numpy()
    return wrong


def _not_finite(rows: pa.Table) -> Column:
    """Which records have a number that is not finite; one of them would spoil every sum."""
    wrong = np.zeros(rows.num_rows, bool)
    for column in rows.columns:
        if pa.types.is_floating(column.type):
            wrong |= ~pc.fill_null(pc.is_finite(column), True).to_numpy()
    return wrong


def _null(rows: pa.Table, name: str) -> Column:
    found: Column = pc.is_null(rows[name]).to_numpy()
    return found
