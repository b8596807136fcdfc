"""A storage in memory: keys and bytes, as in an object store, and nothing that is a path.

What works on it needs no directories, no hard links, no paths and no file locks.
"""

from __future__ import annotations

import io
import threading
import time
from collections.abc import Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import BinaryIO

from sluicegate.errors import Corrupt, InvalidName, Locked, NotFound, StorageFailed
from sluicegate.locks import Holder, Lock, LockMode
from sluicegate.process import myself
from sluicegate.storage import DEFAULT_LIMIT, Capabilities, Entry, Stat, split_key


@dataclass(slots=True)
class _Object:
    data: bytes
    modified_ns: int = field(default_factory=time.time_ns)


class MemoryLock:
    """A lock of one process: exclusive, or shared by several."""

    def __init__(self, place: str) -> None:
        self._place = place
        self._changed = threading.Condition()
        self._holders: list[Holder] = []
        self._used = False

    @property
    def place(self) -> str:
        return self._place

    @contextmanager
    def hold(
        self, mode: LockMode = LockMode.EXCLUSIVE, timeout: float = 10.0, *, note: bool = True
    ) -> Iterator[None]:
        own = Holder(myself(), time.time(), mode.value)
        with self._changed:
            if not self._changed.wait_for(lambda: self._is_free_for(mode), timeout):
                raise Locked(f"could not take {self._place}", place=self._place)
            self._holders.append(own)
            self._used = True
        try:
            yield
        finally:
            with self._changed:
                self._holders.remove(own)
                self._changed.notify_all()

    def hold_in_turn(self, mode: LockMode, timeout: float = 10.0) -> AbstractContextManager[None]:
        return self.hold(mode, timeout)

    def was_held(self) -> bool:
        return self._used

    def is_held(self) -> bool:
        return bool(self._holders)

    def holders(self) -> list[Holder]:
        return list(self._holders)

    def remove(self, timeout: float = 0.0) -> None:
        with self.hold(timeout=timeout):
            self._used = False

    def _is_free_for(self, mode: LockMode) -> bool:
        shared = LockMode.SHARED.value
        return not self._holders or (
            mode is LockMode.SHARED and all(each.mode == shared for each in self._holders)
        )


