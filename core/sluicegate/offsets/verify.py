"""What is wrong with an offset store, and where it stands."""

from __future__ import annotations

import time
from dataclasses import dataclass

from sluicegate.errors import SluicegateError
from sluicegate.findings import Finding, Severity, rule
from sluicegate.offsets.record import Kept, Record
from sluicegate.offsets.store import LockFileOffsetStore, StoreDamaged
from sluicegate.storage.base import old_temporaries
from sluicegate.units import command

DAMAGED = rule(
    "SG-STORE-DAMAGED",
    Severity.ERROR,
    "the file of a consumer is damaged or missing",
    "The newest record of a consumer cannot be read, or is gone although older ones are kept. The "
    "consumer is not started from nothing: every command and every load refuses. `sluicegate undo` "
    "puts the newest record that can be read in its place and keeps what was there.",
)
UNREADABLE = rule(
    "SG-STORE-UNREADABLE",
    Severity.ERROR,
    "the file of a consumer may not be read",
    "The operating system refuses to read it (permission, a directory or link in its place, I/O "
    "error), or a newer release wrote it. The positions may be well.",
)
BEHIND = rule(
    "SG-STORE-BEHIND",
    Severity.ERROR,
    "the file of a consumer is older than records that are kept beside it",
    "Somebody has put an older file back, for example from a backup. The consumer would read again "
    "what it has read, and its commits would re-use numbers. If the older positions are meant, "
    "reset to them; else put the newest kept record in its place.",
)
LEFTOVERS = rule(
    "SG-STORE-LEFTOVERS",
    Severity.NOTE,
    "a writer was killed while writing",
    "There are unfinished temporary files (`.sg-….tmp`). They were never part of the store and are "
    "ignored; nothing that was acknowledged is in them.",
)

_YOUNG_SECONDS = 60


@dataclass(frozen=True, slots=True)
class StoreLook:
    """The consumers that can be read, with what is wrong with the others."""

    records: tuple[Record, ...]
    findings: tuple[Finding, ...]

    @property
    def newest_at(self) -> float | None:
        """When anything was last committed."""
        return max((record.at for record in self.records), default=None)


def look_at(store: LockFileOffsetStore, consumer: str | None = None) -> StoreLook:
    """All consumers that have positions, or one; whatever cannot be read is a finding."""
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
    return StoreLook(tuple(records), (*findings, *_leftovers(store)))


def _leftovers(store: LockFileOffsetStore) -> list[Finding]:
    """Temporary files that are too old to be a commit that is being made."""
    limit = (time.time() - _YOUNG_SECONDS) * 1e9
    left = list(old_temporaries(store.storage, [""], limit))
    return [LEFTOVERS.at(store.uri, f"{len(left)} unfinished files")] if left else []


def _behind(store: LockFileOffsetStore, kept: list[Kept], record: Record) -> list[Finding]:
    """An older file in the place of the newest record, such as from a backup."""
    highest = kept[-1].sequence if kept else 0
    # The next number may be that of a commit whose writer died before it was made.
    if highest <= record.sequence + 1:
        return []
    detail = f"it holds record {record.sequence}, but record {highest} is kept beside it"
    return [BEHIND.at(f"{store.uri}/{record.consumer}.offsets", detail)]
