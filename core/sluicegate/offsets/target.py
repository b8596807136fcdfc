"""Offset stores as targets; a directory of legacy offset files is one that is only read."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, ClassVar

from sluicegate.errors import NotFound
from sluicegate.offsets import LockFileOffsetStore, legacy
from sluicegate.offsets.store import MARKER
from sluicegate.storage import Storage, canonical_uri, open_storage
from sluicegate.target import Candidate, Change, Origin, Reset, Status, Target, TargetKind

if TYPE_CHECKING:
    from sluicegate.lag import Lag
    from sluicegate.maintenance import RunOptions, Sample, Steps
    from sluicegate.offsets.journal import StoreJournal
    from sluicegate.offsets.operations import StoreOperation
    from sluicegate.positions import Positions
    from sluicegate.report import Report


class OffsetStoreTarget(Target):
    """A lock-file offset store, or one of its consumers."""

    kind: ClassVar = TargetKind.OFFSET_STORE
    accepts: ClassVar = frozenset({"--consumer"})
    # No consumer can have this name.
    maintenance_lock: ClassVar = ".maintain.lock"

    @classmethod
    def detect(cls, found: Candidate) -> str | None:
        if found.file is not None:
            return None
        if found.frame_kind(MARKER.name) == "store":
            return f"it has {MARKER.name}"
        for name in found.entries:
            if legacy.FILE_NAME.fullmatch(name):
                return f"it has {name}, a legacy offset file"
            if name.endswith(".offsets") and found.frame_kind(name) == "offsets":
                return f"it has {name}"
        return None

    @property
    def storage(self) -> Storage:
        """The store's directory, read-only."""
        return open_storage(self.uri, read_only=True)

    def store(self) -> LockFileOffsetStore:
        """The store; read-only for a run that only plans."""
        legacy.refuse_legacy(self.storage)
        return LockFileOffsetStore.open(self.uri, read_only=self.options.read_only)

    def show_positions(self, at: int | None = None) -> Report:
        from sluicegate.offsets.report import legacy_report, store_report
        from sluicegate.offsets.verify import look_at

        del at
        if (found := self._legacy()) is not None:
            return legacy_report(self.uri, found)
        store, consumer = self.store(), self.options.consumer
        chosen = store.choose(consumer) if consumer is not None else None
        return store_report(store.uri, look_at(store, chosen))

    def positions(self, at: int | None = None) -> tuple[Origin, Positions]:
        del at
        if (found := self._legacy()) is not None:
            return {}, found
        store = self.store()
        name = store.choose(self.options.consumer)
        record = store.load(name)
        if record is None:
            raise NotFound(f"consumer {name} has no positions", place=store.uri)
        return {"consumer": name, "sequence": record.sequence}, record.positions

    def lag(self, ends: Positions | None = None) -> list[Lag]:
        from sluicegate.lag import ends_unknown, lags
        from sluicegate.positions import Positions

        found = self._legacy()
        if found is None:
            store = self.store()
            record = store.load(store.choose(self.options.consumer))
            found = record.positions if record else Positions({})
        if ends is None:
            raise ends_unknown(found, self.uri)
        return lags(found, ends)

    def _legacy(self) -> Positions | None:
        """The positions of legacy offset files; None if it is a store of ours."""
        storage = self.storage
        return legacy.read(storage) if legacy.is_legacy(storage) else None

    def status(self) -> Status:
        from sluicegate.offsets.maintenance import status

        return status(self.storage)

    def metrics(self) -> Iterator[Sample]:
        from sluicegate.offsets.maintenance import metrics

        storage = open_storage(canonical_uri(self.uri), read_only=True)
        return metrics(self.configured_name or self.name, storage)

    def maintain(self, options: RunOptions) -> Steps:
        from sluicegate.offsets.maintenance import StoreMaintenance

        storage = open_storage(canonical_uri(self.uri), read_only=options.only_looks)
        return StoreMaintenance(storage, options, self.configured_name).run()

    def journal(self) -> StoreJournal:
        from sluicegate.offsets.journal import StoreJournal

        legacy.refuse_legacy(self.storage)
        uri = canonical_uri(self.uri)
        store = LockFileOffsetStore.open(uri, read_only=self.options.read_only)
        return StoreJournal(store, name=self.configured_name, consumer=self.options.consumer)

    def reset(self, asked: Reset) -> Change:
        from sluicegate.offsets import operations

        store = self.store()
        name = store.choose(self.options.consumer)
        spec = asked.spec_of(operations.topics(store, name))
        operation = operations.Reset.to(store, name, spec, force=asked.force)
        return self.change(store, operation)

    def change(self, store: LockFileOffsetStore, operation: StoreOperation) -> Change:
        """The planned change of an operation on one consumer."""
        from sluicegate.offsets.journal import StoreJournal

        journal = StoreJournal(store, name=self.configured_name)
        return Change.of(journal, journal.propose(operation))


ADAPTER = OffsetStoreTarget
