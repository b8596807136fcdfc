"""Checks of the state stores: can the next start load them, and is nothing of the future there?"""

from __future__ import annotations

import re
from collections.abc import Iterator

from sluicegate.checkpoint import rules
from sluicegate.checkpoint.format.commit_log import CommitEntry
from sluicegate.checkpoint.format.offset_log import OffsetEntry, read_offsets
from sluicegate.checkpoint.format.operators import STATE, Operator, read_operator
from sluicegate.checkpoint.format.rocksdb import shared_faults
from sluicegate.checkpoint.format.state_data import StateKind
from sluicegate.checkpoint.format.state_store import Chain
from sluicegate.checkpoint.stores import StateStore, committed_ids, find_stores, load_chain
from sluicegate.checkpoint.view import Look, Standing, newest_batch
from sluicegate.errors import Corrupt, NotFound, SluicegateError, UnsupportedFormat
from sluicegate.findings import Finding

_SCHEMA_BYTES = 1 << 20
_MOST_NAMED = 5
# No field at all, or the one of type void that a limit has.
_NO_KEY = re.compile(rb'\[\]|\[\{"name":"\w{1,99}","type":"void"')


def check_state(look: Look) -> Iterator[Finding]:
    """Everything about state that can be told without decoding it."""
    stores = find_stores(look)
    operators = [_operator(look, operator) for operator in look.operators]
    yield from _check_moved(look, operators)
    yield from _check_ahead(look, stores)
    yield from check_loadable(look, stores)
    yield from _check_partitions(look, operators, stores)
    yield from _check_temporary(look, stores)
    yield from _check_descriptions(look)


def needed_version(look: Look) -> int | None:
    """The state version that the next start loads; None if it loads nothing.

    A finished batch N leaves version N + 1. A batch that is run again starts from what the one
    before it left, whether or not that one was committed.
    """
    if look.last_batch is None:
        return None
    version = look.last_batch + (look.standing is Standing.CLEAN)
    return version or None


def needed_partitions(look: Look) -> int | None:
    """The number of shuffle partitions of the batch whose state the next start loads."""
    version = needed_version(look)
    entry = _offsets(look, None if version is None else version - 1)
    return entry.partitions if entry else None


def check_loadable(look: Look, stores: list[StateStore]) -> Iterator[Finding]:
    """The version of the last commit must have a complete chain of files in every store."""
    version = needed_version(look)
    if version is None:
        return
    commit = committed_ids(look, version - 1)
    partitions = needed_partitions(look)
    yield from _check_absent(look, stores, commit)
    for store in stores:
        if partitions is not None and store.partition >= partitions:
            continue
        place = f"{look.storage.uri}/{store.directory}"
        try:
            found = load_chain(look.storage, store, version, commit)
        except SluicegateError as e:
            yield rules.STATE_CORRUPT.at(place, e.message, repair=_rollback(look))
            continue
        for missing in found.missing:
            detail = f"version {version} needs {missing}"
            yield rules.STATE_MISSING.at(f"{place}/{missing}", detail, repair=_rollback(look))
        yield from _check_chain_files(look, store, found)


def _check_absent(
    look: Look, stores: list[StateStore], commit: CommitEntry | None
) -> Iterator[Finding]:
    """Stores that their siblings, their operator's description or the commit know of."""
    there = {(s.operator, s.partition, s.name) for s in stores}
    operators = {operator for operator, _, _ in there}
    # Spark numbers operators from 0, so a number that is left out was there.
    known = {*look.operators, *(commit.state_ids if commit else ())}
    expected = range(min(max(known, default=-1) + 1, len(known) + _MOST_NAMED))
    for operator in [number for number in expected if number not in operators][:_MOST_NAMED]:
        place = f"{look.storage.uri}/{STATE}/{operator}"
        yield rules.STATE_MISSING.at(place, "the operator has no state", repair=_rollback(look))
    for operator in sorted(operators):
        names = {name for o, _, name in there if o == operator}
        names |= {store.name for store in _operator(look, operator).stores}
        partitions = {partition for o, partition, _ in there if o == operator}
        for partition in sorted(partitions):
            for name in sorted(names - {n for o, p, n in there if (o, p) == (operator, partition)}):
                place = f"{look.storage.uri}/{STATE}/{operator}/{partition}/{name}"
                detail = "the store is missing, which other partitions have"
                yield rules.STATE_MISSING.at(place, detail, repair=_rollback(look))


def _check_chain_files(look: Look, store: StateStore, found: Chain) -> Iterator[Finding]:
    """Files of the chain that are empty, and zips whose SST files are not there."""
    for file in found.files:
        key = f"{store.directory}/{file.name}"
        place = f"{look.storage.uri}/{key}"
        stat = look.storage.stat(key)
        if stat is not None and stat.size == 0:
            yield rules.STATE_CORRUPT.at(place, "the file is empty", repair=_rollback(look))
        elif file.kind is StateKind.ZIP:
            yield from _check_zip(look, store, file.name)


def _check_zip(look: Look, store: StateStore, name: str) -> Iterator[Finding]:
    place = f"{look.storage.uri}/{store.directory}/{name}"
    try:
        faults = shared_faults(look.storage, store.directory, name)
    except NotFound:
        return
    except UnsupportedFormat as e:
        yield rules.UNKNOWN_VERSION.at(place, e.message)
        return
    except Corrupt as e:
        yield rules.STATE_CORRUPT.at(place, e.message, repair=_rollback(look))
        return
    for fault in faults:
        yield rules.STATE_MISSING.at(place, fault, repair=_rollback(look))


