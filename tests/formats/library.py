"""The one place in these tests that calls the library, for what no command and no public name does.

Producers and logs of applications have no command yet. Once `sluicegate log` exists, or what the
library calls them changes, change this file and no other.
"""

from __future__ import annotations

from pathlib import Path

from sluicegate.offsets import LockFileOffsetStore
from sluicegate.positions import Positions
from sluicegate.producer.log_producer import LogProducer
from sluicegate.producer.producer import IdempotentProducer
from sluicegate.sources.log.log import Log

Sent = list[tuple[int, int, bytes]]
"""Partition, sequence and payload of messages."""


def pending(directory: Path) -> Sent:
    """What a producer has issued and not yet seen acknowledged."""
    with IdempotentProducer.open(directory) as producer:
        return [(m.stamp.partition, m.stamp.sequence, m.payload) for m in producer.pending()]


def issue(directory: Path, partition: int, payload: bytes) -> int:
    """Let a producer issue one more message; gives its sequence."""
    with IdempotentProducer.open(directory) as producer:
        return producer.issue(partition, payload).sequence


def records(directory: Path, partition: int) -> list[bytes]:
    """Every record that a log holds of a partition."""
    log = Log.open(str(directory))
    pieces = log.read(partition, 0, log.end(partition), 1 << 20)
    return [line for piece in pieces for line in piece.data.splitlines()]


def send(log: Path, directory: Path, producer: str, partition: int, n: int) -> int:
    """Let a producer append one record to a log; gives its sequence."""
    with LogProducer.open(str(log), directory, producer) as sender:
        return sender.send(partition, {"n": n}).sequence


def commit(store: Path, consumer: str, offsets: dict[int, int]) -> None:
    """What a consumer does: commit positions of the topic `orders`."""
    LockFileOffsetStore.open(str(store)).save_many(consumer, Positions({"orders": offsets}))
