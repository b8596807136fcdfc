"""The description of a rebalance, and its text in a plan.

The text holds the map itself and the weights, not their origin. So a saved plan has the same
description when it is applied, even if the weights have changed by then.
"""

from __future__ import annotations

import base64
import binascii
import json
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from sluicegate import units
from sluicegate.errors import Corrupt, SluicegateError
from sluicegate.plan import Action
from sluicegate.shards.assignment import UNOWNED, Assignment, decode, encode
from sluicegate.shards.planner import RebalancePlan, checked_weights, imbalance
from sluicegate.shards.routing import Column

OWN = "weight"
"""The measure of weights that come from a file."""
EACH = 256
"""Up to this many moves are shown one by one; more are grouped by source and target node."""
_NODES = 100
_NO_OWNER = "none"
_RANGES = 4

Label = Callable[[int], str]
Cost = Callable[[int], str]


def shard_label(shard: int) -> str:
    """The label of a shard in plans."""
    return f"shard {shard}"


def actions_of(
    plan: RebalancePlan, measure: str | None, label: Label = shard_label, cost: Cost | None = None
) -> list[Action]:
    """Nodes that join or leave, every move with its cost, and all loads before and after."""
    return [*_members(plan), *_moves(plan, measure, label, cost), *_loads(plan, measure)]


def consequences_of(plan: RebalancePlan, proposal: Proposal) -> list[str]:
    """The number of moves, its lower bound, and the imbalance afterwards."""
    count, total = len(plan.moved), plan.after.n_shards
    move = f"move{'s' * (count == 1)} to another node"
    moved = f"{count:,} of {total:,} shards {move if plan.after.nodes else 'lose their node'}"
    lines = [f"{moved}{_against(plan, proposal, count)}."]
    if plan.after.nodes:
        before = imbalance(plan.before, plan.weights)
        after = imbalance(plan.after, plan.weights)
        now = f"; now it is {percent(before)}" if plan.before.nodes else ""
        lines.append(f"The most loaded node will be {percent(after)} above its share{now}.")
    else:
        lines.append("No node is left, so no shard has an owner.")
    if heavy := _too_heavy(plan, proposal):
        lines.append(heavy)
    return lines


@dataclass(frozen=True, slots=True)
class Load:
    """The load of a node: its amount, its share, and its shards."""

    node: str
    capacity: int
    load: float
    share: float
    shards: str


def loads_of(assignment: Assignment, weights: Column | None = None) -> list[Load]:
    """The load of every node."""
    loads, capacities = assignment.loads(weights), assignment.capacities
    total = float(assignment.n_shards if weights is None else weights.sum())
    shares = total * capacities / capacities.sum() if len(capacities) else capacities
    order = np.argsort(assignment.owners, kind="stable")
    ends = np.searchsorted(assignment.owners[order], np.arange(len(capacities) + 1))
    return [
        Load(
            name, size, float(loads[at]), float(shares[at]), ranges(order[ends[at] : ends[at + 1]])
        )
        for at, (name, size) in enumerate(assignment.nodes.items())
    ]


def summary_of(plan: RebalancePlan, note: str) -> str:
    """A rebalance as a line of the history."""
    moved = f"{len(plan.moved):,} of {plan.after.n_shards:,} shards moved"
    return f"{note}: {moved}" if note else moved


def joined(plan: RebalancePlan) -> list[str]:
    """The nodes that join."""
    return sorted(plan.after.nodes.keys() - plan.before.nodes.keys())


def left(plan: RebalancePlan) -> list[str]:
    """The nodes that leave."""
    return sorted(plan.before.nodes.keys() - plan.after.nodes.keys())


def percent(part: float) -> str:
    """A fraction as text: `3.1 %`."""
    return f"{part * 100:.1f} %"


def amount(value: float, measure: str | None) -> str:
    """A load with its unit: `12 shards`, `1.5 MiB`, `40 keys`; weights from a file have none."""
    if measure == "bytes":
        return units.size(round(value))
    number = f"{value:,.0f}" if float(value).is_integer() else f"{value:,.2f}"
    if measure == OWN:
        return number
    name = measure or "shards"
    return f"{number} {name.removesuffix('s') if value == 1 else name}"


