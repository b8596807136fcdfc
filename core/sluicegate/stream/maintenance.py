"""Maintenance of a gated stream: each change is a snapshot, made while the job runs."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import suppress
from functools import partial

from sluicegate import lag, maintenance, units
from sluicegate.config import NamedStream
from sluicegate.errors import SluicegateError, StorageFailed
from sluicegate.maintenance import (
    Outcome,
    PlannedStep,
    RunOptions,
    Sample,
    Steps,
    age_sample,
    partition_labels,
    position_samples,
)
from sluicegate.plan import Action, Plan, Subject
from sluicegate.sinks.base import Sink
from sluicegate.sources.base import needs_broker
from sluicegate.stream import gc
from sluicegate.stream.gc import GRACE, Retention
from sluicegate.stream.history import intact_snapshots
from sluicegate.stream.journal import KIND, StreamJournal, StreamOperation
from sluicegate.stream.operations.compact import CompactState
from sluicegate.stream.operations.prune import Prune
from sluicegate.stream.output import look_at_sink
from sluicegate.stream.snapshot import Kind, Snapshot
from sluicegate.stream.spec import range_of
from sluicegate.stream.state import shards_of
from sluicegate.stream.stream import Stream
from sluicegate.stream.verify import Reading, Verified, last_complete, verify
from sluicegate.stream.writer import StreamWriter
from sluicegate.target import Status

_SEGMENTS = 8
_DELTAS = 4
_SMALL_PART = 0.25
_LEAST_PRUNED = 0.1


class StreamMaintenance:
    """The steps of one stream; `named` is its table in the configuration, if it has one."""

    def __init__(self, stream: Stream, named: NamedStream | None, options: RunOptions) -> None:
        self._stream = stream
        self._named = named
        self._options = options
        self._journal = StreamJournal(stream, name=named.name if named else None)
        self._known: tuple[Snapshot, frozenset[str]] | None = None
        self.steps = Steps(stream.uri, options)

    def run(self) -> Steps:
        """All steps, in the order in which one prepares the next."""
        steps = self.steps
        steps.look("verify", self._verify)
        steps.look("lag", self._lag)
        steps.change("compact dedup log", self._compact_dedup)
        steps.change("compact state", self._compact_state)
        steps.change("prune", self._prune)
        steps.change("collect", self._collect)
        steps.change("empty trash", self._empty_trash)
        return steps

    def _verify(self) -> str:
        with self._options.budget.spending() as seconds:
            result = self._verified(seconds)
        self.steps.findings += result.findings
        self._known = (result.head, result.live) if result.head else None
        read = f"{result.read_blobs:,} of {units.counted(result.blobs, 'blob')} read"
        rest = "; the rest next time" if result.resume else ""
        return f"{units.counted(result.snapshots, 'snapshot')}; {read}{rest}"

    def _verified(self, seconds: float) -> Verified:
        if self._options.dry_run:
            return verify(self._stream, sink=self._sink())
        try:
            storage = self._stream.storage
            notes = None if storage.read_only else storage
            reading = Reading(max_duration=seconds, notes=notes)
            return verify(self._stream, reading, sink=self._sink())
        except StorageFailed:
            # Where the cursor cannot be saved, each run would read from the start.
            return verify(self._stream, sink=self._sink())

    def _lag(self) -> str:
        head = self._stream.chain.head()
        behind = self._behind(head)
        age = time.time() - last_active(self._stream, head)
        is_idle = age > self._options.policy.idle and behind != 0
        if is_idle and StreamWriter(self._stream).living_writer(head) is None:
            waiting = "" if behind is None else f"; {units.events(behind)} waiting"
            detail = f"no job has run for {units.duration(age)}{waiting}"
            start = units.command("submit", self._stream.name) if self._named else ""
            self.steps.findings.append(maintenance.IDLE.at(self._stream.uri, detail, repair=start))
        return "not known" if behind is None else f"{units.events(behind)} behind"

    def _behind(self, head: Snapshot) -> int | None:
        """How many events are still to be read; None where only a broker knows.

        The step fails if the log is missing or was replaced.
        """
        source = head.pins.get("source")
        if not isinstance(source, str) or not source or needs_broker(source):
            return None
        earliest, latest = range_of(head)
        found = lag.lags(head.positions, latest, earliest)
        again = units.command("offsets", "reset", self._stream.name, "--to-earliest", "--skip-seen")
        self.steps.findings += lag.problems(found, again)
        return lag.total(found)

    def _compact_dedup(self) -> PlannedStep | None:
        sizes = [ref.size for ref in self._stream.chain.head().dedup.refs]
        if len(sizes) < _SEGMENTS or not _many_small(sizes):
            return None
        # Imported here: only the dedup log needs its libraries.
        from sluicegate.stream.operations.compact_dedup import CompactDedup

        return self._change(CompactDedup())

    def _compact_state(self) -> PlannedStep | None:
        shards = shards_of(self._stream, self._stream.chain.head())
        sizes = [ref.size for refs in shards.values() for ref in refs]
        largest = [max((ref.size for ref in refs), default=0) for refs in shards.values()]
        if len(sizes) < _DELTAS * max(len(shards), 1) or not _many_small(sizes, sum(largest)):
            return None
        return self._change(CompactState())

    def _prune(self) -> PlannedStep | None:
        policy, head = self._options.policy, self._stream.chain.head()
        floor = Retention(policy.keep_snapshots, policy.keep).floor(self._stream, head)
        floor = min(floor, gc.highest_floor(self._stream, head))
        # A few at a time would cost a snapshot each time, and that snapshot a prune of its own.
        if floor - head.floor < max(2, _LEAST_PRUNED * (head.number - floor)):
            return None
        kept = units.counted(policy.keep_snapshots, "snapshot")
        note = f"keep {kept} and {units.duration(policy.keep)}"
        return self._change(Prune(to=floor, note=note))

    def _collect(self) -> PlannedStep | None:
        if self.steps.done[-1].outcome is Outcome.DONE:
            # A prune collects, too.
            return None
        found = gc.list_garbage(self._stream, known=self._known)
        if not found.swept:
            return None
        action = Action("remove", "garbage", found.swept.shown)
        plan = self._plan(f"Collect the garbage of {self._stream.name}", action)
        return PlannedStep.by(plan, partial(gc.remove, self._stream, found))

    def _empty_trash(self) -> PlannedStep | None:
        sink = self._sink()
        found = gc.list_output_garbage(self._stream, sink, GRACE) if sink else None
        if sink is None or not found:
            return None
        plan = self._plan(f"Empty the trash of {sink.uri}", Action("remove", "trash", found.shown))
        return PlannedStep.by(plan, partial(gc.empty, self._stream, sink, GRACE))

    def _sink(self) -> Sink | None:
        return look_at_sink(self._stream, self._named.sink if self._named else None)

    def _change(self, operation: StreamOperation) -> PlannedStep:
        return PlannedStep.through(self._journal, self._journal.propose(operation))

    def _plan(self, title: str, action: Action) -> Plan:
        name, identity = None, None
        with suppress(SluicegateError):
            identity = self._stream.chain.head().stream_id
        if self._named:
            name = self._named.name
        return Plan(title, (action,), subject=Subject(KIND, self._stream.uri, name, identity))


def _many_small(sizes: Sequence[int], large: int | None = None) -> bool:
    """Whether merging is worth writing the large ones again."""
    large = max(sizes, default=0) if large is None else large
    return sum(sizes) - large >= _SMALL_PART * sum(sizes)


def status(stream: Stream, sink: Sink | None = None) -> Status:
    """The newest snapshot, its lag behind the source, whether a job runs, and what is wrong."""
    findings = tuple(verify(stream, sink=sink).findings)
    try:
        head = stream.chain.head()
    except SluicegateError:
        return Status(summary="the chain is damaged", findings=findings)
    living = StreamWriter(stream).living_writer(head)
    writer = "a job is running" if living else "no job is running"
    where = f"snapshot {head.number}, generation {head.generation}"
    text = f"{where}, {units.events(head.sequence)}{_behind(head)}; {writer}"
    return Status(head.epoch, round(head.created_at * 1000), text, findings)


def _behind(head: Snapshot) -> str:
    """How far a stream is behind its source, where that is known."""
    try:
        earliest, latest = range_of(head)
    except SluicegateError:
        return ""
    return f", {lag.total(lag.lags(head.positions, latest, earliest)):,} behind"


OUTCOMES = {"applied": "applied", "duplicates": "duplicate", "rejected": "rejected"}
"""Counter of a snapshot → outcome of an event."""


def metrics(name: str, stream: Stream) -> Iterator[Sample]:
    """The metrics of a stream."""
    head = stream.chain.head()
    labels = {"target": name}
    yield Sample(
        "sluicegate_job_alive", float(StreamWriter(stream).living_writer(head) is not None), labels
    )
    yield age_sample("sluicegate_head_age_seconds", last_active(stream, head), labels)
    yield Sample("sluicegate_epochs_total", head.epoch, labels)
    yield Sample("sluicegate_snapshots", head.number - head.floor + 1, labels)
    for counter, outcome in OUTCOMES.items():
        # Without a job of ours, only the number of events is known.
        count = head.counters.get(counter, head.sequence if counter == "applied" else 0)
        yield Sample("sluicegate_events_total", count, labels | {"outcome": outcome})
    if (complete := last_complete(stream)) is not None:
        yield age_sample("sluicegate_verify_age_seconds", complete, labels)
    yield from _lag(name, head)
    with suppress(SluicegateError):
        yield from _dedup(stream, labels)
    with suppress(SluicegateError):
        yield from _shards(stream, head, labels)


def last_active(stream: Stream, head: Snapshot) -> float:
    """When a job last committed or started; snapshots of the maintenance itself do not count."""
    snapshots = intact_snapshots(stream, head.number, head.floor)
    found = (
        snapshot.created_at for snapshot in snapshots if snapshot.kind in (Kind.EPOCH, Kind.CLAIM)
    )
    return next(found, head.created_at)


def _lag(name: str, head: Snapshot) -> Iterator[Sample]:
    yield from position_samples(name, head.positions)
    try:
        earliest, latest = range_of(head)
    except SluicegateError:
        return
    for each in lag.lags(head.positions, latest, earliest):
        if each.behind is not None:
            labels = partition_labels(name, each.topic, each.partition)
            yield Sample("kafka_consumergroup_lag", each.behind, labels)


def _dedup(stream: Stream, labels: dict[str, str]) -> Iterator[Sample]:
    from sluicegate.stream.dedup_log import look

    found = look(stream)
    yield Sample("sluicegate_dedup_bytes", found.bytes, labels)
    yield Sample("sluicegate_dedup_intervals", found.statistics.intervals, labels)


def _shards(stream: Stream, head: Snapshot, labels: dict[str, str]) -> Iterator[Sample]:
    from sluicegate.shards.planner import imbalance
    from sluicegate.stream.operations.rebalance import assignment_at, weights_at

    assignment = assignment_at(stream, head)
    if assignment.nodes:
        weights = weights_at(stream, head, "bytes")
        yield Sample("sluicegate_shard_imbalance", imbalance(assignment, weights), labels)
