"""The home: the directory that holds gated streams, and the marker that says it is one.

The marker (`sluicegate.home`) is what tells an empty home from a disk that is not mounted: a
directory without it is never taken for a home, so nothing starts from nothing in silence.
"""

from __future__ import annotations

import os
import time
from dataclasses import dataclass
from shlex import quote

from sluicegate import codec
from sluicegate.errors import Corrupt, NotFound, StorageFailed, UnsupportedFormat
from sluicegate.findings import Finding, Severity, rule
from sluicegate.storage import Storage, local_root, open_storage

MARKER = "sluicegate.home"
FORMAT = codec.Format("home", version=1, max_body=4096)

DAMAGED = rule(
    "SG-HOME-DAMAGED",
    Severity.ERROR,
    "the home's marker is damaged",
    f"The file `{MARKER}` of the home cannot be read or does not match its checksum. The streams "
    "may be well: the marker only names the home. Restore it from a backup, or move it away and "
    "run `sluicegate init`, which writes a new one and touches nothing else.",
)
MISSING = rule(
    "SG-HOME-MISSING",
    Severity.NOTE,
    "there is no home here",
    "The directory that would hold gated streams does not exist. Spark checkpoints and offset "
    "stores can be worked on without one.",
)
UNREADABLE = rule(
    "SG-HOME-UNREADABLE",
    Severity.ERROR,
    "the home cannot be read",
    "The operating system refuses to read it (permission, not a directory, I/O error), or a newer "
    "release wrote it. The home itself may be well.",
)
UNMARKED = rule(
    "SG-HOME-UNMARKED",
    Severity.ERROR,
    "the home directory has no marker",
    f"The directory exists but has no `{MARKER}`. Most often the disk that holds the home is not "
    "mounted, or the path is wrong. If it really is to be a new home, `sluicegate init` makes it "
    "one.",
)


@dataclass(frozen=True, slots=True)
class Home:
    """An opened home: where it is, its identity and its age."""

    uri: str
    id: str
    created_at: float


def open_home(uri: str) -> Home:
    """The home at a URI, or `NotFound` / `Corrupt`."""
    storage = open_storage(uri, read_only=True)
    place = f"{storage.uri}/{MARKER}"
    try:
        data = storage.get(MARKER, limit=FORMAT.max_frame)
    except NotFound as e:
        raise NotFound(
            f"{storage.uri} is not a Sluicegate home: {place} does not exist",
            hint="mount its disk, or name another with --home; a new one: "
            f"sluicegate init --home {quote(storage.uri)}",
            place=place,
        ) from e
    match codec.decode(FORMAT, data, place):
        case {"id": str(identity), "created_at": float(created_at)}:
            return Home(storage.uri, identity, created_at)
    raise Corrupt(f"{place}: the marker lacks its id or creation time", place=place)


def create_marker(storage: Storage, identity: str) -> bool:
    """Mark a directory as a home; False if somebody did so first."""
    fields = {"id": identity, "created_at": time.time()}
    return storage.put_if_absent(MARKER, codec.encode(FORMAT, fields))


def check_home(uri: str) -> list[Finding]:
    """What is wrong with the home at a URI; a missing one is only noted."""
    make = f"sluicegate init --home {quote(uri)}"
    if not os.path.lexists(local_root(uri)):
        return [MISSING.at(uri, repair=make)]
    try:
        open_home(uri)
    except NotFound as e:
        return [UNMARKED.at(uri, e.message, repair=make)]
    except Corrupt as e:
        return [DAMAGED.at(uri, e.message)]
    except (StorageFailed, UnsupportedFormat) as e:
        return [UNREADABLE.at(uri, e.message)]
    return []
