"""Markers: the file that makes a directory a home or a store.

A directory without its marker is never used as one, so a disk that is not mounted does not look
like an empty home or store, and no job silently starts from the beginning.
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from sluicegate import codec
from sluicegate.errors import Corrupt, NotFound
from sluicegate.process import myself
from sluicegate.storage import Storage

_MAX_BODY = 65536
_OWN = ("id", "created_at", "by", "reason")


@dataclass(frozen=True, slots=True)
class Mark:
    """The content of a marker: a random id, its creation time, and fields of its kind (`more`)."""

    id: str
    created_at: float
    more: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Marker:
    """One kind of marked directory: the marker's file name and frame, and what it marks."""

    name: str
    kind: str
    what: str
    version: int = 1

    @property
    def format(self) -> codec.Format:
        """The frame of the file."""
        return codec.Format(self.kind, self.version, _MAX_BODY, oldest=self.version)

    def read(self, storage: Storage, *, make: str) -> Mark:
        """Read the marker, or `NotFound` / `Corrupt`; `make` is the command that creates one."""
        place = f"{storage.uri}/{self.name}"
        try:
            data = storage.get(self.name, limit=self.format.max_frame)
        except NotFound as e:
            raise NotFound(
                f"{storage.uri} is not {self.what}: {place} does not exist",
                hint=f"mount its disk, or check the path; to create a new one: {make}",
                place=place,
            ) from e
        again = f"restore it from a backup, or move it away and run: {make}"
        try:
            fields = codec.decode(self.format, data, place)
        except Corrupt as e:
            raise Corrupt(e.message, hint=again, place=place) from e
        match fields:
            case {"id": str(identity), "created_at": float(created_at)}:
                more = {key: value for key, value in fields.items() if key not in _OWN}
                return Mark(identity, created_at, more)
        raise Corrupt(f"{place}: it lacks its id or creation time", hint=again, place=place)

    def create(
        self, storage: Storage, reason: str | None = None, more: Mapping[str, Any] | None = None
    ) -> bool:
        """Mark a directory; False if another process did so first."""
        fields = {
            **(more or {}),
            "id": str(uuid.uuid4()),
            "created_at": time.time(),
            "by": myself().fields(),
            "reason": reason,
        }
        return storage.put_if_absent(self.name, codec.encode(self.format, fields))
