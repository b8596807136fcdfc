"""Locks between processes: flock(2) on a lock file, and a note of who holds it.

The only test whether a lock is held is to try to take it; the kernel frees it when its holder
dies for any reason. Notes are evidence for the operator. An exclusive holder, being alone, writes
its note into the lock file itself, which costs no directory operation; each shared holder has its
own file in `<lock>.holders/`. Notes outlive their holders after a crash; the next holder removes
them. A lock file is never unlinked, because another process may be waiting on it.
"""

from __future__ import annotations

import json
import os
import random
import time
import weakref
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager, suppress
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import ClassVar, Protocol

from sluicegate import units
from sluicegate.errors import Locked, NotFound, StorageFailed
from sluicegate.process import GONE, Who, WhoFields, myself

SUFFIX = ".lock"
_HOLDERS = ".holders"
_NOTE_BYTES = 65536
_PADDED = 1024
_FAR_FUTURE = 2**36
_FIRST_WAIT, _LONGEST_WAIT = 0.001, 0.05
# Testing whether a lock is held takes it for an instant, so even "do not wait" tries this long.
_MIN_TIMEOUT = 0.05


class LockMode(Enum):
    """Shared holders exclude exclusive ones; an exclusive holder excludes all others."""

    SHARED = "shared"
    EXCLUSIVE = "exclusive"


class HolderFields(WhoFields):
    """The holder of a lock as plain values."""

    since: float  # seconds since 1970
    mode: str  # `shared` or `exclusive`


@dataclass(frozen=True, slots=True)
class Holder:
    """A process that claims to hold a lock, in which mode, since when."""

    who: Who
    since: float
    mode: str

    def describe(self) -> str:
        """One line of evidence: user, host, command, start time, and whether the process runs."""
        held = units.duration(max(0.0, time.time() - self.since))
        return (
            f"{self.who}, {self.mode} since {units.utc(self.since)} ({held}); "
            f"{self.who.process_state()}"
        )

    def fields(self) -> HolderFields:
        """As plain values, for notes and documents."""
        return {**self.who.fields(), "since": self.since, "mode": self.mode}


class Lock(Protocol):
    """A lock between processes, of any kind of storage."""

    @property
    def place(self) -> str:
        """Its path, for messages."""

    def hold(
        self, mode: LockMode = LockMode.EXCLUSIVE, timeout: float = 10.0, *, note: bool = True
    ) -> AbstractContextManager[None]:
        """Hold it for the length of a `with` block, or raise `Locked` with the evidence."""

    def hold_in_turn(self, mode: LockMode, timeout: float = 10.0) -> AbstractContextManager[None]:
        """Like `hold`, for processes that must not starve: first come, first served."""

    def was_held(self) -> bool:
        """Whether it was ever held."""

    def is_held(self) -> bool:
        """Whether it is held, tested by trying to take it."""

    def holders(self) -> list[Holder]:
        """The notes of its holders, longest first; empty if it is free."""

    def remove(self, timeout: float = 0.0) -> None:
        """Hold it, and remove its file: for locks that no process waits for any more."""


