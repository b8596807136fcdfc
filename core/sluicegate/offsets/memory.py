"""An offset store in memory, lost when its process ends: for tests and throw-away consumers."""

from __future__ import annotations

from threading import Lock

from sluicegate.offsets.record import Record
from sluicegate.offsets.store import Commit, Decide, OffsetStore, successor
from sluicegate.storage import validate_name


class MemoryOffsetStore(OffsetStore):
    """`OffsetStore` in memory; safe between threads."""

    def __init__(self) -> None:
        self._records: dict[str, Record] = {}
        self._lock = Lock()

    def load(self, consumer: str) -> Record | None:
        found = self._records.get(validate_name(consumer, "consumer"))
        return found if found and len(found.positions) else None

    def list(self) -> list[str]:
        return sorted(name for name in dict(self._records) if self.load(name))

    def update(self, consumer: str, decide: Decide) -> Commit:
        validate_name(consumer, "consumer")
        with self._lock:
            previous = self._records.get(consumer)
            wanted = decide(previous)
            if wanted is None:
                return Commit(previous, previous)
            record = self._records[consumer] = successor(consumer, previous, wanted)
            return Commit(record, previous, wanted)
