"""The plans of compactions: each names what it merges, so that it holds while a job goes on."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from shlex import quote
from typing import TYPE_CHECKING, TypeAlias

from sluicegate import units
from sluicegate.codec import digest_of
from sluicegate.errors import Drifted
from sluicegate.journal import NothingToUndo
from sluicegate.plan import Action, Precondition
from sluicegate.stream.operations.changes import COMPACT, DEDUP, StreamChange
from sluicegate.stream.operations.compact import (
    Inputs,
    What,
    content,
    is_compact,
    oldest,
    silent,
    size_of_inputs,
)
from sluicegate.stream.snapshot import Link, LinkDamaged
from sluicegate.stream.stream import Stream

if TYPE_CHECKING:
    from sluicegate.stream.operations.compact_dedup import Compacted


Parts: TypeAlias = tuple[str, list[Action], list[str], tuple[Precondition, ...]]
_WHAT: dict[str, What] = {COMPACT: "state", DEDUP: "dedup"}


class Compactions:
    """Plans compactions of one stream, and keeps what was merged for whoever applies the plan."""

    def __init__(self, stream: Stream) -> None:
        self._stream = stream
        self._done: tuple[float | None, Compacted] | None = None
        self.on_progress: Callable[[int, int], None] = silent

    def settled(self, change: StreamChange) -> StreamChange:
        """A change that says what it merges, if it is a compaction: all there is now."""
        if change.operation not in _WHAT or change.inputs is not None:
            return change
        kept = content(self._stream.chain.head(), _WHAT[change.operation])
        return replace(change, inputs=kept.refs)

    def plan_state(self, change: StreamChange) -> Parts:
        """Of the partials of state."""
        head = self._stream.chain.head()
        assert change.inputs is not None
        title = f"Compact the state of {self._stream.name}"
        needs = _needs(head, "state", change.inputs)
        if oldest(head.state, change.inputs) is None:
            return title, [], [], needs
        size = size_of_inputs(self._stream, change.inputs)
        if is_compact(size, change.inputs):
            return title, [], [], needs
        count = f"{size.partials} partials of {size.shards} shards, {units.size(size.bytes)}"
        actions = [Action("merge", "state", f"{count}, to one partial per shard")]
        told = ["The state is the same before and after. A job that runs is not disturbed."]
        return title, actions, told, needs

    def plan_dedup(self, change: StreamChange) -> Parts:
        """Of the segments of the dedup log."""
        head = self._stream.chain.head()
        assert change.inputs is not None
        title = f"Compact the dedup log of {self._stream.name}"
        needs = _needs(head, "dedup", change.inputs)
        if oldest(head.dedup, change.inputs) is None:
            return title, [], [], needs
        done = self.merged(change)
        count = len(change.inputs)
        if count == 1 and not done.given_up:
            return title, [], [], needs
        before = units.size(sum(ref.size for ref in change.inputs))
        what = f"{count} segments, {before}, to one of {units.size(len(done.data))}"
        actions = [Action("merge", "dedup log", what)]
        told = ["A job that runs is not disturbed."]
        if done.given_up:
            when = units.utc(change.before or 0.0)
            actions.append(Action("give up", "stamps", f"{done.given_up:,}, not seen since {when}"))
            told.append(
                "What arrives below the new floors can no longer be told from a duplicate: it goes "
                "to the rejects, with that reason."
            )
        else:
            told.insert(0, "It knows the same stamps before and after; that is proven first.")
        return title, actions, told, needs

    def plan_restore(self, change: StreamChange) -> Parts:
        """Of taking back what a compaction of the dedup log gave up."""
        head = self._stream.chain.head()
        assert change.to is not None
        try:
            self._stream.chain.read(change.to - 1)
            made = self._stream.chain.read(change.to)
        except LinkDamaged as e:
            raise NothingToUndo(
                f"link {change.to} cannot be undone: what was before it is not kept any more",
                hint=f"see what can be: sluicegate history {quote(self._stream.uri)}",
            ) from e
        assert made.dedup.base
        if head.dedup.base != made.dedup.base:
            raise Drifted(f"the dedup log was compacted again since link {change.to}")
        count = made.details.get("given_up", 0)
        actions = [Action("restore", "dedup log", f"{count:,} stamps are known again")]
        needs = _needs(head, "dedup", (made.dedup.base,))
        told = ["What was seen since stays known. A job that runs is not disturbed."]
        return f"Restore the dedup log of {self._stream.name}", actions, told, needs

    def merged(self, change: StreamChange) -> Compacted:
        """The segments of a change as one; only once, since segments never change."""
        # Imported here: most plans need no look into the log.
        from sluicegate.stream.operations.compact_dedup import compacted

        assert change.inputs is not None
        if self._done is None or (self._done[0], self._done[1].inputs) != (
            change.before,
            change.inputs,
        ):
            done = compacted(self._stream, change.inputs, change.before, self.on_progress)
            self._done = change.before, done
        return self._done[1]


def _needs(head: Link, what: What, inputs: Inputs) -> tuple[Precondition, ...]:
    """What a compaction depends on: its inputs are still what the stream begins with."""
    found = content(head, what).refs[: len(inputs)]
    digest = digest_of("".join(ref.digest for ref in found).encode())[:16]
    name = "the state's oldest parts" if what == "state" else "the dedup log's oldest segments"
    return (
        Precondition("the stream", head.stream_id),
        Precondition(name, f"{len(found)}, {digest}"),
    )
