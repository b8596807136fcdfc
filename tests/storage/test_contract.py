"""Every kind of storage fulfils the same contract."""

from __future__ import annotations

from pathlib import Path

import pytest

from sluicegate.errors import UnsupportedFormat
from sluicegate.storage import (
    BACKENDS,
    LocalStorage,
    Storage,
    canonical_uri,
    joined_uri,
    open_beside,
    open_storage,
)
from tests.contracts.storage import StorageContract
from tests.support.memory import MemoryStorage


class TestLocal(StorageContract):
    @pytest.fixture
    def storage(self, tmp_path: Path) -> Storage:
        return LocalStorage.create(tmp_path / "store")


class TestMemory(StorageContract):
    @pytest.fixture
    def storage(self) -> Storage:
        return MemoryStorage()


class TestSchemes:
    """One line makes a kind of storage known."""

    @pytest.fixture(autouse=True)
    def _memory(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setitem(BACKENDS, "memory", "tests.support.memory:open_memory")

    def test_a_scheme_is_opened_by_its_backend(self) -> None:
        assert open_storage("MEMORY://bucket/a").uri == "MEMORY://bucket/a"
        assert open_storage("memory://bucket/a", read_only=True).read_only

    def test_names_are_joined_and_taken_apart(self) -> None:
        assert canonical_uri("memory://bucket/a/") == "memory://bucket/a"
        assert joined_uri("memory://bucket/a/", "b") == "memory://bucket/a/b"
        beside, name = open_beside("memory://bucket/a/b")
        assert (beside.uri, name) == ("memory://bucket/a", "b")

    def test_of_local_ones_too(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.chdir(tmp_path)
        assert canonical_uri("a/") == canonical_uri(f"file://{tmp_path}/a") == str(tmp_path / "a")
        assert joined_uri("a", "b") == "a/b"
        beside, name = open_beside("a/b")
        assert (beside.uri, name) == (str(tmp_path / "a"), "b")

    def test_others_are_named(self) -> None:
        for refuse in (open_storage, open_beside):
            with pytest.raises(UnsupportedFormat, match="s3:// storage is not supported"):
                refuse("s3://bucket/a")
