"""Changes several files of a checkpoint as one, so that a kill at any moment is harmless.

Such a checkpoint has no fence of its own, so an operation brings one:

1. New contents are staged and old files get a second name, all below `_sluicegate/N/`, fsynced.
2. `_sluicegate/N.change` records what will be done.
3. The *barrier* goes up: an offsets file with the next number, whose text is not a log entry. Spark
   starts from the newest offsets file, so it refuses to start; a job that runs after all dies when
   it wants to write that batch. `_sluicegate/N.begun` records that it was up.
4. The files are put in place or removed, each in one step.
5. The barrier comes down: it is removed, or replaced by the offsets that belong there.
6. `_sluicegate/N.done` closes the operation.

As long as the barrier is up, the operation can be finished (all its new contents are there) or
reverted (all old files are). Before that nothing has happened; after it everything has. Reverting
first writes `_sluicegate/N.undone`, so that an interrupted revert is continued, not finished.

A checkpoint that is being made has a barrier, too: it is the first file in a new directory and the
last to be removed. The directory then holds an incomplete checkpoint, and nothing else is affected.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from enum import Enum
from shlex import quote
from typing import Any

from sluicegate import codec, journal
from sluicegate.checkpoint.file_edits import Edit, Linked, Place, Roots
from sluicegate.checkpoint.format.log import OFFSETS, list_log
from sluicegate.errors import Corrupt, Drifted, Locked, NotFound, SluicegateError, StorageFailed
from sluicegate.process import Who
from sluicegate.storage import Storage
from sluicegate.units import command

FORMAT = codec.Format("change", version=1, max_body=256 * 1024 * 1024)
_OPTIONAL = ("reason", "undoes", "plan_digest", "planned_by", "sink")


@dataclass(frozen=True, slots=True)
class Changed:
    """One file of an operation; `index` names its copies below `old/` and `new/`."""

    place: Place
    key: str
    index: int
    had_old: bool
    has_new: bool


@dataclass(frozen=True, slots=True)
class ChangeRecord:
    """An operation: its files and its author; `newest` is the newest batch after it."""

    number: int
    at: float
    kind: str
    by: Who
    summary: str
    barrier: str
    newest: int
    files: tuple[Changed, ...]
    reason: str | None = None
    undoes: str | None = None
    plan_digest: str | None = None
    planned_by: str | None = None
    sink: str | None = None

    @property
    def id(self) -> str:
        """How history and undo name it."""
        return f"op-{self.number}"

    @property
    def pruned_name(self) -> str:
        """The file that records that its backups were removed."""
        return f"{self.number:020d}.pruned"

    def with_files(self, files: tuple[Changed, ...]) -> ChangeRecord:
        """The record once its files are staged."""
        return replace(self, files=files)


def encode(record: ChangeRecord) -> bytes:
    """The file of a record."""
    fields: dict[str, Any] = {name: getattr(record, name) for name in _OPTIONAL}
    return codec.encode(
        FORMAT,
        fields
        | {
            "number": record.number,
            "at": record.at,
            "kind": record.kind,
            "by": record.by.fields(),
            "summary": record.summary,
            "barrier": record.barrier,
            "newest": record.newest,
            "files": [
                [file.place.value, file.key, file.index, file.had_old, file.has_new]
                for file in record.files
            ],
        },
    )


def decode(data: bytes, place: str) -> ChangeRecord:
    """The record in a file, or `Corrupt`."""
    fields = codec.decode(FORMAT, data, place)
    try:
        return _record(fields)
    except (KeyError, TypeError, ValueError) as e:
        raise Corrupt(f"{place}: not a record of an operation: {e!r}", place=place) from e


def _record(fields: Mapping[str, Any]) -> ChangeRecord:
    who = Who.from_fields(fields["by"])
    texts = ("kind", "summary", "barrier")
    numbers = ("number", "newest")
    if who is None or not all(isinstance(fields[name], str) for name in texts):
        raise TypeError("a text is missing")
    if not all(isinstance(fields[name], int) for name in numbers):
        raise TypeError("a number is missing")
    return ChangeRecord(
        at=float(fields["at"]),
        by=who,
        files=tuple(
            Changed(Place(place), str(key), int(index), bool(old), bool(new))
            for place, key, index, old, new in fields["files"]
        ),
        **{name: fields[name] for name in (*texts, *numbers, *_OPTIONAL)},
    )


SIGN = "sluicegate: "
"""The beginning of every barrier: a file among the offsets that Spark cannot read."""
_SIGN = f"{SIGN}this checkpoint is not complete"


class NotComplete(Drifted):
    """The directory holds an incomplete checkpoint, because making it was interrupted."""


def barrier_key(above: int) -> str:
    """The barrier of a checkpoint whose newest batch is `above`; -1 if it has none."""
    return f"{OFFSETS}/{above + 1}"


def raise_barrier(storage: Storage, key: str, again: str) -> None:
    """Make a new directory one that Spark refuses; `again` is the command that makes it."""
    # Spark's error shows the first line of a file it cannot read, so the line names the fix.
    text = f"{_SIGN}; remove it and make it again: {_advice(storage.uri, again)}\n"
    storage.put_if_absent(key, text.encode())


def is_barrier(storage: Storage, key: str) -> bool:
    """Whether a file is such a barrier."""
    return _read(storage, key) is not None


def barrier_text(storage: Storage) -> str | None:
    """The text of the barrier of a checkpoint that is not complete; None if it has none."""
    newest = list_log(storage, OFFSETS).last
    return None if newest is None else _read(storage, f"{OFFSETS}/{newest}")


def advice(text: str) -> str:
    """The commands that a barrier's text names."""
    return text.partition("make it again: ")[2]


