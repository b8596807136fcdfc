"""Balance by weight: few moves until no node is above its limit.

Every node above its limit releases the fewest shards that relieve it, and of those the lightest
set. They go, heaviest first, to the node with the least load for its capacity. Nodes that are
still above their limit are relieved move by move, or by exchanging two shards, until no step
improves the balance.
"""

from __future__ import annotations

import numpy as np

from sluicegate.shards import levels
from sluicegate.shards.assignment import UNOWNED, Assignment
from sluicegate.shards.routing import Column

_BULK = 20_000
_RECEIVERS = 4
_SLACK = 1e-12


def balanced(
    start: Assignment, weights: Column, max_imbalance: float, max_moves: int | None
) -> tuple[Column, int, bool]:
    """Owners, the lower bound of moves, and whether the limit is kept everywhere."""
    work = _Balance(start, weights, max_imbalance)
    minimum = int((start.owners == UNOWNED).sum()) + work.fewest_released()
    best = _improved(work)
    best.undo_needless_moves(start.owners)
    if max_moves is None or best.moves_from(start.owners) <= max_moves:
        return best.owners, minimum, best.is_within
    placed = _Balance(start, weights, max_imbalance)
    unowned = np.flatnonzero(start.owners == UNOWNED)
    placed.place(unowned)
    placed.relieve(max_moves - len(unowned))
    return placed.owners, minimum, placed.is_within


def _improved(work: _Balance) -> _Balance:
    """The best balance that releasing and placing achieves; planning again changes nothing."""
    best = work
    while True:
        trial = best.copy()
        trial.place(np.concatenate([trial.released(), np.flatnonzero(trial.owners == UNOWNED)]))
        trial.relieve(trial.max_attempts)
        first = best is work and bool((work.owners == UNOWNED).any())
        if not first and trial.peak >= best.peak * (1 - _SLACK):
            return best
        best = trial
        if best.is_within:
            return best


