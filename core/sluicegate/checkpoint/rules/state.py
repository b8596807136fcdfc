"""The state stores: whether the next start can load them, and state of later batches."""

from __future__ import annotations

import re
from collections.abc import Iterator

from sluicegate.checkpoint.file_edits import drop_sums, put, remove_with_sums
from sluicegate.checkpoint.format.log import (
    PARTITIONS,
    CommitEntry,
    OffsetEntry,
    read_offsets,
    render,
)
from sluicegate.checkpoint.format.operators import STATE, Operator, read_operator
from sluicegate.checkpoint.format.rocksdb import shared_faults
from sluicegate.checkpoint.format.state_data import StateKind
from sluicegate.checkpoint.format.state_store import Chain
from sluicegate.checkpoint.rules import layout
from sluicegate.checkpoint.rules.fixes import (
    Case,
    Fix,
    Solution,
    and_more,
    offer_rollback,
    repair_command,
    rollback_command,
)
from sluicegate.checkpoint.stores import StateStore, committed_ids, find_stores, load_chain
from sluicegate.checkpoint.view import Look, NextStart, newest_batch
from sluicegate.errors import Corrupt, NotFound, SluicegateError, UnsupportedFormat
from sluicegate.findings import VERIFY_DATA, Finding, LogPattern, Severity, Site, fixes, rule
from sluicegate.plan import Choice
from sluicegate.units import command, counted

_SCHEMA_BYTES = 1 << 20
_MOST_NAMED = 5
# No field at all, or the one of type void that a limit has.
_NO_KEY = re.compile(rb'\[\]|\[\{"name":"\w{1,99}","type":"void"')
STATE_FAMILY = "state"
_NO_FILE = r"(?:FileNotFoundException|NoSuchFileException|NoSuchKey|No such file)"
# Every query has partition 0: its absence shows nothing about the number of partitions.
_NO_FIRST_VERSION = (
    rf"(?:Error reading|{_NO_FILE}).{{1,1024}}/state/\d{{1,9}}/[1-9]\d{{0,8}}/"
    r"(?:[A-Za-z][\w-]{0,99}/)?1\.(?:delta|changelog)"
)
_ROLL_BACK = (
    "Decode all state files: this finds the last batch whose state still loads, to which the "
    "checkpoint can be rolled back."
)

