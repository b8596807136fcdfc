"""The home: the directory that holds gated streams, and its marker.

With the marker (`sluicegate.home`), an empty home differs from a disk that is not mounted: a
directory without it is never taken for a home, so nothing silently starts from scratch.
"""

from __future__ import annotations

import os

from sluicegate.errors import Corrupt, NotFound, StorageFailed, UnsupportedFormat
from sluicegate.findings import Finding, Severity, rule
from sluicegate.identity import Mark, Marker
from sluicegate.storage import local_root, open_storage
from sluicegate.units import command

MARKER = Marker("sluicegate.home", "home", "a Sluicegate home", version=2)

DAMAGED = rule(
    "SG-HOME-DAMAGED",
    Severity.ERROR,
    "the home's marker is damaged",
    f"The file `{MARKER.name}` of the home cannot be read or does not match its checksum. The "
    "streams may be intact: the marker only names the home. Restore it from a backup, or move it "
    "away and run `sluicegate init`, which writes a new one and touches nothing else.",
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
    "The operating system refuses to read it (permission, not a directory, I/O error), or another "
    "release wrote it. The home itself may be intact.",
)
UNMARKED = rule(
    "SG-HOME-UNMARKED",
    Severity.ERROR,
    "the home directory has no marker",
    f"The directory exists but has no `{MARKER.name}`. Most often the disk that holds the home is "
    "not mounted, or the path is wrong. `sluicegate init` makes it a new "
    "home.",
)


def open_home(uri: str) -> Mark:
    """The marker of the home at a URI, or `NotFound` / `Corrupt`."""
    storage = open_storage(uri, read_only=True)
    return MARKER.read(storage, make=command("init", "--home", storage.uri))


def check_home(uri: str) -> list[Finding]:
    """The problems of the home at a URI; a missing home is only a note."""
    make = command("init", "--home", uri)
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
