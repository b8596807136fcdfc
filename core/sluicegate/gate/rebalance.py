"""The shards of a stream: who owns them at a link."""

from __future__ import annotations

from sluicegate.chain.link import Link
from sluicegate.errors import Corrupt, UsageError
from sluicegate.gate.stream import Stream
from sluicegate.shards.assignment import Assignment, decode


def shard_count(link: Link) -> int:
    """How many shards a stream has, as it was fixed when it began."""
    count = link.pins.get("shards")
    if type(count) is not int or count < 1:
        raise UsageError(
            f"{link.stream} began without saying how many shards it has",
            hint="only a stream that is described in sluicegate.toml can assign them to nodes",
        )
    return count


def assignment_at(stream: Stream, link: Link) -> Assignment:
    """Who owns which shard at a link; nobody, as long as none was ever assigned."""
    count = shard_count(link)
    if link.assignment is None:
        return Assignment.unowned(count, link.version)
    found = decode(stream.blobs.get(link.assignment), link.assignment.key, link.version)
    if found.n_shards != count or not found.is_whole:
        raise Corrupt(
            f"{link.assignment.key} assigns {found.n_shards} shards, not all {count} of the stream",
            place=link.assignment.key,
        )
    return found