class _Balance:
    """Owners and loads, while they are being changed."""

    def __init__(self, start: Assignment, weights: Column, max_imbalance: float) -> None:
        self.owners = start.owners.copy()
        self._weights = weights
        self._capacities = start.capacities.astype(np.float64)
        self._loads: Column = start.loads(weights).astype(np.float64)
        share = self._capacities * (weights.sum() / self._capacities.sum())
        # With slack, because a sum of many floats is not exact.
        self._limits = share * (1 + max_imbalance) + weights.sum() * _SLACK

    def copy(self) -> _Balance:
        """An independent copy."""
        other = object.__new__(_Balance)
        other.__dict__ = dict(self.__dict__)
        other.owners, other._loads = self.owners.copy(), self._loads.copy()
        return other

    @property
    def peak(self) -> float:
        """The load of the most loaded node, for its capacity."""
        return float((self._loads / self._capacities).max())

    @property
    def is_within(self) -> bool:
        """Whether no node is above its limit, and every shard has an owner."""
        owned = int(self.owners.min()) != UNOWNED
        return owned and bool((self._loads <= self._limits).all())

    @property
    def max_attempts(self) -> int:
        """How many moves are tried to relieve nodes, if any number is allowed."""
        return 100 + 4 * len(self._loads)

    def moves_from(self, owners: Column) -> int:
        """How many shards have another owner."""
        return int((self.owners != owners).sum())

    def fewest_released(self) -> int:
        """The lower bound of shards that must leave the nodes above their limits."""
        return sum(len(each) for each in self._to_release())

    def released(self) -> Column:
        """Take shards from the nodes above their limits, and return them."""
        taken = [np.empty(0, np.int64), *self._to_release()]
        shards = np.concatenate(taken)
        self._take(shards)
        return shards

    def place(self, shards: Column) -> None:
        """Assign unowned shards to nodes: the heaviest first, to the least loaded node."""
        weights = self._weights[shards]
        empty = shards[weights == 0]
        shards = shards[np.argsort(-weights, kind="stable")][: len(shards) - len(empty)]
        while len(shards) > _BULK:
            ratio = self._loads / self._capacities
            chosen = np.argsort(ratio, kind="stable")
            chosen = chosen[ratio[chosen] <= np.median(ratio)][: len(shards)]
            self._give(shards[: len(chosen)], chosen)
            shards = shards[len(chosen) :]
        for shard in shards.tolist():
            node = int(np.argmin((self._loads + self._weights[shard]) / self._capacities))
            self._give(np.array([shard]), np.array([node]))
        self._spread(empty)
        self._recount()

    def relieve(self, moves: int) -> None:
        """Relieve the most loaded node by the best step, for at most this many moves."""
        while moves > 0:
            ratio = self._loads / self._capacities
            donor = int(ratio.argmax())
            if self._loads[donor] <= self._limits[donor]:
                return
            order = np.argsort(ratio, kind="stable")[:_RECEIVERS].tolist()
            receivers = [node for node in order if node != donor]
            step = self._best_move(donor, receivers)
            if step is None and moves >= 2:
                step = self._best_exchange(donor, receivers)
            if step is None:
                return
            shards, nodes = step
            self._take(shards)
            self._give(shards, nodes)
            self._recount()
            moves -= len(shards)

    def undo_needless_moves(self, owners: Column) -> None:
        """Undo the moves that the limits do not need; the lightest shards first."""
        returned = self.is_within
        while returned:
            moved = np.flatnonzero((self.owners != owners) & (owners != UNOWNED))
            moved = moved[np.argsort(self._weights[moved], kind="stable")][:_BULK]
            returned = False
            for shard in moved.tolist():
                home = int(owners[shard])
                if self._loads[home] + self._weights[shard] <= self._limits[home]:
                    self._take(np.array([shard]))
                    self._give(np.array([shard]), np.array([home]))
                    # Its old node has room now, perhaps for another shard that came from there.
                    returned = True
            self._recount()

    def _best_move(self, donor: int, receivers: list[int]) -> tuple[Column, Column] | None:
        shards = self._of(donor)
        best, found = self.peak * (1 - _SLACK), None
        for node in receivers:
            after = np.maximum(
                (self._loads[donor] - self._weights[shards]) / self._capacities[donor],
                (self._loads[node] + self._weights[shards]) / self._capacities[node],
            )
            at = int(after.argmin())
            if after[at] < best:
                best, found = float(after[at]), (shards[at : at + 1], np.array([node]))
        return found

    def _best_exchange(self, donor: int, receivers: list[int]) -> tuple[Column, Column] | None:
        mine = self._of(donor)
        best, found = self.peak * (1 - _SLACK), None
        for node in receivers:
            theirs = self._of(node)
            if not len(theirs):
                continue
            theirs = theirs[np.argsort(self._weights[theirs], kind="stable")]
            # The weight to transfer so that both have the same load for their capacity.
            even = self._loads[donor] * self._capacities[node]
            even -= self._loads[node] * self._capacities[donor]
            even /= self._capacities[donor] + self._capacities[node]
            wanted = self._weights[mine] - even
            at = np.searchsorted(self._weights[theirs], wanted).clip(0, len(theirs) - 1)
            gone = self._weights[mine] - self._weights[theirs[at]]
            after = np.maximum(
                (self._loads[donor] - gone) / self._capacities[donor],
                (self._loads[node] + gone) / self._capacities[node],
            )
            pick = int(after.argmin())
            if after[pick] < best:
                pair = np.array([mine[pick], theirs[at[pick]]])
                best, found = float(after[pick]), (pair, np.array([node, donor]))
        return found

    def _to_release(self) -> list[Column]:
        """For each node above its limit, the fewest and lightest shards that relieve it."""
        found = []
        for node in np.flatnonzero(self._loads > self._limits).tolist():
            shards = self._of(node)
            shards = shards[np.argsort(-self._weights[shards], kind="stable")]
            sums = np.concatenate([[0.0], np.cumsum(self._weights[shards])])
            excess = self._loads[node] - self._limits[node]
            count = min(int(np.searchsorted(sums, excess)), len(shards))
            windows = sums[count:] - sums[: len(sums) - count]
            last = int((windows >= excess).sum()) - 1
            found.append(shards[max(last, 0) : max(last, 0) + count])
        return found

    def _spread(self, empty: Column) -> None:
        """Distribute shards without weight evenly by number: they may gain weight later."""
        counts = np.bincount(self.owners[self.owners >= 0], minlength=len(self._loads))
        room = np.full(len(counts), len(empty))
        given = levels.fill(counts, room, self._capacities.astype(np.int64), len(empty))
        self.owners[np.sort(empty)] = np.repeat(np.arange(len(counts)), given)

    def _of(self, node: int) -> Column:
        return np.flatnonzero(self.owners == node)

    def _recount(self) -> None:
        """Sum up again: alternating additions and subtractions accumulate rounding errors."""
        owned = self.owners >= 0
        self._loads = np.bincount(
            self.owners[owned], self._weights[owned], minlength=len(self._loads)
        )

    def _take(self, shards: Column) -> None:
        np.subtract.at(self._loads, self.owners[shards], self._weights[shards])
        self.owners[shards] = UNOWNED

    def _give(self, shards: Column, nodes: Column) -> None:
        np.add.at(self._loads, nodes, self._weights[shards])
        self.owners[shards] = nodes
