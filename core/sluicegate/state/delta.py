"""Deltas: what one epoch changed in one shard's state, as a Parquet table that merges.

Arrow adds 64-bit numbers modulo 2**64. Where that could happen, decimals are added instead, and a
column returns to 64 bits if all its sums fit. Doubles are different: a sum has only numbers up to
`MOST_SUMMED`, so that no sum of them becomes infinite, however deltas are grouped. A sum that would
have another is lost: a column with its name and `LOST` states for which keys, and they stay so.

Columns: `key` (text), `replaces` (earlier values are forgotten), `present` (false: the key is
deleted), and one column per value. The metadata of each column states how the values of one key
merge. The state of a shard is the merge of its deltas, oldest first; merging some of them first
gives the same result, so they can be compacted in any grouping.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from enum import Enum
from typing import TYPE_CHECKING, Any, TypeAlias

from sluicegate import arrow
from sluicegate.errors import Corrupt, UsageError

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
    grouped = arrow.grouped(rows, keys, wanted)
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


MOST_SUMMED = 2.0**960
"""The largest double in a sum: 2**63 of them are finite."""


def too_large(column: Any) -> Any:
    """Which doubles must not be in a sum; None if there are none."""
    import pyarrow as pa
    import pyarrow.compute as pc

    if not pa.types.is_floating(column.type):
        return None
    large = pc.fill_null(pc.greater(pc.abs(column), MOST_SUMMED), False)
    return large if pc.any(large).as_py() else None


def is_wide(kind: pa.DataType) -> bool:
    """Whether a column of sums has left 64 bits."""
    import pyarrow as pa

    return bool(pa.types.is_decimal(kind))


def widen(rows: Table, name: str) -> Table:
    """The rows with a column of integers as decimals."""
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


KEY, REPLACES, PRESENT = "key", "replaces", "present"
_OWN = (KEY, REPLACES, PRESENT)
LOST = ".lost"
"""The suffix of a column that is true for the keys whose sum is lost."""
_MERGE = b"merge"
_ORDER = "sg.order"


class Merge(Enum):
    """How two values of one key become one."""

    SUM = "sum"
    MIN = "min"
    MAX = "max"
    LAST = "last"


class DeltaInvalid(Corrupt):
    """A blob is not a delta, or deltas of different streams were mixed."""


def table(
    keys: Sequence[str],
    values: Mapping[str, Sequence[Any]],
    merges: Mapping[str, Merge],
    *,
    replaces: Sequence[bool] | None = None,
    present: Sequence[bool] | None = None,
) -> Table:
    """A delta from columns; by default every key is present and adds to earlier values."""
    import pyarrow as pa

    columns = {
        KEY: arrow.texts(keys),
        REPLACES: arrow.truths(replaces or [False] * len(keys)),
        PRESENT: arrow.truths(present or [True] * len(keys)),
    } | {name: pa.array(column) for name, column in values.items()}
    made = pa.table(columns)
    for name, merge in merges.items():
        made = _with_merge(made, name, merge)
    if clash := sorted(set(_OWN) & values.keys()):
        raise UsageError(f"a value cannot be called {clash[0]!r}", hint="choose another name")
    return made


def binary(values: Sequence[bytes | None]) -> Any:
    """A column of bytes, which may be missing."""
    return arrow.octets(values)


def encode(delta: Table) -> bytes:
    """The bytes of a delta; equal tables give equal bytes."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    sink = pa.BufferOutputStream()
    pq.write_table(delta.sort_by(KEY), sink, compression="zstd", use_dictionary=False)
    return bytes(sink.getvalue())