class FileLock:
    """One lock file; `hold` takes it, `holders` lists who has it.

    Two `FileLock`s also exclude each other within one process. A forked child does not inherit
    the locks of its parent. `make_directory` creates a missing directory before its first lock.
    """

    def __init__(self, path: Path, make_directory: Callable[[], None] | None = None) -> None:
        self.path = path
        self._make_directory = make_directory

    @property
    def place(self) -> str:
        return str(self.path)

    def was_held(self) -> bool:
        return self.path.exists()

    def remove(self, timeout: float = 0.0) -> None:
        # While held: otherwise a process could take it now, and hold a lock that no other sees.
        with self.hold(timeout=timeout, note=False):
            self.path.unlink(missing_ok=True)

    @contextmanager
    def hold(
        self, mode: LockMode = LockMode.EXCLUSIVE, timeout: float = 10.0, *, note: bool = True
    ) -> Iterator[None]:
        """Hold the lock for the length of a `with` block, or raise `Locked` with the evidence."""
        held = _Held(self._acquire(mode, timeout))
        left: Path | None = None
        try:
            if note:
                # A note that cannot be written (full disk) must not cost the holder its lock.
                with suppress(OSError):
                    left = self._leave_note(held, mode)
            yield
        finally:
            try:
                if left and held.fd is not None:
                    with suppress(OSError):
                        left.unlink()
            finally:
                held.close()

    @contextmanager
    def hold_in_turn(self, mode: LockMode, timeout: float = 10.0) -> Iterator[None]:
        """Like `hold`, for processes that must not starve: first come, first served.

        Overlapping shared holders would keep an exclusive one waiting for ever. So every process
        waits at a second lock, which an exclusive waiter keeps until it has its turn. Shared
        holders are many and short here, and leave no note.
        """
        deadline = time.monotonic() + timeout
        turn = FileLock(self.path.with_suffix(".turn" + SUFFIX), self._make_directory)
        with ExitStack() as stack:
            with turn.hold(timeout=timeout):
                left = max(0.0, deadline - time.monotonic())
                stack.enter_context(self.hold(mode, left, note=mode is LockMode.EXCLUSIVE))
            yield

    def is_held(self) -> bool:
        """Whether it is held, tested by trying to take it."""
        try:
            fd = self._open_to_look()
        except FileNotFoundError:
            return False
        except OSError as e:
            raise _refused(self.path, e) from e
        try:
            return not self._try_briefly(fd)
        finally:
            os.close(fd)

    def holders(self) -> list[Holder]:
        """The notes of its holders, longest first; empty if it is free."""
        return self._notes() if self.is_held() else []

    def stale(self) -> list[Holder]:
        """The notes of dead holders; `Locked` with the evidence if the lock is held."""
        if self.path.suffix != SUFFIX or not self.path.is_file():
            raise NotFound(f"there is no lock file {self.path}", place=str(self.path))
        if self.is_held():
            raise self._locked(LockMode.EXCLUSIVE, 0)
        return [holder for holder in self._notes() if holder.who.process_state() == GONE]

    def clear(self) -> None:
        """Take the lock and remove all notes; `Locked` if that fails."""
        with self.hold(timeout=0):
            self._clear_shared()
            with suppress(OSError):
                os.truncate(self.path, 0)

    def _try_briefly(self, fd: int) -> bool:
        """Try for a moment: another process may be testing, too, which takes it for an instant."""
        deadline = time.monotonic() + _MIN_TIMEOUT
        while not self._try(fd, LockMode.EXCLUSIVE):
            if time.monotonic() >= deadline:
                return False
            time.sleep(_FIRST_WAIT)
        return True

    def _acquire(self, mode: LockMode, timeout: float) -> int:
        deadline = time.monotonic() + max(timeout, _MIN_TIMEOUT)
        wait = _FIRST_WAIT
        while True:
            fd = self._open()
            try:
                taken = self._try(fd, mode) and self._is_current(fd)
            except BaseException:
                os.close(fd)
                raise
            if taken:
                return fd
            os.close(fd)
            left = deadline - time.monotonic()
            if left <= 0:
                raise self._locked(mode, timeout)
            # Random, because several waiters would otherwise retry in step and collide every time.
            time.sleep(min(wait * random.uniform(0.5, 1.5), left))
            wait = min(wait * 2, _LONGEST_WAIT)

    def _open(self) -> int:
        flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW
        try:
            try:
                return os.open(self.path, flags, 0o666)
            except FileNotFoundError:
                if self._make_directory is None:
                    raise
                self._make_directory()
                return os.open(self.path, flags, 0o666)
        except PermissionError as e:
            # Made by another user, such as root. Except on NFS, flock(2) needs no write access.
            with suppress(OSError):
                return os.open(self.path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW)
            raise _refused(self.path, e) from e
        except OSError as e:
            raise _refused(self.path, e) from e

    def _open_to_look(self) -> int:
        try:
            # NFS wants a writable descriptor for an exclusive lock.
            return os.open(self.path, os.O_RDWR | os.O_CLOEXEC)
        except FileNotFoundError:
            raise
        except OSError:
            return os.open(self.path, os.O_RDONLY | os.O_CLOEXEC)

    def _try(self, fd: int, mode: LockMode) -> bool:
        # Imported late: portalocker takes longer to load than most commands take to run.
        from portalocker import AlreadyLocked, LockException, LockFlags
        from portalocker.portalocker import FlockLocker

        kind = LockFlags.SHARED if mode is LockMode.SHARED else LockFlags.EXCLUSIVE
        try:
            FlockLocker().lock(fd, kind | LockFlags.NON_BLOCKING)
        except AlreadyLocked:
            return False
        except LockException as e:
            raise StorageFailed(
                f"the file system of {self.path} does not support locks: {e}", place=str(self.path)
            ) from e
        return True

    def _is_current(self, fd: int) -> bool:
        # The file may have been removed by hand: a lock on a removed file excludes no process.
        try:
            return os.path.samestat(os.fstat(fd), self.path.stat())
        except FileNotFoundError:
            return False

    def _leave_note(self, held: _Held, mode: LockMode) -> Path | None:
        """Record the holder; returns the file to remove afterwards, if any."""
        note = json.dumps(Holder(myself(), time.time(), mode.value).fields()).encode()
        assert held.fd is not None
        if mode is LockMode.EXCLUSIVE:
            self._clear_shared()
            # Padded, so that it covers the last holder's note without a second call. It stays
            # when the lock is free: the note of a free lock is ignored.
            os.pwrite(held.fd, note.ljust(_PADDED), 0)
            return None
        os.ftruncate(held.fd, 0)
        directory = self._holders_directory()
        directory.mkdir(exist_ok=True)
        path = directory / f"{os.getpid()}-{os.urandom(4).hex()}.json"
        path.write_bytes(note)
        return path

    def _clear_shared(self) -> None:
        """Remove the notes of dead shared holders; those that cannot be removed stay."""
        with suppress(OSError):
            for stale in self._holders_directory().iterdir():
                with suppress(OSError):
                    stale.unlink()

    def _notes(self) -> list[Holder]:
        found = []
        with suppress(OSError):
            found += _read_note(self.path)
        with suppress(OSError):
            for note in self._holders_directory().glob("*.json"):
                with suppress(OSError):
                    found += _read_note(note)
        return sorted(found, key=lambda holder: holder.since)

    def _holders_directory(self) -> Path:
        return self.path.with_name(self.path.name + _HOLDERS)

    def _locked(self, mode: LockMode, timeout: float) -> Locked:
        # A note whose process has ended belongs to an older holder that was killed.
        present = [holder for holder in self._notes() if holder.who.process_state() != GONE]
        evidence = [holder.describe() for holder in present] or ["a holder that left no note"]
        waited = f" after waiting {units.duration(timeout)}" if timeout > 0 else ""
        place = str(self.path.parent)
        return Locked(
            f"could not take {self.path} ({mode.value}){waited}; held by " + "; ".join(evidence),
            hint=f"wait for the holder to finish, or see: {units.command('locks', 'list', place)}",
            place=str(self.path),
        )


