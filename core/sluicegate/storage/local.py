"""Storage on a local (or mounted) file system, and the system calls it makes, one method each.

Writing is: temporary file, fsync, link or rename, fsync of the directory. Paths are walked one
component at a time with O_NOFOLLOW, so no link inside the root can lead out of it.
"""

from __future__ import annotations

import errno
import fcntl
import io
import os
import shutil
import stat as st
from collections.abc import Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from itertools import takewhile
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, BinaryIO

from sluicegate.errors import Corrupt, InvalidName, NotFound, StorageFailed
from sluicegate.storage.base import (
    DEFAULT_LIMIT,
    Capabilities,
    Entry,
    Kind,
    Stat,
    local_root,
    split_key,
)

if TYPE_CHECKING:
    from typing_extensions import Buffer

    from sluicegate.locks import Lock


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

    def move(self, source: Path, _origin: int, place: Path, _directory: int) -> None:
        source.rename(place)

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
    # Not its own text: that of Arrow repeats the place.
    reason = (os.strerror(e.errno) if e.errno else str(e)).lower()
    return StorageFailed(f"{place}: {reason}", place=str(place))


def _has_link(place: Path, inside: Path) -> bool:
    below = takewhile(lambda path: path != inside, (place, *place.parents))
    return any(path.is_symlink() for path in below)


_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC
# Non-blocking, because opening a named pipe for reading would otherwise wait for a writer.
_FILE = os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOFOLLOW
_BUFFER = 1 << 16
_TEMPORARY = (".sg-", ".tmp")


