"""The system calls `LocalStorage` makes, one method each, so that faults can come between them."""

from __future__ import annotations

import fcntl
import os
from pathlib import Path


class Calls:
    """The real system calls. `about_to` is told of the calls that only read."""

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
