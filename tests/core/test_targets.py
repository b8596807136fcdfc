"""Every kind of target fulfils the same contract."""

from __future__ import annotations

import struct
from pathlib import Path

import pytest

from sluicegate.offsets import LockFileOffsetStore
from sluicegate.positions import Positions
from sluicegate.target import TargetKind
from tests.contracts.target import TargetContract
from tests.formats.archive import opened
from tests.stream import streams


class TestSparkCheckpoint(TargetContract):
    kind = TargetKind.SPARK_CHECKPOINT

    @pytest.fixture
    def place(self, tmp_path: Path) -> Path:
        opened("checkpoints").unpack("stateless", tmp_path / "orders")
        return tmp_path / "orders" / "checkpoint"


class TestStream(TargetContract):
    kind = TargetKind.STREAM

    @pytest.fixture
    def place(self, tmp_path: Path) -> Path:
        return Path(streams.made(tmp_path, epochs=3).uri)


class TestOffsetStore(TargetContract):
    kind = TargetKind.OFFSET_STORE

    @pytest.fixture
    def place(self, tmp_path: Path) -> Path:
        store = LockFileOffsetStore.create(str(tmp_path / "offsets"))
        store.save_many("billing", Positions({"orders": {0: 42, 1: 17}}))
        return tmp_path / "offsets"


class TestReferenceLayout(TargetContract):
    kind = TargetKind.OFFSET_STORE

    @pytest.fixture
    def place(self, tmp_path: Path) -> Path:
        (tmp_path / "topic-1-consumer-0.offset").write_text("42")
        return tmp_path


class TestAssignmentFile(TargetContract):
    kind = TargetKind.ASSIGNMENT_FILE

    @pytest.fixture
    def place(self, tmp_path: Path) -> Path:
        made = tmp_path / "map.csv"
        made.write_text("0,a\n1,a\n2,b\n")
        return made


class TestV1File(TargetContract):
    kind = TargetKind.V1_CHECKPOINT

    @pytest.fixture
    def place(self, tmp_path: Path) -> Path:
        made = tmp_path / "checkpoint-7.bin"
        made.write_bytes(struct.pack("<QQQII", 7, 0, 7, 0, 0))
        return made
