"""Shards on the screen."""

from __future__ import annotations

from itertools import islice
from typing import TYPE_CHECKING, Any, TypedDict

from sluicegate.errors import UsageError
from sluicegate.report import Cell, Report, Table, document
from sluicegate.units import counted
from sluicegate_cli.inputs import shard_weights

if TYPE_CHECKING:
    from sluicegate.shards.owned import OwnedShards
    from sluicegate.shards.routing import Column


_BAR = 16


@document("sluicegate.shards", version=1)
class ShardsDocument(TypedDict):
    """The nodes of an assignment of shards, and the load of each."""

    target: str
    assignment_version: int | None  # null: nothing is assigned yet, or a file without it
    n_shards: int
    nodes: dict[str, int]  # the capacity of each
    owners: list[str | None]  # the node of every shard; null: none
    measure: str  # what `loads` counts
    loads: dict[str, float]  # of each node
    imbalance: float  # how far the most loaded node is above its share; 0.05 is five percent
    unowned: int  # shards without a node
    counters: dict[str, int] | None  # how often nodes joined and left; null: not kept


def shards_view(
    found: OwnedShards, weights: Column | None, measure: str | None, *, bars: bool
) -> Report:
    """Every node with its load."""
    from sluicegate.shards.describe import percent
    from sluicegate.shards.planner import imbalance

    made = found.assignment
    uneven = imbalance(made, weights)
    counters = found.counters()
    facts: list[tuple[str, Cell]] = [
        ("assignment of", found.uri),
        ("version", found.version),
        ("shards", made.n_shards),
        ("nodes", len(made.nodes)),
        ("imbalance", percent(uneven) if made.nodes else None),
        ("so far", _so_far(counters)),
    ]
    unowned = int((made.owners < 0).sum())
    document: ShardsDocument = {
        "target": found.uri,
        "assignment_version": found.version,
        "n_shards": made.n_shards,
        "nodes": dict(made.nodes),
        "owners": made.owner_names(),
        "measure": measure or "shards",
        "loads": dict(zip(made.names, made.loads(weights).tolist(), strict=True)),
        "imbalance": uneven,
        "unowned": unowned,
        "counters": counters,
    }
    return Report(
        schema="sluicegate.shards",
        document=document,
        tables=[
            Table(("field", "value"), facts, header=False),
            _loads(found, weights, measure, bars=bars),
        ],
        lines=_advice(found, unowned),
    )


class LocatedDocument(TypedDict):
    """One key."""

    key: str
    shard: int
    node: str | None  # null: the shard has none


@document("sluicegate.shards-locate", version=1)
class ShardsLocateDocument(TypedDict):
    """The shard and the node of keys."""

    target: str
    assignment_version: int
    keys: list[LocatedDocument]


def located_view(found: OwnedShards, keys: list[str]) -> Report:
    """The shard and the node of keys."""
    from sluicegate.shards.routing import shard_of

    found.check_keys()
    rows: list[tuple[str, int, str | None]] = []
    for key in keys:
        try:
            shard = shard_of(key, found.assignment.n_shards)
        except UnicodeEncodeError:
            raise UsageError(f"the key {key!r} is not valid text") from None
        rows.append((key, shard, found.assignment.node_of(shard)))
    document: ShardsLocateDocument = {
        "target": found.uri,
        "assignment_version": found.assignment.version,
        "keys": [{"key": key, "shard": shard, "node": node} for key, shard, node in rows],
    }
    return Report(
        schema="sluicegate.shards-locate",
        document=document,
        tables=[Table(("key", "shard", "node"), rows)],
        lines=_advice(found, 0),
    )


@document("sluicegate.shards-weights", version=1)
class ShardsWeightsDocument(TypedDict):
    """The weights of all shards, by one or more measures."""

    target: str
    weights: dict[str, list[float]]  # by measure, in the order of the shards


def weights_view(found: OwnedShards, option: str | None, limit: int) -> Report:
    """The heaviest shards."""
    columns = _measured(found, option)
    names = [name for name, _ in columns]
    order = sorted(
        range(found.assignment.n_shards), key=lambda s: (*(-c[s] for _, c in columns), s)
    )
    rows: list[tuple[Any, ...]] = [
        (found.label(s), found.assignment.node_of(s), *(_number(c[s]) for _, c in columns))
        for s in islice(order, limit)
    ]
    hidden = len(order) - len(rows)
    totals = ", ".join(f"{_number(sum(c)):,} {name}" for name, c in columns)
    lighter = counted(hidden, "lighter shard")
    more = [f"{lighter}; use --limit {len(order)} to list all"] if hidden else []
    document: ShardsWeightsDocument = {
        "target": found.uri,
        "weights": {name: [_number(w) for w in column] for name, column in columns},
    }
    return Report(
        schema="sluicegate.shards-weights",
        document=document,
        tables=[Table(("shard", "node", *names), rows)],
        lines=[f"Total: {totals}.", *more],
    )


def _measured(found: OwnedShards, option: str | None) -> list[tuple[str, list[float]]]:
    if option is None and not found.usual_measures:
        raise UsageError(
            "an assignment file has no weights",
            hint="name a file of weights with --weights FILE",
        )
    columns = []
    for word in found.usual_measures if option is None else (option,):
        weights, measure = shard_weights(found, word)
        assert weights is not None
        columns.append((measure or word, weights.tolist()))
    return columns


def _number(weight: float) -> int | float:
    return int(weight) if float(weight).is_integer() else weight


def _loads(found: OwnedShards, weights: Column | None, measure: str | None, *, bars: bool) -> Table:
    """A row per node; with bars on a terminal."""
    from sluicegate.shards.describe import amount, loads_of, percent

    loads = loads_of(found.assignment, weights)
    most = max((each.load / each.capacity for each in loads), default=0)
    drawn = (" ",) if bars else ()
    rows = []
    for each in loads:
        bar = [_bar(each.load / each.capacity, most)] if bars else []
        over = percent(each.load / each.share - 1) if each.share else None
        load = amount(each.load, measure) if bars else _number(each.load)
        rows.append((each.node, each.capacity, load, over, *bar, each.shards))
    columns = ("node", "capacity", "load", "above its share", *drawn, "shards")
    return Table(columns, rows)


def _bar(load: float, most: float) -> str:
    return "█" * round(_BAR * load / most) if most else ""


def _so_far(counters: dict[str, int] | None) -> str | None:
    if counters is None or not any(counters.values()):
        return None
    return ", ".join(f"{count:,} {name}" for name, count in counters.items())


def _advice(found: OwnedShards, unowned: int) -> list[str]:
    if not found.assignment.nodes and (advice := found.advice()):
        return advice
    if not unowned:
        return []
    return [f"{counted(unowned, 'shard')} without an owner."]
