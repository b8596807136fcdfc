"""Blobs: immutable files named by the digest of their content, `blobs/ab/abcdef…`.

A blob is complete and durable before anything refers to it. The same content written twice is one
blob, so a repeated attempt leaves nothing behind; a blob that no snapshot refers to is an orphan,
never a conflict.
"""

from __future__ import annotations

import re
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from hashlib import blake2b
from typing import Any

from sluicegate.codec import digest_of
from sluicegate.errors import Corrupt, NotFound
from sluicegate.storage import Storage

DIRECTORY = "blobs"
_DIGEST = re.compile(r"[0-9a-f]{64}")
_PIECE = 1 << 20
_FRESH = 3600.0


class BlobDamaged(Corrupt):
    """A blob is missing, or its content does not match its name."""

    default_hint = "find the snapshots that use it with: sluicegate checkpoint verify STREAM"


@dataclass(frozen=True, slots=True, order=True)
class Ref:
    """The reference of a snapshot to a blob: the digest of its content, and its size."""

    digest: str
    size: int

    @property
    def key(self) -> str:
        """The key of the blob in its stream."""
        return f"{DIRECTORY}/{self.digest[:2]}/{self.digest}"

    def fields(self) -> list[Any]:
        """As plain values, for files."""
        return [bytes.fromhex(self.digest), self.size]

    @classmethod
    def from_fields(cls, fields: Any) -> Ref:
        """From plain values, or `ValueError`."""
        match fields:
            case [bytes(digest), int(size)] if len(digest) == 32 and size >= 0:
                return cls(digest.hex(), size)
        raise ValueError(f"{fields!a:.80} does not refer to a blob")


@dataclass(frozen=True, slots=True)
class Stored:
    """A file in the blob directories, referenced or not."""

    key: str
    digest: str


class Blobs:
    """The blobs of one stream."""

    def __init__(self, storage: Storage) -> None:
        self._storage = storage

    def put(self, data: bytes) -> Ref:
        """Store content durably; an existing blob is checked, and rewritten if damaged or old.

        Old, because an old orphan would be collected before a snapshot refers to it.
        """
        ref = Ref(digest_of(data), len(data))
        if not self._storage.put_if_absent(ref.key, data) and not self._is_fresh(ref):
            self._storage.replace(ref.key, data)
        return ref

    def get(self, ref: Ref) -> bytes:
        """The content, exactly as stored, or `BlobDamaged`."""
        self.check(ref)
        with self._missing(ref):
            data = self._storage.get(ref.key, limit=ref.size)
        if digest_of(data) != ref.digest:
            raise self._damaged(ref, "its content does not match its name")
        return data

    def check(self, ref: Ref, *, read: bool = False) -> None:
        """`BlobDamaged` unless it exists with the right size; with `read`, the right content."""
        found = self._storage.stat(ref.key)
        if found is None or found.kind != "file":
            raise self._damaged(ref, "it is missing")
        if found.size != ref.size:
            raise self._damaged(ref, f"it has {found.size} bytes, not {ref.size}")
        if read and self._digest(ref) != ref.digest:
            raise self._damaged(ref, "its content does not match its name")

    def stored(self) -> Iterator[Stored]:
        """Every stored blob, by digest."""
        for prefix in self._entries(DIRECTORY):
            for name in self._entries(f"{DIRECTORY}/{prefix}"):
                if _DIGEST.fullmatch(name) and name.startswith(prefix):
                    yield Stored(f"{DIRECTORY}/{prefix}/{name}", name)

    def _is_fresh(self, ref: Ref) -> bool:
        found = self._storage.stat(ref.key)
        if found is None or time.time() - found.modified_ns / 1e9 > _FRESH:
            return False
        try:
            self.check(ref, read=True)
        except BlobDamaged:
            return False
        return True

    def _entries(self, key: str) -> list[str]:
        try:
            return [entry.name for entry in self._storage.list(key)]
        except NotFound:
            return []

    def _digest(self, ref: Ref) -> str:
        digest = blake2b(digest_size=32)
        with self._missing(ref), self._storage.open(ref.key) as stream:
            while piece := stream.read(_PIECE):
                digest.update(piece)
        return digest.hexdigest()

    @contextmanager
    def _missing(self, ref: Ref) -> Iterator[None]:
        """Report a blob that was collected after the check as missing."""
        try:
            yield
        except NotFound as e:
            raise self._damaged(ref, "it is missing") from e

    def _damaged(self, ref: Ref, what: str) -> BlobDamaged:
        place = f"{self._storage.uri}/{ref.key}"
        return BlobDamaged(f"{place}: {what}", place=place)