REPARTITION_HALF_DONE = rule(
    "SG-REPARTITION-HALF-DONE",
    Severity.ERROR,
    "an offline repartition was not finished",
    "Spark's own repartition wrote the next offsets file with a new partition count and then "
    "failed before the state was rewritten (it cannot rewrite the HDFS provider's state). Delete "
    "that offsets file.",
    LogPattern(
        "With the job stopped, remove that one offsets file; the job then starts with its previous "
        "partitions.",
        classes=(
            "STREAMING_UNFINISHED_REPARTITION_DETECTED",
            "STATE_REPARTITION_INVALID_CHECKPOINT",
        ),
    ),
)
STATE_CORRUPT = rule(
    "SG-STATE-CORRUPT",
    Severity.ERROR,
    "a state file is damaged",
    "Its content does not decode to the end (`Stream is corrupted`, `EOFException`). Roll back to "
    "the last batch whose state loads.",
    LogPattern(
        _ROLL_BACK,
        VERIFY_DATA,
        classes=(
            "CANNOT_READ_DELTA_FILE_KEY_SIZE",
            "CANNOT_READ_SNAPSHOT_FILE_KEY_SIZE",
            "CANNOT_READ_SNAPSHOT_FILE_VALUE_SIZE",
            "CANNOT_READ_CHECKPOINT",
            "UNEXPECTED_FILE_SIZE",
            "AUTO_SNAPSHOT_REPAIR_FAILED",
            "STATE_STORE_ROW_CHECKSUM_VERIFICATION_FAILED",
        ),
        texts=(
            r"Error reading (?:delta|snapshot) file \S{1,1024} of .{1,999}(?:key|value) size",
            r"Copied \S{1,1024} to .{1,999}, expected \d{1,19} bytes, found \d{1,19} bytes",
            r"RocksDBException: (?:Corruption|block checksum mismatch|Bad table magic number)",
        ),
        family=STATE_FAMILY,
    ),
    LogPattern(
        _ROLL_BACK,
        VERIFY_DATA,
        texts=(
            r"Stream is corrupted",
            r"\b(?:LZ4|EOF|Zip|Mapping|ZstdIO)Exception",
            r"exception: Stream ended prematurely",
            r"NoSuchFileException: \S{1,1024}/metadata",
        ),
        sites=(Site.STATE, Site.SCHEMA),
        bare=True,
        family=STATE_FAMILY,
    ),
    LogPattern(
        "The log does not show why the state cannot be loaded; look for `Caused by` in the "
        "executors' logs. Verify finds missing and damaged state files without them.",
        VERIFY_DATA,
        classes=("CANNOT_LOAD_STATE_STORE",),
        texts=(r"An error occurred during loading state",),
        weak=True,
        wraps=True,
        family=STATE_FAMILY,
        also=("SG-STATE-MISSING",),
    ),
)
PARTITIONS_CHANGED = rule(
    "SG-PARTITIONS-CHANGED",
    Severity.ERROR,
    "the number of shuffle partitions does not match the state",
    "The offset log's `spark.sql.shuffle.partitions` differs from the partitions the state has. "
    "More partitions make Spark fail; fewer silently lose rows.",
    LogPattern(
        "This partition has no state at all. Either spark.sql.shuffle.partitions was raised in "
        "the offset log by hand, or the partition's directory is lost, or another state store "
        "provider wrote it: verify shows which.",
        texts=(_NO_FIRST_VERSION,),
        weak=True,
        family=STATE_FAMILY,
        also=("SG-STATE-MISSING", "SG-COMMIT-EMPTY"),
    ),
)
STATE_MISSING = rule(
    "SG-STATE-MISSING",
    Severity.ERROR,
    "a state file is missing that the next start needs",
    "The state of the last committed batch cannot be loaded (`CANNOT_LOAD_STATE_STORE`): a delta, "
    "changelog, zip or SST file of its chain is gone, and no newer snapshot covers it. Roll back "
    "to the last batch whose state loads.",
    LogPattern(
        "Restore the file from a backup if there is one. Otherwise roll back to the last batch "
        "whose state loads, which verify finds.",
        classes=(
            "CANNOT_READ_DELTA_FILE_NOT_EXISTS",
            "CANNOT_READ_MISSING_SNAPSHOT_FILE",
            "CANNOT_READ_STREAMING_STATE_FILE",
            "CANNOT_FIND_BASE_SNAPSHOT_CHECKPOINT",
            "INVALID_CHECKPOINT_LINEAGE",
            "SNAPSHOT_PARTITION_ID_NOT_FOUND",
        ),
        texts=(
            r"Error reading (?:delta|snapshot|streaming state) file .{1,2048} does not exist",
            rf"{_NO_FILE}.{{1,1024}}/state/\d{{1,9}}/\d{{1,9}}/",
        ),
        family=STATE_FAMILY,
    ),
    LogPattern(
        "If state/ was deleted, restore it from a backup. If a stateful operator was added "
        "to the query, it needs a fresh checkpoint.",
        classes=("STREAMING_STATEFUL_OPERATOR_MISSING_STATE_DIRECTORY",),
        family=STATE_FAMILY,
        also=("SG-QUERY-OPERATORS",),
    ),
)
STATE_AHEAD = rule(
    "SG-STATE-AHEAD",
    Severity.ERROR,
    "there is state of batches that the log does not have",
    "Left by a rollback that did not remove it. Results are correct until a later restart loads a "
    "stale snapshot of the abandoned timeline and counts twice. Remove the state files above the "
    "newest batch (state format 1; format 2 is not affected).",
    follows=("SG-OFFSETS-BEHIND-COMMIT",),
)
STATE_METADATA = rule(
    "SG-STATE-METADATA",
    Severity.WARNING,
    "the description of a stateful operator is damaged",
    "The metadata file of an operator cannot be read, or a schema file that it names is missing. "
    "Spark compares it with the query when it starts.",
)


def check(case: Case) -> Iterator[Finding]:
    """All checks of state that need no decoding."""
    yield from check_state(case.look)


