"""Storage that refuses every change, for dry runs and `read_only = true`."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO

from sluicegate.errors import ReadOnlyViolation
from sluicegate.storage.base import DEFAULT_LIMIT, Capabilities, Entry, Stat, Storage

if TYPE_CHECKING:
    from sluicegate.locks import Lock


class ReadOnlyStorage:
    """`Storage` whose mutating calls raise `ReadOnlyViolation` before anything happens."""

    def __init__(self, inner: Storage) -> None:
        self._inner = inner

    @property
    def uri(self) -> str:
        return self._inner.uri

    @property
    def read_only(self) -> bool:
        return True

    @property
    def capabilities(self) -> Capabilities:
        return self._inner.capabilities

    def spellings(self) -> frozenset[str]:
        return self._inner.spellings()

    def lock(self, key: str) -> Lock:
        return self._inner.lock(key)

    def open(self, key: str) -> BinaryIO:
        return self._inner.open(key)

    def get(self, key: str, *, limit: int = DEFAULT_LIMIT) -> bytes:
        return self._inner.get(key, limit=limit)

    def list(self, key: str = "", *, temporary: bool = False, sizes: bool = False) -> list[Entry]:
        return self._inner.list(key, temporary=temporary, sizes=sizes)

    def stat(self, key: str) -> Stat | None:
        return self._inner.stat(key)

    def local_path(self, key: str = "") -> Path | None:
        return self._inner.local_path(key)

    def put_if_absent(self, key: str, data: bytes | Iterable[bytes]) -> bool:
        raise self._refusal("create", key)

    def replace(
        self, key: str, data: bytes, *, keep_as: str | None = None, drop: tuple[str, ...] = ()
    ) -> None:
        raise self._refusal("replace", key)

    def link(self, source: str, key: str, *, replace: bool = False) -> None:
        raise self._refusal("link", key)

    def move(self, source: str, key: str) -> bool:
        raise self._refusal("move", source)

    def delete(self, key: str) -> bool:
        raise self._refusal("delete", key)

    def delete_all(self, key: str) -> None:
        raise self._refusal("delete", key)

    def sync(self, key: str) -> None:
        raise self._refusal("sync", key)

    def _refusal(self, verb: str, key: str) -> ReadOnlyViolation:
        place = f"{self.uri}/{key}"
        return ReadOnlyViolation(f"refused to {verb} {place}: opened read-only", place=place)
