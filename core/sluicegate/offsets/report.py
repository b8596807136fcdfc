"""Reports of offset stores."""

from __future__ import annotations

import time
from typing import TypedDict

from sluicegate import units
from sluicegate.offsets.record import Record
from sluicegate.offsets.verify import StoreLook
from sluicegate.positions import Positions
from sluicegate.process import WhoFields
from sluicegate.report import FindingDocument, Report, Table, document

SCHEMA = "sluicegate.store"


class LegacyPositionDocument(TypedDict):
    """One position of a legacy offset file."""

    topic: str
    partition: int
    offset: int  # the next one to read


class PositionDocument(LegacyPositionDocument):
    """One position."""

    committed_at: str
    age_seconds: float


class ConsumerDocument(TypedDict):
    """One consumer and its last commit."""

    consumer: str
    sequence: int
    kind: str
    at: str
    by: WhoFields
    positions: list[PositionDocument]


class LegacyConsumerDocument(TypedDict):
    """Legacy offset files, which have neither names nor times."""

    consumer: None  # null: legacy offset files
    positions: list[LegacyPositionDocument]


class StoreFields(TypedDict):
    """An offset store without its findings, which the console adds."""

    store: str
    consumers: list[ConsumerDocument | LegacyConsumerDocument]


@document("sluicegate.store", version=1)
class StoreDocument(StoreFields):
    """The positions of an offset store."""

    findings: list[FindingDocument]


def store_report(uri: str, look: StoreLook) -> Report:
    """The positions of consumers, with the age of each."""
    now = time.time()
    columns = ("consumer", "topic", "partition", "next offset", "committed")
    rows = [
        (r.consumer, p.topic, p.partition, p.offset, units.ago(r.committed_at(p), now))
        for r in look.records
        for p in r.positions
    ]
    document: StoreFields = {
        "store": uri,
        "consumers": [_fields(r, now) for r in look.records],
    }
    return Report(
        schema=SCHEMA,
        document=document,
        tables=[Table(columns, rows)],
        findings=look.findings,
        lines=[_last_commit(record, now) for record in look.records]
        or ([] if look.findings else ["No consumer has positions."]),
    )


def legacy_report(uri: str, positions: Positions) -> Report:
    """The positions of legacy offset files, which have no times."""
    rows = [(p.topic, p.partition, p.offset) for p in positions]
    document: StoreFields = {
        "store": uri,
        "consumers": [
            {
                "consumer": None,
                "positions": [
                    {"topic": t, "partition": p, "offset": offset} for t, p, offset in rows
                ],
            }
        ],
    }
    return Report(
        schema=SCHEMA,
        document=document,
        tables=[Table(("topic", "partition", "next offset"), rows)],
        findings=(),
        lines=["Legacy offset files: Sluicegate reads them, but does not change them."],
    )


def _last_commit(record: Record, now: float) -> str:
    return (
        f"{record.consumer}: {record.kind} {record.sequence}, "
        f"{units.ago(record.at, now)}, by {record.by}"
    )


def _fields(record: Record, now: float) -> ConsumerDocument:
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