def check_state(look: Look) -> Iterator[Finding]:
    """All checks of state that need no decoding."""
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
    version = look.last_batch + (look.next_start is NextStart.CLEAN)
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
            yield STATE_CORRUPT.at(place, e.message, repair=rollback_command(look))
            continue
        for missing in found.missing:
            detail = f"version {version} needs {missing}"
            yield STATE_MISSING.at(f"{place}/{missing}", detail, repair=rollback_command(look))
        yield from _check_chain_files(look, store, found)


def _check_absent(
    look: Look, stores: list[StateStore], commit: CommitEntry | None
) -> Iterator[Finding]:
    """Stores that their siblings, their operator's description or the commit know of."""
    there = {(s.operator, s.partition, s.name) for s in stores}
    operators = {operator for operator, _, _ in there}
    # Spark numbers operators from 0, so a gap is a lost operator.
    known = {*look.operators, *(commit.state_ids if commit else ())}
    count = max(known, default=-1) + 1
    expected = range(min(count, len(known) + _MOST_NAMED))
    absent = [number for number in expected if number not in operators][:_MOST_NAMED]
    lost = [
        STATE_MISSING.at(
            f"{look.storage.uri}/{STATE}/{operator}",
            "the operator has no state",
            repair=rollback_command(look),
        )
        for operator in absent
    ]
    more = count - len(operators) - len(absent)
    yield from and_more(lost, more, "operator", "operators")
    for operator in sorted(operators):
        names = {name for o, _, name in there if o == operator}
        names |= {store.name for store in _operator(look, operator).stores}
        partitions = {partition for o, partition, _ in there if o == operator}
        for partition in sorted(partitions):
            for name in sorted(names - {n for o, p, n in there if (o, p) == (operator, partition)}):
                place = f"{look.storage.uri}/{STATE}/{operator}/{partition}/{name}"
                detail = "the store is missing, which other partitions have"
                yield STATE_MISSING.at(place, detail, repair=rollback_command(look))


def _check_chain_files(look: Look, store: StateStore, found: Chain) -> Iterator[Finding]:
    """Files of the chain that are empty, and zips whose SST files are missing."""
    for file in found.files:
        key = f"{store.directory}/{file.name}"
        place = f"{look.storage.uri}/{key}"
        stat = look.storage.stat(key)
        if stat is not None and stat.size == 0:
            yield STATE_CORRUPT.at(place, "the file is empty", repair=rollback_command(look))
        elif file.kind is StateKind.ZIP:
            yield from _check_zip(look, store, file.name)


def _check_zip(look: Look, store: StateStore, name: str) -> Iterator[Finding]:
    place = f"{look.storage.uri}/{store.directory}/{name}"
    try:
        faults = shared_faults(look.storage, store.directory, name)
    except NotFound:
        return
    except UnsupportedFormat as e:
        yield layout.UNKNOWN_VERSION.at(place, e.message)
        return
    except Corrupt as e:
        yield STATE_CORRUPT.at(place, e.message, repair=rollback_command(look))
        return
    for fault in faults:
        yield STATE_MISSING.at(place, fault, repair=rollback_command(look))


def _check_ahead(look: Look, stores: list[StateStore]) -> Iterator[Finding]:
    if look.last_batch is None:
        return
    allowed = look.last_batch + 1
    for store in stores:
        newest = store.listing.newest_file
        if store.listing.format == 1 and newest is not None and newest > allowed:
            # Listed after the offsets, so a running job may have committed further batches.
            allowed = newest_batch(look.storage) + 1
            if newest <= allowed:
                continue
            detail = f"version {newest} exists; batch {look.last_batch} ends with {allowed}"
            place = f"{look.storage.uri}/{store.directory}"
            repair = repair_command(look)
            yield STATE_AHEAD.at(place, detail, repair=repair)


def _check_partitions(
    look: Look, operators: list[Operator], stores: list[StateStore]
) -> Iterator[Finding]:
    if look.next_start is NextStart.REPLAY and (half := _half_done_repartition(look)):
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
            detail = f"the log has {partitions}, but partition {extra[-1]} has current state"
            yield PARTITIONS_CHANGED.at(place, detail)
        absent = next((n for n, p in enumerate(sorted(present)) if n != p), len(present))
        if absent < partitions:
            detail = f"the log has {partitions}, but there is no state of partition {absent}"
            yield PARTITIONS_CHANGED.at(place, detail)


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
    repair = repair_command(look)
    return REPARTITION_HALF_DONE.at(place, detail, repair=repair)