def find_locks(root: Path) -> list[FileLock]:
    """The lock files below a directory, by path."""
    found: list[FileLock] = []

    def refuse(error: OSError) -> None:
        if isinstance(error, FileNotFoundError | NotADirectoryError):
            raise NotFound(f"{error.filename} is not a directory", place=error.filename)
        raise _refused(Path(error.filename), error)

    for directory, _, names in os.walk(root, onerror=refuse):
        paths = (Path(directory) / name for name in names if name.endswith(SUFFIX))
        found += [FileLock(path) for path in paths if path.is_file() and not path.is_symlink()]
    return sorted(found, key=lambda lock: lock.path)


class _Held:
    """A locked descriptor, closed once, and closed in every forked child."""

    living: ClassVar[weakref.WeakSet[_Held]] = weakref.WeakSet()

    def __init__(self, fd: int) -> None:
        self.fd: int | None = fd
        self.living.add(self)

    def close(self) -> None:
        # Closing, not LOCK_UN: unlocking would free it for every process that shares the open
        # file; closing releases only ours.
        fd, self.fd = self.fd, None
        if fd is not None:
            os.close(fd)


def _close_inherited() -> None:
    for held in list(_Held.living):
        held.close()


os.register_at_fork(after_in_child=_close_inherited)


def _refused(path: Path, error: OSError) -> StorageFailed:
    reason = (error.strerror or str(error)).lower()
    return StorageFailed(f"cannot open the lock {path}: {reason}", place=str(path))


def _read_note(path: Path) -> list[Holder]:
    """The holder in a note; none if the note is empty, incomplete or not ours."""
    with path.open("rb") as stream:
        data = stream.read(_NOTE_BYTES)
    try:
        fields = json.loads(data)
    except (ValueError, RecursionError):
        return []
    who = Who.from_fields(fields)
    match fields:
        case {"since": int() | float() as since, "mode": str(mode)} if 0 <= since < _FAR_FUTURE:
            return [Holder(who, since, mode)] if who else []
    return []
