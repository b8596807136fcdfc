"""A rebalance in the operator's words: each move and its cost, loads before and after."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np

from sluicegate import units
from sluicegate.plan import Action
from sluicegate.shards.assignment import Assignment
from sluicegate.shards.hashing import Column
from sluicegate.shards.planner import RebalancePlan, imbalance
from sluicegate.shards.proposal import INSTALL, UNDO, Proposal

EACH = 256
"""Up to so many moves are shown one by one; more of them by the nodes they go from and to."""
_NODES = 100
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
    moved = f"{count:,} of {total:,} shards get another node"
    told = [f"{moved}{_against(plan, proposal, count)}."]
    if plan.after.nodes:
        before = imbalance(plan.before, plan.weights)
        after = imbalance(plan.after, plan.weights)
        now = f"{percent(before)} above its share now" if plan.before.nodes else "none yet"
        told.append(f"The most loaded node: {now}, {percent(after)} above its share then.")
    else:
        told.append("No node is left, so nobody owns a shard.")
    if heavy := _too_heavy(plan, proposal):
        told.append(heavy)
    return told


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
    """A load in its unit: `12 shards`, `1.5 MiB`, `40 keys`."""
    if measure == "bytes":
        return units.size(round(value))
    number = f"{value:,.0f}" if float(value).is_integer() else f"{value:,.2f}"
    return f"{number} {measure or 'shards'}"


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
    aim = "that balance" if proposal.bound is None else f"at most {percent(proposal.bound)} above"
    if not plan.reached:
        return f"; for {aim} it would take at least {plan.minimum:,}, or cannot be done"
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
    if len(plan.moved) <= EACH:
        for move in plan.moves():
            weight = 0.0 if plan.weights is None else float(plan.weights[move.shard])
            detail = cost(move.shard) if cost else ""
            if plan.weights is not None:
                detail = f"{detail}, {amount(weight, measure)}".removeprefix(", ")
            target = move.target or "nobody"
            yield Action("move", label(move.shard), detail, move.source or "nobody", target)
        return
    for source, target, shards in _by_route(plan):
        weight = len(shards) if plan.weights is None else float(plan.weights[shards].sum())
        detail = ranges(shards)
        if plan.weights is not None:
            detail += f" with {amount(weight, measure)}"
        yield Action("move", f"{len(shards):,} shards", detail, source, target)


def _by_route(plan: RebalancePlan) -> Iterator[tuple[str, str, Column]]:
    """The moves together that go from one node to another."""
    moved = plan.moved
    sources, targets = plan.before.owners[moved], plan.after.owners[moved]
    order = np.lexsort((moved, targets, sources))
    moved, sources, targets = moved[order], sources[order], targets[order]
    cuts = np.flatnonzero((np.diff(sources) != 0) | (np.diff(targets) != 0)) + 1
    for shards in np.split(moved, cuts):
        first = int(shards[0])
        source, target = plan.before.node_of(first), plan.after.node_of(first)
        yield source or "nobody", target or "nobody", shards


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
