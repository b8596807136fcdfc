"""An assignment: which node owns which shard, at a version that only grows.

Layout of the body of its frame, a map (FORMAT.md):

    nodes     list of [name, capacity], by name
    n_shards  how many shards there are
    owners    4 bytes for each shard, little-endian: the index of its node in `nodes`, or FFFFFFFF

The version is not part of it: the snapshot that refers to the map has it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from sluicegate import codec
from sluicegate.errors import Corrupt, NotFound, UsageError
from sluicegate.shards.routing import Column, shard_of
from sluicegate.storage import validate_name

FORMAT = codec.Format("assign", 1, 256 * 1024 * 1024)
MAX_SHARDS = 1 << 24
MAX_NODES = 1 << 20
MAX_CAPACITY = 1 << 20
UNOWNED = -1


class NoNodes(NotFound):
    """There is no node that could own a shard."""

    default_hint = "add one with: sluicegate shards join STREAM NODE"


class AssignmentInvalid(UsageError):
    """An invalid map: shards missing, unknown owners, or an invalid capacity."""

    default_hint = "see an example of the fields with: sluicegate shards show TARGET --json"


@dataclass(frozen=True, slots=True, eq=False)
class Assignment:
    """Shard → node; `nodes` are names with capacities, `owners` has the index of each shard's node.

    Nodes are ordered by name, so nothing depends on the order of joins. The owner of an unowned
    shard is -1.
    """

    n_shards: int
    nodes: Mapping[str, int]
    owners: Column
    version: int = 0

    def __post_init__(self) -> None:
        if not 1 <= self.n_shards <= MAX_SHARDS:
            raise AssignmentInvalid(f"{self.n_shards} shards; there can be 1 to {MAX_SHARDS:,}")
        object.__setattr__(self, "nodes", checked_nodes(self.nodes))
        owners = np.array(self.owners, dtype=np.int32)
        owners.flags.writeable = False
        object.__setattr__(self, "owners", owners)
        if owners.shape != (self.n_shards,):
            raise AssignmentInvalid(
                f"owners of {len(owners)} shards, but there are {self.n_shards}"
            )
        if owners.min() < UNOWNED or owners.max() >= len(self.nodes):
            raise AssignmentInvalid("a shard belongs to an unknown node")
        if self.version < 0:
            raise AssignmentInvalid(f"version {self.version} is below 0")

    @classmethod
    def unowned(cls, n_shards: int, version: int = 0) -> Assignment:
        """No nodes, so that no shard has an owner."""
        return cls(n_shards, {}, np.full(max(n_shards, 0), UNOWNED, np.int32), version)

    def __eq__(self, other: object) -> bool:
        return (
            isinstance(other, Assignment)
            and self.version == other.version
            and self.is_same_map(other)
        )

    __hash__ = None  # type: ignore[assignment]  # it holds an array

    def is_same_map(self, other: Assignment) -> bool:
        """Whether the maps are equal, at any version."""
        return dict(self.nodes) == dict(other.nodes) and np.array_equal(self.owners, other.owners)

    @property
    def names(self) -> tuple[str, ...]:
        """The nodes by the numbers that `owners` uses."""
        return tuple(self.nodes)

    @property
    def capacities(self) -> Column:
        """The capacity of each node, by the numbers that `owners` uses."""
        return np.fromiter(self.nodes.values(), np.int64, len(self.nodes))

    @property
    def is_complete(self) -> bool:
        """Whether every shard has an owner, or there are no nodes at all."""
        return not self.nodes or int(self.owners.min()) != UNOWNED

    def node_of(self, shard: int) -> str | None:
        """The node that owns a shard; None if it has no owner."""
        if not 0 <= shard < self.n_shards:
            raise NotFound(f"there is no shard {shard}; they are 0 to {self.n_shards - 1}")
        owner = int(self.owners[shard])
        return None if owner == UNOWNED else self.names[owner]

    def owner_names(self) -> list[str | None]:
        """The node that owns each shard; None for an unowned shard."""
        # The last is for -1.
        names = [*self.nodes, None]
        return [names[owner] for owner in self.owners.tolist()]

    def owner(self, key: str) -> str:
        """The node that owns the shard of a key, or `NoNodes`."""
        shard = shard_of(key, self.n_shards)
        found = self.node_of(shard)
        if found is None:
            raise NoNodes(f"shard {shard} of the key {key!r} has no owner")
        return found

    def loads(self, weights: Column | None = None) -> Column:
        """The load of each node: its shards, or the sum of their weights."""
        owned = self.owners >= 0
        chosen = None if weights is None else weights[owned]
        return np.bincount(self.owners[owned], chosen, minlength=len(self.nodes))

    def at_version(self, version: int) -> Assignment:
        """The same map at another version."""
        return replace(self, version=version)


def checked_nodes(nodes: Mapping[str, int]) -> Mapping[str, int]:
    """Nodes by name, with capacities that are integers from 1."""
    if len(nodes) > MAX_NODES:
        raise AssignmentInvalid(f"{len(nodes):,} nodes are more than {MAX_NODES:,}")
    for name, capacity in nodes.items():
        validate_name(name, "node")
        if type(capacity) is not int or not 1 <= capacity <= MAX_CAPACITY:
            raise AssignmentInvalid(
                f"the capacity of {name} is {capacity!r}",
                hint=f"it is an integer from 1 to {MAX_CAPACITY:,}: twice the capacity gets twice "
                "as many shards",
            )
    return dict(sorted(nodes.items()))


def from_names(
    owners: Iterable[str | None], nodes: Mapping[str, int] | None = None, version: int = 0
) -> Assignment:
    """From the name of each shard's node; without `nodes`, all have the capacity 1."""
    names = list(owners)
    known = (
        dict.fromkeys((name for name in names if name is not None), 1) if nodes is None else nodes
    )
    number = {name: at for at, name in enumerate(sorted(known))}
    try:
        column = [UNOWNED if name is None else number[name] for name in names]
    except KeyError as e:
        raise AssignmentInvalid(f"a shard belongs to {e.args[0]!r}, which is not a node") from None
    return Assignment(len(names), known, np.array(column, np.int32), version)


def encode(assignment: Assignment) -> bytes:
    """The blob of a map: equal maps give equal bytes, at any version."""
    return codec.encode(
        FORMAT,
        {
            "n_shards": assignment.n_shards,
            "nodes": [[name, capacity] for name, capacity in assignment.nodes.items()],
            "owners": assignment.owners.astype("<i4").tobytes(),
        },
    )


def decode(data: bytes, place: str, version: int = 0) -> Assignment:
    """The map in a blob, or `Corrupt`."""
    fields = codec.decode(FORMAT, data, place)
    try:
        return _decoded(fields, version)
    except (KeyError, TypeError, ValueError, UsageError) as e:
        raise Corrupt(f"{place} is not an assignment: {e}", place=place) from e


def _decoded(fields: Mapping[str, Any], version: int) -> Assignment:
    if sorted(fields) != ["n_shards", "nodes", "owners"]:
        raise ValueError(f"its fields are {sorted(fields)}")
    pairs = [(name, capacity) for name, capacity in fields["nodes"]]
    nodes = dict(pairs)
    if [name for name, _ in pairs] != sorted(nodes):
        raise ValueError("its nodes are not in order")
    n_shards, owners = fields["n_shards"], np.frombuffer(fields["owners"], "<i4")
    if type(n_shards) is not int:
        raise TypeError(f"{n_shards!r} shards")
    return Assignment(n_shards, nodes, owners, version)
