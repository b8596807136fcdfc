"""The shards of a target: their owners, their weights, and how to change the assignment."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any

from sluicegate.shards.assignment import Assignment
from sluicegate.shards.describe import shard_label
from sluicegate.shards.planner import RebalancePlan
from sluicegate.shards.routing import Column
from sluicegate.target import Change


class OwnedShards(ABC):
    """The shards of a target; every kind of target with shards has a subclass."""

    measures: tuple[str, ...] = ()
    """The weights that the target itself knows."""
    usual_measures: tuple[str, ...] = ()
    """Those that are shown by default."""

    def __init__(self, uri: str, assignment: Assignment) -> None:
        self.uri = uri
        self.assignment = assignment

    def label(self, shard: int) -> str:
        """The label of a shard."""
        return shard_label(shard)

    def weights(self, measure: str) -> Column:
        """The weights of the shards, by one of the measures."""
        raise KeyError(measure)

    @property
    def version(self) -> int | None:
        """The version of the assignment, where it has one."""
        return self.assignment.version or None

    def counters(self) -> dict[str, int] | None:
        """How often nodes joined and left; None if that is not kept."""
        return None

    def check_keys(self) -> None:  # noqa: B027 - most kinds accept keys
        """Refuse if the shard of a key is chosen by another rule."""

    def advice(self) -> list[str]:
        """What to do while no node owns a shard."""
        return []

    @abstractmethod
    def change(
        self, plan: RebalancePlan, how: str, note: str, *, output: str | None, **asked: Any
    ) -> Change:
        """A plan as a change of the target; `asked` is the request it was made for."""
