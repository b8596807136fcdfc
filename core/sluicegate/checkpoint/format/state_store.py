"""The versions of a state store that can be loaded, by the names of its files.

A store is a directory `state/<operator>/<partition>[/<store>]`. To load version V, Spark takes the
newest base (`S.snapshot` of the HDFS provider, `S.zip` of RocksDB) with S ≤ V, or nothing at all if
there is none, S = 0, and applies the changes (`.delta`, `.changelog`) of S+1 to V. A zip also needs
the files in `SSTs/` that it refers to (`rocksdb_files.shared_faults`).

With state format 2, which only RocksDB has, names carry an id, `V_<uuid>.zip`: every attempt at a
batch writes files of its own. The commit log has the valid ids, and each changelog those of the
versions before it, its lineage.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from enum import Enum

from sluicegate.checkpoint.format.state_data import LineageItem, StateKind, read_lineage
from sluicegate.errors import NotFound
from sluicegate.storage import Entry, Storage

_NAME = re.compile(
    r"(0|[1-9][0-9]{0,18})(?:\.(delta|snapshot)|(?:_([0-9A-Za-z-]{1,64}))?\.(zip|changelog))"
)
_TEMPORARY = re.compile(r"\..*\.tmp(\.crc)?")
_CRC = ".crc"
ANY = "*"
"""In place of an unknown id, in the names of missing files."""
_NO_IDS: Mapping[int, str] = {}

LineageReader = Callable[["StateFile"], Iterable[LineageItem]]


class Provider(Enum):
    """The provider that wrote the state; the value is Spark's short name of it."""

    HDFS = "hdfs"
    ROCKSDB = "rocksdb"


_CHANGES = (StateKind.DELTA, StateKind.CHANGELOG)
_PROVIDERS = {
    StateKind.DELTA: Provider.HDFS,
    StateKind.SNAPSHOT: Provider.HDFS,
    StateKind.ZIP: Provider.ROCKSDB,
    StateKind.CHANGELOG: Provider.ROCKSDB,
}


@dataclass(frozen=True, slots=True)
class StateFile:
    """One state file, by its name; `uid` is None in state format 1."""

    version: int
    kind: StateKind
    uid: str | None = None

    @property
    def name(self) -> str:
        stem = str(self.version) if self.uid is None else f"{self.version}_{self.uid}"
        return f"{stem}.{self.kind.value}"


@dataclass(frozen=True, slots=True)
class StateListing:
    """The names in a store's directory, sorted out.

    `hidden` and `visible` are the names of files that have a checksum of that kind.
    """

    files: tuple[StateFile, ...] = ()
    hidden: frozenset[str] = frozenset()
    visible: frozenset[str] = frozenset()
    temporary: tuple[str, ...] = ()
    other: tuple[str, ...] = ()

    @property
    def provider(self) -> Provider | None:
        """The provider of the newest file; None in a directory without state."""
        return _PROVIDERS[self.files[-1].kind] if self.files else None

    @property
    def mixed(self) -> bool:
        """Whether two providers have written here; neither reads the other's files."""
        return len({_PROVIDERS[file.kind] for file in self.files}) > 1

    @property
    def format(self) -> int:
        """The state format: 2 if names carry ids."""
        return 2 if any(file.uid is not None for file in self.files) else 1

    @property
    def newest_file(self) -> int | None:
        """The newest version that has any file, loadable or not."""
        return self.files[-1].version if self.files else None

    @property
    def orphan_sums(self) -> tuple[str, ...]:
        """Visible checksums whose file is gone; Spark ignores them."""
        names = {file.name for file in self.files}
        return tuple(sorted(name + _CRC for name in self.visible - names))


@dataclass(frozen=True, slots=True)
class Missing:
    """Files that a chain lacks, of the versions `first` to `last`."""

    kind: StateKind | None
    first: int
    last: int
    uid: str | None = None

    def __str__(self) -> str:
        if self.kind is None:
            return f"all files of versions {self.first} to {self.last}"
        names = [StateFile(v, self.kind, self.uid).name for v in (self.first, self.last)]
        return names[0] if self.first == self.last else " to ".join(names)


@dataclass(frozen=True, slots=True)
class Chain:
    """The files from which a version is loaded, and the missing ones; no base means from empty."""

    version: int
    base: StateFile | None
    changes: tuple[StateFile, ...]
    missing: tuple[Missing, ...]

    @property
    def loadable(self) -> bool:
        return not self.missing

    @property
    def files(self) -> tuple[StateFile, ...]:
        return self.changes if self.base is None else (self.base, *self.changes)


@dataclass(frozen=True, slots=True)
class StateVersions:
    """The versions of one store that can be loaded, ascending; version 0, empty, always can."""

    provider: Provider | None
    format: int
    loadable: tuple[int, ...]

    @property
    def newest(self) -> int | None:
        return self.loadable[-1] if self.loadable else None

    @property
    def oldest(self) -> int | None:
        return self.loadable[0] if self.loadable else None


def parse_name(name: str) -> StateFile | None:
    """The state file of that name, or None."""
    found = _NAME.fullmatch(name)
    if found is None:
        return None
    return StateFile(int(found[1]), StateKind(found[2] or found[4]), found[3])


