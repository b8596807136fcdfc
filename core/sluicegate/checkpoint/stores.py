"""The state stores of a checkpoint: their places, their files, and the versions that load."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from sluicegate.checkpoint.format.log import CommitEntry, read_commit
from sluicegate.checkpoint.format.operators import STATE
from sluicegate.checkpoint.format.state_store import (
    Chain,
    StateListing,
    StateVersions,
    chain,
    chain_by_lineage,
    lineage_reader,
    list_state,
    state_versions,
)
from sluicegate.checkpoint.view import Look
from sluicegate.errors import NotFound, SluicegateError
from sluicegate.storage import Storage

DEFAULT_STORE = "default"


@dataclass(frozen=True, slots=True)
class StateStore:
    """One store of one partition of one operator, with the names of its files.

    `index` is its place among the partition's stores by name, which is the order of the ids that
    the commit log has for them.
    """

    operator: int
    partition: int
    name: str
    index: int
    directory: str
    listing: StateListing

    @property
    def versions(self) -> StateVersions:
        """The versions that can be loaded, by names alone."""
        return state_versions(self.listing)


def find_stores(look: Look) -> list[StateStore]:
    """Every store of a checkpoint, by operator, partition and name."""
    return [
        StateStore(operator, partition, name, index, directory, list_state(look.storage, directory))
        for operator in look.operators
        for partition in _partitions(look.storage, operator)
        for index, (name, directory) in enumerate(_stores(look.storage, operator, partition))
    ]


def store_bytes(storage: Storage, store: StateStore) -> int:
    """The size of all files of a store, SST files included."""
    total = 0
    for directory in (store.directory, f"{store.directory}/SSTs"):
        try:
            entries = storage.list(directory, sizes=True)
        except NotFound:
            continue
        total += sum(entry.size for entry in entries if entry.kind == "file")
    return total


def committed_ids(look: Look, batch: int) -> CommitEntry | None:
    """The commit of a batch, if it is there and readable; it names the state of format 2."""
    try:
        return read_commit(look.storage, batch)
    except SluicegateError:
        return None


def load_chain(
    storage: Storage, store: StateStore, version: int, commit: CommitEntry | None
) -> Chain:
    """The files from which a version is loaded, following the ids where there are any."""
    if store.listing.format == 1:
        return chain(store.listing, version)
    uid = _id_of(store, commit)
    if uid is None:
        return chain(store.listing, version)
    lineage = lineage_reader(storage, store.directory)
    return chain_by_lineage(store.listing, version, uid, lineage)


def _id_of(store: StateStore, commit: CommitEntry | None) -> str | None:
    """The id that the commit names for a store; None if it names none."""
    partitions = commit.state_ids.get(store.operator, ()) if commit else ()
    ids = partitions[store.partition] if store.partition < len(partitions) else ()
    return ids[store.index] if store.index < len(ids) else None


def _partitions(storage: Storage, operator: int) -> list[int]:
    try:
        entries = storage.list(f"{STATE}/{operator}")
    except NotFound:
        return []
    return sorted(int(e.name) for e in entries if e.kind == "directory" and _is_number(e.name))


def _stores(storage: Storage, operator: int, partition: int) -> Iterator[tuple[str, str]]:
    """The default store lies in the partition's directory itself, others in one of their own."""
    base = f"{STATE}/{operator}/{partition}"
    try:
        entries = storage.list(base)
    except NotFound:
        return
    named = [
        entry.name
        for entry in entries
        if entry.kind == "directory" and entry.name != "SSTs" and not entry.name.startswith("_")
    ]
    if not named or any(e.kind == "file" and not e.name.startswith(".") for e in entries):
        yield DEFAULT_STORE, base
    for name in named:
        yield name, f"{base}/{name}"


def _is_number(name: str) -> bool:
    return name.isascii() and name.isdigit() and len(name) < 10
