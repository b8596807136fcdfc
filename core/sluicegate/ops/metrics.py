"""What is measured of each kind of target, in Prometheus' text form.

Positions and lag have the names and labels that kafka_exporter gave them, so that dashboards and
alerts for consumer groups work for streams, too; a target is a consumer group. Everything else is
called `sluicegate_…`.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from sluicegate import lag
from sluicegate.detection import TargetKind
from sluicegate.errors import SluicegateError
from sluicegate.findings import Severity
from sluicegate.ops import maintenance
from sluicegate.ops.maintenance import Outcome, Report, Sample, TargetReport
from sluicegate.positions import Positions
from sluicegate.storage import LocalStorage, Storage, canonical_uri, open_storage
from sluicegate.stream.snapshot import Kind, Link
from sluicegate.stream.stream import Stream
from sluicegate.target import Target

if TYPE_CHECKING:
    from prometheus_client.core import Metric as Family


_COUNTER, _GAUGE = "counter", "gauge"
_PARTITION = ("consumergroup", "topic", "partition")


@dataclass(frozen=True, slots=True)
class Metric:
    """One metric: its name, what its values mean, and what they are told apart by."""

    name: str
    text: str
    labels: tuple[str, ...] = ("target",)
    kind: str = _GAUGE


METRICS = (
    Metric("kafka_consumergroup_lag", "Events that are still to be read", _PARTITION),
    Metric("kafka_consumergroup_current_offset", "Next offset to be read", _PARTITION),
    Metric("sluicegate_job_alive", "Whether a job is at work, or may be"),
    Metric("sluicegate_head_age_seconds", "Time since the newest epoch, batch or commit"),
    Metric("sluicegate_epochs_total", "Epochs sealed", kind=_COUNTER),
    Metric(
        "sluicegate_events_total",
        "Events counted in the state, recognised as duplicates, or rejected; less after a rollback",
        ("target", "outcome"),
        _COUNTER,
    ),
    Metric("sluicegate_links", "Links that are kept"),
    Metric("sluicegate_batch", "Newest batch of a Spark checkpoint"),
    Metric("sluicegate_log_files", "Entries in a log of a Spark checkpoint", ("target", "log")),
    Metric("sluicegate_dedup_bytes", "Size of the dedup log"),
    Metric("sluicegate_dedup_intervals", "Intervals in the dedup log"),
    Metric("sluicegate_shard_imbalance", "Load of the fullest node above its share; 0.05 is 5%"),
    Metric("sluicegate_verify_age_seconds", "Time since all contents were last read"),
    Metric("sluicegate_findings", "Findings of the last run", ("target", "severity")),
    Metric("sluicegate_steps", "Steps of the last run", ("target", "outcome")),
    Metric("sluicegate_last_run_timestamp_seconds", "When the last run began", ()),
    Metric("sluicegate_last_run_duration_seconds", "How long the last run took", ()),
    Metric("sluicegate_target_duration_seconds", "How long the last run took for a target"),
)


def exposition(report: Report) -> bytes:
    """The whole file: a metric with its help and type, and a line per value."""
    from prometheus_client import CollectorRegistry, generate_latest
    from prometheus_client.registry import Collector

    class Reported(Collector):
        def collect(self) -> Iterator[Family]:
            yield from _families(report)

    registry = CollectorRegistry(auto_describe=False)
    registry.register(Reported())
    return generate_latest(registry)


def write(report: Report, path: Path) -> Report:
    """Put the file in place in one step, readable for everybody, as a collector is another user.

    Gives the report, with a finding if that failed: what was done is not forgotten over it.
    """
    try:
        with _open_to_all():
            LocalStorage(path.absolute().parent).replace(path.name, exposition(report))
    except SluicegateError as e:
        parent = path.absolute().parent
        why = e.message if parent.is_dir() else f"there is no directory {parent}"
        finding = maintenance.METRICS.at(str(path), why)
        failed = TargetReport("metrics", str(path), None, findings=(finding,))
        return replace(report, targets=(*report.targets, failed))
    return report


@contextmanager
def _open_to_all() -> Iterator[None]:
    before = os.umask(0o133)
    try:
        yield
    finally:
        os.umask(before)


def _families(report: Report) -> Iterator[Family]:
    from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily

    values: dict[str, list[Sample]] = {}
    for sample in _samples(report):
        values.setdefault(sample.metric, []).append(sample)
    for metric in METRICS:
        if metric.name not in values:
            continue
        make = CounterMetricFamily if metric.kind == _COUNTER else GaugeMetricFamily
        family = make(metric.name, metric.text, labels=metric.labels)
        for sample in values[metric.name]:
            family.add_metric([sample.labels[label] for label in metric.labels], sample.value)
        yield family


def _samples(report: Report) -> Iterator[Sample]:
    yield Sample("sluicegate_last_run_timestamp_seconds", report.started, {})
    yield Sample("sluicegate_last_run_duration_seconds", report.seconds, {})
    for target in report.targets:
        labels = {"target": target.name}
        yield Sample("sluicegate_target_duration_seconds", target.seconds, labels)
        for severity in Severity:
            count = target.count(severity)
            yield Sample("sluicegate_findings", count, labels | {"severity": severity.value})
        for outcome in Outcome:
            count = sum(step.outcome is outcome for step in target.steps)
            yield Sample("sluicegate_steps", count, labels | {"outcome": outcome.value})
        yield from target.samples


OUTCOMES = {"applied": "applied", "duplicates": "duplicate", "rejected": "rejected"}
"""Counter of a link → what became of an event."""


def of(target: Target) -> Iterator[Sample]:
    """All that can be told of a target now; a part that cannot be read is left out."""
    name = target.configured_name or target.name
    uri = canonical_uri(target.uri)
    if target.kind is TargetKind.STREAM:
        from sluicegate.stream.stream import open_stream

        yield from of_stream(name, open_stream(uri, read_only=True))
    elif target.kind is TargetKind.SPARK_CHECKPOINT:
        yield from _of_checkpoint(name, open_storage(uri, read_only=True))
    elif target.kind is TargetKind.OFFSET_STORE:
        yield from _of_store(name, open_storage(uri, read_only=True))


def of_stream(name: str, stream: Stream) -> Iterator[Sample]:
    """Of a gated stream."""
    from sluicegate.stream.verify import last_complete
    from sluicegate.stream.writer import Gate

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
    from sluicegate.stream.history import sound_links

    links = sound_links(stream, head.number, head.floor)
    found = (link.created_at for link in links if link.kind in (Kind.EPOCH, Kind.CLAIM))
    return next(found, head.created_at)


def _lag(name: str, head: Link) -> Iterator[Sample]:
    from sluicegate.stream.spec import range_of

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
    from sluicegate.stream.dedup_log import look

    found = look(stream)
    yield Sample("sluicegate_dedup_bytes", found.bytes, labels)
    yield Sample("sluicegate_dedup_intervals", found.statistics.intervals, labels)


def _shards(stream: Stream, head: Link, labels: dict[str, str]) -> Iterator[Sample]:
    from sluicegate.shards.planner import imbalance
    from sluicegate.stream.operations.rebalance import assignment_at, weights_at

    assignment = assignment_at(stream, head)
    if assignment.nodes:
        weights = weights_at(stream, head, "bytes")
        yield Sample("sluicegate_shard_imbalance", imbalance(assignment, weights), labels)


def _of_checkpoint(name: str, storage: Storage) -> Iterator[Sample]:
    from sluicegate.checkpoint.format.offset_log import read_offsets
    from sluicegate.checkpoint.view import look_at
    from sluicegate.ops.maintain_checkpoints import is_alive

    labels = {"target": name}
    yield Sample("sluicegate_job_alive", float(is_alive(storage)), labels)
    look = look_at(storage)
    logs = {"offsets": look.offsets, "commits": look.commits}
    for log, listing in logs.items():
        yield Sample("sluicegate_log_files", len(listing.batches), labels | {"log": log})
    if (complete := maintenance.load(storage).complete) is not None:
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
    from sluicegate.offsets import LockFileOffsetStore, legacy, verify

    if legacy.is_reference(storage):
        return
    found = verify.look_at(LockFileOffsetStore(storage))
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
