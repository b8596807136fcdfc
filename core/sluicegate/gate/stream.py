"""A stream as it lies in its home: its chain, blobs and locks."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from sluicegate.blobs import Blobs
from sluicegate.chain.chain import Chain
from sluicegate.errors import SluicegateError, UnsupportedFormat
from sluicegate.home import MARKER
from sluicegate.locks import FileLock, LockMode
from sluicegate.storage import LocalStorage, ReadOnlyStorage, Storage, local_root

_COLLECT_PATIENCE = 60.0


class Stream:
    """One gated stream; `home` is known if it lies in one."""

    def __init__(self, storage: Storage, home: Storage | None, name: str) -> None:
        self.storage = storage
        self.name = name
        self.chain = Chain(storage, home, name)
        self.blobs = Blobs(storage)

    @property
    def uri(self) -> str:
        """Where it is, for messages."""
        return self.storage.uri

    def lock(self, name: str) -> FileLock:
        """One of its locks, by name; the directory is made if it is missing."""
        path = self.storage.local_path("locks")
        if path is None:
            raise UnsupportedFormat(f"{self.uri} is not on this machine, where locks are")
        path.mkdir(exist_ok=True)
        return FileLock(path / f"{name}.lock")

    def run_lock(self, run: str) -> FileLock:
        """The lock that a run holds as long as its process lives."""
        return self.lock(f"run-{run}")

    @contextmanager
    def referring(self) -> Iterator[None]:
        """While somebody appends a link: blobs that are there stay there."""
        with self.lock("collect").hold_in_turn(LockMode.SHARED, _COLLECT_PATIENCE):
            yield

    @contextmanager
    def collecting(self, timeout: float = _COLLECT_PATIENCE) -> Iterator[None]:
        """While somebody removes what nothing refers to: nobody appends."""
        with self.lock("collect").hold_in_turn(LockMode.EXCLUSIVE, timeout):
            yield


def open_stream(uri: str, *, read_only: bool) -> Stream:
    """The stream in a directory, whether it lies in a home or not."""
    root = local_root(uri).absolute()
    storage: Storage = LocalStorage(root)
    home: Storage | None = _home_of(root)
    if read_only:
        storage = ReadOnlyStorage(storage)
        home = ReadOnlyStorage(home) if home else None
    return Stream(storage, home, root.name)


def _home_of(root: Path) -> Storage | None:
    home = LocalStorage(root.parent)
    try:
        marked = home.stat(MARKER.name)
    except SluicegateError:
        return None
    return home if marked else None
