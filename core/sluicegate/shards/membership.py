"""Members of an assignment: nodes that join, leave or change their capacity.

Each of these returns a plan and changes nothing. With `idempotent`, a node that joins or leaves a
second time gets a plan that keeps the assignment as it is, never an empty one.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from sluicegate.errors import Fenced, NotFound, UsageError
from sluicegate.shards.assignment import Assignment, AssignmentInvalid
from sluicegate.shards.planner import RebalancePlan, between, plan


class NodeExists(UsageError):
    """The node is already a member."""

    default_hint = "add --idempotent to accept that; list the nodes with: sluicegate shards show"


class NodeUnknown(NotFound):
    """There is no such node."""

    default_hint = "add --idempotent to accept that; list the nodes with: sluicegate shards show"


class LastNode(UsageError):
    """Without the node the shards would have no owner."""

    default_hint = "add another node first; or add --force, and Spark distributes the work"


class StaleAssignment(Fenced):
    """An assignment made elsewhere is not newer than the current one."""

    default_hint = "create it again from the current one: sluicegate shards show TARGET --json"


def join(
    current: Assignment,
    nodes: Mapping[str, int],
    *,
    idempotent: bool = False,
    max_moves: int | None = None,
) -> RebalancePlan:
    """Add nodes, with the fewest moves that give them their share."""
    known = sorted(nodes.keys() & current.nodes.keys())
    if known and not idempotent:
        raise NodeExists(f"{', '.join(known)} has already joined")
    # An existing node keeps its capacity: joining again changes nothing.
    if len(known) == len(nodes):
        return between(current, current)
    return plan(current, {**nodes, **current.nodes}, max_moves=max_moves)


def leave(
    current: Assignment,
    names: Iterable[str],
    *,
    idempotent: bool = False,
    force: bool = False,
    max_moves: int | None = None,
) -> RebalancePlan:
    """Remove nodes; their shards move to the others, and as few other shards as possible move."""
    going = set(names)
    unknown = sorted(going - current.nodes.keys())
    if unknown and not idempotent:
        raise NodeUnknown(f"there is no node {', '.join(unknown)}")
    stay = {name: size for name, size in current.nodes.items() if name not in going}
    if len(stay) == len(current.nodes):
        return between(current, current)
    if stay:
        return plan(current, stay, max_moves=max_moves)
    if not force:
        raise LastNode(f"no node would be left to own the {current.n_shards:,} shards")
    return between(current, Assignment.unowned(current.n_shards))


def resize(current: Assignment, capacities: Mapping[str, int]) -> dict[str, int]:
    """The nodes, with new capacities for some."""
    if unknown := sorted(capacities.keys() - current.nodes.keys()):
        known = ", ".join(current.names) or "none"
        raise NodeUnknown(f"there is no node {', '.join(unknown)}", hint=f"the nodes are: {known}")
    return {**current.nodes, **capacities}


def install(current: Assignment, made: Assignment, version: int | None = None) -> RebalancePlan:
    """Install an assignment that was made elsewhere, unchanged; `version` is the one it states.

    Refused if it is for other shards, leaves some unowned, or is not newer than the current one.
    """
    if made.n_shards != current.n_shards:
        raise AssignmentInvalid(
            f"it assigns {made.n_shards:,} shards, but there are {current.n_shards:,}"
        )
    if not made.nodes or not made.is_complete:
        raise AssignmentInvalid("it leaves shards without an owner")
    if version is not None and version <= current.version:
        raise StaleAssignment(
            f"it has version {version}, but the assignment is already at {current.version}"
        )
    return between(current, made)