def sort_names(names: Iterable[str]) -> StateListing:
    """Sort out the names of the files in a store's directory."""
    files, hidden, visible, temporary, other = [], set(), set(), [], []
    for name in sorted(names):
        if _TEMPORARY.fullmatch(name):
            temporary.append(name)
        elif file := parse_name(name):
            files.append(file)
        elif not name.endswith(_CRC):
            other.append(name)
        elif name.startswith("."):
            hidden.add(name[1 : -len(_CRC)])
        else:
            visible.add(name[: -len(_CRC)])
    files.sort(key=lambda f: (f.version, f.kind.value, f.uid or ""))
    return StateListing(
        tuple(files), frozenset(hidden), frozenset(visible), tuple(temporary), tuple(other)
    )


def list_state(storage: Storage, directory: str) -> StateListing:
    """The listing of a store's directory; empty if there is none."""
    try:
        entries: list[Entry] = storage.list(directory)
    except NotFound:
        return StateListing()
    return sort_names(entry.name for entry in entries if entry.kind == "file")


def state_versions(listing: StateListing, ids: Mapping[int, str] = _NO_IDS) -> StateVersions:
    """The versions whose chain is complete, by names alone; see `chain` for `ids`."""
    bases, changes = _usable(listing, ids)
    loadable: set[int] = set()
    for version in sorted({*bases, *changes}):
        if version in bases or version == 1 or version - 1 in loadable:
            loadable.add(version)
    loadable.discard(0)
    return StateVersions(listing.provider, listing.format, tuple(sorted(loadable)))


def chain(listing: StateListing, version: int, ids: Mapping[int, str] = _NO_IDS) -> Chain:
    """The files from which `version` is loaded, by names alone.

    `ids` is, for state format 2, the id of each version by the commit log. For a version
    that is not in it any file is taken, because a missing file must not be reported where only the
    ids are unknown; `chain_by_lineage` is exact.
    """
    bases, changes = _usable(listing, ids)
    start = max((v for v in bases if v <= version), default=0)
    wanted = sorted(v for v in changes if start < v <= version)
    kind = next((k for k in _CHANGES if _PROVIDERS[k] is listing.provider), None)
    unknown = ANY if listing.format == 2 else None
    missing = _gaps(wanted, start, version, kind, lambda v: ids.get(v, unknown))
    if missing and kind is StateKind.CHANGELOG and not changes:
        missing = [Missing(StateKind.ZIP, version, version, ids.get(version, unknown))]
    return Chain(version, bases.get(start), tuple(changes[v] for v in wanted), tuple(missing))


def chain_by_lineage(
    listing: StateListing, version: int, uid: str, lineage: LineageReader
) -> Chain:
    """The files from which a version of state format 2 is loaded, the way Spark finds them.

    `lineage` is asked for that of the version's changelog, unless there is a zip.
    """
    there = frozenset(listing.files)
    own = StateFile(version, StateKind.CHANGELOG, uid)
    if (base := StateFile(version, StateKind.ZIP, uid)) in there:
        return Chain(version, base, (), ())
    if own not in there:
        return Chain(version, None, (), (Missing(StateKind.CHANGELOG, version, version, uid),))
    ids = {item.version: item.uid for item in lineage(own) if 0 < item.version < version}
    ids[version] = uid
    zips = (StateFile(v, StateKind.ZIP, i) for v, i in ids.items())
    found = max((z for z in zips if z in there), key=lambda z: z.version, default=None)
    start = found.version if found else 0
    if found is None and (first := min(ids)) > 1:
        # Spark does not search beyond the lineage for a base.
        return Chain(version, None, (), (Missing(StateKind.ZIP, first, first, ids[first]),))
    changes = [StateFile(v, StateKind.CHANGELOG, ids[v]) for v in sorted(ids) if v > start]
    present = [file for file in changes if file in there]
    have = [file.version for file in present]
    gaps = _gaps(have, start, version, StateKind.CHANGELOG, lambda v: ids.get(v, ANY))
    return Chain(version, found, tuple(present), tuple(gaps))


def lineage_reader(storage: Storage, directory: str) -> LineageReader:
    """The reader for `chain_by_lineage`, for the changelogs of a store's directory."""

    def read(file: StateFile) -> Iterable[LineageItem]:
        key = f"{directory}/{file.name}"
        with storage.open(key) as stream:
            return read_lineage(stream, f"{storage.uri}/{key}")

    return read


def _usable(
    listing: StateListing, ids: Mapping[int, str]
) -> tuple[dict[int, StateFile], dict[int, StateFile]]:
    """The bases and the changes of the listing's provider, by version."""
    bases: dict[int, StateFile] = {}
    changes: dict[int, StateFile] = {}
    for file in listing.files:
        if (
            _PROVIDERS[file.kind] is listing.provider
            and ids.get(file.version, file.uid) == file.uid
        ):
            (changes if file.kind in _CHANGES else bases)[file.version] = file
    return bases, changes


def _gaps(
    have: list[int],
    start: int,
    end: int,
    kind: StateKind | None,
    uid: Callable[[int], str | None],
) -> list[Missing]:
    """The missing versions of start+1 to end; ranges, since a stray name can be a huge number."""
    found, before = [], start
    for version in [*have, end + 1]:
        first, last = before + 1, version - 1
        if first == last:
            found.append(Missing(kind, first, last, uid(first)))
        elif first < last:
            found.append(Missing(kind, first, last, None if uid(first) is None else ANY))
        before = version
    return found
