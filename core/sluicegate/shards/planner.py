"""Plans of the assignment of shards to nodes: balanced, with the fewest possible moves.

A plan is a pure function of the assignment, the nodes and the weights: the same for every order of
the nodes, on every machine. Without weights every node gets floor or ceiling of its share, and no
plan with fewer moves does that (`levels.fewest_moves`). With weights the minimum is as hard as bin
packing, so the plan shows a lower bound instead.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import numpy as np

from sluicegate.errors import UsageError
from sluicegate.shards import levels, weighted
from sluicegate.shards.assignment import UNOWNED, Assignment, NoNodes, checked_nodes
from sluicegate.shards.routing import Column
from sluicegate.units import counted

DEFAULT_IMBALANCE = 0.05
_RADIX = 1 << 16
_TINY = 1e-9
_GONE = -2


class TooFewMoves(UsageError):
    """More shards need a new owner than may be moved."""


@dataclass(frozen=True, slots=True)
class Move:
    """A shard that changes its owner; `source` is None if it had none."""

    shard: int
    source: str | None
    target: str | None


@dataclass(frozen=True, slots=True, eq=False)
class RebalancePlan:
    """From one assignment to another.

    `minimum` is the lower bound of moves for the requested balance; `reached` is whether the plan
    achieves that balance.
    """

    before: Assignment
    after: Assignment
    minimum: int
    reached: bool = True
    weights: Column | None = None

    @property
    def moved(self) -> Column:
        """The shards that change their owner, ascending."""
        return np.flatnonzero(translated(self.before, self.after, _GONE) != self.after.owners)

    @property
    def is_nothing(self) -> bool:
        """Whether nothing changes, including members and capacities."""
        return self.before.is_same_map(self.after)

    def moves(self) -> Iterator[Move]:
        """The moves by shard."""
        for shard in self.moved.tolist():
            yield Move(shard, self.before.node_of(shard), self.after.node_of(shard))


def plan(
    current: Assignment,
    nodes: Mapping[str, int],
    weights: Column | None = None,
    *,
    max_moves: int | None = None,
    max_imbalance: float | None = None,
) -> RebalancePlan:
    """Balance the shards across these nodes, at the next version.

    `weights` is the weight of each shard; None: all equal. `max_imbalance` is how far above its
    share a node may be (0.05: five percent). With `max_moves`, unowned shards get an owner first,
    then the most loaded nodes are relieved.
    """
    known = checked_nodes(nodes)
    if not known:
        raise NoNodes("there is no node to own the shards")
    start = _started(current, known)
    unowned = int((start.owners == UNOWNED).sum())
    if max_moves is not None and max_moves < unowned:
        raise TooFewMoves(
            f"{counted(unowned, 'shard needs', 'shards need')} a new owner, more than "
            f"--max-moves {max_moves}",
            hint=f"allow at least --max-moves {unowned}",
        )
    checked = None if weights is None else checked_weights(weights, current.n_shards)
    if checked is None or checked.min() == checked.max():
        owners, minimum, reached = _by_count(start, max_moves, max_imbalance)
    else:
        bound = DEFAULT_IMBALANCE if max_imbalance is None else max_imbalance
        owners, minimum, reached = weighted.balanced(start, checked, bound, max_moves)
    same = dict(current.nodes) == known and np.array_equal(owners, start.owners)
    version = current.version if same else current.version + 1
    after = Assignment(current.n_shards, known, owners, version)
    return RebalancePlan(current, after, minimum, reached, checked)


def between(before: Assignment, after: Assignment, weights: Column | None = None) -> RebalancePlan:
    """The plan for an assignment that was made elsewhere; its moves are fixed."""
    found = RebalancePlan(before, after.at_version(before.version + 1), 0, weights=weights)
    return RebalancePlan(before, found.after, len(found.moved), weights=weights)


def checked_weights(weights: Column, n_shards: int) -> Column:
    """Weights of all shards, none of them below 0."""
    column = np.asarray(weights, np.float64)
    if column.shape != (n_shards,):
        raise UsageError(f"there are {len(column)} weights for {n_shards} shards")
    if not np.isfinite(column).all() or column.min() < 0 or not np.isfinite(column.sum()):
        raise UsageError(
            "a weight is not a number from 0", hint="remove shards without a weight from the file"
        )
    return column


def imbalance(assignment: Assignment, weights: Column | None = None) -> float:
    """How far the most loaded node is above its share: 0.05 is five percent."""
    if not assignment.nodes:
        return 0.0
    loads, capacities = assignment.loads(weights), assignment.capacities
    total = float(loads.sum())
    if not total:
        return 0.0
    return float((loads / capacities).max() * capacities.sum() / total) - 1.0


def translated(before: Assignment, after: Assignment, gone: int = UNOWNED) -> Column:
    """The owners before, by the node numbers after; `gone` for nodes that left."""
    number = {name: at for at, name in enumerate(after.nodes)}
    # The last is for -1, which stays -1.
    to = np.array([*(number.get(name, gone) for name in before.nodes), UNOWNED], np.int32)
    found: Column = to[before.owners]
    return found


def _started(current: Assignment, nodes: Mapping[str, int]) -> Assignment:
    """The same shards with these nodes; shards of other nodes are unowned."""
    empty = Assignment(
        current.n_shards, nodes, np.full(current.n_shards, UNOWNED, np.int32), current.version
    )
    return Assignment(current.n_shards, nodes, translated(current, empty), current.version)


def _by_count(
    start: Assignment, max_moves: int | None, max_imbalance: float | None
) -> tuple[Column, int, bool]:
    """Owners, the fewest moves, and whether the requested balance is reached."""
    loads, capacities, total = start.loads(), start.capacities, start.n_shards
    low, high, possible = _bounds(capacities, total, max_imbalance)
    aim = levels.nearest(loads, low, high, capacities, total)
    minimum = levels.fewest_moves(loads, low, high, total)
    surplus, deficit = np.clip(loads - aim, 0, None), np.clip(aim - loads, 0, None)
    unowned = total - int(loads.sum())
    allowed = int(surplus.sum()) if max_moves is None else max_moves - unowned
    if allowed < int(surplus.sum()):
        possible = False
        aim = loads - levels.drain(loads, surplus, capacities, allowed)
        aim += levels.fill(loads, deficit, capacities, unowned + allowed)
    return _with_loads(start.owners, loads, aim), minimum, possible


def _bounds(
    capacities: Column, total: int, max_imbalance: float | None
) -> tuple[Column, Column, bool]:
    """The lowest and highest load of each node, and whether the requested limit can be met."""
    low = total * capacities // capacities.sum()
    high = low + (total * capacities % capacities.sum() > 0)
    if max_imbalance is None:
        return low, high, True
    share = total * capacities / capacities.sum()
    most = np.floor(share * (1 + max_imbalance) + _TINY).astype(np.int64)
    if int(most.sum()) < total:
        return low, high, False
    return np.zeros_like(low), most, True


def _with_loads(owners: Column, loads: Column, aim: Column) -> Column:
    """Owners with these loads; from an overloaded node the last shards go."""
    small = len(loads) < _RADIX
    # Sixteen bits are sorted without comparing; -1 becomes the largest.
    order = np.argsort(owners.astype(np.uint16) if small else owners.view(np.uint32), kind="stable")
    held = order[: int(loads.sum())]
    before = np.cumsum(loads) - loads
    rank = np.arange(len(held)) - np.repeat(before, loads)
    going = held[rank >= np.repeat(aim, loads)]
    free = np.sort(np.concatenate([going, order[len(held) :]]))
    found = owners.copy()
    found[free] = np.repeat(np.arange(len(loads), dtype=np.int32), np.clip(aim - loads, 0, None))
    return found