def refuse_unfinished(storage: Storage) -> None:
    """Raise `NotComplete` if the checkpoint is incomplete."""
    text = barrier_text(storage)
    if text is not None:
        raise NotComplete(
            f"{storage.uri} is not complete: making it was interrupted",
            hint=f"make it again with: {advice(text)}",
            place=storage.uri,
        )


def relocate_command(source: str, destination: str, moves: Mapping[str, str]) -> str:
    """The command that copies a checkpoint."""
    mapped = (word for old, new in moves.items() for word in ("--map", f"{old}={new}"))
    return command("checkpoint", "relocate", source, destination, *mapped)


def _advice(place: str, again: str) -> str:
    return f"rm -r {quote(place)}; {again}"


def _read(storage: Storage, key: str) -> str | None:
    try:
        text = storage.get(key).decode()
    except (SluicegateError, UnicodeDecodeError):
        return None
    return text.rstrip("\n") if text.startswith(_SIGN) else None


HOME = "_sluicegate"
_PIECE = 1 << 20


class Progress(Enum):
    """How far an operation got."""

    NOT_BEGUN = journal.NOT_BEGUN
    HALF_DONE = "interrupted; Spark refuses to start"
    HALF_REVERTED = "interrupted while it was reverted; Spark refuses to start"
    DONE = journal.DONE
    REVERTED = "reverted"

    @property
    def is_interrupted(self) -> bool:
        """Whether the operation has to be finished or reverted before Spark can start."""
        return self in (Progress.HALF_DONE, Progress.HALF_REVERTED)


@dataclass(frozen=True, slots=True)
class Operation:
    """A recorded operation, how far it got, and whether its backups were removed."""

    record: ChangeRecord
    progress: Progress
    pruned: bool = False


def list_operations(roots: Roots) -> list[Operation]:
    """All operations of a checkpoint, oldest first."""
    storage = roots[Place.CHECKPOINT]
    try:
        names = {entry.name for entry in storage.list(HOME)}
    except NotFound:
        return []
    found = []
    for name in sorted(names):
        if name.endswith(".change"):
            key = f"{HOME}/{name}"
            record = decode(storage.get(key), f"{storage.uri}/{key}")
            progress = _progress(storage, record, names)
            found.append(Operation(record, progress, record.pruned_name in names))
    return found


def interrupted(roots: Roots) -> Operation | None:
    """The operation that was killed in the middle, if there is one."""
    return next((o for o in list_operations(roots) if o.progress.is_interrupted), None)


