"""A rebalance in the operator's words: each move and its cost, loads before and after."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np

from sluicegate import units
from sluicegate.plan import Action
from sluicegate.shards.assignment import NOBODY, Assignment
from sluicegate.shards.columns import Column
from sluicegate.shards.planner import RebalancePlan, imbalance
from sluicegate.shards.proposal import INSTALL, UNDO, Proposal

OWN = "weight"
"""The measure of weights that come from a file."""
EACH = 256
"""Up to so many moves are shown one by one; more of them by the nodes they go from and to."""
_NODES = 100
_NOBODY = "nobody"
_RANGES = 4

Label = Callable[[int], str]
Cost = Callable[[int], str]


def shard_label(shard: int) -> str:
    """A shard as plans name it."""
    return f"shard {shard}"


def actions_of(
    plan: RebalancePlan, measure: str | None, label: Label = shard_label, cost: Cost | None = None
) -> list[Action]:
    """Who comes and goes, every move with its cost, and every node's load before and after."""
    return [*_members(plan), *_moves(plan, measure, label, cost), *_loads(plan, measure)]


def consequences_of(plan: RebalancePlan, proposal: Proposal) -> list[str]:
    """How many moves, how many there must be, and how even it gets."""
    count, total = len(plan.moved), plan.after.n_shards
    gets = ("gets" if count == 1 else "get") + " another node"
    moved = f"{count:,} of {total:,} shards {gets if plan.after.nodes else 'lose their node'}"
    told = [f"{moved}{_against(plan, proposal, count)}."]
    if plan.after.nodes:
        before = imbalance(plan.before, plan.weights)
        after = imbalance(plan.after, plan.weights)
        now = f"; now it is {percent(before)}" if plan.before.nodes else ""
        told.append(f"The most loaded node will be {percent(after)} above its share{now}.")
    else:
        told.append("No node is left, so nobody owns a shard.")
    if heavy := _too_heavy(plan, proposal):
        told.append(heavy)
    return told


@dataclass(frozen=True, slots=True)
class Load:
    """What a node has: how much, how much it should have, and which shards."""

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
    """A rebalance in a line of the history."""
    moved = f"{len(plan.moved):,} of {plan.after.n_shards:,} shards moved"
    return f"{note}: {moved}" if note else moved


def joined(plan: RebalancePlan) -> list[str]:
    """The nodes that come."""
    return sorted(plan.after.nodes.keys() - plan.before.nodes.keys())


def left(plan: RebalancePlan) -> list[str]:
    """The nodes that go."""
    return sorted(plan.before.nodes.keys() - plan.after.nodes.keys())


def percent(part: float) -> str:
    """A part of one: `3.1 %`."""
    return f"{part * 100:.1f} %"


def amount(value: float, measure: str | None) -> str:
    """A load in its unit: `12 shards`, `1.5 MiB`, `40 keys`; of a file it has none."""
    if measure == "bytes":
        return units.size(round(value))
    number = f"{value:,.0f}" if float(value).is_integer() else f"{value:,.2f}"
    if measure == OWN:
        return number
    name = measure or "shards"
    return f"{number} {name.removesuffix('s') if value == 1 else name}"


def ranges(numbers: Column, most: int = _RANGES) -> str:
    """Ascending numbers, runs of them as one: `3, 7-9, …`."""
    if not len(numbers):
        return ""
    cuts = np.flatnonzero(np.diff(numbers) != 1) + 1
    runs = [(int(run[0]), int(run[-1])) for run in np.split(numbers, cuts[:most])[:most]]
    shown = [str(a) if a == b else f"{a}-{b}" for a, b in runs]
    return ", ".join(shown) + (", …" if len(cuts) >= most else "")


def _against(plan: RebalancePlan, proposal: Proposal, count: int) -> str:
    """The number of moves beside the fewest that there could be."""
    if proposal.how in (INSTALL, UNDO) or not plan.after.nodes:
        return ""
    aim = "full balance" if proposal.bound is None else f"at most {percent(proposal.bound)} above"
    if not plan.reached and _too_heavy(plan, proposal):
        return f"; {aim} cannot be reached"
    if not plan.reached:
        return f"; for {aim} it would take at least {plan.minimum:,}"
    if count == plan.minimum:
        return "; no plan with fewer moves balances them so"
    return f"; for {aim} it takes at least {plan.minimum:,}"


def _too_heavy(plan: RebalancePlan, proposal: Proposal) -> str:
    """The shard that alone is more than a node may have, if there is one."""
    weights = plan.weights
    if weights is None or plan.reached or not plan.after.nodes:
        return ""
    capacities = plan.after.capacities
    most = weights.sum() * capacities.max() / capacities.sum() * (1 + (proposal.bound or 0.0))
    shard = int(weights.argmax())
    if weights[shard] <= most:
        return ""
    weight = amount(float(weights[shard]), proposal.measure)
    return f"Shard {shard} alone has {weight}, more than a node may have: no plan can help there."


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
    placed = moved[plan.before.owners[moved] == NOBODY]
    others = moved[plan.before.owners[moved] != NOBODY]
    # That a shard gets its first owner costs nothing, so it need not be told of each.
    yield from _by_route(plan, placed, measure)
    if len(others) > EACH:
        yield from _by_route(plan, others, measure)
        return
    for shard in others.tolist():
        detail = [cost(shard)] if cost else []
        if plan.weights is not None:
            detail.append(amount(float(plan.weights[shard]), measure))
        source, target = plan.before.node_of(shard), plan.after.node_of(shard) or _NOBODY
        yield Action("move", label(shard), ", ".join(filter(None, detail)), source, target)


def _by_route(plan: RebalancePlan, moved: Column, measure: str | None) -> Iterator[Action]:
    """The moves together that go from one node to another."""
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
        count = f"{len(shards):,} shard" + ("" if len(shards) == 1 else "s")
        yield Action("move", count, detail, source or _NOBODY, target or _NOBODY)


def _loads(plan: RebalancePlan, measure: str | None) -> Iterator[Action]:
    before, after = _by_name(plan.before, plan), _by_name(plan.after, plan)
    names = sorted({*before, *after})
    total, capacity = sum(after.values()), sum(plan.after.nodes.values())
    # Of very many nodes, those that change most.
    if len(names) > _NODES:
        names.sort(key=lambda name: (-abs(after.get(name, 0) - before.get(name, 0)), name))
    for name in names[:_NODES]:
        share = total * plan.after.nodes.get(name, 0) / capacity if capacity else 0.0
        detail = f"its share is {amount(share, measure)}" if share else ""
        old, new = round(before.get(name, 0)), round(after.get(name, 0))
        yield Action("load", f"node {name}", detail, old, new)


def _by_name(assignment: Assignment, plan: RebalancePlan) -> dict[str, float]:
    return dict(zip(assignment.names, assignment.loads(plan.weights).tolist(), strict=True))
