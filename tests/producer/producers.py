"""Producers to try things on."""

from __future__ import annotations

from pathlib import Path

from sluicegate.dedup.stamp import Stamp
from sluicegate.producer.producer import IdempotentProducer, Message, Options
from sluicegate.producer.state import LOCK

ID = "shop/checkout"
# So that ranges end and segments fill within a few messages.
SMALL = Options(reserve=4, segment_bytes=300)


def stamp(sequence: int, partition: int = 0) -> Stamp:
    return Stamp(ID, partition, sequence)


def sent(producer: IdempotentProducer) -> dict[Stamp, bytes]:
    """What is pending; each once, in order of its partition."""
    messages = list(producer.pending())
    assert all(isinstance(each, Message) for each in messages)
    for partition in {each.stamp.partition for each in messages}:
        order = [each.stamp for each in messages if each.stamp.partition == partition]
        assert order == sorted(set(order))
    return {each.stamp: each.payload for each in messages}


def abandon(producer: IdempotentProducer) -> None:
    """Let it go as a kill would: the lock is free, nothing else happens."""
    producer._instance.outbox.close_segment()
    producer._closed = True
    producer._held.close()


def lose_lock(root: Path) -> None:
    """As on another host, or after the file was removed."""
    (root / LOCK).unlink()


def segments(root: Path) -> list[Path]:
    return sorted(root.glob("*.outbox"))
