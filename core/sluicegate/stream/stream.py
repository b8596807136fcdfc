"""A stream in its home: its chain, blobs and locks."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from sluicegate.errors import SluicegateError
from sluicegate.locks import Lock, LockMode
from sluicegate.storage import Storage, canonical_uri, open_beside, open_storage
from sluicegate.storage.blobs import Blobs
from sluicegate.stream.chain import Chain
from sluicegate.stream.home import MARKER

_COLLECT_TIMEOUT = 60.0


class Stream:
    """One gated stream; `home` is set if it lies in one, `timeout` is for the collect lock."""

    def __init__(
        self,
        storage: Storage,
        home: Storage | None,
        name: str,
        *,
        timeout: float = _COLLECT_TIMEOUT,
    ) -> None:
        self.storage = storage
        self.name = name
        self._timeout = timeout
        self.chain = Chain(storage, home, name)
        self.blobs = Blobs(storage)

    @property
    def uri(self) -> str:
        """Where it is, for messages."""
        return self.storage.uri

    def lock(self, name: str) -> Lock:
        """One of its locks, by name."""
        return self.storage.lock(f"locks/{name}.lock")

    def run_lock(self, run: str) -> Lock:
        """The lock that a run holds as long as its process lives."""
        return self.lock(f"run-{run}")

    @contextmanager
    def referring(self) -> Iterator[None]:
        """While a snapshot is appended: no blob is removed."""
        with self.lock("collect").hold_in_turn(LockMode.SHARED, self._timeout):
            yield

    @contextmanager
    def collecting(self) -> Iterator[None]:
        """While unreferenced files are removed: no process appends."""
        with self.lock("collect").hold_in_turn(LockMode.EXCLUSIVE, self._timeout):
            yield


def open_stream(uri: str, *, read_only: bool, timeout: float = _COLLECT_TIMEOUT) -> Stream:
    """The stream in a directory, whether it lies in a home or not."""
    storage = open_storage(canonical_uri(uri), read_only=read_only)
    beside, name = open_beside(uri, read_only=read_only)
    return Stream(storage, _home(beside), name, timeout=timeout)


def _home(home: Storage) -> Storage | None:
    """The directory of the stream, if it is a home."""
    try:
        marked = home.stat(MARKER.name)
    except SluicegateError:
        return None
    return home if marked else None
