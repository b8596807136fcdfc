"""Locks between processes: flock(2) on a lock file, and a note beside it of who holds it.

Whether a lock is held is only ever decided by trying to take it; the kernel frees it when its
holder dies, however it dies. The holders' notes (`<lock>.holders/*.json`) are evidence to show
to a person: they may be stale after a crash, and the next exclusive holder clears them away.
A lock file is never unlinked, because somebody may be waiting on it.
"""

from __future__ import annotations

import json
import os
import pwd
import socket
import sys
import time
import weakref
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from enum import Enum
from functools import cache
from itertools import takewhile
from pathlib import Path
from shlex import quote
from typing import ClassVar

from sluicegate import units
from sluicegate.errors import Locked, NotFound, StorageFailed

SUFFIX = ".lock"
_HOLDERS = ".holders"
_NOTE_BYTES = 65536
_FAR_FUTURE = 2**36
_GONE = "that process is gone"
_FIRST_WAIT, _LONGEST_WAIT = 0.002, 0.25
# Looking whether a lock is held takes it for an instant, so even "do not wait" tries this long.
_LEAST_PATIENCE = 0.05


class LockMode(Enum):
    """Shared holders exclude exclusive ones; an exclusive holder excludes everybody."""

    SHARED = "shared"
    EXCLUSIVE = "exclusive"


@dataclass(frozen=True, slots=True)
class Holder:
    """Who says they hold a lock; `started` tells a process from a later one with its pid."""

    user: str
    host: str
    pid: int
    started: str
    command: str
    since: float
    mode: str

    def describe(self) -> str:
        """One line of evidence: who, where, what, since when, and whether the process is there."""
        held = units.duration(max(0.0, time.time() - self.since))
        return (
            f"{self.user}@{self.host} pid {self.pid} ({self.command}), {self.mode} "
            f"since {units.utc(self.since)} ({held}); {self.process_state()}"
        )

    def process_state(self) -> str:
        """What can be seen of the holder's process from here."""
        if self.host != socket.gethostname():
            return "on another host"
        started = _process_start(self.pid)
        if started:
            same = started == self.started
            return "that process is alive" if same else "that pid is another process"
        return "that process cannot be seen from here" if _is_hidden(self.pid) else _GONE