def decode(data: bytes, place: str) -> Table:
    """The delta in a blob, or `DeltaInvalid`."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        # Not `read_table`, whose threads take longer than a delta of usual size.
        read = pq.ParquetFile(pa.BufferReader(data)).read(use_threads=False)
        _check_own(read)
        _rules(read)
    except (pa.ArrowException, OSError, UnicodeDecodeError, DeltaInvalid) as e:
        raise DeltaInvalid(f"{place} is not a delta: {e}", place=place) from e
    return read


def merge(deltas: Sequence[Table], *, complete: bool = False) -> Table:
    """One delta with the effect of several; `complete`: there are no earlier deltas."""
    import pyarrow as pa
    import pyarrow.compute as pc

    deltas = _with_losses(deltas)
    rules = _rules(deltas[0])
    deltas = _alike(deltas, rules)
    if any(not each.schema.equals(deltas[0].schema, check_metadata=True) for each in deltas):
        raise DeltaInvalid("deltas of different columns cannot be merged")
    rows = pa.concat_tables(
        [
            each.append_column(_ORDER, arrow.repeated(order, each.num_rows))
            for order, each in enumerate(deltas)
        ]
    )
    rows = _since_replaced(rows)
    wanted = [(REPLACES, "any"), (PRESENT, "any"), *((n, rule.value) for n, rule in rules.items())]
    grouped = aggregate(rows, [KEY], wanted)
    named = grouped.select([KEY, *(f"{name}_{how}" for name, how in wanted)])
    merged = named.rename_columns([KEY, REPLACES, PRESENT, *rules])
    merged = merged.select(deltas[0].schema.names)
    for name, rule in rules.items():
        merged = _with_merge(merged, name, rule)
    if complete:
        merged = merged.filter(merged[PRESENT])
        nothing = pc.invert(merged[PRESENT])
        merged = merged.set_column(merged.schema.get_field_index(REPLACES), REPLACES, nothing)
    return merged.sort_by(KEY)


def _with_losses(deltas: Sequence[Table]) -> Sequence[Table]:
    """The deltas with the columns of lost sums that any of them has."""
    names = sorted({n for each in deltas for n in each.column_names if n.endswith(LOST)})
    if not names:
        return deltas
    return [_with_loss(each, names) for each in deltas]


def _with_loss(delta: Table, names: Sequence[str]) -> Table:
    nothing = arrow.truths([False] * delta.num_rows)
    lost = {name: delta[name] if name in delta.column_names else nothing for name in names}
    delta = delta.select([name for name in delta.column_names if name not in lost])
    for name, column in lost.items():
        delta = _with_merge(delta.append_column(name, column), name, Merge.MAX)
    return delta


def _alike(deltas: Sequence[Table], rules: Mapping[str, Merge]) -> Sequence[Table]:
    """The deltas with sums of one kind: wide ones, if those of some had to be."""
    for name in (name for name, rule in rules.items() if rule is Merge.SUM):
        if any(name in each.column_names and is_wide(each[name].type) for each in deltas):
            deltas = [widen(each, name) for each in deltas]
    return deltas


def _since_replaced(rows: Table) -> Table:
    """Without the rows that a later one of the same key replaces."""
    import pyarrow.compute as pc

    replacing = rows.filter(rows[REPLACES])
    if not replacing.num_rows:
        return rows
    latest = aggregate(replacing, [KEY], [(_ORDER, "max")])
    at = pc.index_in(rows[KEY], value_set=latest[KEY], skip_nulls=True)
    start = latest[f"{_ORDER}_max"].take(at)
    return rows.filter(pc.or_kleene(pc.is_null(start), pc.greater_equal(rows[_ORDER], start)))


def _check_own(delta: Table) -> None:
    import pyarrow as pa

    kinds = {KEY: pa.string(), REPLACES: pa.bool_(), PRESENT: pa.bool_()}
    if any(delta.schema.get_field_index(n) < 0 or delta[n].type != kinds[n] for n in kinds):
        raise DeltaInvalid(f"its columns are {delta.schema.names}")


def _rules(delta: Table) -> dict[str, Merge]:
    rules = {}
    for each in delta.schema:
        if each.name in _OWN:
            continue
        try:
            rules[each.name] = Merge((each.metadata or {})[_MERGE].decode())
        except (KeyError, ValueError) as e:
            raise DeltaInvalid(f"column {each.name!r} does not state how it merges") from e
    return rules


def _with_merge(delta: Table, name: str, rule: Merge) -> Table:
    index = delta.schema.get_field_index(name)
    marked = delta.schema.field(name).with_metadata({_MERGE: rule.value.encode()})
    return delta.cast(delta.schema.set(index, marked))