def ranges(numbers: Column, most: int = _RANGES) -> str:
    """Ascending numbers with runs as ranges: `3, 7-9, …`."""
    if not len(numbers):
        return ""
    cuts = np.flatnonzero(np.diff(numbers) != 1) + 1
    runs = [(int(run[0]), int(run[-1])) for run in np.split(numbers, cuts[:most])[:most]]
    shown = [str(a) if a == b else f"{a}-{b}" for a, b in runs]
    return ", ".join(shown) + (", …" if len(cuts) >= most else "")


def _against(plan: RebalancePlan, proposal: Proposal, count: int) -> str:
    """A comparison of the number of moves with the lower bound."""
    if proposal.how in (INSTALL, UNDO) or not plan.after.nodes:
        return ""
    aim = "full balance" if proposal.bound is None else f"at most {percent(proposal.bound)} above"
    if not plan.reached and _too_heavy(plan, proposal):
        return f"; {aim} cannot be reached"
    if not plan.reached:
        return f"; {aim} would need at least {plan.minimum:,}"
    if count == plan.minimum:
        return "; no plan with fewer moves achieves this balance"
    return f"; {aim} needs at least {plan.minimum:,}"


def _too_heavy(plan: RebalancePlan, proposal: Proposal) -> str:
    """The note about a shard that alone exceeds the limit of a node, if there is one."""
    weights = plan.weights
    if weights is None or plan.reached or not plan.after.nodes:
        return ""
    capacities = plan.after.capacities
    most = weights.sum() * capacities.max() / capacities.sum() * (1 + (proposal.bound or 0.0))
    shard = int(weights.argmax())
    if weights[shard] <= most:
        return ""
    weight = amount(float(weights[shard]), proposal.measure)
    return f"Shard {shard} alone has {weight}, more than the limit of a node: no plan can fix this."


def _members(plan: RebalancePlan) -> Iterator[Action]:
    before, after = plan.before.nodes, plan.after.nodes
    for name in left(plan):
        yield Action("leave", f"node {name}", f"capacity {before[name]}")
    for name in joined(plan):
        yield Action("join", f"node {name}", f"capacity {after[name]}")
    for name in sorted(before.keys() & after.keys()):
        if before[name] != after[name]:
            yield Action("resize", f"node {name}", "capacity", before[name], after[name])


def _moves(
    plan: RebalancePlan, measure: str | None, label: Label, cost: Cost | None
) -> Iterator[Action]:
    moved = plan.moved
    placed = moved[plan.before.owners[moved] == UNOWNED]
    others = moved[plan.before.owners[moved] != UNOWNED]
    # The first owner of a shard costs nothing, so these are not listed one by one.
    yield from _by_route(plan, placed, measure)
    if len(others) > EACH:
        yield from _by_route(plan, others, measure)
        return
    for shard in others.tolist():
        detail = [cost(shard)] if cost else []
        if plan.weights is not None:
            detail.append(amount(float(plan.weights[shard]), measure))
        source, target = plan.before.node_of(shard), plan.after.node_of(shard) or _NO_OWNER
        yield Action("move", label(shard), ", ".join(filter(None, detail)), source, target)


def _by_route(plan: RebalancePlan, moved: Column, measure: str | None) -> Iterator[Action]:
    """The moves, grouped by source and target node."""
    if not len(moved):
        return
    sources, targets = plan.before.owners[moved], plan.after.owners[moved]
    order = np.lexsort((moved, targets, sources))
    moved, sources, targets = moved[order], sources[order], targets[order]
    cuts = np.flatnonzero((np.diff(sources) != 0) | (np.diff(targets) != 0)) + 1
    for shards in np.split(moved, cuts):
        first = int(shards[0])
        detail = ranges(shards)
        if plan.weights is not None:
            detail += f" with {amount(float(plan.weights[shards].sum()), measure)}"
        source, target = plan.before.node_of(first), plan.after.node_of(first)
        count = units.counted(len(shards), "shard")
        yield Action("move", count, detail, source or _NO_OWNER, target or _NO_OWNER)


