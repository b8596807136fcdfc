"""All state data: every file is decoded to its last byte, every checksum is compared."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from sluicegate.checkpoint.file_edits import drop_sums
from sluicegate.checkpoint.format.checksums import (
    check_hidden,
    check_visible,
    hidden_name,
    visible_name,
)
from sluicegate.checkpoint.format.rocksdb import read_zip, shared_faults
from sluicegate.checkpoint.format.state_data import StateKind, scan
from sluicegate.checkpoint.format.state_store import Chain, StateFile, parse_name
from sluicegate.checkpoint.rules import layout, state
from sluicegate.checkpoint.rules.fixes import Case, Fix, Solution, offer_rollback, rollback_command
from sluicegate.checkpoint.stores import StateStore, committed_ids, find_stores, load_chain
from sluicegate.checkpoint.view import Look
from sluicegate.errors import Corrupt, NotFound, SluicegateError, UnsupportedFormat
from sluicegate.findings import VERIFY_DATA, Finding, LogPattern, Severity, fixes, rule
from sluicegate.storage import Storage
from sluicegate.units import counted

CRC_STALE = rule(
    "SG-CRC-STALE",
    Severity.ERROR,
    "a file does not match the checksum beside it",
    "The visible `X.crc` of state format 2 does not match X, and Spark stops on it. Either X is "
    "damaged or the checksum is stale.",
    LogPattern(
        "If the file decodes to its end, the checksum beside it is stale and can be removed; if "
        "not, the file is damaged, and the checkpoint needs a rollback.",
        VERIFY_DATA,
        classes=("CHECKPOINT_FILE_CHECKSUM_VERIFICATION_FAILED",),
        family=state.STATE_FAMILY,
    ),
)
CRC_HIDDEN = rule(
    "SG-CRC-HIDDEN",
    Severity.WARNING,
    "a hidden Hadoop checksum does not match its file",
    "Spark does not check `.X.crc` when it reads its logs, but it does for SST files and ordinary "
    "reads. The file was edited by hand, or it is damaged.",
    LogPattern(
        "If the file was edited by hand, its hidden `.crc` is stale and can be removed; if not, "
        "the file is damaged, and the checkpoint needs a rollback.",
        VERIFY_DATA,
        texts=(r"ChecksumException: Checksum error: (?P<path>\S{1,1024})",),
        family=state.STATE_FAMILY,
    ),
)
STATE_OLD_DAMAGED = rule(
    "SG-STATE-OLD-DAMAGED",
    Severity.WARNING,
    "a state file that the next start does not need is damaged",
    "A newer snapshot covers it, or it belongs to older batches. The job starts; a rollback to "
    "those batches would fail.",
)
STATE_TAIL = rule(
    "SG-STATE-TAIL",
    Severity.WARNING,
    "a state file is damaged behind its last record",
    "All records are there and Spark loads the file, because it stops after the last record. But "
    "the end of the file was cut or overwritten, and other files may be affected.",
)


class ChainReader:
    """Decodes the files of chains, each once, to check that a version really loads."""

    def __init__(self, storage: Storage, *, check_sums: bool = True) -> None:
        self._storage = storage
        self._check_sums = check_sums
        self._known: dict[str, str | None] = {}

    def fault(self, store: StateStore, chain: Chain) -> str | None:
        """The fault of the first file of a chain that does not load; None if all do."""
        for file in chain.files:
            key = f"{store.directory}/{file.name}"
            if key not in self._known:
                self._known[key] = self._check(store, file, key)
            if self._known[key]:
                return self._known[key]
        return None

    def _check(self, store: StateStore, file: StateFile, key: str) -> str | None:
        place = f"{self._storage.uri}/{key}"
        try:
            _decode(self._storage, store, file, place)
            if file.kind is StateKind.ZIP:
                for fault in shared_faults(self._storage, store.directory, file.name):
                    return fault
            for finding in _check_sums(self._storage, store, file, place):
                if self._check_sums and finding.code == CRC_STALE.code:
                    return finding.detail
        except UnsupportedFormat:
            # A file with an unknown codec cannot be checked; Spark may be able to read it.
            return None
        except (Corrupt, NotFound) as e:
            return e.message
        return None


@dataclass(slots=True)
class Portion:
    """A portion of the files: those after a key, until the time is up; then how far it got.

    The files in `again` are read in any case.
    """

    is_time_up: Callable[[], bool]
    after: str = ""
    again: frozenset[str] = frozenset()
    read: int = 0
    was_cut: bool = False

    def wants(self, key: str) -> bool:
        """Whether a file is read now; at least one in each run, so that all are read eventually."""
        if key > self.after and self.read and self.is_time_up():
            self.was_cut = True
        if key <= self.after or self.was_cut:
            return key in self.again
        self.after, self.read = key, self.read + 1
        return True


def check_state_data(
    look: Look, on_progress: Callable[[int, int], None], portion: Portion | None = None
) -> Iterator[Finding]:
    """Decode every state file, or a portion; `on_progress(done, of)` is called for each."""
    stores = sorted(find_stores(look), key=lambda store: store.directory)
    total = sum(len(store.listing.files) for store in stores)
    done = 0
    for store in stores:
        needed = _needed_files(look, store)
        unchecked: list[str] = []
        for file in sorted(store.listing.files, key=lambda file: file.name):
            if portion and not portion.wants(f"{store.directory}/{file.name}"):
                continue
            try:
                yield from _check_file(look, store, file, is_needed=file in needed)
            except UnsupportedFormat as e:
                unchecked.append(e.message)
            done += 1
            on_progress(done, total)
        if unchecked:
            # One codec writes all files of a store, so one finding is enough.
            count = len(unchecked) - 1
            more = f" (and {counted(count, 'more file')})" if count else ""
            place = f"{look.storage.uri}/{store.directory}"
            yield layout.UNKNOWN_VERSION.at(place, unchecked[0] + more)


def _needed_files(look: Look, store: StateStore) -> set[StateFile]:
    version = state.needed_version(look)
    if version is None:
        return set()
    commit = committed_ids(look, version - 1)
    try:
        return set(load_chain(look.storage, store, version, commit).files)
    except SluicegateError:
        return set(store.listing.files)


def _check_file(
    look: Look, store: StateStore, file: StateFile, *, is_needed: bool
) -> Iterator[Finding]:
    storage = look.storage
    place = f"{storage.uri}/{store.directory}/{file.name}"
    try:
        remark = _decode(storage, store, file, place)
        if remark:
            yield STATE_TAIL.at(place, remark)
    except NotFound:
        return
    except Corrupt as e:
        found = state.STATE_CORRUPT if is_needed else STATE_OLD_DAMAGED
        repair = rollback_command(look) if is_needed else ""
        yield found.at(place, e.message, repair=repair)
    yield from _check_sums(storage, store, file, place)


def _decode(storage: Storage, store: StateStore, file: StateFile, place: str) -> str | None:
    """Decode to the last byte; a remark on damage that Spark does not notice."""
    with storage.open(f"{store.directory}/{file.name}") as stream:
        if file.kind is StateKind.ZIP:
            read_zip(stream, place, read_data=True)
            return None
        return scan(stream, file.kind, place).remark


def _check_sums(
    storage: Storage, store: StateStore, file: StateFile, place: str
) -> Iterator[Finding]:
    kinds = (
        (file.name in store.listing.visible, visible_name, check_visible, CRC_STALE),
        (file.name in store.listing.hidden, hidden_name, check_hidden, CRC_HIDDEN),
    )
    for present, name_of, check, found in kinds:
        if not present:
            continue
        sums = f"{store.directory}/{name_of(file.name)}"
        try:
            with storage.open(f"{store.directory}/{file.name}") as data, storage.open(sums) as crc:
                fault = check(data, crc, f"{storage.uri}/{sums}")
        except NotFound:
            continue
        except Corrupt as e:
            fault = e.message
        if fault:
            yield found.at(place, fault)


@fixes(CRC_STALE, CRC_HIDDEN)
def remove_checksum(case: Case, finding: Finding) -> Solution:
    """A checksum that does not match: it is stale if the file itself is intact."""
    key = case.key_of(finding)
    if _is_intact(case, key):
        directory, _, name = key.rpartition("/")
        stale = {f"{directory}/{hidden_name(name)}", f"{directory}/{visible_name(name)}"}
        stale.add(f"{directory}/{hidden_name(visible_name(name))}")
        edits = tuple(edit for edit in drop_sums(case.storage, key) if edit.key in stale)
        return Fix(f"remove the checksum of {key}", "The file itself decodes to its end.", edits)
    return offer_rollback(case)


def _is_intact(case: Case, key: str) -> bool:
    """Whether a state file decodes to its end, ignoring its checksums."""
    directory, _, name = key.rpartition("/")
    file: StateFile | None = parse_name(name)
    store = next((s for s in find_stores(case.look) if s.directory == directory), None)
    if file is None or store is None:
        return False
    lone = Chain(file.version, None, (file,), ())
    return ChainReader(case.storage, check_sums=False).fault(store, lone) is None
