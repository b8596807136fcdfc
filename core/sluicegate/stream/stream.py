"""A stream as it lies in its home: its chain, blobs and locks."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from sluicegate.errors import SluicegateError
from sluicegate.locks import Lock, LockMode
from sluicegate.storage import Storage, canonical_uri, open_beside, open_storage
from sluicegate.storage.blobs import Blobs
from sluicegate.stream.chain import Chain
from sluicegate.stream.home import MARKER

_COLLECT_PATIENCE = 60.0


class Stream:
    """One gated stream; `home` is known if it lies in one, `patience` is for the collect lock."""

    def __init__(
        self,
        storage: Storage,
        home: Storage | None,
        name: str,
        *,
        patience: float = _COLLECT_PATIENCE,
    ) -> None:
        self.storage = storage
        self.name = name
        self._patience = patience
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
        """While somebody appends a snapshot: blobs that are there stay there."""
        with self.lock("collect").hold_in_turn(LockMode.SHARED, self._patience):
            yield

    @contextmanager
    def collecting(self) -> Iterator[None]:
        """While somebody removes what nothing refers to: nobody appends."""
        with self.lock("collect").hold_in_turn(LockMode.EXCLUSIVE, self._patience):
            yield


def open_stream(uri: str, *, read_only: bool, patience: float = _COLLECT_PATIENCE) -> Stream:
    """The stream in a directory, whether it lies in a home or not."""
    storage = open_storage(canonical_uri(uri), read_only=read_only)
    beside, name = open_beside(uri, read_only=read_only)
    return Stream(storage, _home(beside), name, patience=patience)


def _home(home: Storage) -> Storage | None:
    """What holds the stream, if it is a home."""
    try:
        marked = home.stat(MARKER.name)
    except SluicegateError:
        return None
    return home if marked else None
