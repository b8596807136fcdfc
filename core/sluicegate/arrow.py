"""Arrow columns from Python and numpy values and back, without importing pandas.

pyarrow imports pandas, if it is installed, when it first meets a value that might belong to it: in
`pa.array` and `pa.scalar`, in `to_numpy` and `np.asarray`, in functions of `pyarrow.compute` that
get a plain number, and when `pyarrow.dataset` is imported, which `read_table`, `group_by` and
`join` do. PySpark needs pandas, so it is installed, and its import takes ten times as long as
opening a stream. The functions here return the same columns in other ways. Where only Arrow can
determine the type of values, they call it, and pandas is imported.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, TypeAlias

if TYPE_CHECKING:
    import numpy as np
    import pyarrow as pa

Column: TypeAlias = "np.ndarray[Any, Any]"

# The largest offset in a column of texts; Arrow splits longer columns.
_LONGEST = 2**31 - 1


def texts(values: Sequence[Any]) -> pa.Array:
    """A column of texts."""
    import pyarrow as pa

    if not all(type(each) is str for each in values):
        return pa.array(values, pa.string())
    return _packed([each.encode() for each in values], pa.string())


def octets(values: Sequence[bytes | None]) -> pa.Array:
    """A column of bytes, which may be missing."""
    import pyarrow as pa

    if not all(each is None or type(each) is bytes for each in values):
        return pa.array(values, pa.binary())
    return _packed(values, pa.binary())


def _packed(parts: Sequence[bytes | None], kind: pa.DataType) -> pa.Array:
    import numpy as np
    import pyarrow as pa

    ends = np.cumsum([0, *(len(each or b"") for each in parts)], dtype=np.int64)
    if ends[-1] > _LONGEST:
        return pa.array(parts, kind)
    present = None
    if None in parts:
        present = _bits(np.array([each is not None for each in parts]))
    content = pa.py_buffer(b"".join(each for each in parts if each))
    offsets = pa.py_buffer(ends.astype(np.int32))
    return pa.Array.from_buffers(kind, len(parts), [present, offsets, content])


def column(values: Column) -> pa.Array:
    """A column of numbers or truth values from numpy; numbers are not copied."""
    import numpy as np
    import pyarrow as pa

    kind = pa.from_numpy_dtype(values.dtype)
    is_truth = values.dtype == np.bool_
    content = _bits(values) if is_truth else pa.py_buffer(np.ascontiguousarray(values))
    return pa.Array.from_buffers(kind, len(values), [None, content])


def truths(values: Sequence[bool]) -> pa.Array:
    """A column of truth values."""
    import numpy as np

    return column(np.array(values, bool))


def repeated(number: int, count: int) -> pa.Array:
    """A column that has the same integer in every row."""
    import numpy as np

    return column(np.full(count, number, np.int64))


def _bits(values: Column) -> pa.Buffer:
    import numpy as np
    import pyarrow as pa

    return pa.py_buffer(np.packbits(values, bitorder="little"))


def values_of(column: pa.Array) -> Column:
    """A column of numbers or truth values, none of them missing, as numpy has it.

    Numbers are not copied, so they cannot be written to.
    """
    import numpy as np
    import pyarrow as pa

    assert not column.null_count, "numpy has no missing numbers"
    if not pa.types.is_boolean(column.type):
        return np.from_dlpack(column)
    if not len(column):
        return np.empty(0, bool)
    octets = np.frombuffer(column.buffers()[1], np.uint8)
    bits = np.unpackbits(octets, count=column.offset + len(column), bitorder="little")
    return bits[column.offset :].view(bool)


def grouped(rows: pa.Table, keys: Sequence[str], wanted: Sequence[tuple[str, str]]) -> pa.Table:
    """Group rows by keys, in their order; each aggregate of a column is called `COLUMN_HOW`."""
    try:
        # `pyarrow.acero` has these, too, but also imports `pyarrow.dataset`.
        from pyarrow._acero import AggregateNodeOptions, Declaration, TableSourceNodeOptions
    except ImportError:
        return rows.group_by(list(keys), use_threads=False).aggregate(list(wanted))
    aggregates = [([name], f"hash_{how}", None, f"{name}_{how}") for name, how in wanted]
    steps = [
        Declaration("table_source", TableSourceNodeOptions(rows)),
        Declaration("aggregate", AggregateNodeOptions(aggregates, keys=list(keys))),
    ]
    return Declaration.from_sequence(steps).to_table(use_threads=False)
