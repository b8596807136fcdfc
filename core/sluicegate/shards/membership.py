"""Members of an assignment: nodes that join, leave or change their capacity.

Each of these gives a plan and changes nothing. Who joins twice, or leaves twice, gets a plan that
keeps the assignment as it is, if that is asked for; never an empty one.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from sluicegate.errors import Fenced, NotFound, UsageError
from sluicegate.shards.assignment import Assignment, AssignmentInvalid
from sluicegate.shards.planner import RebalancePlan, between, plan


class NodeExists(UsageError):
    """The node has joined already."""

    default_hint = "add --idempotent if that is well; see who is there with: sluicegate shards show"


class NodeUnknown(NotFound):
    """There is no such node."""

    default_hint = "add --idempotent if that is well; see who is there with: sluicegate shards show"


class LastNode(UsageError):
    """Without the node nobody would own the shards."""

    default_hint = "let another join first; or add --force, and Spark decides how to share the work"


class StaleAssignment(Fenced):
    """An assignment made elsewhere is not newer than the one that is there."""

    default_hint = "make it anew from the one that is there: sluicegate shards show TARGET --json"


def join(
    current: Assignment,
    nodes: Mapping[str, int],
    *,
    idempotent: bool = False,
    max_moves: int | None = None,
) -> RebalancePlan:
    """Let nodes in, with the fewest moves that give them their share."""
    known = sorted(nodes.keys() & current.nodes.keys())
    if known and not idempotent:
        raise NodeExists(f"{', '.join(known)} has joined already")
    # A node that is there keeps its capacity: joining again changes nothing.
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
    """Let nodes go; what they own goes to the others, and as little else moves as can be."""
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
        raise LastNode(f"nobody would be left to own the {current.n_shards:,} shards")
    return between(current, Assignment.unowned(current.n_shards))


def resize(current: Assignment, capacities: Mapping[str, int]) -> dict[str, int]:
    """The nodes with other capacities for some."""
    if unknown := sorted(capacities.keys() - current.nodes.keys()):
        known = ", ".join(current.names) or "none"
        raise NodeUnknown(f"there is no node {', '.join(unknown)}", hint=f"the nodes are: {known}")
    return {**current.nodes, **capacities}


def install(current: Assignment, made: Assignment, version: int | None = None) -> RebalancePlan:
    """Take over an assignment that was made elsewhere, as it is; `version` is what it says it is.

    Refused if it is for other shards, leaves some unowned, or is not newer than the current one.
    """
    if made.n_shards != current.n_shards:
        raise AssignmentInvalid(
            f"it assigns {made.n_shards:,} shards, but there are {current.n_shards:,}"
        )
    if not made.nodes or not made.is_whole:
        raise AssignmentInvalid("it leaves shards without an owner")
    if version is not None and version <= current.version:
        raise StaleAssignment(
            f"it is of version {version}, but the assignment is at {current.version} already"
        )
    return between(current, made)
