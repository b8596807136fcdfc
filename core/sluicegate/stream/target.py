"""Gated streams as targets."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, ClassVar

from sluicegate.errors import UsageError
from sluicegate.storage import canonical_uri, open_storage
from sluicegate.target import (
    CHAIN,
    QUICK,
    Candidate,
    Change,
    Origin,
    Reading,
    Repair,
    Reset,
    Rollback,
    Status,
    Target,
    TargetKind,
)

if TYPE_CHECKING:
    from sluicegate.lag import Lag
    from sluicegate.maintenance import RunOptions, Sample, Steps
    from sluicegate.positions import Positions
    from sluicegate.report import Report
    from sluicegate.sinks.base import Sink
    from sluicegate.stream import verify
    from sluicegate.stream.journal import StreamJournal, StreamOperation
    from sluicegate.stream.operations.rebalance import StreamShards
    from sluicegate.stream.snapshot import Snapshot
    from sluicegate.stream.stream import Stream
    from sluicegate.stream.transactions import Coordinator


class GatedStream(Target):
    """A stream of our own pipeline: a chain of snapshots in a home."""

    kind: ClassVar = TargetKind.STREAM
    accepts: ClassVar = frozenset(
        {
            *("--snapshot", "--batch", "--read-data-subset", "--max-duration"),
            *("--sink", "--withdraw", "--adopt", "--unchecked"),
        }
    )
    maintenance_lock: ClassVar = "locks/maintain.lock"

    @classmethod
    def detect(cls, found: Candidate) -> str | None:
        if found.file is not None:
            return None
        if found.entries.get(CHAIN) == "directory":
            return f"it has {CHAIN}/"
        return f"it has HEAD, but no {CHAIN}/" if found.frame_kind("HEAD") == "head" else None

    @property
    def stream(self) -> Stream:
        """The stream, to be read."""
        from sluicegate.stream.stream import open_stream

        return open_stream(self.uri, read_only=True)

    def snapshot(self, at: int | None) -> tuple[Stream, Snapshot]:
        """The stream, and one of its snapshots; the newest."""
        stream = self.stream
        return stream, stream.chain.head() if at is None else stream.chain.named(at)

    def inspect(self, at: int | None = None) -> Report:
        from sluicegate.stream.inspect import inspect
        from sluicegate.stream.report import stream_report

        return stream_report(inspect(self.stream, at))

    def batches(self, last: int = 20) -> Report:
        from sluicegate.stream.inspect import recent
        from sluicegate.stream.report import snapshots_report

        stream, head = self.snapshot(None)
        return snapshots_report(recent(stream, last), head.number - head.floor + 1)

    def compare(self, at: int | None, other: Target, other_at: int | None) -> Report:
        from sluicegate.report import differences_report
        from sluicegate.stream.inspect import compare

        if not isinstance(other, GatedStream):
            return super().compare(at, other, other_at)
        ours, theirs = self.snapshot(at), other.snapshot(other_at)
        left, right = (f"{stream.uri}@{snapshot.number}" for stream, snapshot in (ours, theirs))
        return differences_report(left, right, list(compare(ours, theirs)))

    def verify(self, reading: Reading = QUICK) -> Report:
        from sluicegate.stream.report import verify_report
        from sluicegate.stream.verify import verify

        stream, wanted = self.stream, _reading(reading)
        if wanted and wanted.max_duration is not None:
            # How far it got is saved beside the stream, although the stream itself is only read.
            wanted = replace(wanted, notes=open_storage(stream.uri))
        with self.options.progress("reading blobs") as on_progress:
            result = verify(stream, wanted, on_progress, self.sink_of(stream))
        return verify_report(stream.uri, result, wanted)

    def audit(self, since_ms: int = 0, *, read_data: bool = False) -> Report:
        from sluicegate.stream.audit import audit_stream
        from sluicegate.stream.report import audit_report

        stream = self.stream
        result = audit_stream(stream, self.sink_of(stream), since_ms / 1000, read_data=read_data)
        return audit_report(stream.uri, result)

    def sink_of(self, stream: Stream) -> Sink | None:
        """Where its output is, only to be read; None if that is not known, or nothing is there."""
        from sluicegate.stream.output import look_at_sink

        named = self.config.streams.get(self.configured_name or stream.name)
        return look_at_sink(stream, self.options.sink or (named.sink if named else None))

    def show_positions(self, at: int | None = None) -> Report:
        from sluicegate.stream.report import positions_report

        stream, snapshot = self.snapshot(at)
        return positions_report(stream.uri, snapshot)

    def positions(self, at: int | None = None) -> tuple[Origin, Positions]:
        _, snapshot = self.snapshot(at)
        return {"snapshot": snapshot.number}, snapshot.positions

    def lag(self, ends: Positions | None = None) -> list[Lag]:
        from sluicegate.lag import ends_unknown, lags
        from sluicegate.sources.base import BrokerNeeded
        from sluicegate.stream.spec import range_of

        _, head = self.snapshot(None)
        if ends is not None:
            return lags(head.positions, ends)
        try:
            earliest, latest = range_of(head)
        except BrokerNeeded as e:
            raise ends_unknown(head.positions, self.uri) from e
        return lags(head.positions, latest, earliest)

    @contextmanager
    def consumer(self, *, app: str, timeout: float | None = None) -> Iterator[Coordinator]:
        """Transactions of a consumer in plain Python, as the only writer of the stream."""
        from sluicegate.stream.stream import open_stream
        from sluicegate.stream.transactions import TIMEOUT, Coordinator
        from sluicegate.stream.writer import StreamWriter

        stream = open_stream(canonical_uri(self.uri), read_only=False)
        with StreamWriter(stream).claim(app=app) as run:
            seconds = TIMEOUT if timeout is None else timeout
            # A stream that is not described in sluicegate.toml has no shards of its own.
            yield Coordinator(run, shards=run.snapshot.pins.get("shards", 1), timeout=seconds)

    def shards(self) -> StreamShards:
        from sluicegate.stream.operations.rebalance import StreamShards

        return StreamShards(*self.snapshot(None), self)

    def status(self) -> Status:
        from sluicegate.stream.maintenance import status

        stream = self.stream
        return status(stream, self.sink_of(stream))

    def metrics(self) -> Iterator[Sample]:
        from sluicegate.stream.maintenance import metrics
        from sluicegate.stream.stream import open_stream

        stream = open_stream(canonical_uri(self.uri), read_only=True)
        return metrics(self.configured_name or self.name, stream)

    def verified_at(self) -> float | None:
        from sluicegate.stream.verify import last_complete

        return last_complete(self.stream)

    def maintain(self, options: RunOptions) -> Steps:
        from sluicegate.stream.maintenance import StreamMaintenance
        from sluicegate.stream.stream import open_stream

        uri = canonical_uri(self.uri)
        stream = open_stream(uri, read_only=options.only_looks, timeout=0.0)
        named = self.config.streams.get(self.configured_name or "")
        return StreamMaintenance(stream, named, options).run()

    def journal(self) -> StreamJournal:
        from sluicegate.stream.journal import StreamJournal
        from sluicegate.stream.stream import open_stream

        stream = open_stream(canonical_uri(self.uri), read_only=self.options.read_only)
        return StreamJournal(
            stream,
            name=self.configured_name,
            progress=self.options.progress,
            sink=self.sink_of(stream),
        )

    def change(self, operation: StreamOperation) -> Change:
        """An operation on the stream, planned."""
        journal = self.journal()
        return Change.of(journal, journal.propose(operation))

    def rollback(self, asked: Rollback) -> Change:
        from sluicegate.stream.history import snapshot_at
        from sluicegate.stream.operations import rollback
        from sluicegate.units import parse_moment

        to, note = asked.to, ""
        if asked.at is not None:
            to = snapshot_at(*self.snapshot(None), parse_moment(asked.at))
            note = f"to-datetime {asked.at}"
        assert to is not None
        operation = rollback.Rollback(
            to=to, force=asked.force, note=note, unchecked=asked.unchecked
        )
        return self.change(operation)

    def reset(self, asked: Reset) -> Change:
        from sluicegate.stream.operations.reset import reset_to, topics

        if asked.skip_seen is asked.reprocess:
            raise UsageError(
                "a gated stream needs exactly one of --skip-seen and --reprocess",
                hint="--skip-seen applies new events only; --reprocess reverts the events since "
                "then and applies them again",
            )
        stream = self.stream
        spec = asked.spec_of(topics(stream))
        operation = reset_to(
            stream,
            spec,
            reprocess=asked.reprocess,
            force=asked.force,
            unchecked=asked.unchecked,
        )
        return self.change(operation)

    def repair(self, asked: Repair) -> Change:
        from sluicegate.stream.operations import repair

        return self.change(
            repair.Repair(read_data=asked.read_data, force=asked.force, choice=asked.choice)
        )


def _reading(wanted: Reading) -> verify.Reading | None:
    from sluicegate.stream.verify import Reading as StreamReading
    from sluicegate.stream.verify import Subset

    if not wanted.is_wanted:
        return None
    subset = Subset.parse(wanted.subset) if wanted.subset else Subset()
    return StreamReading(subset, wanted.max_duration)


ADAPTER = GatedStream