def refuse_interrupted(roots: Roots) -> None:
    """Refuse to work on a checkpoint with an interrupted operation."""
    stuck = interrupted(roots)
    if stuck is not None:
        place = roots[Place.CHECKPOINT].uri
        raise Drifted(
            f"{stuck.record.id} ({stuck.record.kind}) of {place} was interrupted",
            hint=f"finish it with: {command('checkpoint', 'repair', place)}; or revert it with: "
            f"{command('undo', place)}",
            place=place,
        )


def next_number(storage: Storage) -> int:
    """A number that no operation has, also none that died before its record was written."""
    try:
        names = [entry.name for entry in storage.list(HOME)]
    except NotFound:
        return 1
    numbers = [int(name[:20]) for name in names if name[:20].isascii() and name[:20].isdigit()]
    return max(numbers, default=0) + 1


def perform(roots: Roots, record: ChangeRecord, edits: Iterable[Edit]) -> ChangeRecord:
    """Carry out edits as an operation; gives its record. The caller holds the lock."""
    storage = roots[Place.CHECKPOINT]
    changed = tuple(_stage(roots, record.number, index, edit) for index, edit in enumerate(edits))
    record = record.with_files(changed)
    storage.put_if_absent(_key(record, "change"), encode(record))
    finish(roots, record)
    return record


def finish(roots: Roots, record: ChangeRecord) -> None:
    """Bring an operation to its end, from wherever it is."""
    storage = roots[Place.CHECKPOINT]
    _raise_barrier(storage, record)
    storage.put_if_absent(_key(record, "begun"), b"")
    last = None
    for file in record.files:
        if _is_barrier(record, file):
            last = file
        else:
            _put_in_place(roots, record, file)
    if last:
        storage.link(_staged(record, last), record.barrier, replace=True)
    else:
        storage.delete(record.barrier)
    storage.put_if_absent(_key(record, "done"), b"")


def revert(roots: Roots, record: ChangeRecord) -> None:
    """Restore everything to its state before an interrupted operation."""
    storage = roots[Place.CHECKPOINT]
    storage.put_if_absent(_key(record, "undone"), b"")
    for file in reversed(record.files):
        if not _is_barrier(record, file):
            _restore(roots, record, file)
    storage.delete(record.barrier)


def make_durable(storage: Storage, record: ChangeRecord) -> None:
    """Make the end of an operation durable, in case its process died before it could."""
    for key in (_key(record, "begun"), f"offsets/{record.newest}"):
        if storage.stat(key) is not None:
            storage.sync(key)


def inverse(record: ChangeRecord) -> list[Edit]:
    """The edits that undo a finished operation: every old file back from its second name."""
    edits = []
    for file in record.files:
        old = Linked(_kept(record, file)) if file.had_old else None
        edits.append(Edit(file.place, file.key, old))
    return edits


def differences(roots: Roots, record: ChangeRecord) -> list[str]:
    """The files that were changed since a finished operation wrote them."""
    return [
        f"{roots[file.place].uri}/{file.key}"
        for file in record.files
        if not _is_new(roots, record, file)
    ]


def _stage(roots: Roots, number: int, index: int, edit: Edit) -> Changed:
    """Give the old file a second name, and stage the new content."""
    storage = roots[edit.place]
    base = f"{HOME}/{number:020d}"
    had_old = storage.stat(edit.key) is not None
    if had_old:
        storage.link(edit.key, f"{base}/old/{index}")
    match edit.content:
        case None:
            return Changed(edit.place, edit.key, index, had_old, has_new=False)
        case bytes() as data:
            storage.put_if_absent(f"{base}/new/{index}", data)
        case Linked(key):
            storage.link(key, f"{base}/new/{index}")
        case pieces:
            storage.put_if_absent(f"{base}/new/{index}", pieces())
    return Changed(edit.place, edit.key, index, had_old, has_new=True)


def _progress(storage: Storage, record: ChangeRecord, names: set[str]) -> Progress:
    undone = f"{record.number:020d}.undone" in names
    if _barrier_is_up(storage, record):
        return Progress.HALF_REVERTED if undone else Progress.HALF_DONE
    if undone:
        return Progress.REVERTED
    begun = f"{record.number:020d}.begun" in names
    return Progress.DONE if begun else Progress.NOT_BEGUN