def _check_ahead(look: Look, stores: list[StateStore]) -> Iterator[Finding]:
    if look.last_batch is None:
        return
    allowed = look.last_batch + 1
    for store in stores:
        newest = store.listing.newest_file
        if store.listing.format == 1 and newest is not None and newest > allowed:
            # Listed after the offsets, so a running job may just have gone on.
            allowed = newest_batch(look.storage) + 1
            if newest <= allowed:
                continue
            detail = f"version {newest} is there; batch {look.last_batch} ends with {allowed}"
            place = f"{look.storage.uri}/{store.directory}"
            repair = f"sluicegate checkpoint repair {look.storage.uri}"
            yield rules.STATE_AHEAD.at(place, detail, repair=repair)


def _check_partitions(
    look: Look, operators: list[Operator], stores: list[StateStore]
) -> Iterator[Finding]:
    if look.standing is Standing.REPLAY and (half := _half_done_repartition(look)):
        yield half
        return
    partitions, version = needed_partitions(look), needed_version(look)
    if partitions is None or version is None:
        return
    for operator in operators:
        own = [store for store in stores if store.operator == operator.id]
        present = {store.partition for store in own}
        current = {s.partition for s in own if (s.listing.newest_file or 0) >= version}
        place = f"{look.storage.uri}/{STATE}/{operator.id}"
        if present == {0} and _is_keyless(look, operator.id):
            continue
        if extra := sorted(p for p in current if p >= partitions):
            detail = f"the log says {partitions}, but partition {extra[-1]} has current state"
            yield rules.PARTITIONS_CHANGED.at(place, detail)
        absent = next((n for n, p in enumerate(sorted(present)) if n != p), len(present))
        if absent < partitions:
            detail = f"the log says {partitions}, but there is no state of partition {absent}"
            yield rules.PARTITIONS_CHANGED.at(place, detail)


def _is_keyless(look: Look, operator: int) -> bool:
    """Whether an operator has no key, like a limit or a total: it then runs in one partition only.

    Its metadata may claim more. The schema file begins with the key's schema.
    """
    try:
        raw = look.storage.get(f"{STATE}/{operator}/0/_metadata/schema", limit=_SCHEMA_BYTES)
    except SluicegateError:
        return False
    return _NO_KEY.match(raw.partition(b'"fields":')[2]) is not None


def _half_done_repartition(look: Look) -> Finding | None:
    newest, before = _offsets(look, look.last_batch), _offsets(look, look.last_commit)
    if not newest or not before or not look.operators:
        return None
    if None in (newest.partitions, before.partitions) or newest.partitions == before.partitions:
        return None
    detail = f"from {before.partitions} to {newest.partitions} partitions, in an unfinished batch"
    place = f"{look.storage.uri}/offsets/{newest.batch}"
    repair = f"sluicegate checkpoint repair {look.storage.uri}"
    return rules.REPARTITION_HALF_DONE.at(place, detail, repair=repair)


def _check_temporary(look: Look, stores: list[StateStore]) -> Iterator[Finding]:
    left = [f"{s.directory}/{name}" for s in stores for name in s.listing.temporary]
    if left:
        detail = f"{len(left)} files, such as {left[0]}"
        yield rules.TEMPORARY_FILES.at(f"{look.storage.uri}/{STATE}", detail)


def _check_moved(look: Look, operators: list[Operator]) -> Iterator[Finding]:
    """Absolute paths in operator metadata that lead out of this directory (trap D)."""
    heres = look.storage.spellings()
    for operator in operators:
        paths = [path for store in operator.stores for path in store.schema_paths]
        moved = [path for path in paths if not any(f"{h}/{STATE}/" in path for h in heres)]
        if moved:
            place = f"{look.storage.uri}/{STATE}/{operator.id}/_metadata"
            repair = f"sluicegate checkpoint relocate {look.storage.uri} NEW_DIR"
            yield rules.PATHS_MOVED.at(place, f"it refers to {moved[0]}", repair=repair)


def _check_descriptions(look: Look) -> Iterator[Finding]:
    for operator in look.operators:
        place = f"{look.storage.uri}/{STATE}/{operator}/_metadata"
        try:
            found = read_operator(look.storage, operator)
        except UnsupportedFormat as e:
            yield rules.UNKNOWN_VERSION.at(place, e.message)
            continue
        except Corrupt as e:
            yield rules.STATE_METADATA.at(place, e.message)
            continue
        for store in found.stores:
            for path in store.schema_paths:
                _, _, inside = path.rpartition(f"/{STATE}/{operator}/")
                if inside != path and look.storage.stat(f"{STATE}/{operator}/{inside}") is None:
                    yield rules.STATE_METADATA.at(place, f"{path} is not there")


def _operator(look: Look, operator: int) -> Operator:
    try:
        return read_operator(look.storage, operator)
    except SluicegateError:
        return Operator(operator, None, ())


def _offsets(look: Look, batch: int | None) -> OffsetEntry | None:
    if batch is None:
        return None
    try:
        return read_offsets(look.storage, batch)
    except SluicegateError:
        return None


def _rollback(look: Look) -> str:
    return f"sluicegate checkpoint rollback {look.storage.uri} --to BATCH"