class FileLock:
    """One lock file; `hold` takes it, `holders` says who has it.

    Two `FileLock`s exclude each other within one process too. A forked child does not inherit
    what its parent holds.
    """

    def __init__(self, path: Path) -> None:
        self.path = path

    @contextmanager
    def hold(self, mode: LockMode = LockMode.EXCLUSIVE, timeout: float = 10.0) -> Iterator[None]:
        """Hold the lock for the length of a `with` block, or raise `Locked` with the evidence."""
        held = _Held(self._acquire(mode, timeout))
        note = None
        try:
            note = self._leave_note(mode)
            yield
        finally:
            try:
                if note and held.fd is not None:
                    with suppress(OSError):
                        note.unlink()
            finally:
                held.close()

    def is_held(self) -> bool:
        """Whether anybody holds it, found out by trying."""
        try:
            fd = self._open_to_look()
        except FileNotFoundError:
            return False
        except OSError as e:
            raise _refused(self.path, e) from e
        try:
            return not self._try_patiently(fd)
        finally:
            os.close(fd)

    def holders(self) -> list[Holder]:
        """The notes of those who hold it, longest first; empty when nobody does."""
        return self._notes() if self.is_held() else []

    def _try_patiently(self, fd: int) -> bool:
        """Try for a moment: somebody else may be looking, too, which takes it for an instant."""
        deadline = time.monotonic() + _LEAST_PATIENCE
        while not self._try(fd, LockMode.EXCLUSIVE):
            if time.monotonic() >= deadline:
                return False
            time.sleep(_FIRST_WAIT)
        return True

    def _acquire(self, mode: LockMode, timeout: float) -> int:
        deadline = time.monotonic() + max(timeout, _LEAST_PATIENCE)
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
            time.sleep(min(wait, left))
            wait = min(wait * 2, _LONGEST_WAIT)

    def _open(self) -> int:
        flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW
        try:
            return os.open(self.path, flags, 0o666)
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
        # Somebody may have removed the file by hand: a lock on what was there is worth nothing.
        try:
            return os.path.samestat(os.fstat(fd), self.path.stat())
        except FileNotFoundError:
            return False

    def _leave_note(self, mode: LockMode) -> Path | None:
        directory = self._holders_directory()
        note = directory / f"{os.getpid()}-{os.urandom(4).hex()}.json"
        # A note that cannot be written (full disk) must not cost the holder its lock.
        with suppress(OSError):
            directory.mkdir(exist_ok=True)
            if mode is LockMode.EXCLUSIVE:
                _clear(directory)
            note.write_text(json.dumps(asdict(_myself(mode))), encoding="utf-8")
            return note
        return None

    def _notes(self) -> list[Holder]:
        found = []
        with suppress(OSError):
            for note in self._holders_directory().glob("*.json"):
                with suppress(OSError), note.open("rb") as stream:
                    found += _parse_note(stream.read(_NOTE_BYTES))
        return sorted(found, key=lambda holder: holder.since)

    def _holders_directory(self) -> Path:
        return self.path.with_name(self.path.name + _HOLDERS)

    def _locked(self, mode: LockMode, timeout: float) -> Locked:
        # A note whose process is gone is an older holder's, who was killed.
        present = [holder for holder in self._notes() if holder.process_state() != _GONE]
        evidence = [holder.describe() for holder in present] or ["a holder that left no note"]
        waited = f" after waiting {units.duration(timeout)}" if timeout > 0 else ""
        return Locked(
            f"could not take {self.path} ({mode.value}){waited}; held by " + "; ".join(evidence),
            hint="wait for it to finish, or see: "
            f"sluicegate locks list {quote(str(self.path.parent))}",
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
        # file, closing only gives up our part.
        fd, self.fd = self.fd, None
        if fd is not None:
            os.close(fd)


def _close_inherited() -> None:
    for held in list(_Held.living):
        held.close()


os.register_at_fork(after_in_child=_close_inherited)


def _clear(directory: Path) -> None:
    """Remove what dead holders left; what cannot be removed stays."""
    for stale in directory.iterdir():
        with suppress(OSError):
            stale.unlink()


def _refused(path: Path, error: OSError) -> StorageFailed:
    reason = (error.strerror or str(error)).lower()
    return StorageFailed(f"cannot open {path} to look at locks: {reason}", place=str(path))


def _parse_note(data: bytes) -> list[Holder]:
    """The holder a note tells of; none if it is half-written or not ours."""
    try:
        holder = Holder(**json.loads(data))
    except (ValueError, TypeError, RecursionError):
        return []
    numbers = isinstance(holder.pid, int) and isinstance(holder.since, int | float)
    if not numbers or not 0 <= holder.since < _FAR_FUTURE or not 0 < holder.pid < 2**31:
        return []
    texts = (holder.user, holder.host, holder.started, holder.command, holder.mode)
    return [holder] if all(isinstance(text, str) for text in texts) else []


def _myself(mode: LockMode) -> Holder:
    pid = os.getpid()
    return Holder(
        user=_user(),
        host=socket.gethostname(),
        pid=pid,
        started=_own_start(pid),
        command=_command(),
        since=time.time(),
        mode=mode.value,
    )


def _user() -> str:
    # The account, not $USER: evidence must not be what somebody set.
    try:
        return pwd.getpwuid(os.getuid()).pw_name
    except KeyError:
        return str(os.getuid())


def _command() -> str:
    """The program and the words before its first option; options may carry secrets."""
    program, *arguments = sys.argv or ["python"]
    words = takewhile(lambda word: not word.startswith("-"), arguments[:4])
    return " ".join([Path(program).name or "python", *words])


@cache
def _own_start(pid: int) -> str:
    return _process_start(pid)


def _process_start(pid: int) -> str:
    """When a process of this host started, as an opaque text; empty if there is no such process."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text(errors="replace")
        boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    except FileNotFoundError:
        return "" if Path("/proc/self/stat").exists() else _process_start_from_ps(pid)
    except OSError:
        return ""
    # The command name in field 2 may contain anything, so count from its closing bracket.
    fields = stat.rpartition(")")[2].split()
    zombie = fields[0] in ("Z", "X")
    return "" if zombie else f"{boot}/{fields[19]}"


def _is_hidden(pid: int) -> bool:
    """Whether there is such a process after all, of which /proc shows us nothing."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    # A zombie can be signalled, too, but its entry in /proc can be read.
    return not Path(f"/proc/{pid}/stat").exists()


def _process_start_from_ps(pid: int) -> str:
    import subprocess

    command = ["ps", "-o", "lstart=", "-p", str(pid)]
    answer = subprocess.run(command, capture_output=True, text=True, check=False)
    return answer.stdout.strip()