def _raise_barrier(storage: Storage, record: ChangeRecord) -> None:
    repair, undo = command("checkpoint", "repair", storage.uri), command("undo", storage.uri)
    # Spark's error shows the first line of a file it cannot read, so the line names the fix.
    text = (
        f"{_sign(record)} was interrupted; finish it with: {repair}; or take it back with: {undo}\n"
    )
    if storage.put_if_absent(record.barrier, text.encode()):
        return
    if is_barrier(storage, record.barrier):
        # A copy that was made for this operation: from here on it is complete, and can be finished.
        storage.replace(record.barrier, text.encode())
        return
    if not _barrier_is_up(storage, record):
        raise Locked(
            f"{storage.uri}/{record.barrier} has appeared: a job writes to this checkpoint; "
            "nothing was changed",
            hint="stop the job and wait until its JVM has ended, then plan again",
            place=f"{storage.uri}/{record.barrier}",
        )


def _barrier_is_up(storage: Storage, record: ChangeRecord) -> bool:
    try:
        return storage.get(record.barrier).startswith(_sign(record).encode())
    except NotFound:
        return False


def _sign(record: ChangeRecord) -> str:
    """The beginning of a barrier, which identifies it among log entries and other barriers."""
    return f"{SIGN}{record.id} ({record.kind})"


def _put_in_place(roots: Roots, record: ChangeRecord, file: Changed) -> None:
    storage = roots[file.place]
    if _is_new(roots, record, file):
        return
    if not _is_old(roots, record, file):
        raise _foreign(storage, file)
    if file.has_new:
        storage.link(_staged(record, file), file.key, replace=True)
    else:
        storage.delete(file.key)


def _restore(roots: Roots, record: ChangeRecord, file: Changed) -> None:
    storage = roots[file.place]
    if _is_old(roots, record, file):
        return
    if not _is_new(roots, record, file):
        raise _foreign(storage, file)
    if file.had_old:
        storage.link(_kept(record, file), file.key, replace=True)
    else:
        storage.delete(file.key)


def _is_old(roots: Roots, record: ChangeRecord, file: Changed) -> bool:
    kept = _kept(record, file) if file.had_old else None
    return _is_same(roots[file.place], file.key, kept)


def _is_new(roots: Roots, record: ChangeRecord, file: Changed) -> bool:
    staged = _staged(record, file) if file.has_new else None
    return _is_same(roots[file.place], file.key, staged)


def _is_same(storage: Storage, key: str, other: str | None) -> bool:
    """Whether two keys name the same file or equal content; None means no file."""
    found = storage.stat(key)
    if other is None or found is None:
        return found is None and other is None
    kept = storage.stat(other)
    if kept is None:
        raise StorageFailed(
            f"{storage.uri}/{other} is missing, but needed to finish or undo an operation",
            hint="restore it from a backup of the checkpoint",
            place=f"{storage.uri}/{other}",
        )
    if found.identity and found.identity == kept.identity:
        return True
    # A copy of the checkpoint has files of its own.
    return found.size == kept.size and _equal(storage, key, other)


def _equal(storage: Storage, key: str, other: str) -> bool:
    with storage.open(key) as left, storage.open(other) as right:
        while piece := left.read(_PIECE):
            if piece != right.read(len(piece)):
                return False
        return not right.read(1)


def _foreign(storage: Storage, file: Changed) -> Drifted:
    place = f"{storage.uri}/{file.key}"
    return Drifted(
        f"{place} has neither the content from before the operation nor that from after it",
        hint="another process changed it; compare it with the copies below _sluicegate/",
        place=place,
    )


def _is_barrier(record: ChangeRecord, file: Changed) -> bool:
    return file.place is Place.CHECKPOINT and file.key == record.barrier


def _key(record: ChangeRecord, suffix: str) -> str:
    return f"{HOME}/{record.number:020d}.{suffix}"


def _staged(record: ChangeRecord, file: Changed) -> str:
    return f"{HOME}/{record.number:020d}/new/{file.index}"


def _kept(record: ChangeRecord, file: Changed) -> str:
    return f"{HOME}/{record.number:020d}/old/{file.index}"