class MemoryStorage:
    """`Storage` in a dictionary; directories are what keys have in common."""

    def __init__(self, uri: str = "memory://bucket/place") -> None:
        self._uri = uri
        self._objects: dict[str, _Object] = {}
        self._locks: dict[str, MemoryLock] = {}
        self._mutex = threading.RLock()

    @classmethod
    def of(cls, directory: Path, uri: str = "memory://bucket/place") -> MemoryStorage:
        """A storage that holds the files of a directory, as old as they are there."""
        storage = cls(uri)
        for path in sorted(directory.rglob("*")):
            if path.is_file() and not path.is_symlink():
                found = _Object(path.read_bytes(), path.stat().st_mtime_ns)
                storage._objects[str(path.relative_to(directory))] = found
        return storage

    def content(self) -> dict[str, bytes]:
        """What it holds."""
        return {key: found.data for key, found in sorted(self._objects.items())}

    @property
    def uri(self) -> str:
        return self._uri

    @property
    def read_only(self) -> bool:
        return False

    @property
    def capabilities(self) -> Capabilities:
        return Capabilities(0)

    def spellings(self) -> frozenset[str]:
        return frozenset((self._uri,))

    def local_path(self, key: str = "") -> Path | None:
        return None

    def lock(self, key: str) -> Lock:
        split_key(key)
        with self._mutex:
            return self._locks.setdefault(key, MemoryLock(f"{self._uri}/{key}"))

    def open(self, key: str) -> BinaryIO:
        return io.BytesIO(self._object(key).data)

    def get(self, key: str, *, limit: int = DEFAULT_LIMIT) -> bytes:
        data = self._object(key).data
        if len(data) > limit:
            place = f"{self._uri}/{key}"
            raise Corrupt(f"{place} is larger than the {limit} bytes allowed for it", place=place)
        return data

    def put_if_absent(self, key: str, data: bytes | Iterable[bytes]) -> bool:
        split_key(key)
        content = data if isinstance(data, bytes) else b"".join(data)
        with self._mutex:
            if key in self._objects:
                return False
            self._refuse_directory(key)
            self._objects[key] = _Object(content)
        return True

    def replace(
        self, key: str, data: bytes, *, keep_as: str | None = None, drop: tuple[str, ...] = ()
    ) -> None:
        *above, own = split_key(key)
        for name in (*drop, *([] if keep_as is None else [keep_as])):
            if len(split_key(name)) != 1 or name == own:
                raise InvalidName(f"{name!a} is not another name in the directory of {key!a}")
        beside = "/".join([*above, ""]) if above else ""
        with self._mutex:
            self._refuse_directory(key)
            self._objects[key] = _Object(data)
            if keep_as is not None:
                self._objects[beside + keep_as] = _Object(data)
            for each in drop:
                self._objects.pop(beside + each, None)

    def link(self, source: str, key: str, *, replace: bool = False) -> None:
        split_key(key)
        with self._mutex:
            found = self._object(source)
            if key in self._objects and not replace:
                raise StorageFailed(f"{self._uri}/{key} exists", place=f"{self._uri}/{key}")
            self._objects[key] = _Object(found.data, found.modified_ns)

    def move(self, source: str, key: str, *, create: bool = True) -> bool:
        *above, _ = split_key(key)
        with self._mutex:
            moved = [k for k in self._objects if k == source or k.startswith(f"{source}/")]
            if not moved:
                return False
            directory = "".join(f"{each}/" for each in above)
            if not create and not any(k.startswith(directory) for k in self._objects):
                raise NotFound(f"{self._uri}/{directory} does not exist")
            if any(k == key or k.startswith(f"{key}/") for k in self._objects):
                raise StorageFailed(f"{self._uri}/{key} already exists")
            for each in moved:
                self._objects[key + each[len(source) :]] = self._objects.pop(each)
        return True

    def delete(self, key: str) -> bool:
        split_key(key)
        with self._mutex:
            return self._objects.pop(key, None) is not None

    def delete_all(self, key: str) -> None:
        split_key(key)
        with self._mutex:
            for each in [k for k in self._objects if k.startswith(f"{key}/")]:
                del self._objects[each]

    def list(self, key: str = "", *, temporary: bool = False, sizes: bool = False) -> list[Entry]:
        if key:
            split_key(key)
        prefix = f"{key}/" if key else ""
        found: dict[str, Entry] = {}
        with self._mutex:
            for each, content in self._objects.items():
                if each.startswith(prefix):
                    name, slash, _ = each[len(prefix) :].partition("/")
                    found[name] = (
                        Entry(name, "directory")
                        if slash
                        else Entry(name, "file", len(content.data), content.modified_ns)
                    )
        if not found and key:
            raise self._missing(key)
        # Writes are complete or absent, so nothing is ever left unfinished.
        return [] if temporary else [found[name] for name in sorted(found)]

    def stat(self, key: str) -> Stat | None:
        split_key(key)
        with self._mutex:
            if found := self._objects.get(key):
                return Stat("file", len(found.data), found.modified_ns, str(id(found)))
            if any(each.startswith(f"{key}/") for each in self._objects):
                return Stat("directory", 0, 0)
        return None

    def sync(self, key: str) -> None:
        self._object(key)

    def _object(self, key: str) -> _Object:
        split_key(key)
        with self._mutex:
            if found := self._objects.get(key):
                return found
            if any(each.startswith(f"{key}/") for each in self._objects):
                raise StorageFailed(f"{self._uri}/{key} is not a regular file", hint="name a file")
        raise self._missing(key)

    def _refuse_directory(self, key: str) -> None:
        if any(each.startswith(f"{key}/") for each in self._objects):
            raise StorageFailed(f"{self._uri}/{key} is a directory", place=f"{self._uri}/{key}")

    def _missing(self, key: str) -> NotFound:
        place = f"{self._uri}/{key}"
        return NotFound(f"{place} does not exist", place=place)


BUCKETS: dict[str, MemoryStorage] = {}


def open_memory(uri: str, *, create: bool) -> MemoryStorage:
    """The storage of this process at a URI; it exists as soon as it is named."""
    del create
    return BUCKETS.setdefault(uri, MemoryStorage(uri))
