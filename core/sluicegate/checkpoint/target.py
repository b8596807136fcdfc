"""Spark checkpoints as targets: another application writes them, Spark need not be installed."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import TYPE_CHECKING, ClassVar

from sluicegate.errors import NotFound
from sluicegate.storage import Storage, canonical_uri, open_storage
from sluicegate.target import (
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
    expect,
)
from sluicegate.units import command

if TYPE_CHECKING:
    from sluicegate.checkpoint.file_edits import CheckpointOperation
    from sluicegate.checkpoint.journal import CheckpointJournal
    from sluicegate.lag import Lag
    from sluicegate.maintenance import RunOptions, Sample, Steps
    from sluicegate.positions import Positions
    from sluicegate.report import Report

_MARKS = (
    ("metadata", "file"),
    ("offsets", "directory"),
    ("commits", "directory"),
    ("sources", "directory"),
    ("state", "directory"),
)


class SparkCheckpoint(Target):
    """A checkpoint of Structured Streaming, with its file sink if that is known."""

    kind: ClassVar = TargetKind.SPARK_CHECKPOINT
    accepts: ClassVar = frozenset({"--sink", "--into", "--batch", "--offsets", "--query-id"})
    maintenance_lock: ClassVar = "_sluicegate/maintain.lock"

    @classmethod
    def detect(cls, found: Candidate) -> str | None:
        # Two of them, so that a damaged checkpoint that lost some is still recognised.
        marks = [name for name, kind in _MARKS if found.entries.get(name) == kind]
        return f"it has {', '.join(marks)}" if len(marks) >= 2 else None

    @property
    def storage(self) -> Storage:
        """The checkpoint, read-only."""
        return open_storage(self.uri, read_only=True)

    @property
    def sink(self) -> Storage | None:
        """The file sink that an option or the configuration names, read-only."""
        uri = self._sink_uri
        return open_storage(uri, read_only=True) if uri else None

    @property
    def _sink_uri(self) -> str | None:
        named = self.config.targets.get(self.configured_name or "")
        return self.options.sink or (named.sink if named else None)

    def inspect(self, at: int | None = None) -> Report:
        from sluicegate.checkpoint.inspect import inspect
        from sluicegate.checkpoint.report import inspect_report

        del at
        return inspect_report(inspect(self.storage))

    def batches(self, last: int = 20) -> Report:
        from sluicegate.checkpoint.inspect import read_batches
        from sluicegate.checkpoint.report import batches_report
        from sluicegate.checkpoint.view import look_at

        look = look_at(self.storage)
        return batches_report(list(read_batches(look, last)), of=len(look.offsets.batches))

    def compare(self, at: int | None, other: Target, other_at: int | None) -> Report:
        from sluicegate.checkpoint.inspect import compare, read_point
        from sluicegate.report import differences_report

        ours = read_point(self.storage, at)
        theirs = read_point(expect(other, SparkCheckpoint).storage, other_at)
        left, right = (f"{point.uri}@{point.entry.batch}" for point in (ours, theirs))
        return differences_report(left, right, list(compare(ours, theirs)))

    def verify(self, reading: Reading = QUICK) -> Report:
        from sluicegate.checkpoint.verify import verify, verify_report

        storage, read_data = self.storage, reading.everything
        with self.options.progress("decoding state files") as on_progress:
            found = verify(storage, self.sink, read_data=read_data, on_progress=on_progress)
        return verify_report(storage.uri, found, read_data=read_data)

    def audit(self, since_ms: int = 0, *, read_data: bool = False) -> Report:
        from sluicegate.checkpoint.audit import audit
        from sluicegate.checkpoint.report import audit_report

        del read_data
        storage = self.storage
        return audit_report(storage.uri, audit(storage, self.sink, since_ms))

    def show_positions(self, at: int | None = None) -> Report:
        from sluicegate.checkpoint.inspect import read_point
        from sluicegate.checkpoint.report import positions_report

        point = read_point(self.storage, at)
        return positions_report(point.uri, point.entry)

    def positions(self, at: int | None = None) -> tuple[Origin, Positions]:
        from sluicegate.checkpoint.inspect import exported_positions, read_point

        point = read_point(self.storage, at)
        return {"batch": point.entry.batch}, exported_positions(point)

    def lag(self, ends: Positions | None = None) -> list[Lag]:
        from sluicegate.checkpoint.inspect import read_point
        from sluicegate.lag import ends_unknown, lags
        from sluicegate.positions import Positions

        found = Positions({})
        for offset in read_point(self.storage, None).entry.offsets:
            found = found.updated(offset.positions) if offset.positions else found
        if not len(found):
            raise NotFound(
                f"{self.uri} reads no topic: its sources are files or counters",
                hint=f"list them with: {command('offsets', 'show', self.command_name)}",
                place=self.uri,
            )
        if ends is None:
            raise ends_unknown(found, self.uri)
        return lags(found, ends)

    def status(self) -> Status:
        from sluicegate.checkpoint.maintenance import status

        return status(self.storage, self.sink)

    def metrics(self) -> Iterator[Sample]:
        from sluicegate.checkpoint.maintenance import metrics

        storage = open_storage(canonical_uri(self.uri), read_only=True)
        return metrics(self.configured_name or self.name, storage)

    def verified_at(self) -> float | None:
        from sluicegate.checkpoint.maintenance import recall

        return recall(self.storage).complete

    def maintain(self, options: RunOptions) -> Steps:
        from sluicegate.checkpoint.maintenance import CheckpointMaintenance

        storage = open_storage(canonical_uri(self.uri), read_only=options.only_looks)
        return CheckpointMaintenance(storage, self.sink, options, self.configured_name).run()

    def journal(self) -> CheckpointJournal:
        from sluicegate.checkpoint.journal import CheckpointJournal

        read_only, sink = self.options.read_only, self._sink_uri
        return CheckpointJournal(
            open_storage(canonical_uri(self.uri), read_only=read_only),
            sink=open_storage(canonical_uri(sink), read_only=read_only) if sink else None,
            name=self.configured_name,
            writer_gone=self.options.writer_gone,
        )

    def rollback(self, asked: Rollback) -> Change:
        from sluicegate.checkpoint.operations import rollback
        from sluicegate.units import parse_moment

        # `force` is ignored: a foreign checkpoint has no fence that would make it safe.
        journal, to = self.journal(), asked.to
        if asked.at is not None:
            journal.refuse_interrupted()
            to = rollback.batch_at(self.storage, parse_moment(asked.at))
        assert to is not None
        return self._change(journal, rollback.Rollback(to=to, sink=self._named_sink))

    def reset(self, asked: Reset) -> Change:
        from sluicegate.checkpoint.operations import reset

        journal = self.journal()
        journal.refuse_interrupted()
        spec = asked.spec_of(reset.known_topics(self.storage))
        operation = reset.Reset(
            to=reset.wanted_offsets(self.storage, spec),
            at=round(time.time() * 1000),
            note=str(spec),
            sink=self._named_sink,
        )
        return self._change(journal, operation)

    def repair(self, asked: Repair) -> Change:
        from sluicegate.checkpoint.operations import repair
        from sluicegate.positions import to_spark

        journal = self.journal()
        operation = repair.Repair(
            read_data=asked.read_data,
            offsets=to_spark(asked.offsets) if asked.offsets else None,
            query_id=asked.query_id,
            sink=self._named_sink,
        )
        return Change.of(journal, journal.plan_finish() or journal.propose(operation))

    def _change(self, journal: CheckpointJournal, operation: CheckpointOperation) -> Change:
        """An operation on the checkpoint, or on a copy of it."""
        into = self.options.into
        if into is None:
            return Change.of(journal, journal.propose(operation))
        from sluicegate.checkpoint.operations.relocate import cut_over

        plan = journal.plan_into(operation, into)
        return Change(
            journal,
            plan,
            lambda approval: journal.apply_into(plan, approval),
            tuple(cut_over(self.uri, into)),
        )

    @property
    def _named_sink(self) -> str | None:
        """The sink that an option named, as part of the plan: applying the plan needs it, too.

        A change of a copy leaves the sink alone.
        """
        sink = None if self.options.into else self.options.sink
        return canonical_uri(sink) if sink else None


ADAPTER = SparkCheckpoint
