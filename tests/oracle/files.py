"""What each file of a checkpoint is for: its class, by which damages are counted.

Classes tell a log's newest entry from the one before and from older ones, state that the next
start loads from state that it does not, and so on: Spark treats these differently.
"""

from __future__ import annotations

import io
import re
import zipfile
from collections.abc import Iterator
from dataclasses import dataclass, field

from tests.tree import Tree, owner_of

_UUID = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}")
_LOG = re.compile(r"(?P<log>.*)/(?P<number>\d+)(?P<compact>\.compact)?")
_STATE = re.compile(
    r"(?P<store>checkpoint/state/\d+/\d+(?:/[A-Za-z-]+)?)/"
    r"(?P<version>\d+)(?:_[0-9a-f-]{36})?\.(?P<suffix>delta|snapshot|changelog|zip)"
)
_SST = re.compile(r"(?P<store>.*)/SSTs/(?P<name>[^/]+\.sst)")
_SST_NAME = re.compile(rb"\d+-[0-9a-f-]{36}\.sst")
_LOGS = {
    "checkpoint/offsets": "offsets",
    "checkpoint/commits": "commits",
    "out/_spark_metadata": "sink-log",
}
_SNAPSHOTS = ("snapshot", "zip")
TEXT = ("metadata", "offsets", "commits", "sources", "sink-log", "operator", "state/crc")
"""What the classes of files that hold lines of text begin with."""


@dataclass(frozen=True, slots=True)
class File:
    """A file's name and class, and its number where it is one of a row."""

    name: str
    role: str
    number: int | None = None

    @property
    def shown(self) -> str:
        """The name without ids, which are others in every run."""
        return plain(self.name)

    @property
    def is_text(self) -> bool:
        """Whether it holds lines of text."""
        return self.role.startswith(TEXT)


@dataclass(slots=True)
class _Counts:
    """The numbers in each log, and in each store the versions, that decide about classes."""

    newest: dict[str, int] = field(default_factory=dict)
    compact: dict[str, int] = field(default_factory=dict)
    snapshot: dict[str, int] = field(default_factory=dict)
    live: set[str] = field(default_factory=set)


def plain(name: str) -> str:
    """Return a name without ids."""
    return _UUID.sub("ID", name)


def files(tree: Tree) -> list[File]:
    """Return the files of a query that belong to Spark, each with its class."""
    counts = _count(tree)
    found = []
    for name in tree:
        last = name.rpartition("/")[2]
        if last.startswith(".") and last.endswith(".crc"):
            found.append(File(name, _sum_role(owner_of(name))))
        elif role := _role(name, counts):
            match = _LOG.fullmatch(name) or _STATE.fullmatch(name)
            groups = match.groupdict() if match else {}
            number = groups.get("number") or groups.get("version")
            found.append(File(name, role, int(number) if number else None))
    return found


def log_of(name: str) -> tuple[str, int] | None:
    """Return the log that a file is an entry of, and its number; None for anything else."""
    match = _LOG.fullmatch(name)
    is_log = match and (match["log"] in _LOGS or match["log"].startswith("checkpoint/sources/"))
    return (match["log"], int(match["number"])) if match and is_log else None


def version_of(name: str) -> int | None:
    """Return the version of a state file, a snapshot's or a change's."""
    match = _STATE.fullmatch(name.removesuffix(".crc"))
    return int(match["version"]) if match else None


def _count(tree: Tree) -> _Counts:
    counts = _Counts()
    for name in tree:
        if found := log_of(name):
            log, number = found
            counts.newest[log] = max(number, counts.newest.get(log, -1))
            if name.endswith(".compact"):
                counts.compact[log] = max(number, counts.compact.get(log, -1))
        elif (match := _STATE.fullmatch(name)) and match["suffix"] in _SNAPSHOTS:
            store, version = match["store"], int(match["version"])
            counts.snapshot[store] = max(version, counts.snapshot.get(store, -1))
    for name in tree:
        match = _STATE.fullmatch(name)
        is_zip = match and match["suffix"] == "zip"
        if match and is_zip and int(match["version"]) == counts.snapshot[match["store"]]:
            live = _referenced(tree[name].data)
            counts.live |= {f"{match['store']}/SSTs/{sst}" for sst in live}
    return counts


def _referenced(data: bytes) -> Iterator[str]:
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        manifest = archive.read("metadata")
    yield from (match.decode() for match in _SST_NAME.findall(manifest))


def _role(name: str, counts: _Counts) -> str | None:
    if found := log_of(name):
        log, number = found
        is_compact = name.endswith(".compact")
        age = _age(number, counts.newest[log])
        if is_compact:
            age = "compact" if number == counts.compact[log] else "compact-older"
        return f"{_LOGS.get(log, 'sources')}/{age}"
    if match := _STATE.fullmatch(name.removesuffix(".crc")):
        version, suffix = int(match["version"]), match["suffix"]
        base = counts.snapshot.get(match["store"], 0)
        newest = counts.newest["checkpoint/commits"] + 1
        role = f"state/{suffix}/{_state_age(suffix, version, base, newest)}"
        return f"state/crc/{role.rpartition('/')[2]}" if name.endswith(".crc") else role
    if _SST.fullmatch(name):
        return "state/sst/live" if name in counts.live else "state/sst/older"
    return _other_role(name)


def _other_role(name: str) -> str | None:
    if name == "checkpoint/metadata":
        return "metadata"
    if "/_stateSchema/" in name or name.endswith("/_metadata/schema"):
        return "schema"
    if name.startswith("checkpoint/state/") and "/_metadata/" in name:
        return "operator"
    if name.startswith("out/part-"):
        return "output"
    return None


def _age(number: int, newest: int) -> str:
    return {0: "newest", 1: "before"}.get(newest - number, "older")


def _state_age(suffix: str, version: int, base: int, newest: int) -> str:
    if suffix in _SNAPSHOTS:
        return "newest" if version == base else "older"
    if version <= base:
        return "covered"
    return "newest" if version == newest else "needed"


def _sum_role(owner: str) -> str:
    """Return the class of a hidden checksum: by the directory that its file lies in."""
    if owner.startswith("out/part-"):
        return "hidden-sum/output"
    if owner.startswith("out/"):
        return "hidden-sum/sink-log"
    if owner.endswith(".sst"):
        return "hidden-sum/sst"
    if owner.startswith("checkpoint/state/"):
        return "hidden-sum/state"
    return "hidden-sum/logs"
