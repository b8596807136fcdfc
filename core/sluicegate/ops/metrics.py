"""Metrics of targets, in Prometheus' text format.

Positions and lag have the names and labels of kafka_exporter, so that dashboards and alerts for
consumer groups also work for streams; a target is a consumer group. All other names begin with
`sluicegate_`.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from sluicegate import maintenance
from sluicegate.errors import SluicegateError
from sluicegate.findings import Severity
from sluicegate.maintenance import Outcome, RunReport, Sample, TargetReport
from sluicegate.storage import LocalStorage

if TYPE_CHECKING:
    from prometheus_client.core import Metric as Family


_COUNTER, _GAUGE = "counter", "gauge"
_PARTITION = ("consumergroup", "topic", "partition")


@dataclass(frozen=True, slots=True)
class Metric:
    """One metric: its name, its help text, and its labels."""

    name: str
    text: str
    labels: tuple[str, ...] = ("target",)
    kind: str = _GAUGE


METRICS = (
    Metric("kafka_consumergroup_lag", "Events that are still to be read", _PARTITION),
    Metric("kafka_consumergroup_current_offset", "Next offset to be read", _PARTITION),
    Metric("sluicegate_job_alive", "Whether a job is running, or may be"),
    Metric("sluicegate_head_age_seconds", "Time since the newest epoch, batch or commit"),
    Metric("sluicegate_epochs_total", "Epochs committed", kind=_COUNTER),
    Metric(
        "sluicegate_events_total",
        "Events applied to the state, dropped as duplicates, or rejected; less after a rollback",
        ("target", "outcome"),
        _COUNTER,
    ),
    Metric("sluicegate_snapshots", "Snapshots that are kept"),
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


def exposition(report: RunReport) -> bytes:
    """The complete file: each metric with its help and type, and a line per value."""
    from prometheus_client import CollectorRegistry, generate_latest
    from prometheus_client.registry import Collector

    class Reported(Collector):
        def collect(self) -> Iterator[Family]:
            yield from _families(report)

    registry = CollectorRegistry(auto_describe=False)
    registry.register(Reported())
    return generate_latest(registry)


def write(report: RunReport, path: Path) -> RunReport:
    """Replace the file atomically, readable for all users, because the collector is another user.

    Returns the report, with a finding if that failed.
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


def _families(report: RunReport) -> Iterator[Family]:
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


def _samples(report: RunReport) -> Iterator[Sample]:
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