def _check_temporary(look: Look, stores: list[StateStore]) -> Iterator[Finding]:
    left = [f"{s.directory}/{name}" for s in stores for name in s.listing.temporary]
    if left:
        detail = f"{counted(len(left), 'file')}, such as {left[0]}"
        yield layout.TEMPORARY_FILES.at(f"{look.storage.uri}/{STATE}", detail)


def _check_moved(look: Look, operators: list[Operator]) -> Iterator[Finding]:
    """Absolute paths in operator metadata that lead out of this directory ."""
    heres = look.storage.spellings()
    for operator in operators:
        paths = [path for store in operator.stores for path in store.schema_paths]
        moved = [path for path in paths if not any(f"{h}/{STATE}/" in path for h in heres)]
        if moved:
            place = f"{look.storage.uri}/{STATE}/{operator.id}/_metadata"
            repair = command("checkpoint", "relocate", look.storage.uri, "NEW_DIR")
            more = len(moved) - 1
            rest = f" and {counted(more, 'more path')}" if more else ""
            yield layout.PATHS_MOVED.at(place, f"it refers to {moved[0]}{rest}", repair=repair)


def _check_descriptions(look: Look) -> Iterator[Finding]:
    for operator in look.operators:
        place = f"{look.storage.uri}/{STATE}/{operator}/_metadata"
        try:
            found = read_operator(look.storage, operator)
        except UnsupportedFormat as e:
            yield layout.UNKNOWN_VERSION.at(place, e.message)
            continue
        except Corrupt as e:
            yield STATE_METADATA.at(place, e.message)
            continue
        for store in found.stores:
            for path in store.schema_paths:
                _, _, inside = path.rpartition(f"/{STATE}/{operator}/")
                if inside != path and look.storage.stat(f"{STATE}/{operator}/{inside}") is None:
                    yield STATE_METADATA.at(place, f"{path} is missing")


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


@fixes(STATE_MISSING, STATE_CORRUPT)
def restore_older_state(case: Case, _finding: Finding) -> Solution:
    """State that does not load: only older state helps."""
    return offer_rollback(case)


@fixes(STATE_AHEAD)
def remove_state_ahead(case: Case, _finding: Finding) -> Solution:
    """State of batches that the log does not have."""
    # A commit above the newest offsets needs its state, should its offsets be rewritten.
    newest = [n for n in (case.look.last_batch, case.look.last_commit) if n is not None]
    limit = max(newest, default=-2) + 1
    keys = [
        f"{store.directory}/{file.name}"
        for store in find_stores(case.look)
        for file in store.listing.files
        if file.version > limit
    ]
    edits = tuple(edit for key in keys for edit in remove_with_sums(case.storage, key))
    consequence = (
        f"Removes {counted(len(keys), 'file')} of an abandoned timeline, which a later restart "
        "would load."
    )
    return Fix(f"remove state above version {limit}", consequence, edits)


@fixes(REPARTITION_HALF_DONE)
def remove_repartition(case: Case, finding: Finding) -> Solution:
    """The offsets of an offline repartition that failed before the state was rewritten."""
    batch = case.batch_of(finding)
    edits = tuple(remove_with_sums(case.storage, f"offsets/{batch}"))
    consequence = "The repartition is cancelled; the query continues with its previous partitions."
    return Fix(f"remove offsets/{batch}", consequence, edits)


@fixes(PARTITIONS_CHANGED)
def restore_partitions(case: Case, _finding: Finding) -> Solution:
    """A partition count that was edited by hand: set back to that of the previous batch."""
    newest = case.look.last_batch
    before = case.offsets_of(None if newest is None else newest - 1)
    entry = case.offsets_of(newest)
    if entry and before and before.partitions and before.partitions != entry.partitions:
        conf = {**entry.conf, PARTITIONS: str(before.partitions)}
        key = f"offsets/{entry.batch}"
        text = render(entry, conf=conf)
        return Fix(
            f"set the partitions in offsets/{entry.batch} back to {before.partitions}",
            f"Batch {before.batch} and the state have that many.",
            (put(key, text), *drop_sums(case.storage, key)),
        )
    return (
        Choice(
            "",
            "restore the state of the missing partitions from a backup",
            "",
            "nothing; without it their keys are lost",
        ),
    )
