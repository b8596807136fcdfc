"""Distribute units to nodes, one at a time to the least loaded; and the loads of fewest moves.

Loads are counts of shards, compared in proportion to the capacity of a node.
"""

from __future__ import annotations

import numpy as np

from sluicegate.shards.routing import Column

_HALVINGS = 80


def fill(loads: Column, room: Column, capacities: Column, count: int) -> Column:
    """How many of `count` units each node gets, if each goes to the then least loaded node.

    No node gets more than its room. Among equals the first comes first.
    """
    return _handed_out(loads + 1, room, capacities, count)


def drain(loads: Column, room: Column, capacities: Column, count: int) -> Column:
    """How many of `count` units each node loses, if each is taken from the most loaded node.

    No node loses more than its room. Among equals the last comes first, so that a node that was
    filled first keeps its units.
    """
    return _handed_out(-loads[::-1], room[::-1], capacities[::-1], count)[::-1]


def nearest(loads: Column, low: Column, high: Column, capacities: Column, total: int) -> Column:
    """Loads from low to high that add up to a total, and that take the fewest moves to reach."""
    aim = np.clip(loads, low, high)
    gap = total - int(aim.sum())
    aim += fill(aim, high - aim, capacities, gap)
    aim -= drain(aim, aim - low, capacities, -gap)
    return aim


def fewest_moves(loads: Column, low: Column, high: Column, total: int) -> int:
    """The lower bound of moves until every load is from low to high.

    Surplus and unowned units must go, missing units must come. One move does one of each.
    """
    unowned = total - int(loads.sum())
    going = unowned + int(np.clip(loads - high, 0, None).sum())
    coming = int(np.clip(low - loads, 0, None).sum())
    return max(going, coming)


def _handed_out(first: Column, room: Column, capacities: Column, count: int) -> Column:
    """How many units of each node are among the `count` lowest; the j-th is at (first + j) / c."""
    if count <= 0:
        return np.zeros_like(first)
    # Well below the lowest: rounded, a node's own first level may be above it.
    low = float((first / capacities).min()) - 1.0
    high = float(((first + room) / capacities).max()) + 1.0
    for _ in range(_HALVINGS):
        level = (low + high) / 2
        if int(_below(first, room, capacities, level).sum()) > count:
            high = level
        else:
            low = level
    given = _below(first, room, capacities, low)
    rest = count - int(given.sum())
    # The remaining units are at one level: at most one of each node.
    while rest > 0 and np.any(given < room):
        open_ = np.flatnonzero(given < room)
        level_of = (first[open_] + given[open_]) / capacities[open_]
        chosen = open_[np.argsort(level_of, kind="stable")[:rest]]
        given[chosen] += 1
        rest -= len(chosen)
    return given


def _below(first: Column, room: Column, capacities: Column, level: float) -> Column:
    """How many units of each node are below a level."""
    wanted = np.ceil(level * capacities - first)
    given: Column = np.clip(wanted, 0, room).astype(np.int64)
    return given
