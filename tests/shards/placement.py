"""Other ways to place shards, to compare with: modulo and rendezvous hashing."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from sluicegate.shards.assignment import Assignment
from sluicegate.shards.planner import plan
from sluicegate.shards.routing import fnv1a64

Column = np.ndarray[Any, np.dtype[Any]]
CASES = ((256, 10, 11), (1_024, 64, 65), (1_000_000, 1_000, 1_001))
_BLOCK = 1 << 16


@dataclass(frozen=True)
class Moves:
    """Of one more node: how many shards move, and how far the fullest node is above its share."""

    moves: int
    above: float


def modulo(shards: int, nodes: int) -> Moves:
    """Shard s on node s modulo the number of nodes, as the reference design does."""
    numbers = np.arange(shards)
    return _counted(numbers % nodes, numbers % (nodes + 1), nodes + 1)


def rendezvous(shards: int, nodes: int) -> Moves:
    """Every shard on the node with the highest score for it."""
    seeds = np.array([fnv1a64(f"node-{i:04}".encode()) for i in range(nodes + 1)], np.uint64)
    before, after = np.empty(shards, np.int64), np.empty(shards, np.int64)
    for start in range(0, shards, _BLOCK):
        numbers = np.arange(start, min(start + _BLOCK, shards), dtype=np.uint64)
        best, owner = np.zeros(len(numbers), np.uint64), np.zeros(len(numbers), np.int64)
        for node, seed in enumerate(seeds):
            if node == nodes:
                before[start : start + len(numbers)] = owner
            score = _mixed(numbers ^ seed)
            higher = score > best
            best[higher], owner[higher] = score[higher], node
        after[start : start + len(numbers)] = owner
    return _counted(before, after, nodes + 1)


def ours(shards: int, nodes: int) -> tuple[Moves, int]:
    """The planner's moves, and the minimum that it reports."""
    names = [f"node-{i:04}" for i in range(nodes + 1)]
    first = plan(Assignment.unowned(shards), dict.fromkeys(names[:-1], 1)).after
    made = plan(first, dict.fromkeys(names, 1))
    return _counted(first.owners, made.after.owners, nodes + 1), made.minimum


def _counted(before: Column, after: Column, nodes: int) -> Moves:
    loads = np.bincount(after, minlength=nodes)
    return Moves(int((before != after).sum()), float(loads.max() * nodes / len(after) - 1))


def _mixed(values: Column) -> Column:
    """The finaliser of splitmix64."""
    values = (values ^ (values >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    values = (values ^ (values >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    found: Column = values ^ (values >> np.uint64(31))
    return found