class LocalStorage:
    """`Storage` in one directory; the directory itself must exist (see `create`)."""

    def __init__(self, root: Path, *, calls: Calls | None = None) -> None:
        self._root = root
        self._calls = calls or Calls()
        self._durable: set[tuple[int, int]] = set()

    @classmethod
    def create(cls, root: Path, *, calls: Calls | None = None) -> LocalStorage:
        """Make the root directory durably if it is missing, and open it."""
        calls = calls or Calls()
        with Translated(root):
            missing = list(takewhile(lambda path: not path.exists(), (root, *root.parents)))
            for path in reversed(missing):
                with suppress(FileExistsError):
                    calls.make_directory(str(path), None)
                calls.sync_path(path.parent)
            if not missing:
                # Another process may have created it and died before the fsync.
                calls.sync_path(root.parent)
        return cls(root, calls=calls)

    @property
    def uri(self) -> str:
        return str(self._root)

    @property
    def read_only(self) -> bool:
        return False

    @property
    def capabilities(self) -> Capabilities:
        return ~Capabilities(0)

    def spellings(self) -> frozenset[str]:
        return frozenset((os.path.normpath(self._root.absolute()), str(self._root.resolve())))

    def lock(self, key: str) -> Lock:
        # Imported late: most commands take no lock.
        from sluicegate.locks import FileLock

        return FileLock(self._root.joinpath(*split_key(key)), lambda: self._make_parent(key))

    def _make_parent(self, key: str) -> None:
        with self._parent(key, create=True):
            pass

    def local_path(self, key: str = "") -> Path | None:
        return self._root.joinpath(*split_key(key)) if key else self._root

    def open(self, key: str) -> BinaryIO:
        return io.BufferedReader(File(self._open(key), self._root / key), _BUFFER)

    def get(self, key: str, *, limit: int = DEFAULT_LIMIT) -> bytes:
        fd = self._open(key)
        try:
            with self._errors_at(key):
                data = _read_up_to(fd, limit + 1)
        finally:
            os.close(fd)
        if len(data) > limit:
            raise Corrupt(
                f"{self._shown(key)} is larger than the {limit} bytes allowed for it",
                place=self._shown(key),
            )
        return data

    def put_if_absent(self, key: str, data: bytes | Iterable[bytes]) -> bool:
        with self._parent(key, create=True) as (directory, name):
            created = not _exists(directory, name) and self._link(directory, name, data)
            self._calls.sync(directory)
            return created

    def replace(
        self, key: str, data: bytes, *, keep_as: str | None = None, drop: tuple[str, ...] = ()
    ) -> None:
        _check_beside(key, (*drop, *([] if keep_as is None else [keep_as])))
        with self._parent(key, create=True) as (directory, name):
            with self._temporary(directory, data, keep_mode_of=name) as temporary:
                self._calls.rename(temporary, name, directory)
            if keep_as is not None:
                self._link_also(directory, name, keep_as)
            for each in drop:
                with suppress(FileNotFoundError):
                    self._calls.unlink(each, directory)
            self._calls.sync(directory)

    def link(self, source: str, key: str, *, replace: bool = False) -> None:
        # Spark does not fsync its files, and a second name is no more durable than the content.
        with self.open(source) as stream, self._errors_at(source):
            self._calls.sync(stream.fileno())
        with self._parent(source) as (origin, name), self._parent(key, create=True) as (to, wanted):
            if replace:
                self._link_over(name, wanted, to, origin)
            else:
                self._calls.link(name, wanted, to, origin)
            self._calls.sync(to)

    def _link_over(self, name: str, wanted: str, directory: int, origin: int) -> None:
        temporary = os.urandom(8).hex().join(_TEMPORARY)
        self._calls.link(name, temporary, directory, origin)
        try:
            self._calls.rename(temporary, wanted, directory)
        finally:
            # Renaming one name of a file to another name of it leaves both.
            with suppress(FileNotFoundError):
                self._calls.unlink(temporary, directory)

    def move(self, source: str, key: str, *, create: bool = True) -> bool:
        if self.stat(source) is None:
            return False
        with self._parent(source) as (origin, _), self._parent(key, create=create) as (to, wanted):
            # rename(2) would replace a file, and an empty directory.
            if _exists(to, wanted):
                raise StorageFailed(f"{self._shown(key)} already exists", place=self._shown(key))
            # By their paths: the opened directories may have been renamed since.
            self._calls.move(self._root / source, origin, self._root / key, to)
            # The new name first: after a crash it may have both names, never neither.
            self._calls.sync(to)
            self._calls.sync(origin)
        return True

    def delete(self, key: str) -> bool:
        try:
            with self._parent(key) as (directory, name):
                try:
                    self._calls.unlink(name, directory)
                except FileNotFoundError:
                    # Also in this case: an earlier attempt may have failed at this fsync.
                    self._calls.sync(directory)
                    return False
                self._calls.sync(directory)
        except NotFound:
            return False
        return True

    def delete_all(self, key: str) -> None:
        shutil.rmtree(self._root.joinpath(*split_key(key)), ignore_errors=True)

    def list(self, key: str = "", *, temporary: bool = False, sizes: bool = False) -> list[Entry]:
        measured = _measured if sizes else _named
        with self._directory(key) as directory:
            self._calls.about_to("list", key)
            with os.scandir(directory) as found:
                entries = [
                    measured(item) for item in found if _is_temporary(item.name) is temporary
                ]
        return sorted(entries, key=lambda entry: entry.name)

    def stat(self, key: str) -> Stat | None:
        try:
            with self._parent(key) as (directory, name):
                self._calls.about_to("stat", name)
                found = os.stat(name, dir_fd=directory, follow_symlinks=False)
        except NotFound:
            return None
        identity = f"{found.st_dev}:{found.st_ino}"
        return Stat(_mode_kind(found.st_mode), found.st_size, found.st_mtime_ns, identity)

    def sync(self, key: str) -> None:
        parts = split_key(key)
        with self.open(key) as stream, self._errors_at(key):
            self._calls.sync(stream.fileno())
        for depth in range(len(parts) - 1, -1, -1):
            with self._directory("/".join(parts[:depth])) as directory:
                self._calls.sync(directory)

    def _open(self, key: str) -> int:
        with self._parent(key) as (directory, name):
            self._calls.about_to("read", name)
            fd = os.open(name, _FILE, dir_fd=directory)
            if not st.S_ISREG(os.fstat(fd).st_mode):
                os.close(fd)
                raise StorageFailed(f"{self._shown(key)} is not a regular file", hint="name a file")
            return fd

    def _link(self, directory: int, name: str, data: bytes | Iterable[bytes]) -> bool:
        # link(2) is the only call that creates a complete file and fails if the name is taken.
        with self._temporary(directory, data) as temporary:
            try:
                self._calls.link(temporary, name, directory)
            except FileExistsError:
                # On NFS a repeated request can get "exists" because of its own first success.
                return os.stat(temporary, dir_fd=directory).st_nlink > 1
            finally:
                self._calls.unlink(temporary, directory)
        return True

    def _link_also(self, directory: int, name: str, also: str) -> None:
        """Give a file a second name, which a file of a dead writer may already have."""
        try:
            self._calls.link(name, also, directory)
        except FileExistsError:
            self._calls.unlink(also, directory)
            self._calls.link(name, also, directory)

    @contextmanager
    def _temporary(
        self, directory: int, data: bytes | Iterable[bytes], keep_mode_of: str | None = None
    ) -> Iterator[str]:
        name = os.urandom(8).hex().join(_TEMPORARY)
        fd = self._calls.create(name, directory)
        try:
            try:
                if keep_mode_of is not None:
                    _keep_access(fd, keep_mode_of, directory)
                for piece in (data,) if isinstance(data, bytes) else data:
                    self._calls.write(fd, piece)
                self._calls.sync(fd)
            finally:
                os.close(fd)
            yield name
        except BaseException:
            with suppress(OSError):
                self._calls.unlink(name, directory)
            raise

    @contextmanager
    def _parent(self, key: str, *, create: bool = False) -> Iterator[tuple[int, str]]:
        *above, name = split_key(key)
        with self._directory("/".join(above), create=create, of=key) as directory:
            yield directory, name

    @contextmanager
    def _directory(self, key: str, *, create: bool = False, of: str = "") -> Iterator[int]:
        """A descriptor of the directory `key`; errors inside are reported as errors of `of`."""
        with self._errors_at(of or key):
            directory = os.open(self._root, _DIRECTORY)
            try:
                for part in split_key(key) if key else ():
                    deeper = self._enter(directory, part, create=create)
                    os.close(directory)
                    directory = deeper
                yield directory
            finally:
                os.close(directory)

    def _enter(self, directory: int, part: str, *, create: bool) -> int:
        flags = _DIRECTORY | os.O_NOFOLLOW
        made = False
        try:
            entered = os.open(part, flags, dir_fd=directory)
        except FileNotFoundError:
            if not create:
                raise
            made = True
            with suppress(FileExistsError):
                self._calls.make_directory(part, directory)
            entered = os.open(part, flags, dir_fd=directory)
        if create:
            self._make_durable(directory, entered, made=made)
        return entered

    def _make_durable(self, directory: int, entered: int, *, made: bool) -> None:
        """Fsync the name of a directory, once: its creator may have died before doing so.

        One that is `made` now may have the inode number of another that was removed since.
        """
        found = os.fstat(entered)
        if (found.st_dev, found.st_ino) in self._durable and not made:
            return
        try:
            self._calls.sync(directory)
        except BaseException:
            os.close(entered)
            raise
        self._durable.add((found.st_dev, found.st_ino))

    def _shown(self, key: str) -> str:
        return str(self._root / key)

    def _errors_at(self, key: str) -> AbstractContextManager[None]:
        return Translated(self._root, key)


