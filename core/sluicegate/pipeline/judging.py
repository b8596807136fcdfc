"""Judging records where they are read: in one pass, by the one engine, with what was seen at hand.

A worker keeps the ledger of a stream from epoch to epoch and adds only what is new; each attempt
works on a fork of it, so a repeated attempt gives the same answer.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa

from sluicegate.blobs import Ref
from sluicegate.dedup import segment
from sluicegate.dedup.ledger import DUPLICATE, EXPIRED, FRESH, Ledger, ledger_of
from sluicegate.dedup.stamp import Column, Stamps
from sluicegate.gate.output import DATA, REJECTS
from sluicegate.gate.stream import open_stream
from sluicegate.pipeline.files import Writer
from sluicegate.pipeline.folding import Folding
from sluicegate.pipeline.records import OFFSET, PARTITION, REASON, VALUE, Records
from sluicegate.pipeline.records import REJECTS as REJECT_COLUMNS
from sluicegate.pipeline.work import Judged, Work

REJECTED = "/rejected"
"""What is added to the name of a log for the stamps of records that were rejected: their places.

Not the name itself: a record whose place is its stamp may be whole to a table that was mended."""
_BELOW_FLOOR = "its stamp is below the floor: whether it was seen is not known any more"
_ledgers: dict[str, tuple[tuple[Ref, ...], Ledger]] = {}


def ledger_for(work: Work) -> Ledger:
    """Everything that was seen before an epoch."""
    known, ledger = _ledgers.get(work.stream, ((), Ledger()))
    if known != work.dedup:
        blobs = open_stream(work.stream, read_only=True).blobs
        is_longer = work.dedup[: len(known)] == known
        refs = work.dedup[len(known) :] if is_longer and known else work.dedup
        entries = [segment.decode(blobs.get(ref), ref.key) for ref in refs]
        if is_longer and known:
            for each in entries:
                ledger.absorb(each)
        else:
            ledger = ledger_of(*entries)
        _ledgers[work.stream] = (work.dedup, ledger)
    return ledger


class Judging:
    """One task's share of an epoch: what is fresh is written and folded, the rest is counted."""

    def __init__(self, work: Work) -> None:
        self._work = work
        self._fork = ledger_for(work).fork()
        self._folding = Folding(work)
        attempts = Path(work.attempts)
        self._rows = Writer(attempts, work.shape.rows) if work.writes_rows else None
        self._rejects = Writer(attempts, REJECT_COLUMNS)
        self._partitions: set[int] = set()
        self._counts = dict.fromkeys(("read", "applied", "duplicates", "rejected"), 0)

    def add(self, records: Records, order: Column | None = None) -> None:
        """Take records; of equal ones the first counts, or the smallest in `order`."""
        rows = records.rows
        self._partitions.update(np.unique(records.rejects[PARTITION].to_numpy()).tolist())
        self._partitions.update(np.unique(rows[PARTITION].to_numpy()).tolist())
        self._counts["read"] += rows.num_rows + records.rejects.num_rows
        self._reject(records.rejects)
        if not rows.num_rows:
            return
        if self._work.judged:
            rows = self._fresh(rows, order)
        self._counts["applied"] += rows.num_rows
        if self._rows:
            self._rows.write(rows)
        self._folding.add(rows)

    def finish(self) -> Iterator[pa.RecordBatch]:
        """What goes on to the tasks that fold, and last what the driver is to know."""
        yield from self._folding.finish()
        written = {DATA: self._rows.close() if self._rows else (), REJECTS: self._rejects.close()}
        judged = Judged(
            partitions=tuple(sorted(self._partitions)),
            files={kind: files for kind, files in written.items() if files},
            events=self._folding.events,
            **self._counts,
        )
        yield self._folding.summary(judged.to_text(), segment.encode(self._fork.learnt()))

    def _fresh(self, rows: pa.Table, order: Column | None) -> pa.Table:
        verdicts = self._fork.insert(self._stamps(rows), self._work.at_ms, order).verdicts
        self._counts["duplicates"] += int(np.count_nonzero(verdicts == DUPLICATE))
        if (verdicts == EXPIRED).any():
            self._reject(self._expired(rows.filter(pa.array(verdicts == EXPIRED))))
        if (verdicts == FRESH).all():
            return rows
        return rows.filter(pa.array(verdicts == FRESH))

    def _stamps(self, rows: pa.Table) -> Stamps:
        if self._work.shape.stamp:
            return Stamps.of(*(rows[name] for name in self._work.shape.stamp))
        return _positions(rows, self._work.incarnation)

    def _expired(self, rows: pa.Table) -> pa.Table:
        plain = rows.drop_columns([PARTITION, OFFSET]).to_pylist()
        # As far as it was read: columns that are not named are not here any more.
        texts = [json.dumps(row, ensure_ascii=False).encode() for row in plain]
        columns = {
            PARTITION: rows[PARTITION],
            OFFSET: rows[OFFSET],
            VALUE: pa.array(texts, pa.binary()),
            REASON: pa.array([_BELOW_FLOOR] * rows.num_rows, pa.string()),
        }
        return pa.table(columns, schema=REJECT_COLUMNS)

    def _reject(self, rejects: pa.Table) -> None:
        """Keep records aside, once each: after a reset they are read again."""
        if not rejects.num_rows:
            return
        if self._work.judged:
            stamps = _positions(rejects, self._work.incarnation + REJECTED)
            verdicts = self._fork.insert(stamps, self._work.at_ms).verdicts
            self._counts["duplicates"] += int(np.count_nonzero(verdicts == DUPLICATE))
            rejects = rejects.filter(pa.array(verdicts != DUPLICATE))
        self._counts["rejected"] += rejects.num_rows
        self._rejects.write(rejects)


def _positions(rows: pa.Table, producer: str) -> Stamps:
    """The places of records as stamps."""
    codes = pa.array(np.zeros(rows.num_rows, np.int32))
    names = pa.DictionaryArray.from_arrays(codes, pa.array([producer]))
    return Stamps.of(names, rows[PARTITION], rows[OFFSET])
