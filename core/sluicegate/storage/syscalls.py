"""The system calls of `LocalStorage`, one method each, and their errors as ours."""

from __future__ import annotations

import errno
import fcntl
import io
import os
from contextlib import AbstractContextManager
from itertools import takewhile
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING

from sluicegate.errors import NotFound, StorageFailed

if TYPE_CHECKING:
    from typing_extensions import Buffer


class Calls:
    """The real system calls. `about_to` is called before those that only read."""

    def about_to(self, call: str, name: str) -> None:
        """Called before a read; does nothing here."""

    def create(self, name: str, directory: int) -> int:
        flags = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
        return os.open(name, flags, 0o666, dir_fd=directory)

    def write(self, fd: int, data: bytes) -> None:
        rest = memoryview(data)
        while rest:
            rest = rest[os.write(fd, rest) :]

    def truncate(self, fd: int, size: int) -> None:
        os.ftruncate(fd, size)

    def sync(self, fd: int) -> None:
        # On macOS fsync(2) leaves data in the drive's cache; this is the call that does not.
        if full_sync := getattr(fcntl, "F_FULLFSYNC", None):
            fcntl.fcntl(fd, full_sync)
        else:
            os.fsync(fd)

    def sync_path(self, path: Path) -> None:
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        try:
            self.sync(fd)
        finally:
            os.close(fd)

    def link(self, source: str, name: str, directory: int, origin: int | None = None) -> None:
        origin = directory if origin is None else origin
        os.link(source, name, src_dir_fd=origin, dst_dir_fd=directory, follow_symlinks=False)

    def rename(self, source: str, name: str, directory: int) -> None:
        os.rename(source, name, src_dir_fd=directory, dst_dir_fd=directory)

    def move(self, source: str, origin: int, name: str, directory: int) -> None:
        os.rename(source, name, src_dir_fd=origin, dst_dir_fd=directory)

    def unlink(self, name: str, directory: int) -> None:
        os.unlink(name, dir_fd=directory)

    def make_directory(self, name: str, directory: int | None) -> None:
        os.mkdir(name, dir_fd=directory)


_FULL = (errno.ENOSPC, errno.EDQUOT)


class File(io.FileIO):
    """A file whose read errors are ours: a disk error is reported with the name of the file."""

    def __init__(self, fd: int, place: Path) -> None:
        super().__init__(fd, "rb")
        self._place = place

    def readinto(self, buffer: Buffer, /) -> int | None:
        with Translated(self._place):
            return super().readinto(buffer)

    def readall(self) -> bytes:
        with Translated(self._place):
            return super().readall()


class Translated(AbstractContextManager[None]):
    """Turns the operating system's errors into ours, naming the place.

    A class, and the path is built only if it is needed, because this is around every call.
    """

    def __init__(self, root: Path, key: str = "") -> None:
        self._root, self._key = root, key

    def __exit__(
        self, _type: object, error: BaseException | None, _traceback: TracebackType | None
    ) -> None:
        if not isinstance(error, OSError):
            return
        place = self._root / self._key
        raise _as_ours(error, place, self._root if self._key else None) from error


def _as_ours(e: OSError, place: Path, inside: Path | None) -> NotFound | StorageFailed:
    if isinstance(e, FileNotFoundError):
        return NotFound(f"{place} does not exist", place=str(place))
    if e.errno in _FULL:
        return StorageFailed(
            f"no space left to write {place}",
            hint="free some space or raise the quota, then run the command again",
            place=str(place),
        )
    if inside and e.errno in (errno.ELOOP, errno.ENOTDIR) and _has_link(place, inside):
        return StorageFailed(
            f"{place} is or passes through a symbolic link, which is not followed",
            hint="name the target of the link instead, or replace the link by its target",
            place=str(place),
        )
    reason = (e.strerror or str(e)).lower()
    return StorageFailed(f"{place}: {reason}", place=str(place))


def _has_link(place: Path, inside: Path) -> bool:
    below = takewhile(lambda path: path != inside, (place, *place.parents))
    return any(path.is_symlink() for path in below)