def _keep_access(fd: int, name: str, directory: int) -> None:
    """Give a new file the mode, and where allowed the owner, of the file it will replace."""
    try:
        kept = os.stat(name, dir_fd=directory, follow_symlinks=False)
    except FileNotFoundError:
        return
    if not st.S_ISREG(kept.st_mode):
        return
    fresh = os.fstat(fd)
    if (kept.st_uid, kept.st_gid) != (fresh.st_uid, fresh.st_gid):
        with suppress(PermissionError):
            os.fchown(fd, kept.st_uid, kept.st_gid)
    os.fchmod(fd, st.S_IMODE(kept.st_mode))


def _exists(directory: int, name: str) -> bool:
    try:
        os.stat(name, dir_fd=directory, follow_symlinks=False)
    except FileNotFoundError:
        return False
    return True


def _read_up_to(fd: int, count: int) -> bytes:
    """The bytes up to the end of a file, but no more than `count`."""
    chunks, total = [], 0
    while total < count and (chunk := os.read(fd, min(count - total, _BUFFER))):
        chunks.append(chunk)
        total += len(chunk)
    return b"".join(chunks)


def _check_beside(key: str, names: Iterable[str]) -> None:
    """Refuse names that are not beside the key, before anything is written."""
    own = split_key(key)[-1]
    for name in names:
        if len(split_key(name)) != 1 or name == own:
            raise InvalidName(f"{name!a:.80} is not another name in the directory of {key!a:.80}")


def _is_temporary(name: str) -> bool:
    return name.startswith(_TEMPORARY[0]) and name.endswith(_TEMPORARY[1])


def _named(item: os.DirEntry[str]) -> Entry:
    return Entry(item.name, _entry_kind(item))


def _measured(item: os.DirEntry[str]) -> Entry:
    try:
        found = item.stat(follow_symlinks=False)
    except FileNotFoundError:
        # Removed since the directory was read.
        return _named(item)
    return Entry(item.name, _mode_kind(found.st_mode), found.st_size, found.st_mtime_ns)


def _entry_kind(item: os.DirEntry[str]) -> Kind:
    if item.is_dir(follow_symlinks=False):
        return "directory"
    return "file" if item.is_file(follow_symlinks=False) else "other"


def _mode_kind(mode: int) -> Kind:
    if st.S_ISDIR(mode):
        return "directory"
    return "file" if st.S_ISREG(mode) else "other"


def open_local(uri: str, *, create: bool) -> LocalStorage:
    """The directory at a URI or path."""
    root = local_root(uri)
    return LocalStorage.create(root) if create else LocalStorage(root)
