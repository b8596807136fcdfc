"""The shards of a stream: who owns them at a snapshot, what they weigh, and reassigning them.

A rebalance is a snapshot with the next version of the assignment. It moves no data: state lies in
the home, and a node only groups shards into one task per epoch.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar, Protocol, TypeAlias

from sluicegate import units
from sluicegate.errors import Corrupt, UsageError
from sluicegate.journal import NothingToUndo
from sluicegate.plan import Precondition
from sluicegate.shards import describe
from sluicegate.shards.assignment import Assignment, decode, encode
from sluicegate.shards.describe import UNDO, Proposal
from sluicegate.shards.owned import OwnedShards
from sluicegate.shards.planner import RebalancePlan
from sluicegate.shards.routing import Column
from sluicegate.shards.weights import WeightsInvalid, column_of
from sluicegate.state import manifest
from sluicegate.state.aggregates import events_in
from sluicegate.stream.append import RebalanceDraft, Signature
from sluicegate.stream.history import changes
from sluicegate.stream.journal import Parts, StreamOperation, Workplace
from sluicegate.stream.snapshot import Snapshot, SnapshotDamaged
from sluicegate.stream.state import shard_count, shards_of
from sluicegate.stream.stream import Stream
from sluicegate.target import Change


def assignment_at(stream: Stream, snapshot: Snapshot) -> Assignment:
    """Which node owns which shard at a snapshot; none, as long as none was ever assigned."""
    count = shard_count(snapshot)
    if snapshot.assignment is None:
        return Assignment.unowned(count, snapshot.version)
    found = decode(stream.blobs.get(snapshot.assignment), snapshot.assignment.key, snapshot.version)
    if found.n_shards != count or not found.is_complete:
        raise Corrupt(
            f"{snapshot.assignment.key} assigns {found.n_shards} shards, not all {count} of the "
            "stream",
            place=snapshot.assignment.key,
        )
    return found


def weights_at(stream: Stream, snapshot: Snapshot, measure: str) -> Column:
    """The weight of each shard at a snapshot, by one of the `MEASURES`."""
    try:
        return column_of(MEASURES[measure](stream, snapshot), shard_count(snapshot))
    except WeightsInvalid as e:
        raise Corrupt(f"snapshot {snapshot.number} has state of other shards: {e.message}") from e


class StreamShards(OwnedShards):
    """The shards of a stream, as its head has them."""

    measures = ("events", "keys", "bytes")
    usual_measures = ("keys", "bytes")

    def __init__(self, stream: Stream, head: Snapshot, target: StreamTarget) -> None:
        super().__init__(target.uri, assignment_at(stream, head))
        self._stream = stream
        self._head = head
        self._target = target

    @property
    def version(self) -> int | None:
        return self.assignment.version

    def weights(self, measure: str) -> Column:
        return weights_at(self._stream, self._head, measure)

    def counters(self) -> dict[str, int] | None:
        return counts(list(changes(self._stream, self._head)))

    def advice(self) -> list[str]:
        return [
            "No node owns a shard: Spark distributes the work of a job.",
            f"Add nodes with: {units.command('shards', 'join', self._target.command_name)} NODE...",
        ]

    def change(
        self, plan: RebalancePlan, how: str, note: str, *, output: str | None, **asked: Any
    ) -> Change:
        if output is not None:
            raise UsageError("--output applies to assignment files only")
        data = Proposal.of(plan, how, sizes=self.weights("bytes"), **asked).to_text()
        return self._target.change(Rebalance(data=data, note=note))


class StreamTarget(Protocol):
    """The target that a stream is."""

    @property
    def uri(self) -> str:
        """Where it is."""

    @property
    def command_name(self) -> str:
        """Its name in commands."""

    def change(self, operation: StreamOperation) -> Change:
        """Some change of the stream."""


@dataclass(frozen=True, kw_only=True)
class Rebalance(StreamOperation):
    """Assign shards to nodes; `data` is the proposal as text, so that a plan can carry it."""

    name: ClassVar = "rebalance"
    online: ClassVar = True
    data: str

    def plan(self, at: Workplace) -> Parts:
        stream, head = at.stream, at.stream.chain.head()
        proposal = Proposal.from_text(self.data)
        if proposal.after.n_shards != shard_count(head):
            raise Corrupt(
                f"the plan assigns {proposal.after.n_shards} shards, not those of the stream"
            )
        made = proposal.plan_from(assignment_at(stream, head))
        needs = (
            Precondition("the stream", head.stream_id),
            Precondition("the generation", head.generation),
            Precondition("the version of the assignment", head.version),
        )
        title = f"Rebalance the shards of {stream.name}"
        if made.is_nothing:
            return Parts(title, needs)
        actions = describe.actions_of(made, proposal.measure, cost=partial(_cost, proposal))
        consequences = [
            *describe.consequences_of(made, proposal),
            *_later(stream, head, self.undoes),
            *_meaning(made),
        ]
        return Parts(title, needs, actions, consequences)

    def append(
        self, at: Workplace, signature: Signature, details: Mapping[str, Any]
    ) -> Snapshot | None:
        proposal, base = Proposal.from_text(self.data), at.applied_on
        made = proposal.plan_from(assignment_at(at.stream, base))
        own = {
            "summary": describe.summary_of(made, self.note),
            "how": proposal.how,
            "moves": len(made.moved),
            "joined": describe.joined(made),
            "left": describe.left(made),
        }
        draft = RebalanceDraft(
            version=base.version,
            generation=base.generation,
            assignment=at.stream.blobs.put(encode(made.after)),
            signature=signature,
            details={**details, **own},
        )
        return at.writer.append(draft, base)

    @classmethod
    def inverse(cls, stream: Stream, number: int, operation: str, *, force: bool) -> Rebalance:
        """The assignment before a rebalance, at a new version."""
        del force  # it needs no force: jobs keep running
        try:
            before = assignment_at(stream, stream.chain.read(number - 1))
        except SnapshotDamaged as e:
            raise NothingToUndo(
                f"{operation} cannot be undone: the snapshot before it is pruned",
                hint="assign the shards again with: sluicegate shards rebalance STREAM",
            ) from e
        data = Proposal(before, UNDO).to_text()
        return cls(data=data, note=f"undo {operation}", undoes=operation)


def counts(snapshots: list[Snapshot]) -> dict[str, int]:
    """How often nodes joined and left, and assignments made elsewhere were installed."""
    return {
        "joins": sum(len(snapshot.details.get("joined", ())) for snapshot in snapshots),
        "leaves": sum(len(snapshot.details.get("left", ())) for snapshot in snapshots),
        "installs": sum(snapshot.details.get("how") == "install" for snapshot in snapshots),
    }


def _later(stream: Stream, head: Snapshot, undoes: str | None) -> list[str]:
    """A note that the undo of an older rebalance also reverts those after it."""
    if undoes is None:
        return []
    undone = stream.chain.read(int(undoes.rpartition("@")[2]))
    count = head.version - undone.version
    return [f"Also reverts {units.counted(count, 'later rebalance')}."] if count > 0 else []


def _meaning(made: RebalancePlan) -> list[str]:
    """What a job does with the new assignment, and when."""
    if not made.after.nodes:
        return ["From the next epoch of a job on, Spark distributes the shards."]
    job = (
        "A running job continues: its current epoch is routed again by version "
        f"{made.after.version} of the assignment before it commits, and so are all later ones."
    )
    cost = (
        "No state is copied: it is in the home. A node is a group of shards that Spark processes "
        "in one task; this starts no machine."
    )
    return [job, cost]


def _cost(proposal: Proposal, shard: int) -> str:
    """The state that another task reads from now on."""
    if proposal.sizes is None or proposal.measure == "bytes":
        return ""
    size = int(proposal.sizes[shard])
    return f"{units.size(size)} of state" if size else "no state yet"


def _keys(stream: Stream, snapshot: Snapshot) -> Mapping[int, float]:
    contents = {
        s: manifest.contents(stream.blobs, r) for s, r in shards_of(stream, snapshot).items()
    }
    return {shard: table.num_rows if table else 0 for shard, table in contents.items()}


def _events(stream: Stream, snapshot: Snapshot) -> Mapping[int, float]:
    contents = {
        s: manifest.contents(stream.blobs, r) for s, r in shards_of(stream, snapshot).items()
    }
    return {shard: events_in(table) if table else 0 for shard, table in contents.items()}


def _bytes(stream: Stream, snapshot: Snapshot) -> Mapping[int, float]:
    return {s: sum(ref.size for ref in refs) for s, refs in shards_of(stream, snapshot).items()}


Measure: TypeAlias = Callable[[Stream, Snapshot], Mapping[int, float]]
MEASURES: dict[str, Measure] = {"events": _events, "keys": _keys, "bytes": _bytes}
"""Weights of the shards at a snapshot: shard → weight; empty ones may be left out."""