def _loads(plan: RebalancePlan, measure: str | None) -> Iterator[Action]:
    before, after = _by_name(plan.before, plan), _by_name(plan.after, plan)
    names = sorted({*before, *after})
    total, capacity = sum(after.values()), sum(plan.after.nodes.values())
    # If there are very many nodes, those that change most.
    if len(names) > _NODES:
        names.sort(key=lambda name: (-abs(after.get(name, 0) - before.get(name, 0)), name))
    for name in names[:_NODES]:
        share = total * plan.after.nodes.get(name, 0) / capacity if capacity else 0.0
        detail = f"its share is {amount(share, measure)}" if share else ""
        old, new = round(before.get(name, 0)), round(after.get(name, 0))
        yield Action("load", f"node {name}", detail, old, new)


def _by_name(assignment: Assignment, plan: RebalancePlan) -> dict[str, float]:
    return dict(zip(assignment.names, assignment.loads(plan.weights).tolist(), strict=True))


INSTALL, REBALANCE, JOIN, LEAVE, UNDO = HOW = ("install", "rebalance", "join", "leave", "undo")
_MAX_WEIGHTS = 1 << 27


@dataclass(frozen=True, slots=True, eq=False)
class Proposal:
    """The new map and its origin: `how` it was made, and the `measure` of its weights, if any.

    `minimum` and `reached` are those of the plan; `bound` is the requested imbalance. `sizes` are
    the bytes of state that each shard had then.
    """

    after: Assignment
    how: str = REBALANCE
    minimum: int = 0
    reached: bool = True
    bound: float | None = None
    measure: str | None = None
    weights: Column | None = None
    sizes: Column | None = None

    @classmethod
    def of(
        cls,
        plan: RebalancePlan,
        how: str,
        *,
        bound: float | None = None,
        measure: str | None = None,
        sizes: Column | None = None,
    ) -> Proposal:
        """The proposal of a plan."""
        found = plan.minimum, plan.reached, bound, measure, plan.weights, sizes
        return cls(plan.after, how, *found)

    def plan_from(self, before: Assignment) -> RebalancePlan:
        """The plan from the current assignment to the new map."""
        after = self.after.at_version(before.version + 1)
        return RebalancePlan(before, after, self.minimum, self.reached, self.weights)

    def to_text(self) -> str:
        """As text, for the work of a plan."""
        return json.dumps(
            {
                "map": base64.b64encode(encode(self.after)).decode("ascii"),
                "how": self.how,
                "minimum": self.minimum,
                "reached": self.reached,
                "bound": self.bound,
                "measure": self.measure,
                "weights": _packed(self.weights),
                "sizes": _packed(self.sizes),
            }
        )

    @classmethod
    def from_text(cls, text: str | None) -> Proposal:
        """From text, or `Corrupt`."""
        try:
            return _proposal(json.loads(text or ""))
        except (ValueError, TypeError, RecursionError, zlib.error, SluicegateError) as e:
            raise Corrupt(f"the plan does not hold an assignment: {e}") from e


def _proposal(fields: Any) -> Proposal:
    match fields:
        case {
            "map": str(data),
            "how": str(how),
            "minimum": int(minimum),
            "reached": bool(reached),
            "bound": None | float() | int() as bound,
            "measure": None | str() as measure,
            "weights": None | str() as weights,
            "sizes": None | str() as sizes,
            **unknown,
        } if how in HOW and not unknown:
            after = decode(base64.b64decode(data, validate=True), "its map")
            columns = [_unpacked(each, after.n_shards) for each in (weights, sizes)]
            return Proposal(after, how, minimum, reached, bound, measure, *columns)
    raise ValueError("its fields are invalid")


def _packed(weights: Column | None) -> str | None:
    if weights is None:
        return None
    return base64.b64encode(zlib.compress(weights.astype("<f8").tobytes())).decode("ascii")


def _unpacked(text: str | None, n_shards: int) -> Column | None:
    if text is None:
        return None
    try:
        data = base64.b64decode(text, validate=True)
    except binascii.Error as e:
        raise ValueError("its weights are damaged") from e
    # A few bytes may decompress to very many.
    raw = zlib.decompressobj().decompress(data, min(_MAX_WEIGHTS, n_shards * 8 + 1))
    return checked_weights(np.frombuffer(raw, "<f8"), n_shards)
