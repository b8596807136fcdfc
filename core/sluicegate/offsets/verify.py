"""The check of an offset store: its records and findings."""

from __future__ import annotations

import time
from dataclasses import dataclass

from sluicegate.errors import SluicegateError
from sluicegate.findings import Finding, Severity, rule
from sluicegate.offsets.record import Kept, Record
from sluicegate.offsets.store import LockFileOffsetStore, StoreDamaged
from sluicegate.storage.base import old_temporaries
from sluicegate.units import command, counted

DAMAGED = rule(
    "SG-STORE-DAMAGED",
    Severity.ERROR,
    "the file of a consumer is damaged or missing",
    "The newest record of a consumer cannot be read, or is missing although older ones are kept. "
    "The consumer does not start from the beginning: every command and every load refuses. "
    "`sluicegate undo` restores the newest readable record and keeps the damaged file.",
)
UNREADABLE = rule(
    "SG-STORE-UNREADABLE",
    Severity.ERROR,
    "the file of a consumer cannot be read",
    "The operating system refuses to read it (permission, a directory or link in its place, I/O "
    "error), or a newer release wrote it. The positions may be intact.",
)
BEHIND = rule(
    "SG-STORE-BEHIND",
    Severity.ERROR,
    "the file of a consumer is older than its kept records",
    "An older file was restored, for example from a backup. The consumer would read events again, "
    "and its commits would re-use numbers. If the older positions are intended, reset to them; "
    "otherwise replace the file by the newest kept record.",
)
TEMPORARY = rule(
    "SG-STORE-LEFTOVERS",
    Severity.NOTE,
    "a writer was killed while writing",
    "There are unfinished temporary files (`.sg-….tmp`). They were never part of the store and are "
    "ignored; nothing that was acknowledged is in them.",
)

_YOUNG_SECONDS = 60


@dataclass(frozen=True, slots=True)
class StoreLook:
    """The records of readable consumers, and the findings of the others."""

    records: tuple[Record, ...]
    findings: tuple[Finding, ...]

    @property
    def newest_at(self) -> float | None:
        """The time of the last commit of any consumer."""
        return max((record.at for record in self.records), default=None)


def look_at(store: LockFileOffsetStore, consumer: str | None = None) -> StoreLook:
    """All consumers that have positions, or one; an unreadable record is a finding."""
    records, findings = [], []
    kept = store.kept_records()
    for name in sorted(kept) if consumer is None else [consumer]:
        place = f"{store.uri}/{name}.offsets"
        try:
            record = store.load(name)
        except StoreDamaged as e:
            repair = command("undo", store.uri, "--consumer", name)
            findings.append(DAMAGED.at(place, e.message, repair=repair))
        except SluicegateError as e:
            findings.append(UNREADABLE.at(place, e.message))
        else:
            records += [record] if record else []
            findings += _behind(store, kept.get(name, []), record) if record else []
    return StoreLook(tuple(records), (*findings, *_temporary(store)))


def _temporary(store: LockFileOffsetStore) -> list[Finding]:
    """Temporary files that are too old to belong to a running commit."""
    limit = (time.time() - _YOUNG_SECONDS) * 1e9
    found = list(old_temporaries(store.storage, [""], limit))
    return [TEMPORARY.at(store.uri, counted(len(found), "unfinished file"))] if found else []


def _behind(store: LockFileOffsetStore, kept: list[Kept], record: Record) -> list[Finding]:
    """Whether the file is older than a kept record, such as one from a backup."""
    highest = kept[-1].sequence if kept else 0
    # The next number may be that of a commit whose writer died before it was made.
    if highest <= record.sequence + 1:
        return []
    detail = f"it holds record {record.sequence}, but record {highest} is kept, too"
    return [BEHIND.at(f"{store.uri}/{record.consumer}.offsets", detail)]
