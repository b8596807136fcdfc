"""What is measured of each kind of target; `metrics` says what each value means."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import suppress

from sluicegate import lag
from sluicegate.chain.link import Kind, Link
from sluicegate.detection import TargetKind
from sluicegate.errors import SluicegateError
from sluicegate.gate.stream import Stream
from sluicegate.maintenance import memory
from sluicegate.maintenance.report import Sample
from sluicegate.positions import Positions
from sluicegate.storage import Storage, local_root, open_storage
from sluicegate.target import Target

OUTCOMES = {"applied": "applied", "duplicates": "duplicate", "rejected": "rejected"}
"""Counter of a link → what became of an event."""


def of(target: Target) -> Iterator[Sample]:
    """All that can be told of a target now; a part that cannot be read is left out."""
    name = target.configured_name or target.name
    uri = str(local_root(target.uri).absolute())
    if target.kind is TargetKind.STREAM:
        from sluicegate.gate.stream import open_stream

        yield from of_stream(name, open_stream(uri, read_only=True))
    elif target.kind is TargetKind.SPARK_CHECKPOINT:
        yield from _of_checkpoint(name, open_storage(uri, read_only=True))
    elif target.kind is TargetKind.OFFSET_STORE:
        yield from _of_store(name, open_storage(uri, read_only=True))


def of_stream(name: str, stream: Stream) -> Iterator[Sample]:
    """Of a gated stream."""
    from sluicegate.gate.gate import Gate
    from sluicegate.gate.verify import last_complete

    head = stream.chain.head()
    labels = {"target": name}
    yield Sample(
        "sluicegate_job_alive", float(Gate(stream).living_writer(head) is not None), labels
    )
    yield _age("sluicegate_head_age_seconds", last_at_work(stream, head), labels)
    yield Sample("sluicegate_epochs_total", head.epoch, labels)
    yield Sample("sluicegate_links", head.number - head.floor + 1, labels)
    for counter, outcome in OUTCOMES.items():
        # Of a stream without a job of ours, the number of events is all that is known.
        count = head.counters.get(counter, head.sequence if counter == "applied" else 0)
        yield Sample("sluicegate_events_total", count, labels | {"outcome": outcome})
    if (complete := last_complete(stream)) is not None:
        yield _age("sluicegate_verify_age_seconds", complete, labels)
    yield from _lag(name, head)
    with suppress(SluicegateError):
        yield from _dedup(stream, labels)
    with suppress(SluicegateError):
        yield from _shards(stream, head, labels)


def last_at_work(stream: Stream, head: Link) -> float:
    """When a job last sealed or started; links of the maintenance itself do not count."""
    from sluicegate.gate.history import sound_links

    links = sound_links(stream, head.number, head.floor)
    found = (link.created_at for link in links if link.kind in (Kind.EPOCH, Kind.CLAIM))
    return next(found, head.created_at)


def _lag(name: str, head: Link) -> Iterator[Sample]:
    from sluicegate.gate.source import range_of

    yield from _positions(name, head.positions)
    try:
        earliest, latest = range_of(head)
    except SluicegateError:
        return
    for each in lag.lags(head.positions, latest, earliest):
        if each.behind is not None:
            labels = _labels(name, each.topic, each.partition)
            yield Sample("kafka_consumergroup_lag", each.behind, labels)


def _dedup(stream: Stream, labels: dict[str, str]) -> Iterator[Sample]:
    from sluicegate.gate.dedup_log import look

    found = look(stream)
    yield Sample("sluicegate_dedup_bytes", found.bytes, labels)
    yield Sample("sluicegate_dedup_intervals", found.statistics.intervals, labels)


def _shards(stream: Stream, head: Link, labels: dict[str, str]) -> Iterator[Sample]:
    from sluicegate.gate.rebalance import assignment_at, weights_at
    from sluicegate.shards.planner import imbalance

    assignment = assignment_at(stream, head)
    if assignment.nodes:
        weights = weights_at(stream, head, "bytes")
        yield Sample("sluicegate_shard_imbalance", imbalance(assignment, weights), labels)


def _of_checkpoint(name: str, storage: Storage) -> Iterator[Sample]:
    from sluicegate.maintenance.checkpoints import is_alive
    from sluicegate.spark.checkpoint import look_at
    from sluicegate.spark.offset_log import read_offsets

    labels = {"target": name}
    yield Sample("sluicegate_job_alive", float(is_alive(storage)), labels)
    look = look_at(storage)
    logs = {"offsets": look.offsets, "commits": look.commits}
    for log, listing in logs.items():
        yield Sample("sluicegate_log_files", len(listing.batches), labels | {"log": log})
    if (complete := memory.load(storage).complete) is not None:
        yield _age("sluicegate_verify_age_seconds", complete, labels)
    if look.last_batch is None:
        return
    entry = read_offsets(storage, look.last_batch)
    yield Sample("sluicegate_batch", look.last_batch, labels)
    yield _age("sluicegate_head_age_seconds", entry.timestamp_ms / 1000, labels)
    for source in entry.offsets:
        group = name if len(entry.offsets) == 1 else f"{name}/{source.source}"
        yield from _positions(group, source.positions or Positions({}))


def _of_store(name: str, storage: Storage) -> Iterator[Sample]:
    from sluicegate.offsets import LockFileOffsetStore, check, reference

    if reference.is_reference(storage):
        return
    found = check.look_at(LockFileOffsetStore(storage))
    if found.newest_at is not None:
        yield _age("sluicegate_head_age_seconds", found.newest_at, {"target": name})
    for record in found.records:
        yield from _positions(f"{name}/{record.consumer}", record.positions)


def _positions(group: str, positions: Positions) -> Iterator[Sample]:
    for each in positions:
        labels = _labels(group, each.topic, each.partition)
        yield Sample("kafka_consumergroup_current_offset", each.offset, labels)


def _labels(group: str, topic: str, partition: int) -> dict[str, str]:
    return {"consumergroup": group, "topic": topic, "partition": str(partition)}


def _age(metric: str, since: float, labels: dict[str, str]) -> Sample:
    return Sample(metric, max(0.0, time.time() - since), labels)
