"""Sums of whole numbers that never wrap.

Arrow adds 64-bit numbers modulo 2**64. Where that could happen, decimals are added instead, and a
column goes back to 64 bits if all its sums fit.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, TypeAlias

if TYPE_CHECKING:
    import pyarrow as pa

Table: TypeAlias = "pa.Table"

_LARGEST = 2**63 - 1
_DIGITS = 38


def aggregate(rows: Table, keys: Sequence[str], wanted: Sequence[tuple[str, str]]) -> Table:
    """Group rows by keys; each aggregate of a column is called as Arrow calls it, `COLUMN_HOW`."""
    import pyarrow as pa

    summed = [name for name, how in wanted if how == "sum"]
    for name in summed:
        if not fit(rows[name]):
            rows = widen(rows, name)
    grouped = rows.group_by(list(keys), use_threads=False).aggregate(list(wanted))
    for name in (f"{each}_sum" for each in summed):
        if is_wide(grouped[name].type) and _largest(grouped[name]) <= _LARGEST:
            grouped = _cast(grouped, name, pa.int64())
    return grouped


def fit(column: Any) -> bool:
    """Whether no sum of some of these values can wrap."""
    import pyarrow as pa

    if not pa.types.is_integer(column.type):
        return True
    return _largest(column) * len(column) <= _LARGEST


def is_wide(kind: pa.DataType) -> bool:
    """Whether a column of sums has left 64 bits."""
    import pyarrow as pa

    return bool(pa.types.is_decimal(kind))


def widen(rows: Table, name: str) -> Table:
    """The rows with a column of whole numbers as decimals."""
    import pyarrow as pa

    return _cast(rows, name, pa.decimal128(_DIGITS, 0))


def _largest(column: Any) -> int:
    import pyarrow.compute as pc

    ends = pc.min_max(column).as_py()
    return max(abs(int(end or 0)) for end in ends.values())


def _cast(rows: Table, name: str, kind: pa.DataType) -> Table:
    index = rows.schema.get_field_index(name)
    field = rows.schema.field(index).with_type(kind)
    return rows.cast(rows.schema.set(index, field))
