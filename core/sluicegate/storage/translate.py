"""The operating system's errors as ours, with the name of the place."""

from __future__ import annotations

import errno
import io
from contextlib import AbstractContextManager
from itertools import takewhile
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING

from sluicegate.errors import NotFound, StorageFailed

if TYPE_CHECKING:
    from typing_extensions import Buffer

_FULL = (errno.ENOSPC, errno.EDQUOT)


class File(io.FileIO):
    """A file whose read errors are ours: a failing disk is told with the name of the file."""

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

    A class, and the path is put together only when it is needed: this is around every call.
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
            hint="name the link's own target instead, or replace the link by what it leads to",
            place=str(place),
        )
    reason = (e.strerror or str(e)).lower()
    return StorageFailed(f"{place}: {reason}", place=str(place))


def _has_link(place: Path, inside: Path) -> bool:
    below = takewhile(lambda path: path != inside, (place, *place.parents))
    return any(path.is_symlink() for path in below)
