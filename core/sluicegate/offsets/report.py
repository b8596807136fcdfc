"""Reports of offset stores."""

from __future__ import annotations

import time

from sluicegate import units
from sluicegate.offsets.record import Record
from sluicegate.offsets.verify import StoreLook
from sluicegate.positions import Positions
from sluicegate.report import Report, Table

SCHEMA = "sluicegate.store"


def store_report(uri: str, look: StoreLook) -> Report:
    """The positions of consumers, with the age of each."""
    now = time.time()
    columns = ("consumer", "topic", "partition", "next offset", "committed")
    rows = [
        (r.consumer, p.topic, p.partition, p.offset, units.ago(r.committed_at(p), now))
        for r in look.records
        for p in r.positions
    ]
    return Report(
        schema=SCHEMA,
        document={"store": uri, "consumers": [_fields(r, now) for r in look.records]},
        tables=[Table(columns, rows)],
        findings=look.findings,
        lines=[_last_commit(record, now) for record in look.records]
        or ([] if look.findings else ["No consumer has positions."]),
    )


def legacy_report(uri: str, positions: Positions) -> Report:
    """The positions of legacy offset files, which have no times."""
    rows = [(p.topic, p.partition, p.offset) for p in positions]
    return Report(
        schema=SCHEMA,
        document={
            "store": uri,
            "consumers": [
                {
                    "consumer": None,
                    "positions": [
                        {"topic": t, "partition": p, "offset": offset} for t, p, offset in rows
                    ],
                }
            ],
        },
        tables=[Table(("topic", "partition", "next offset"), rows)],
        findings=(),
        lines=["Legacy offset files: Sluicegate reads them, but does not change them."],
    )


def _last_commit(record: Record, now: float) -> str:
    return (
        f"{record.consumer}: {record.kind} {record.sequence}, "
        f"{units.ago(record.at, now)}, by {record.by}"
    )


def _fields(record: Record, now: float) -> dict[str, object]:
    return {
        "consumer": record.consumer,
        "sequence": record.sequence,
        "kind": record.kind,
        "at": units.utc(record.at),
        "by": record.by.fields(),
        "positions": [
            {
                "topic": p.topic,
                "partition": p.partition,
                "offset": p.offset,
                "committed_at": units.utc(record.committed_at(p)),
                "age_seconds": round(max(0.0, now - record.committed_at(p)), 3),
            }
            for p in record.positions
        ],
    }
