"""Making checkpoints: a fresh one that starts at given offsets, and a copy in another place.

A new directory is startable only when it is complete: see `edit`.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from shlex import quote

from sluicegate import units
from sluicegate.checkpoint import edit
from sluicegate.checkpoint.edit import HOME
from sluicegate.checkpoint.file_edits import Place
from sluicegate.checkpoint.format.log import TEMPORARY, OffsetKind, SourceOffset, parse_json
from sluicegate.checkpoint.paths import has_paths, is_stale_sum, rewritten
from sluicegate.checkpoint.truncate import in_blocks
from sluicegate.checkpoint.view import METADATA, look_at
from sluicegate.errors import (
    NotFound,
    SluicegateError,
    StorageFailed,
    UnsupportedFormat,
    UsageError,
)
from sluicegate.plan import Action, Plan
from sluicegate.positions import Positions, PositionsInvalid, to_spark
from sluicegate.storage import Storage, canonical_uri, open_storage

Start = Positions | str
"""Where a fresh checkpoint starts: positions of topics, or the offset as its source writes it."""

_PIECE = 1 << 20
_SEED_READS = (
    "The query starts with batch 1 and reads from these offsets; its startingOffsets are ignored. "
    "Partitions that are not named are read from their beginning."
)
_SEED_READS_OTHER = (
    "The query starts with batch 1 and its only source reads from this offset. The offset is "
    "written as it is; whether the source accepts it is not checked."
)
_SEED_WRITES = (
    "Its state is empty. A file sink that already has a batch 1 would skip it: write to a new "
    "output."
)


def parse_offset(text: str) -> str:
    """An offset that is no position of a topic, such as a Python data source has: one JSON value.

    A file source's offset is refused: it is meaningless without the source's log.
    """
    try:
        value = parse_json(text, "the offset")
    except SluicegateError as e:
        raise PositionsInvalid(e.message) from e
    compact = json.dumps(value, separators=(",", ":"), ensure_ascii=False)
    if not isinstance(value, (dict, int)) or isinstance(value, bool) or not value:
        raise PositionsInvalid(f"{compact:.60} is not an offset that a source writes")
    if SourceOffset("0", compact).kind is OffsetKind.FILE:
        raise PositionsInvalid(
            "a file source cannot be seeded: its offset counts the entries of its own log",
            hint="move away the files to skip, or copy the checkpoint: "
            + units.command("checkpoint", "relocate"),
        )
    return compact


def plan_seed(uri: str, start: Start, query_id: str) -> Plan:
    """A fresh checkpoint whose first batch reads from the given offsets."""
    root = canonical_uri(uri)
    _refuse_occupied(root)
    actions = [Action("make", root, f"a checkpoint of query {query_id}")]
    if isinstance(start, str):
        actions.append(Action("start at", "source 0", start))
        reads = _SEED_READS_OTHER
    else:
        actions += [
            Action("start at", f"{each.topic}[{each.partition}]", "", None, each.offset)
            for each in start
        ]
        reads = _SEED_READS
    return Plan(f"Seed a checkpoint in {root}", tuple(actions), (reads, _SEED_WRITES))


def seed(uri: str, start: Start, query_id: str) -> None:
    """Make the checkpoint that `plan_seed` describes."""
    write_seed(new_directory(uri), start, query_id)


def write_seed(storage: Storage, start: Start, query_id: str) -> None:
    """The same, in an empty directory."""
    key = edit.barrier_key(0)
    again = units.command("checkpoint", "seed", storage.uri, "--offsets", "FILE")
    edit.raise_barrier(storage, key, again)
    storage.put_if_absent(METADATA, json.dumps({"id": query_id}, separators=(",", ":")).encode())
    storage.put_if_absent("commits/0", b'v1\n{"nextBatchWatermarkMs":0}')
    head = 'v1\n{"batchWatermarkMs":0,"batchTimestampMs":0,"conf":{}}\n'
    storage.put_if_absent("offsets/0", (head + _text(start)).encode())
    storage.delete(key)


def plan_relocate(source: Storage, destination: str, moves: Mapping[str, str]) -> Plan:
    """A copy of a checkpoint that can be started in its new place; the source is not changed."""
    root = canonical_uri(destination)
    _refuse_occupied(root)
    _refuse_inside(source, root)
    edit.refuse_unfinished(source)
    edit.refuse_interrupted({Place.CHECKPOINT: source})
    files = list(_files(source))
    changed = [key for key in files if has_paths(key)]
    mapped = [Action("replace", old, f"by {new}") for old, new in moves.items()]
    return Plan(
        f"Copy {source.uri} to {root}",
        (
            Action("copy", source.uri, units.counted(len(files), "file")),
            Action("rewrite paths", root, f"in {units.counted(len(changed), 'file')}"),
            *mapped,
        ),
        (
            "The original is only read. Start the query on one of the two, never on both.",
            "The query has the same id in both, so idempotent sinks continue where they were.",
        ),
    )


def relocate(source: Storage, destination: str, moves: Mapping[str, str]) -> Storage:
    """Make the copy that `plan_relocate` describes."""
    _refuse_inside(source, canonical_uri(destination))
    storage = new_directory(destination)
    write_copy(source, storage, moves)
    return storage


def write_copy(source: Storage, storage: Storage, moves: Mapping[str, str]) -> None:
    """The same, in an empty directory."""
    last = look_at(source).last_batch
    key = edit.barrier_key(-1 if last is None else last)
    again = edit.relocate_command(_root(source), _root(storage), moves)
    edit.raise_barrier(storage, key, again)
    copy_files(source, storage, moves)
    storage.delete(key)


def copy_files(source: Storage, storage: Storage, moves: Mapping[str, str]) -> None:
    """Copy every file of a checkpoint, with the paths that have changed."""
    every = {_root(source): _root(storage), **moves}
    for key in _files(source):
        has_moved = has_paths(key)
        pieces = in_blocks(rewritten(source, key, every)) if has_moved else _pieces(source, key)
        storage.put_if_absent(key, pieces)


def new_directory(uri: str) -> Storage:
    """An empty directory for a checkpoint, or a refusal if something is there."""
    root = canonical_uri(uri)
    _refuse_occupied(root)
    return open_storage(root, create=True)


def cut_over(source: str, destination: str) -> list[str]:
    """The manual steps after a copy."""
    return [
        f"Set checkpointLocation to {destination} and start the query.",
        f"Once it runs well, remove the original: rm -r {quote(source)}",
    ]


def _text(start: Start) -> str:
    if isinstance(start, str):
        return start
    return json.dumps(to_spark(start), separators=(",", ":"))


def _root(storage: Storage) -> str:
    return canonical_uri(storage.uri)


def _refuse_occupied(root: str) -> None:
    storage = open_storage(root, read_only=True)
    hint = "name a new directory"
    try:
        if not storage.list() and not storage.list(temporary=True):
            return
        if edit.barrier_text(storage):
            hint = f"making it was interrupted: rm -r {quote(root)}"
    except NotFound:
        return
    except StorageFailed:
        # A file, or a directory that cannot be read: the place is taken in any case.
        pass
    raise SluicegateError(
        f"{root} exists and is not empty; nothing was written", hint=hint, place=root
    )


def _refuse_inside(source: Storage, root: str) -> None:
    outer = tuple(f"{place}/" for place in source.spellings())
    if any(f"{place}/".startswith(outer) for place in open_storage(root).spellings()):
        raise UsageError(
            f"{root} is inside {source.uri}, which must not change",
            hint="name a directory elsewhere",
        )


def _files(storage: Storage, directory: str = "") -> Iterator[str]:
    """Every file of the checkpoint, without temporary files and our own."""
    for entry in storage.list(directory):
        key = f"{directory}/{entry.name}" if directory else entry.name
        if entry.kind == "directory":
            if key != HOME:
                yield from _files(storage, key)
        elif entry.kind != "file":
            place = f"{storage.uri}/{key}"
            raise UnsupportedFormat(
                f"{place} is a link or special file, which cannot be copied",
                hint="replace it with the file itself",
                place=place,
            )
        elif not (TEMPORARY.fullmatch(entry.name) or is_stale_sum(key)):
            yield key


def _pieces(storage: Storage, key: str) -> Iterator[bytes]:
    with storage.open(key) as stream:
        while piece := stream.read(_PIECE):
            yield piece
