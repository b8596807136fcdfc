"""The journal of every kind of target fulfils the same contract."""

from __future__ import annotations

from pathlib import Path

import pytest

from sluicegate.checkpoint.journal import CheckpointJournal
from sluicegate.checkpoint.operations.rollback import Rollback
from sluicegate.offsets import LockFileOffsetStore
from sluicegate.offsets.journal import StoreJournal
from sluicegate.offsets.operations import Reset
from sluicegate.positions import Positions
from sluicegate.reset import ResetSpec, Scenario
from sluicegate.shards import membership
from sluicegate.shards.describe import Proposal
from sluicegate.shards.journal import FileJournal, Rebalance
from sluicegate.storage import open_storage
from sluicegate.stream.history import content_of
from sluicegate.stream.journal import StreamJournal
from tests.contracts.journal import JournalContract, Subject
from tests.formats.archive import opened
from tests.stream import streams


class TestStream(JournalContract):
    @pytest.fixture
    def subject(self, tmp_path: Path) -> Subject:
        stream = streams.made(tmp_path, epochs=4)
        newest = stream.chain.head().number

        def state() -> object:
            return content_of(stream.chain.head()) | {"ancestry": None}

        return Subject(
            lambda: StreamJournal(streams.opened(tmp_path)),
            lambda: streams.operation_of("rollback", to=newest - 2, note="to a snapshot"),
            lambda: streams.operation_of("rollback", to=newest - 1),
            state,
        )


class TestCheckpoint(JournalContract):
    @pytest.fixture
    def subject(self, tmp_path: Path) -> Subject:
        opened("checkpoints").unpack("stateless", tmp_path / "orders")
        place = tmp_path / "orders" / "checkpoint"
        newest = max(int(path.name) for path in (place / "offsets").glob("[0-9]*"))

        def state() -> object:
            files = [path for path in place.rglob("*") if path.is_file()]
            return {path: path.read_bytes() for path in files if "_sluicegate" not in str(path)}

        return Subject(
            lambda: CheckpointJournal(open_storage(str(place)), writer_gone=True),
            lambda: Rollback(to=newest - 2),
            lambda: Rollback(to=newest - 1),
            state,
        )


class TestStore(JournalContract):
    @pytest.fixture
    def subject(self, tmp_path: Path) -> Subject:
        store = LockFileOffsetStore.create(str(tmp_path / "offsets"))
        store.save_many("billing", Positions({"orders": {0: 42, 1: 17}}))

        def reset(number: int) -> Reset:
            spec = ResetSpec(Scenario.SHIFT, number=number)
            return Reset.to(store, "billing", spec, force=True)

        def state() -> object:
            record = store.load("billing")
            return record.positions if record else None

        return Subject(
            lambda: StoreJournal(LockFileOffsetStore.open(store.uri)),
            lambda: reset(-10),
            lambda: reset(-5),
            state,
        )


class TestAssignmentFile(JournalContract):
    @pytest.fixture
    def subject(self, tmp_path: Path) -> Subject:
        place = tmp_path / "map.csv"
        place.write_text("0,a\n1,a\n2,a\n3,b\n")
        before = FileJournal(str(place), read_only=True).read().assignment

        def join(node: str) -> Rebalance:
            made = membership.join(before, {node: 1})
            return Rebalance(data=Proposal.of(made, "join").to_text(), note=f"join {node}")

        return Subject(
            lambda: FileJournal(str(place), read_only=False),
            lambda: join("c"),
            lambda: join("d"),
            place.read_text,
        )
