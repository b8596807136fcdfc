"""Aggregates: what a stream keeps per key, as columns of its deltas.

`count` counts events; `sum(column)`, `min(column)`, `max(column)` and `avg(column)` leave out
events in which the column is null. An average is kept as a sum and a count, which merge. A sum or
average that is lost, because a double was too large for it, is null for good.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Any, Literal

from sluicegate.arrow import texts
from sluicegate.errors import ConfigInvalid
from sluicegate.state.delta import KEY, LOST, PRESENT, REPLACES, Merge, Table

EVENTS = "events"
"""The column that every delta of a job has: how many events of the key were applied."""

_FORM = re.compile(r"(count)|(sum|min|max|avg)\(\s*([^()\s]+)\s*\)")
_NUMBERS = ("long", "double")
_SUM, _COUNT = ".sum", ".count"


@dataclass(frozen=True, slots=True)
class Value:
    """One column of a delta: its source column, how it is computed and how it merges."""

    name: str
    how: Literal["sum", "min", "max", "count"]
    column: str
    merge: Merge

    @property
    def aggregate(self) -> str:
        """The name of its aggregate."""
        return self.name.removesuffix(_SUM).removesuffix(_COUNT)


@dataclass(frozen=True, slots=True)
class Aggregate:
    """One aggregate by its name; `column` is that of the records, none for a plain count."""

    name: str
    how: str
    column: str | None

    @property
    def values(self) -> tuple[Value, ...]:
        """The columns it is kept as; a plain count is the number of events, kept anyway."""
        if self.column is None:
            return ()
        if self.how == "avg":
            return (
                Value(self.name + _SUM, "sum", self.column, Merge.SUM),
                Value(self.name + _COUNT, "count", self.column, Merge.SUM),
            )
        merge = Merge(self.how)
        assert self.how in ("sum", "min", "max")
        return (Value(self.name, self.how, self.column, merge),)  # type: ignore[arg-type]


def parse(aggregates: Mapping[str, str], columns: Mapping[str, str]) -> tuple[Aggregate, ...]:
    """The aggregates of a stream's table, by name; `ConfigInvalid` names what is wrong."""
    found = []
    for name, text in sorted(aggregates.items()):
        if name in (KEY, REPLACES, PRESENT, EVENTS) or name.endswith((_SUM, _COUNT, LOST)):
            raise ConfigInvalid(
                f"an aggregate cannot be called {name!r}", hint="choose another name"
            )
        form = _FORM.fullmatch(text.strip())
        if form is None:
            raise ConfigInvalid(
                f"aggregate {name} = {text!r} must be one of: count, sum(COLUMN), min(COLUMN), "
                "max(COLUMN), avg(COLUMN)"
            )
        how, column = form[1] or form[2], form[3]
        if column is not None:
            _check_column(name, how, column, columns)
        found.append(Aggregate(name, how, column))
    return tuple(found)


def shown(state: Table, aggregates: Sequence[Aggregate]) -> Table:
    """State for people: key, events, and the aggregates by their names."""
    import pyarrow as pa
    import pyarrow.compute as pc

    columns: dict[str, Any] = {KEY: state[KEY], EVENTS: state[EVENTS]}
    for each in aggregates:
        if each.how == "count":
            columns[each.name] = state[EVENTS]
        elif each.how == "avg":
            total = pc.cast(_kept(state, each.name + _SUM), pa.float64(), safe=False)
            count = pc.cast(state[each.name + _COUNT], pa.float64())
            # Nothing was counted: there is no average, rather than one of not-a-number.
            none = pa.nulls(len(count), count.type)
            counted = pc.if_else(pc.cast(count, pa.bool_()), count, none)
            columns[each.name] = pc.divide(total, counted)
        else:
            columns[each.name] = _kept(state, each.name)
    return pa.table(columns)


def _kept(state: Table, name: str) -> Any:
    """A column of state, null where its sum is lost."""
    import pyarrow as pa
    import pyarrow.compute as pc

    if name + LOST not in state.column_names:
        return state[name]
    return pc.if_else(state[name + LOST], pa.scalar(None, state[name].type), state[name])


def events_in(state: Table) -> int:
    """How many events a state has applied; for other state, one for each key."""
    import pyarrow.compute as pc

    if EVENTS not in state.column_names:
        return int(state.num_rows)
    return int(pc.sum(state[EVENTS]).as_py() or 0)


def rows(
    state: Table, aggregates: Sequence[Aggregate], keys: Sequence[str] | None = None
) -> list[dict[str, Any]]:
    """State as plain values by key: for some keys, or all; other state is shown unchanged."""
    import pyarrow.compute as pc

    if keys is not None:
        state = state.filter(pc.is_in(state[KEY], value_set=texts(keys)))
    plain = EVENTS not in state.column_names
    table = state.drop_columns([REPLACES, PRESENT]) if plain else shown(state, aggregates)
    return [{name: _plain(value) for name, value in row.items()} for row in table.to_pylist()]


def _plain(value: Any) -> Any:
    """A value that JSON has."""
    if isinstance(value, Decimal):
        return int(value)
    # Earlier versions kept sums that had become infinite.
    return None if isinstance(value, float) and not math.isfinite(value) else value


def _check_column(name: str, how: str, column: str, columns: Mapping[str, str]) -> None:
    kind = columns.get(column)
    if kind is None:
        raise ConfigInvalid(
            f"aggregate {name} is over {column!r}, which is not among the columns",
            hint=f'declare its type: columns = {{ {column} = "long" }}',
        )
    if how in ("sum", "avg") and kind not in _NUMBERS:
        raise ConfigInvalid(f"aggregate {name}: there is no {how} of {column!r}, a {kind}")
