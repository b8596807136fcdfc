"""A stream as it lies in its home: its chain, blobs and locks."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from sluicegate.errors import SluicegateError, UnsupportedFormat
from sluicegate.locks import FileLock, LockMode
from sluicegate.storage import LocalStorage, ReadOnlyStorage, Storage, local_root
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

    def lock(self, name: str) -> FileLock:
        """One of its locks, by name; who may write finds the directory made."""
        path = self.storage.local_path("locks")
        if path is None:
            raise UnsupportedFormat(f"{self.uri} is not on this machine, where locks are")
        if not isinstance(self.storage, ReadOnlyStorage):
            path.mkdir(exist_ok=True)
        return FileLock(path / f"{name}.lock")

    def run_lock(self, run: str) -> FileLock:
        """The lock that a run holds as long as its process lives."""
        return self.lock(f"run-{run}")

    @contextmanager
    def referring(self) -> Iterator[None]:
        """While somebody appends a link: blobs that are there stay there."""
        with self.lock("collect").hold_in_turn(LockMode.SHARED, self._patience):
            yield

    @contextmanager
    def collecting(self) -> Iterator[None]:
        """While somebody removes what nothing refers to: nobody appends."""
        with self.lock("collect").hold_in_turn(LockMode.EXCLUSIVE, self._patience):
            yield


def open_stream(uri: str, *, read_only: bool, patience: float = _COLLECT_PATIENCE) -> Stream:
    """The stream in a directory, whether it lies in a home or not."""
    root = local_root(uri).absolute()
    storage: Storage = LocalStorage(root)
    home: Storage | None = _home_of(root)
    if read_only:
        storage = ReadOnlyStorage(storage)
        home = ReadOnlyStorage(home) if home else None
    return Stream(storage, home, root.name, patience=patience)


def _home_of(root: Path) -> Storage | None:
    home = LocalStorage(root.parent)
    try:
        marked = home.stat(MARKER.name)
    except SluicegateError:
        return None
    return home if marked else None
